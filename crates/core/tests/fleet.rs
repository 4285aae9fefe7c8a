//! Many daemons on one database, simulated: crashes, partitions, lost answers, paused and cloned machines, clocks that
//! leap, replicas that are promoted and backups that are restored.
//!
//! `ABIDE_SEEDS=100000 cargo test -p abide-core --test fleet random` runs more simulations, `ABIDE_SEED=17 cargo test
//! -p abide-core --test fleet random -- --nocapture` runs one and prints its events.

#[path = "fleet/checks.rs"]
mod checks;
#[path = "fleet/daemon.rs"]
mod daemon;
#[path = "fleet/database.rs"]
mod database;
#[path = "fleet/engine.rs"]
mod engine;
#[path = "fleet/faults.rs"]
mod faults;
#[path = "fleet/links.rs"]
mod links;
#[path = "fleet/pure.rs"]
mod pure;
#[path = "fleet/random.rs"]
mod random;
#[path = "sim/random.rs"]
mod random_numbers;
#[path = "fleet/small.rs"]
mod small;
#[path = "fleet/world.rs"]
mod world;

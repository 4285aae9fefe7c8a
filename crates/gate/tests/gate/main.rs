//! The gate with real namespaces, real programs inside them and an outside whose answers the test counts and changes.
//! The attacks on the whole product are in `abide/tests/sandbox`. The number in a test's name is that of the attack.

mod connections;
mod names;
mod ports;
mod sandbox;
mod world;

use abide_gate::process::Config;

/// A configuration that allows these patterns.
fn allow(patterns: &[&str]) -> Config {
    Config {
        allow: patterns
            .iter()
            .map(|pattern| (*pattern).to_owned())
            .collect(),
        ..Config::default()
    }
}

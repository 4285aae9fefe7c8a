//! Attacks on the sandbox by number, each with a similar action that must succeed. Every test runs as the user of the
//! tests, and also as an ordinary user if that is root.

mod agents;
mod bubblewrap;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod conditions;
mod degraded;
mod harness;
mod hostile;
mod kernel;
mod layers;
mod modes;
mod network;
mod outside;
mod own_files;
mod processes;
mod protected;
mod questions;
mod real_work;
mod secrets;
mod sockets;
mod terminal;
mod told;
mod writing;

//! The gate with real namespaces and real programs inside them. The number in a test's name is that of the attack.

mod asking;
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

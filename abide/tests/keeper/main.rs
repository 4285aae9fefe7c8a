//! Real children under a real keeper, without a daemon.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start the nursery by themselves and measure real time"
)]

mod attach;
mod ending;
mod facts;
mod harness;
mod limits;
mod log;
mod measure;
mod namespace;
mod start;
mod talk;

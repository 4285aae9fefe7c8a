//! Tests of the keeper with real child processes, without a daemon.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start the fork server by themselves, and give up on it after a while"
)]

mod attach;
mod ending;
mod facts;
mod harness;
mod input_output;
mod limits;
mod log;
mod namespace;
mod reuse;
mod start;

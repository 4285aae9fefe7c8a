//! Real children under a real keeper, without a daemon.
#![expect(
    clippy::disallowed_methods,
    reason = "the tests start the program under test, and give up on it after a while"
)]

mod attach;
mod ending;
mod facts;
mod harness;
mod log;
mod measure;
mod start;
mod talk;

//! Tests of the command line as people and scripts use it: the real program, a real daemon, real child processes, and
//! a pseudo-terminal where the program needs one.

mod answer;
mod attach;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod configuration;
mod daemon;
mod doctor;
mod follow;
mod gate;
mod harness;
mod help;
mod http;
mod ids;
mod reference;
mod run;
mod schema;
mod session;
mod setup;
#[path = "../common/shape.rs"]
mod shape;
mod terminal;
mod terminal_output;
mod top;
mod waiting;

//! abide runs commands, keeps terminal sessions and waits, on behalf of AI agents.
//!
//! A Rust program can use abide without MCP: [`Abide`] is an agent's interface to the daemon, and [`EmbeddedEngine`] is an
//! engine inside the program itself. Both take the same calls.
//!
//! ```no_run
//! # async fn example() -> Result<(), abide::Error> {
//! use std::time::Duration;
//!
//! let abide = abide::Abide::connect()?;
//! let tests = abide.shell("cargo test").timeout(Duration::from_secs(600)).await?;
//! match tests.status() {
//!     Some("SUCCESS") => println!("all well"),
//!     _ => println!("{}", tests.text),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The modules below are the implementation of abide; a program needs only the types that are re-exported here.

#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod connect;
mod daemon_process;
pub mod http;
pub mod keys;
pub mod library;

pub mod lock;
pub mod mcp;
mod reader_cursors;
pub mod serve;
pub mod signals;
mod single_program;
mod socket_activation;
mod strict_json;
pub mod tools;
pub mod unread_lines;
pub mod xml;

pub use library::{
    Abide, Call, EmbeddedEngine, Error, Person, Question, Questions, Session, ToolResult,
};

/// Runs the keeper and does not return, if this process was started as one. A program that contains an engine and
/// serves as the executable of its own keepers calls this first in `main`.
pub fn run_keeper_if_requested() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "keeper")
    {
        abide_session::main();
    }
}

//! abide runs commands, keeps terminal sessions and waits, on behalf of AI agents.
//!
//! A program that wants this needs no MCP: [`Abide`] is an agent's way to the daemon, and [`Held`] an
//! engine within the program itself. Both take the same calls.
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
//! The modules below are how abide itself is built; what a program needs is here.

mod allocator;
pub mod cli;
pub mod client;
pub mod connect;
mod daemon_process;
pub mod http;
pub mod keys;
pub mod library;
pub mod lines;
pub mod lock;
pub mod mcp;
mod program;
mod readers;
pub mod serve;
pub mod signals;
mod socket_activation;
mod strict;
pub mod tools;
pub mod xml;

pub use library::{Abide, Call, Error, Held, Person, Question, Questions, Session, ToolResult};

/// For a program that holds an engine and is the program of its own keepers: where it was started as a
/// keeper, it is one from here on and this does not return. To be called first in `main`.
pub fn keep_if_asked() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == "keeper")
    {
        abide_session::main();
    }
}

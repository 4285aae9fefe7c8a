//! abide runs commands, keeps terminal sessions and waits, on behalf of AI agents.
//!
//! A Rust program can use abide without MCP: [`Abide`] is an agent's interface to the daemon, and [`EmbeddedEngine`] is an
//! engine inside the program itself. Both take the same calls.
//!
//! ```no_run
//! # async fn example() -> Result<(), abide::Error> {
//! let abide = abide::Abide::connect()?;
//! let tests = abide.shell("cargo test").with("timeout", 600).await?;
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
mod fleet;
pub mod http;
pub mod keys;
pub mod library;
mod listener;
pub mod lock;
pub mod mcp;
mod reader_cursors;
pub mod serve;
pub mod signals;
mod strict_json;
pub mod tools;
pub mod unread_lines;
pub mod xml;

use std::path::Path;

use abide_engine::sandbox_probe;

pub use library::{
    Abide, Call, EmbeddedEngine, Error, Person, Question, Questions, Session, ToolResult,
};

/// Runs the keeper, the network gate or the probe of sandboxes and does not return, if this process was started as one: the roles of a child. A program that contains
/// an engine and serves as the executable of its own keepers calls this first in `main`.
pub fn run_child_role_if_requested() {
    match std::env::args_os().nth(1) {
        Some(word) if word == "keeper" => abide_session::main(),
        Some(word) if word == "gate" => std::process::exit(gate()),
        Some(word) if word == sandbox_probe::ROLE => {
            let folder = std::env::args_os().nth(2).unwrap_or_default();
            std::process::exit(sandbox_probe::main(Path::new(&folder)))
        }
        _ => {}
    }
}

/// Serves the network of one sandbox, whose sockets come over standard input.
fn gate() -> i32 {
    let channel = rustix::stdio::stdin().try_clone_to_owned();
    let served = match channel {
        Ok(channel) => abide_gate::process::run(channel).map_err(|fault| fault.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match served {
        Ok(()) => 0,
        Err(sentence) => {
            eprintln!("{sentence}. `abide gate` is started by abide itself.");
            i32::from(cli::error::EXIT_ABIDE_ERROR)
        }
    }
}

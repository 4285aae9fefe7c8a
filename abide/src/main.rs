//! One program: the keeper beside every command, the front for MCP clients, and the command line.
//! The first two are started often and must be small, so they are told apart before anything else.

use std::process::ExitCode;

fn main() -> ExitCode {
    abide::keep_if_asked();
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some("mcp") => match abide::cli::mcp_agent(words) {
            Some(agent) => abide::cli::front(&agent),
            None => abide::cli::main(),
        },
        _ => abide::cli::main(),
    }
}

//! The one executable: keeper of a command, front for MCP clients, and command line. Keepers and fronts are
//! started often and must stay small, so they are recognised before anything else.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    abide::run_keeper_if_requested();
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some("mcp") => match abide::cli::mcp_agent(words) {
            Some(agent) => abide::cli::front(&agent),
            None => abide::cli::main(),
        },
        _ => abide::cli::main(),
    }
}

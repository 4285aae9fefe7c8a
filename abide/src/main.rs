//! The one executable: keeper of a command, front for MCP clients, and command line. Keepers and fronts are
//! started often and must stay small, so they are recognised before anything else.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    abide::run_child_role_if_requested();
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let command = words.next();
    // In npm and Python packages the program is named `abide-mcp`, and without arguments it is the MCP server.
    let command = match Path::new(&program).file_name() == Some(OsStr::new("abide-mcp")) {
        true => command.or_else(|| Some("mcp".into())),
        false => command,
    };
    match command.as_deref().and_then(|word| word.to_str()) {
        Some("mcp") => match abide::cli::mcp_agent(words) {
            Some(agent) => abide::cli::front(&agent),
            None => abide::cli::main(),
        },
        _ => abide::cli::main(),
    }
}

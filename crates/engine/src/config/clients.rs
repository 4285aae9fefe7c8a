//! Configuration files of MCP clients, where their documentation and variables say.

use std::env;
use std::path::{Path, PathBuf};

use super::home;

/// Absolute directory that a variable names.
fn folder_from(variable: &str) -> Option<PathBuf> {
    let folder = env::var_os(variable).filter(|folder| !folder.is_empty())?;
    std::path::absolute(Path::new(&folder)).ok()
}

/// File of Claude Code for all projects of the user.
pub fn claude_code() -> PathBuf {
    folder_from("CLAUDE_CONFIG_DIR")
        .unwrap_or_else(home)
        .join(".claude.json")
}

/// File of Codex.
pub fn codex() -> PathBuf {
    folder_from("CODEX_HOME")
        .unwrap_or_else(|| home().join(".codex"))
        .join("config.toml")
}

/// File of servers of Cursor.
pub fn cursor() -> PathBuf {
    home().join(".cursor/mcp.json")
}

/// File of servers of Visual Studio Code, in the default profile.
pub fn vscode() -> PathBuf {
    folder_from("VSCODE_PORTABLE")
        .map(|folder| folder.join("user-data"))
        .unwrap_or_else(|| {
            let config = folder_from("XDG_CONFIG_HOME");
            config
                .unwrap_or_else(|| home().join(".config"))
                .join("Code")
        })
        .join("User/mcp.json")
}

/// Settings of the Gemini command line.
pub fn gemini() -> PathBuf {
    folder_from("GEMINI_CLI_HOME")
        .unwrap_or_else(home)
        .join(".gemini/settings.json")
}

/// Variables that say where abide keeps its files.
pub const OWN_VARIABLES: [&str; 3] = ["ABIDE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"];

/// Those variables that are set. Not every client passes them to the servers it starts, and a server without them
/// would use another installation.
pub fn own_variables() -> Vec<(String, String)> {
    OWN_VARIABLES
        .into_iter()
        .filter_map(|name| {
            let folder = folder_from(name)?.into_os_string().into_string().ok()?;
            Some((name.to_owned(), folder))
        })
        // `ABIDE_DIR` alone decides if it is set.
        .scan(false, |complete, pair| {
            let given = (!*complete).then_some(pair)?;
            *complete = given.0 == "ABIDE_DIR";
            Some(given)
        })
        .collect()
}

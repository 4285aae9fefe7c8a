//! Where MCP clients keep their configuration, as their own documentation and variables say.

use std::env;
use std::path::{Path, PathBuf};

use super::home;

fn folder_from(variable: &str) -> Option<PathBuf> {
    let folder = env::var_os(variable).filter(|folder| !folder.is_empty())?;
    std::path::absolute(Path::new(&folder)).ok()
}

/// Claude Code's file for all projects of the user.
pub fn claude_code() -> PathBuf {
    folder_from("CLAUDE_CONFIG_DIR")
        .unwrap_or_else(home)
        .join(".claude.json")
}

/// Codex's file.
pub fn codex() -> PathBuf {
    folder_from("CODEX_HOME")
        .unwrap_or_else(|| home().join(".codex"))
        .join("config.toml")
}

/// Cursor's file of servers.
pub fn cursor() -> PathBuf {
    home().join(".cursor/mcp.json")
}

/// Visual Studio Code's file of servers, of the default profile.
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

/// The Gemini command line's settings.
pub fn gemini() -> PathBuf {
    folder_from("GEMINI_CLI_HOME")
        .unwrap_or_else(home)
        .join(".gemini/settings.json")
}

/// The variables that say where abide keeps its things.
pub const OWN_VARIABLES: [&str; 3] = ["ABIDE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME"];

/// Those of them that are set here. Not every client hands them on to the servers it starts, and a
/// server without them would serve another abide.
pub fn own_variables() -> Vec<(String, String)> {
    OWN_VARIABLES
        .into_iter()
        .filter_map(|name| {
            let folder = folder_from(name)?.into_os_string().into_string().ok()?;
            Some((name.to_owned(), folder))
        })
        // The first is all that counts where it is there.
        .scan(false, |complete, pair| {
            let given = (!*complete).then_some(pair)?;
            *complete = given.0 == "ABIDE_DIR";
            Some(given)
        })
        .collect()
}

//! Command with which a client starts abide.

use std::ffi::OsStr;
use std::path::Path;

use super::clients::NAME;

/// Package on npm and PyPI.
const PACKAGE: &str = "abide-mcp";

/// Programs that fetch a package into a cache and run it: a part of the path of their cache, the program, its arguments.
const PACKAGE_RUNNERS: [(&str, &str, &[&str]); 2] = [
    ("/_npx/", "npx", &["-y", PACKAGE]),
    ("/archive-v0/", "uvx", &[PACKAGE]),
];

/// The words of a client's entry that come before the arguments of abide.
#[derive(Debug, PartialEq)]
pub struct Launcher {
    /// Program to start.
    pub command: String,
    /// Arguments of the program before those of abide.
    pub args: Vec<String>,
}

/// Arguments with which a program that fetches packages runs abide; `None`: the program is another one.
pub fn package_runner_args(command: &str) -> Option<&'static [&'static str]> {
    let mut runners = PACKAGE_RUNNERS.iter();
    runners.find_map(|(_, name, args)| (command == *name).then_some(*args))
}

impl Launcher {
    /// Command that starts the program at this path. A copy in the cache of a package runner can be removed at any time, so a
    /// client gets the command that fetches it.
    pub fn of(program: &str) -> Self {
        let runner = PACKAGE_RUNNERS
            .iter()
            .find(|(cache, ..)| program.contains(cache));
        match runner {
            Some((_, command, args)) => Launcher {
                command: (*command).to_owned(),
                args: args.iter().map(|word| (*word).to_owned()).collect(),
            },
            None => Launcher {
                command: program.to_owned(),
                args: Vec::new(),
            },
        }
    }

    /// Words that a person types to run this program.
    pub fn for_people() -> String {
        let program = std::env::current_exe().unwrap_or_default();
        let launcher = Launcher::of(&program.to_string_lossy());
        match launcher.is_package_runner() {
            true => format!("{} {}", launcher.command, launcher.args.join(" ")),
            false => NAME.to_owned(),
        }
    }

    /// True if a package runner starts abide.
    pub fn is_package_runner(&self) -> bool {
        PACKAGE_RUNNERS
            .iter()
            .any(|(_, command, args)| self.command == *command && self.args == *args)
    }

    /// True if this starts abide, wherever it is installed.
    pub fn starts_abide(&self) -> bool {
        let name = Path::new(&self.command).file_name();
        let is_abide = [NAME, PACKAGE].map(OsStr::new).map(Some).contains(&name);
        (is_abide && self.args.is_empty()) || self.is_package_runner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_cache_is_started_by_the_command_that_fetched_it() {
        let npx = Launcher::of("/home/me/.npm/_npx/1a2b/node_modules/abide-mcp/x64/abide");
        assert_eq!((npx.command.as_str(), npx.args.len()), ("npx", 2));
        let uvx = Launcher::of("/home/me/.cache/uv/archive-v0/xyz/bin/abide-mcp");
        assert_eq!((uvx.command.as_str(), uvx.args.len()), ("uvx", 1));
        assert!(npx.starts_abide() && uvx.starts_abide());
        for path in [
            "/usr/bin/abide",
            "/home/me/.local/share/uv/tools/abide-mcp/bin/abide-mcp",
            "/home/me/src/uv/target/abide",
        ] {
            let installed = Launcher::of(path);
            assert_eq!(
                (installed.command.as_str(), installed.args.len()),
                (path, 0)
            );
            assert!(installed.starts_abide() && !installed.is_package_runner());
        }
        assert!(!Launcher::of("/usr/bin/other").starts_abide());
    }
}

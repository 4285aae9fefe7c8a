//! Checks of the clients that are set up, and of the programs that wake agents.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use abide_output::printable::one_line;

use super::Finding;
use crate::cli::args::ClientName;
use crate::cli::doctor::system;
use crate::cli::replace_file;
use crate::cli::setup::launcher;
use abide_engine::config::{self, Config, WakerConfig, WakerKind};

/// Checks, for every client with an abide entry, that the entry starts this version of abide.
pub fn check() -> Vec<Finding> {
    let path = search_path();
    let found: Vec<Finding> = ClientName::ALL
        .into_iter()
        .filter_map(|client| check_client(client, &path))
        .collect();
    if found.is_empty() {
        let names = ClientName::ALL.map(ClientName::title).join(", ");
        return vec![Finding::warning(
            "clients",
            "none is set up, so no agent uses abide",
            format!("run `abide setup`, which finds {names}"),
        )];
    }
    found
}

/// Checks one client; `None`: it has no abide entry.
fn check_client(client: ClientName, path: &OsString) -> Option<Finding> {
    let topic = client.word();
    let file = client.file(None);
    let shown = file.display();
    let text = match replace_file::read(&file) {
        Ok(text) => text?,
        Err(fault) => {
            let sentence = format!("{shown} cannot be read: {fault}");
            return Some(Finding::warning(
                topic,
                sentence,
                "fix the permissions of the file",
            ));
        }
    };
    let command = match client.format().server(&text) {
        Ok(found) => found?.command?,
        Err(fault) => {
            let sentence = format!("{shown} is invalid: {}", one_line(&fault.0));
            return Some(Finding::warning(
                topic,
                sentence,
                "fix the file; abide does not change it",
            ));
        }
    };
    let again = format!("`abide setup {topic}` writes the right one");
    let named = one_line(&command);
    let Some(program) = system::program(&command, path) else {
        let sentence = format!("{shown} starts {named}, which does not exist");
        return Some(Finding::trouble(topic, sentence, again));
    };
    let asks = match client.asks_before_calls(&text, None) {
        Ok(true) => format!(
            "; it asks you before each call (`abide setup {topic} --approve` allows the tools)"
        ),
        Ok(false) | Err(_) => String::new(),
    };
    if is_this(&program) {
        return Some(Finding::good(topic, format!("set up in {shown}{asks}")));
    }
    let args = launcher::package_runner_args(&command).unwrap_or_default();
    let named = [&[named.as_str()], args].concat().join(" ");
    let ours = concat!("abide ", env!("CARGO_PKG_VERSION"));
    Some(match system::version_of(&program, args) {
        Ok(version) if version == ours => {
            Finding::good(topic, format!("set up in {shown}, with {named}{asks}"))
        }
        Ok(version) => Finding::warning(
            topic,
            format!(
                "{shown} starts {named}, which is {}; this is {ours}",
                one_line(&version)
            ),
            again,
        ),
        Err(fault) => Finding::trouble(topic, format!("{shown} starts {named}: {fault}"), again),
    })
}

fn is_this(program: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    identity(program).is_some_and(|found| Some(found) == identity(Path::new("/proc/self/exe")))
}

/// Checks that the programs of the wakers can be executed.
pub fn wakers(config: &Config) -> Vec<Finding> {
    if config.wakers.is_empty() {
        let sentence = "none; agents get messages with their next call";
        return vec![Finding::good("wakers", sentence)];
    }
    let path = search_path();
    let mut found = Vec::new();
    for waker in &config.wakers {
        let finding = match &waker.kind {
            WakerKind::Command(words) => check_program(&words[0], &path),
            WakerKind::ClaudeCode => check_program("claude", &path),
            WakerKind::Codex => check_program("codex", &path),
            WakerKind::Desktop => check_program("notify-send", &path),
            WakerKind::Webhook(hook) => hook.secret.bytes().err().map(|why| {
                Finding::trouble(
                    "wakers",
                    one_line(&why.to_string()),
                    "fix it; webhooks are signed with it",
                )
            }),
        };
        found.extend(finding);
        let folder = waker.cwd.as_ref().filter(|folder| !folder.is_dir());
        found.extend(folder.map(|folder| {
            Finding::trouble(
                "wakers",
                format!("{} is not a folder", one_line(&folder.to_string_lossy())),
                "correct or remove `cwd` in `[[wakers]]`",
            )
        }));
    }
    found.dedup();
    if found.is_empty() {
        let names: Vec<String> = config.wakers.iter().map(WakerConfig::name).collect();
        found.push(Finding::good("wakers", one_line(&names.join(", "))));
    }
    found
}

/// Finding for a program that is missing; `None`: it exists.
fn check_program(program: &str, path: &OsStr) -> Option<Finding> {
    if system::program(program, path).is_some() {
        return None;
    }
    Some(Finding::trouble(
        "wakers",
        format!("program not found: {}", one_line(program)),
        "install it, or change `[[wakers]]`; the daemon searches its own PATH",
    ))
}

pub fn search_path() -> OsString {
    let variables = config::environment();
    let path = variables.into_iter().find(|(name, _)| name == "PATH");
    path.map(|(_, path)| path).unwrap_or_default()
}

//! `abide setup`: adds abide to the configuration file of a client. The change is shown first, the rest
//! of the file is kept, and the change can be undone.

pub mod clients;
mod diff;
mod jsonc;
pub mod launcher;
mod toml;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use toml_edit::Table;

use super::args::SetupArgs;
use super::error::CliError;
use super::show::{self, outln};
use crate::cli::{replace_file, terminal};
use crate::connect::{self, DaemonSocket};
use abide_engine::config::Paths;
use clients::{ConfigFormat, ServerEntry};
use jsonc::EditError;
use launcher::Launcher;

/// Time-out for an answer from a pipe. A program that answers has its answer ready; a pipe without a
/// writer must not block a script for ever.
const PIPE_TIMEOUT: Duration = Duration::from_secs(2);

pub fn setup(args: SetupArgs, paths: &Paths) -> Result<u8, CliError> {
    let agent = args.agent.clone().name();
    let agent = agent.unwrap_or_else(|| args.client.word().to_owned());
    if agent.chars().any(char::is_control) {
        return Err(CliError::new("an agent name must not contain control characters").code(2));
    }
    let mut changes = Vec::new();
    for (file, edit) in edits(&args, paths, &agent)? {
        let change = Change::read(file, edit)?;
        changes.push(match args.undo {
            false => change.with_edit()?,
            true => change.without_edit()?,
        });
    }
    let pending: Vec<&Change> = changes
        .iter()
        .filter(|change| change.changes_file())
        .collect();
    let may_write = !args.print && !pending.is_empty();
    if may_write {
        pending
            .iter()
            .try_for_each(|change| change.check_writable())?;
    }
    let written = may_write && (args.yes || (!args.json.json && confirm(&pending)?));
    if written {
        for change in &pending {
            change.write()?;
        }
    }
    if args.json.json {
        show::json(&facts(&args, &agent, &changes, written));
        return Ok(0);
    }
    print_result(&args, &agent, &pending, written);
    if written {
        print_reload_note(&pending, paths);
    }
    Ok(u8::from(may_write && !written))
}

/// Edits to make, each with its file.
fn edits(args: &SetupArgs, paths: &Paths, agent: &str) -> Result<Vec<(PathBuf, Edit)>, CliError> {
    let project = match args.project {
        true => Some(std::env::current_dir()?),
        false => None,
    };
    let server = args
        .client
        .server(&Launcher::of(&program()?), agent, args.project);
    let file = args.client.file(project.as_deref());
    let mut edits = vec![(file, Edit::Server(args.client.format(), server))];
    if let Some(kind) = args.client.waker() {
        let waker = toml::waker(agent, kind);
        edits.push((paths.config.clone(), Edit::Waker(waker)));
    }
    Ok(edits)
}

/// Addition to a file.
enum Edit {
    Server(ConfigFormat, ServerEntry),
    Waker(Table),
}

impl Edit {
    fn is_in(&self, text: &str) -> Result<bool, EditError> {
        match self {
            Edit::Server(format, _) => format.has_server(text),
            Edit::Waker(waker) => toml::has_waker(text, waker),
        }
    }

    /// Returns `true` if the entry in the file comes from an earlier setup, even if for another agent
    /// or program.
    fn is_from_setup(&self, text: &str) -> Result<bool, EditError> {
        match self {
            Edit::Server(format, _) => format.is_from_setup(text),
            Edit::Waker(waker) => toml::has_waker(text, waker),
        }
    }

    fn apply(&self, text: &str) -> Result<String, EditError> {
        match self {
            Edit::Server(format, server) => format.add(text, server),
            Edit::Waker(waker) => toml::add_waker(text, waker),
        }
    }

    fn remove(&self, text: &str, before: Option<&str>) -> Result<String, EditError> {
        match self {
            Edit::Server(format, _) => format.remove(text, before),
            Edit::Waker(waker) => toml::remove_waker(text, waker),
        }
    }
}

/// Path of this program, as text that a client can start.
fn program() -> Result<String, CliError> {
    let program = std::env::current_exe()?;
    let usable = program.exists().then(|| program.to_str()).flatten();
    usable.map(str::to_owned).ok_or_else(|| {
        CliError::new(format!(
            "{} cannot be written into a configuration file",
            program.display()
        ))
        .next("install abide in a directory with a plain name and run it from there")
    })
}

/// Shows the changes and asks for confirmation at the terminal. Without a terminal the answer may come
/// from a pipe; otherwise the answer is no.
fn confirm(changes: &[&Change]) -> Result<bool, CliError> {
    show_changes(changes);
    let stdin = std::io::stdin();
    let mut out = std::io::stdout();
    if stdin.is_terminal() && out.is_terminal() {
        write!(out, "\nWrite this? [y/N] ")?;
        out.flush()?;
    } else if stdin.is_terminal() || !terminal::is_readable_within(&stdin, PIPE_TIMEOUT) {
        return Ok(false);
    }
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(matches!(answer.as_str(), "y" | "yes"))
}

fn show_changes(changes: &[&Change]) {
    let heading = show::HEADING;
    for change in changes {
        let what = match change.word() {
            "create" => " (new)",
            "remove" => " (removed)",
            _ => "",
        };
        outln!("{heading}{}{heading:#}{what}", change.path.display());
        for line in diff::lines(change.text(), change.new_text()) {
            outln!("{}", line.coloured(show::terminal_width()));
        }
    }
}

fn print_result(args: &SetupArgs, agent: &str, changes: &[&Change], written: bool) {
    let client = args.client.title();
    if changes.is_empty() {
        match args.undo {
            true => outln!("{client} is not set up; nothing to undo."),
            false => outln!("{client} is already set up as agent {agent}."),
        }
        return;
    }
    if args.print || args.yes {
        show_changes(changes);
    }
    if args.print {
        return;
    }
    if !written {
        outln!("\nNothing was written; --yes writes it without asking.");
    } else if args.undo {
        outln!("\n{client} is restored to what it was.");
    } else {
        outln!("\n{client} is set up as agent {agent}. Restart it to load abide.");
        let has_waker = |change: &&Change| matches!(change.edit, Edit::Waker(_));
        let waker = changes.iter().copied().find(has_waker);
        let waker = waker.and_then(|_| args.client.waker_note());
        for note in [waker, args.client.hint()].into_iter().flatten() {
            show::wrapped(note, 0)
                .iter()
                .for_each(|line| outln!("{line}"));
        }
        for change in changes.iter().filter(|change| change.backup().exists()) {
            outln!("Copy of the original file: {}", change.backup().display());
        }
        let project = if args.project { " --project" } else { "" };
        let word = args.client.word();
        outln!("`abide setup {word}{project} --undo` removes it again.");
    }
}

/// Reminds the person that a running daemon still uses its old configuration.
fn print_reload_note(changes: &[&Change], paths: &Paths) {
    let changed = changes
        .iter()
        .any(|change| matches!(change.edit, Edit::Waker(_)));
    if changed && connect::connect_running(paths, DaemonSocket::Http).is_ok() {
        outln!("Run `abide stop` to reload the daemon's configuration; sessions continue.");
    }
}

fn facts(args: &SetupArgs, agent: &str, changes: &[Change], written: bool) -> Value {
    let files: Vec<Value> = changes.iter().map(Change::facts).collect();
    json!({
        "client": args.client.word(),
        "agent": agent,
        "written": written,
        "files": files,
    })
}

/// Change of one file.
struct Change {
    path: PathBuf,
    edit: Edit,
    before: Option<String>,
    after: Option<String>,
    backup_action: BackupAction,
}

/// Action on the backup of the original file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackupAction {
    /// Leave the backup as it is.
    Keep,
    /// Create the backup from the current file.
    Make,
    /// Delete the backup.
    Remove,
}

impl Change {
    fn read(path: PathBuf, edit: Edit) -> Result<Self, CliError> {
        let before =
            replace_file::read(&path).map_err(|fault| file_error(&path, "read", &fault))?;
        Ok(Change {
            after: before.clone(),
            before,
            path,
            edit,
            backup_action: BackupAction::Keep,
        })
    }

    /// Change with the edit applied.
    fn with_edit(mut self) -> Result<Self, CliError> {
        let new = self.edit.apply(self.text());
        let new = new.map_err(|fault| self.unreadable(&fault))?;
        if new == self.text() {
            return Ok(self);
        }
        // A file that was already set up must not become the backup, because the backup shows the state
        // before abide.
        let was_in = self.edit.is_in(self.text());
        let was_in = was_in.map_err(|fault| self.unreadable(&fault))?;
        let by_setup = self.edit.is_from_setup(self.text());
        let by_setup = by_setup.map_err(|fault| self.unreadable(&fault))?;
        let keep = self.before.is_none() || by_setup || (was_in && self.backup_text()?.is_some());
        self.backup_action = if keep {
            BackupAction::Keep
        } else {
            BackupAction::Make
        };
        self.after = Some(new);
        Ok(self)
    }

    /// Change that restores the state before setup: exactly the backup if nothing else has changed
    /// since, otherwise the current text without the additions of setup.
    fn without_edit(mut self) -> Result<Self, CliError> {
        let is_in = self.edit.is_in(self.text());
        if !is_in.map_err(|fault| self.unreadable(&fault))? {
            return Ok(self);
        }
        let backup = self.backup_text()?;
        let added = self.edit.apply(backup.as_deref().unwrap_or_default());
        let untouched = added.is_ok_and(|added| added == self.text());
        self.after = match (untouched, &backup) {
            (true, Some(backup)) => Some(backup.clone()),
            (true, None) => None,
            (false, _) => {
                let rest = self.edit.remove(self.text(), backup.as_deref());
                let rest = rest.map_err(|fault| self.unreadable(&fault))?;
                // A file that setup created and that is now empty is removed.
                let needless = backup.is_none() && matches!(rest.trim(), "" | "{}");
                (!needless).then_some(rest)
            }
        };
        if backup.is_some() {
            self.backup_action = BackupAction::Remove;
        }
        Ok(self)
    }

    /// Text of the backup.
    fn backup_text(&self) -> Result<Option<String>, CliError> {
        let copy = self.backup();
        replace_file::read(&copy).map_err(|fault| file_error(&copy, "read", &fault))
    }

    fn changes_file(&self) -> bool {
        self.before != self.after
    }

    fn text(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    fn new_text(&self) -> &str {
        self.after.as_deref().unwrap_or_default()
    }

    /// Path of the backup.
    fn backup(&self) -> PathBuf {
        self.path.with_added_extension("before-abide")
    }

    /// Checks that the file may be changed, before the person is asked.
    fn check_writable(&self) -> Result<(), CliError> {
        replace_file::may_change(&self.path)
            .map_err(|fault| file_error(&self.path, "write", &fault))
    }

    fn write(&self) -> Result<(), CliError> {
        let copy = self.backup();
        if let (BackupAction::Make, Some(before)) = (self.backup_action, &self.before) {
            replace_file::copy_beside(&self.path, &copy, before)
                .map_err(|fault| file_error(&copy, "write", &fault))?;
        }
        replace_file::replace(&self.path, self.before.as_deref(), self.after.as_deref())
            .map_err(|fault| file_error(&self.path, "write", &fault))?;
        if self.backup_action == BackupAction::Remove {
            std::fs::remove_file(copy)?;
        }
        Ok(())
    }

    fn unreadable(&self, EditError(why): &EditError) -> CliError {
        CliError::new(format!(
            "{} was not changed because it cannot be parsed: {why}",
            self.path.display()
        ))
        .next("fix the file and run this again")
    }

    /// Kind of change, in one word.
    fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            _ if !self.changes_file() => "none",
            (None, _) => "create",
            (_, None) => "remove",
            _ => "update",
        }
    }

    fn facts(&self) -> Value {
        let diff = diff::lines(self.text(), self.new_text());
        let diff: Vec<String> = diff.iter().map(ToString::to_string).collect();
        let backup = self.backup();
        json!({
            "path": self.path.to_string_lossy(),
            "change": self.word(),
            "diff": diff.join("\n"),
            "backup": backup.exists().then(|| backup.to_string_lossy()),
        })
    }
}

fn file_error(path: &Path, verb: &str, fault: &std::io::Error) -> CliError {
    CliError::new(format!("cannot {verb} {}: {fault}", path.display()))
}

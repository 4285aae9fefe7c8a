//! `abide setup`: adds abide to the configuration file of a client. The change is shown first, the rest
//! of the file is kept, and the change can be undone.

mod diff;
mod jsonc;
pub mod server;
mod toml;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use toml_edit::Table;

use super::args::Setup;
use super::show::{self, say};
use super::trouble::Trouble;
use crate::cli::{replace_file, terminal};
use crate::connect::{self, DaemonSocket};
use abide_engine::config::Paths;
use jsonc::Fault;
use server::{Form, Server};

/// Time-out for an answer from a pipe. A program that answers has its answer ready; a pipe without a
/// writer must not block a script for ever.
const PIPED: Duration = Duration::from_secs(2);

pub fn setup(args: Setup, paths: &Paths) -> Result<u8, Trouble> {
    let agent = args.agent.clone().name();
    let agent = agent.unwrap_or_else(|| args.client.word().to_owned());
    if agent.chars().any(char::is_control) {
        return Err(Trouble::new("an agent name must not contain control characters").code(2));
    }
    let mut changes = Vec::new();
    for (file, edit) in edits(&args, paths, &agent)? {
        let change = Change::read(file, edit)?;
        changes.push(match args.undo {
            false => change.made()?,
            true => change.undone()?,
        });
    }
    let wanted: Vec<&Change> = changes.iter().filter(|change| change.is_one()).collect();
    let may_write = !args.print && !wanted.is_empty();
    if may_write {
        wanted.iter().try_for_each(|change| change.allowed())?;
    }
    let written = may_write && (args.yes || (!args.json.json && agreed(&wanted)?));
    if written {
        for change in &wanted {
            change.write()?;
        }
    }
    if args.json.json {
        show::json(&facts(&args, &agent, &changes, written));
        return Ok(0);
    }
    tell(&args, &agent, &wanted, written);
    if written {
        remind(&wanted, paths);
    }
    Ok(u8::from(may_write && !written))
}

/// Edits to make, each with its file.
fn edits(args: &Setup, paths: &Paths, agent: &str) -> Result<Vec<(PathBuf, Edit)>, Trouble> {
    let project = match args.project {
        true => Some(std::env::current_dir()?),
        false => None,
    };
    let server = args.client.server(&program()?, agent, args.project);
    let file = args.client.file(project.as_deref());
    let mut edits = vec![(file, Edit::Server(args.client.form(), server))];
    if let Some(way) = args.client.waker() {
        let waker = toml::waker(agent, way);
        edits.push((paths.config.clone(), Edit::Waker(waker)));
    }
    Ok(edits)
}

/// Addition to a file.
enum Edit {
    Server(Form, Server),
    Waker(Table),
}

impl Edit {
    fn is_in(&self, text: &str) -> Result<bool, Fault> {
        match self {
            Edit::Server(form, _) => form.has_server(text),
            Edit::Waker(waker) => toml::has_waker(text, waker),
        }
    }

    /// Returns `true` if the entry in the file comes from an earlier setup, even if for another agent
    /// or program.
    fn looks_set_up(&self, text: &str) -> Result<bool, Fault> {
        match self {
            Edit::Server(form, _) => form.has_own(text),
            Edit::Waker(waker) => toml::has_waker(text, waker),
        }
    }

    fn put_into(&self, text: &str) -> Result<String, Fault> {
        match self {
            Edit::Server(form, server) => form.add(text, server),
            Edit::Waker(waker) => toml::add_waker(text, waker),
        }
    }

    fn take_out_of(&self, text: &str, before: Option<&str>) -> Result<String, Fault> {
        match self {
            Edit::Server(form, _) => form.take_out(text, before),
            Edit::Waker(waker) => toml::take_out_waker(text, waker),
        }
    }
}

/// Path of this program, as text that a client can start.
fn program() -> Result<String, Trouble> {
    let program = std::env::current_exe()?;
    let usable = program.exists().then(|| program.to_str()).flatten();
    usable.map(str::to_owned).ok_or_else(|| {
        Trouble::new(format!(
            "{} cannot be written into a configuration file",
            program.display()
        ))
        .next("install abide in a directory with a plain name and run it from there")
    })
}

/// Shows the changes and asks for confirmation at the terminal. Without a terminal the answer may come
/// from a pipe; otherwise the answer is no.
fn agreed(changes: &[&Change]) -> Result<bool, Trouble> {
    show_changes(changes);
    let stdin = std::io::stdin();
    let mut out = std::io::stdout();
    if stdin.is_terminal() && out.is_terminal() {
        write!(out, "\nWrite this? [y/N] ")?;
        out.flush()?;
    } else if stdin.is_terminal() || !terminal::comes_within(&stdin, PIPED) {
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
        say!("{heading}{}{heading:#}{what}", change.path.display());
        for line in diff::lines(change.text(), change.new_text()) {
            say!("{}", line.coloured(show::room()));
        }
    }
}

fn tell(args: &Setup, agent: &str, changes: &[&Change], written: bool) {
    let client = args.client.title();
    if changes.is_empty() {
        match args.undo {
            true => say!("{client} is not set up; nothing to undo."),
            false => say!("{client} is already set up as agent {agent}."),
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
        say!("\nNothing was written; --yes writes it without asking.");
    } else if args.undo {
        say!("\n{client} is restored to what it was.");
    } else {
        say!("\n{client} is set up as agent {agent}. Restart it to load abide.");
        let has_waker = |change: &&Change| matches!(change.edit, Edit::Waker(_));
        let waker = changes.iter().copied().find(has_waker);
        let waker = waker.and_then(|_| args.client.waker_note());
        for note in [waker, args.client.hint()].into_iter().flatten() {
            show::wrapped(note, 0)
                .iter()
                .for_each(|line| say!("{line}"));
        }
        for change in changes.iter().filter(|change| change.backup().exists()) {
            say!("Copy of the original file: {}", change.backup().display());
        }
        let project = if args.project { " --project" } else { "" };
        let word = args.client.word();
        say!("`abide setup {word}{project} --undo` removes it again.");
    }
}

/// Reminds the person that a running daemon still uses its old configuration.
fn remind(changes: &[&Change], paths: &Paths) {
    let changed = changes
        .iter()
        .any(|change| matches!(change.edit, Edit::Waker(_)));
    if changed && connect::connect_running(paths, DaemonSocket::Http).is_ok() {
        say!("Run `abide stop` to reload the daemon's configuration; sessions continue.");
    }
}

fn facts(args: &Setup, agent: &str, changes: &[Change], written: bool) -> Value {
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
    copy: Copy,
}

/// Action on the backup of the original file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// Leave the backup as it is.
    Keep,
    /// Create the backup from the current file.
    Make,
    /// Delete the backup.
    Remove,
}

impl Change {
    fn read(path: PathBuf, edit: Edit) -> Result<Self, Trouble> {
        let before = replace_file::read(&path).map_err(|fault| cannot(&path, "read", &fault))?;
        Ok(Change {
            after: before.clone(),
            before,
            path,
            edit,
            copy: Copy::Keep,
        })
    }

    /// Change with the edit applied.
    fn made(mut self) -> Result<Self, Trouble> {
        let new = self.edit.put_into(self.text());
        let new = new.map_err(|fault| self.unreadable(&fault))?;
        if new == self.text() {
            return Ok(self);
        }
        // A file that was already set up must not become the backup, because the backup shows the state
        // before abide.
        let was_in = self.edit.is_in(self.text());
        let was_in = was_in.map_err(|fault| self.unreadable(&fault))?;
        let by_setup = self.edit.looks_set_up(self.text());
        let by_setup = by_setup.map_err(|fault| self.unreadable(&fault))?;
        let keep = self.before.is_none() || by_setup || (was_in && self.copied()?.is_some());
        self.copy = if keep { Copy::Keep } else { Copy::Make };
        self.after = Some(new);
        Ok(self)
    }

    /// Change that restores the state before setup: exactly the backup if nothing else has changed
    /// since, otherwise the current text without the additions of setup.
    fn undone(mut self) -> Result<Self, Trouble> {
        let is_in = self.edit.is_in(self.text());
        if !is_in.map_err(|fault| self.unreadable(&fault))? {
            return Ok(self);
        }
        let copied = self.copied()?;
        let added = self.edit.put_into(copied.as_deref().unwrap_or_default());
        let untouched = added.is_ok_and(|added| added == self.text());
        self.after = match (untouched, &copied) {
            (true, Some(copied)) => Some(copied.clone()),
            (true, None) => None,
            (false, _) => {
                let rest = self.edit.take_out_of(self.text(), copied.as_deref());
                let rest = rest.map_err(|fault| self.unreadable(&fault))?;
                // A file that setup created and that is now empty is removed.
                let needless = copied.is_none() && matches!(rest.trim(), "" | "{}");
                (!needless).then_some(rest)
            }
        };
        if copied.is_some() {
            self.copy = Copy::Remove;
        }
        Ok(self)
    }

    /// Text of the backup.
    fn copied(&self) -> Result<Option<String>, Trouble> {
        let copy = self.backup();
        replace_file::read(&copy).map_err(|fault| cannot(&copy, "read", &fault))
    }

    fn is_one(&self) -> bool {
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
    fn allowed(&self) -> Result<(), Trouble> {
        replace_file::may_change(&self.path).map_err(|fault| cannot(&self.path, "write", &fault))
    }

    fn write(&self) -> Result<(), Trouble> {
        let copy = self.backup();
        if let (Copy::Make, Some(before)) = (self.copy, &self.before) {
            replace_file::copy_beside(&self.path, &copy, before)
                .map_err(|fault| cannot(&copy, "write", &fault))?;
        }
        replace_file::replace(&self.path, self.before.as_deref(), self.after.as_deref())
            .map_err(|fault| cannot(&self.path, "write", &fault))?;
        if self.copy == Copy::Remove {
            std::fs::remove_file(copy)?;
        }
        Ok(())
    }

    fn unreadable(&self, Fault(why): &Fault) -> Trouble {
        Trouble::new(format!(
            "{} was not changed because it cannot be parsed: {why}",
            self.path.display()
        ))
        .next("fix the file and run this again")
    }

    /// Kind of change, in one word.
    fn word(&self) -> &'static str {
        match (&self.before, &self.after) {
            _ if !self.is_one() => "none",
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

fn cannot(path: &Path, verb: &str, fault: &std::io::Error) -> Trouble {
    Trouble::new(format!("cannot {verb} {}: {fault}", path.display()))
}

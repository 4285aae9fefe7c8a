//! `abide setup`: adds abide to the configuration file of a client, or of all that are installed. The change is shown first, the rest
//! of the file is kept, and the change can be undone.

mod choices;
pub mod clients;
mod created_folders;
mod diff;
mod jsonc;
pub mod launcher;
mod toml;

use abide_api::cli::{FailedSetup, Setup, SetupFile};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::args::{ClientName, SetupArgs, SetupSandbox};
use super::error::CliError;
use super::show::{self, errln, outln};
use crate::cli::replace_file;
use crate::http::run_request::quoted;
use abide_engine::config::{Config, Paths, SandboxMode};
use choices::{Choices, Default, ask, has_person, is_asked, is_sandbox_off, read_answer};
use clients::{ConfigFormat, ServerEntry};
use created_folders::CreatedFolders;
use jsonc::EditError;
use launcher::Launcher;
use toml::OwnEntry;

pub fn setup(args: &SetupArgs, paths: &Paths) -> Result<u8, CliError> {
    if let Some(client) = args.client {
        let outcome = setup_client(client, args, paths)?;
        if outcome.is_written && is_asked(args) {
            outln!("");
            print_first_call();
        }
        return Ok(outcome.code);
    }
    let found = ClientName::ALL.into_iter();
    let found: Vec<ClientName> = found.filter(|client| client.missing().is_none()).collect();
    if found.is_empty() {
        let names = ClientName::ALL.map(ClientName::title).join(", ");
        return Err(CliError::new(format!(
            "none of these clients was found on this machine: {names}"
        ))
        .next("`abide setup CLIENT` sets one up before it is installed"));
    }
    setup_all(&found, args, paths)
}

/// Sets up each of these clients. At a terminal, the person is asked about each of several.
fn setup_all(found: &[ClientName], args: &SetupArgs, paths: &Paths) -> Result<u8, CliError> {
    let (mut code, mut is_written) = (0, false);
    let is_choice = found.len() > 1 && is_asked(args);
    if !args.json.json {
        let names: Vec<&str> = found.iter().map(|client| client.title()).collect();
        outln!("Found {} on this machine.\n", listed(&names));
    }
    // A question leaves an empty line below it; other output does not.
    let mut needs_gap = false;
    for &client in found {
        if std::mem::take(&mut needs_gap) && !args.json.json {
            outln!("");
        }
        if is_choice {
            // The change itself is asked about later.
            if !ask(&format!("Set up {}?", client.title()), Default::Yes)? {
                continue;
            }
        } else if !args.json.json {
            let heading = show::HEADING;
            outln!("{heading}{}{heading:#}", client.title());
        }
        needs_gap = true;
        // A file of one client that cannot be changed does not keep the others from being set up.
        match setup_client(client, args, paths) {
            Ok(outcome) => {
                code = code.max(outcome.code);
                is_written |= outcome.is_written;
            }
            Err(error) => {
                match args.json.json {
                    true => {
                        show::json(&FailedSetup {
                            client: client.word().into(),
                            error: error.sentence().into(),
                        });
                    }
                    false => errln!("{error}"),
                }
                code = code.max(error.code);
            }
        }
    }
    if is_written && is_asked(args) {
        if needs_gap {
            outln!("");
        }
        print_first_call();
    }
    Ok(code)
}

/// Prints what to try first, with a command that leads to a question.
fn print_first_call() {
    outln!("To see a question of abide, type this in the client, and wait for 30 seconds:\n");
    outln!(
        "Use abide to run `echo building; sleep 60; echo built` with execute_command and a timeout of 30 seconds."
    );
}

/// Names as in a sentence: `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [name] => (*name).to_owned(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// Result of the setup of a client.
struct Outcome {
    /// Exit code.
    code: u8,
    is_written: bool,
}

fn setup_client(client: ClientName, args: &SetupArgs, paths: &Paths) -> Result<Outcome, CliError> {
    let project = project(args)?;
    let agent = match args.agent.name() {
        Some(name) => name,
        None => {
            let earlier = client.agent_of_setup(project.as_deref());
            earlier.unwrap_or_else(|| client.word().to_owned())
        }
    };
    if agent.chars().any(char::is_control) {
        return Err(CliError::new("an agent name must not contain control characters").code(2));
    }
    let missing = client.missing().filter(|_| !args.undo);
    if let Some(sentence) = missing.as_ref().filter(|_| !args.json.json) {
        outln!("{sentence} The change takes effect when it is installed.\n");
    }
    if let Some(sentence) = client.without_setting(args.approve, args.waker) {
        errln!("abide: {sentence}");
    }
    let choices = Choices::of(client, args, paths, &agent)?;
    let mut changes = Vec::new();
    for (file, edit) in edits(client, args, paths, &agent, choices)? {
        let change = Change::read(file, edit)?;
        changes.push(match args.undo {
            false => change.with_edit()?,
            true => change.without_edit()?,
        });
    }
    let pending = changes.iter().filter(|change| change.changes_file());
    let pending: Vec<&Change> = pending.collect();
    let may_write = !args.print && !pending.is_empty();
    if may_write {
        let mut pending = pending.iter();
        pending.try_for_each(|change| change.check_writable())?;
    }
    let written = may_write && (args.yes || (!args.json.json && confirm(client, args, &pending)?));
    if written {
        write(&pending, args, paths)?;
    }
    let outcome = Outcome {
        code: u8::from(may_write && !written),
        is_written: written && !args.undo,
    };
    if args.json.json {
        let is_installed = missing.is_none();
        show::json(&facts(client, &agent, &changes, written, is_installed));
        return Ok(outcome);
    }
    print_result(client, args, &agent, &pending, written, project.as_deref());
    // A person who was asked has just said no to it.
    if !args.undo && !args.print && !is_asked(args) && (written || pending.is_empty()) {
        print_sandbox(client, args, paths, &agent)?;
    }
    Ok(outcome)
}

/// Writes the changes and keeps a record of the folders that this creates; `--undo` removes those that are empty.
fn write(changes: &[&Change], args: &SetupArgs, paths: &Paths) -> Result<(), CliError> {
    let folders = CreatedFolders::of(paths);
    let write_all = || changes.iter().try_for_each(|change| change.write());
    if !args.undo {
        let files = changes.iter().map(|change| change.path.as_path());
        return folders.keep_record(files, write_all);
    }
    write_all()?;
    let removed = changes.iter().filter(|change| change.after.is_none());
    folders.remove_empty(removed.map(|change| change.path.as_path()));
    Ok(())
}

/// Folder of the project whose configuration is changed; `None`: that of the user is.
fn project(args: &SetupArgs) -> Result<Option<PathBuf>, CliError> {
    Ok(match args.project {
        true => Some(std::env::current_dir()?),
        false => None,
    })
}

/// Edits to make, each with its file.
fn edits(
    client: ClientName,
    args: &SetupArgs,
    paths: &Paths,
    agent: &str,
    choices: Choices,
) -> Result<Vec<(PathBuf, Edit)>, CliError> {
    let project = project(args)?;
    let without_approval = choices.without_approval;
    let launcher = Launcher::of(&program()?);
    let server = client.server(&launcher, agent, args.project, without_approval);
    let file = client.file(project.as_deref());
    let mut edits = vec![(file, Edit::Server(client.format(), server))];
    let permissions = client.permission_file(project.as_deref());
    if let Some(file) = permissions.filter(|_| without_approval || args.undo) {
        edits.push((file, Edit::Permission));
    }
    let waker = |agent: &str| client.waker().map(|kind| toml::waker(agent, kind));
    let sandbox = |agent: &str| toml::sandbox(agent, SandboxMode::WorkspaceWrite.as_str());
    let text = replace_file::read(&paths.config)?.unwrap_or_default();
    let existing = |agent: &str| -> Vec<OwnEntry> {
        let entries = waker(agent).into_iter().chain([sandbox(agent)]);
        // A text that cannot be parsed is reported when the file is read for the change.
        entries
            .filter(|entry| entry.is_in(&text).unwrap_or(true))
            .collect()
    };
    let mut own = OwnEdit::default();
    if args.undo {
        own.entries = existing(agent);
    } else {
        let former = client.agent_of_setup(project.as_deref());
        if let Some(former) = former.filter(|former| former != agent) {
            let entries = existing(&former).into_iter();
            own.renamed = entries.map(|entry| (entry, agent.to_owned())).collect();
        }
        own.entries.extend(waker(agent).filter(|_| choices.waker));
        match choices.sandbox {
            Some(SetupSandbox::WorkspaceWrite) => own.entries.push(sandbox(agent)),
            Some(SetupSandbox::Off) => own.absent = Some(sandbox(agent)),
            None => {}
        }
    }
    if !own.is_empty() {
        edits.push((paths.config.clone(), Edit::Own(own)));
    }
    Ok(edits)
}

/// Change of abide's own configuration.
#[derive(Default)]
struct OwnEdit {
    entries: Vec<OwnEntry>,
    /// Entry that is removed.
    absent: Option<OwnEntry>,
    /// Entries for the client's former agent, each with its new agent.
    renamed: Vec<(OwnEntry, String)>,
}

impl OwnEdit {
    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.absent.is_none() && self.renamed.is_empty()
    }

    fn is_in(&self, text: &str) -> Result<bool, EditError> {
        for entry in &self.entries {
            if entry.is_in(text)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn apply(&self, text: &str) -> Result<String, EditError> {
        let mut text = text.to_owned();
        for (entry, agent) in &self.renamed {
            text = entry.rename(&text, agent)?;
        }
        for entry in &self.entries {
            text = entry.add(&text)?;
        }
        match &self.absent {
            Some(entry) if entry.is_in(&text)? => entry.remove(&text),
            _ => Ok(text),
        }
    }

    fn remove(&self, text: &str) -> Result<String, EditError> {
        let mut text = text.to_owned();
        for entry in &self.entries {
            text = entry.remove(&text)?;
        }
        Ok(text)
    }
}

/// Addition to a file.
enum Edit {
    Server(ConfigFormat, ServerEntry),
    /// Permission of the client for the tools of abide, in a file of its own.
    Permission,
    Own(OwnEdit),
}

impl Edit {
    fn is_in(&self, text: &str) -> Result<bool, EditError> {
        match self {
            Edit::Server(format, _) => Ok(format.server(text)?.is_some()),
            Edit::Permission => clients::has_permission(text),
            Edit::Own(own) => own.is_in(text),
        }
    }

    /// Returns `true` if the entry in the file comes from an earlier setup, even if for another agent
    /// or program.
    fn is_from_setup(&self, text: &str) -> Result<bool, EditError> {
        match self {
            Edit::Server(format, _) => Ok(format.agent_of_setup(text)?.is_some()),
            Edit::Permission => clients::has_permission(text),
            Edit::Own(own) => own.is_in(text),
        }
    }

    /// Returns `true` if a copy with this text was made after an earlier setup, which may have been for another agent.
    fn was_applied(&self, text: &str) -> Result<bool, EditError> {
        let Edit::Own(own) = self else {
            return self.is_from_setup(text);
        };
        for entry in &own.entries {
            if entry.has_similar(text)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn apply(&self, text: &str) -> Result<String, EditError> {
        match self {
            Edit::Server(format, server) => format.add(text, server),
            Edit::Permission => clients::add_permission(text),
            Edit::Own(own) => own.apply(text),
        }
    }

    fn remove(&self, text: &str, before: Option<&str>) -> Result<String, EditError> {
        match self {
            Edit::Server(format, _) => format.remove(text, before),
            Edit::Permission => clients::remove_permission(text),
            Edit::Own(own) => own.remove(text),
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

/// Shows the changes and asks for confirmation at the terminal. Without a terminal the answer is no.
fn confirm(client: ClientName, args: &SetupArgs, changes: &[&Change]) -> Result<bool, CliError> {
    show_changes(client, args, changes);
    if !has_person() {
        return Ok(false);
    }
    write!(std::io::stdout(), "\nWrite this? ")?;
    read_answer(Default::No)
}

/// Shows the changes and what a waker that was not asked about can cost.
fn show_changes(client: ClientName, args: &SetupArgs, changes: &[&Change]) {
    let heading = show::HEADING;
    for (at, change) in changes.iter().enumerate() {
        if at > 0 {
            outln!("");
        }
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
    let changes_own = changes
        .iter()
        .any(|change| matches!(change.edit, Edit::Own(_)));
    let terms = client.waker_terms().filter(|_| args.waker && changes_own);
    if let Some(terms) = terms {
        outln!("");
        print_wrapped(&format!(
            "{}: abide wakes it when there is a message for its agent. {terms}",
            client.title()
        ));
    }
}

fn print_wrapped(text: &str) {
    show::wrapped(text, 0)
        .iter()
        .for_each(|line| outln!("{line}"));
}

/// Says what was done.
fn print_result(
    client: ClientName,
    args: &SetupArgs,
    agent: &str,
    changes: &[&Change],
    written: bool,
    project: Option<&Path>,
) {
    let title = client.title();
    if changes.is_empty() {
        match args.undo {
            true => outln!("{title} is not set up, so there is nothing to undo."),
            false => outln!("{title} is already set up as agent {agent}."),
        }
        return;
    }
    if args.print || args.yes {
        show_changes(client, args, changes);
    }
    if args.print {
        return;
    }
    if !written {
        match has_person() {
            true => outln!("\n{title}: nothing was changed."),
            false => outln!(
                "\nThere is no terminal to ask at. Nothing was written; --yes writes it without asking."
            ),
        }
        return;
    }
    if args.undo {
        outln!(
            "\nRemoved abide from the configuration of {title}. If {title} is running, restart it."
        );
    } else {
        outln!("\n{title} is set up as agent {agent}. Start or restart it to load abide.");
        if let Some(hint) = client.hint() {
            outln!("{hint}");
        }
        for change in changes.iter().filter(|change| change.backup().exists()) {
            outln!("Copy of the original file: {}", change.backup().display());
        }
        if client.asks_now(project) && !is_asked(args) {
            print_wrapped(&format!(
                "To let {title} call the tools of abide without asking you each time, run `{}`.",
                next_setup(client, args, agent, "--approve")
            ));
        }
        let undo = next_setup(client, args, agent, "--undo");
        outln!("To remove abide from {title}, run `{undo}`.");
    }
}

/// Command line of a further setup of the same client and agent.
fn next_setup(client: ClientName, args: &SetupArgs, agent: &str, option: &str) -> String {
    let mut line = format!("{} setup {}", Launcher::for_people(), client.word());
    if args.project {
        line.push_str(" --project");
    }
    if agent != client.word() {
        line.push_str(&format!(" --agent {}", quoted(agent.as_ref())));
    }
    format!("{line} {option}")
}

/// Says that commands run without a sandbox, if they do, and how to switch it on.
fn print_sandbox(
    client: ClientName,
    args: &SetupArgs,
    paths: &Paths,
    agent: &str,
) -> Result<(), CliError> {
    // A configuration that cannot be parsed is reported by the daemon and by `abide doctor`.
    let config = Config::load(&paths.config).unwrap_or_default();
    if is_sandbox_off(&config, agent, &std::env::current_dir()?) {
        print_wrapped(&format!(
            "Commands that {} runs through abide have no sandbox. To switch it on, run `{}`.",
            client.title(),
            next_setup(client, args, agent, "--sandbox workspace-write")
        ));
    }
    Ok(())
}

fn facts(
    client: ClientName,
    agent: &str,
    changes: &[Change],
    written: bool,
    is_installed: bool,
) -> Setup {
    Setup {
        client: client.word().into(),
        agent: agent.into(),
        installed: is_installed,
        written,
        files: changes.iter().map(Change::facts).collect(),
    }
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
        let copy = self.backup_text()?;
        if copy.is_some() {
            self.backup_action = BackupAction::Remove;
        }
        // A copy with entries of setup was made between two runs of setup; it is not the state before.
        let backup = copy.filter(|text| !self.edit.was_applied(text).unwrap_or(false));
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
        Ok(self)
    }

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

    fn facts(&self) -> SetupFile {
        let diff = diff::lines(self.text(), self.new_text());
        let diff: Vec<String> = diff.iter().map(ToString::to_string).collect();
        let backup = self.backup();
        SetupFile {
            path: self.path.to_string_lossy().into(),
            change: self.word().into(),
            diff: diff.join("\n"),
            backup: backup.exists().then(|| backup.to_string_lossy().into()),
        }
    }
}

fn file_error(path: &Path, verb: &str, fault: &std::io::Error) -> CliError {
    CliError::new(format!("cannot {verb} {}: {fault}", path.display()))
}

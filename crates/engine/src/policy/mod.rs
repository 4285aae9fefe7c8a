//! Policy of this installation: reads its rules from files, judges the commands of agents, and writes the rules that a
//! person adds by "always".
//!
//! The files are checked for changes at every command. A file that is damaged, or that others can write, refuses all
//! commands of agents, and one that is empty or missing for a moment leaves the former rules in force: rules never get
//! fewer by accident.

pub mod audit;
mod grants;
mod hosts;
mod sandboxes;
mod settings;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use abide_core::policy::{
    self, Action, Choice, CommandLine, Decision, Offer, Parsed, Place, Policy, Rule, Source,
};
use abide_core::{Agent, Conversation};
use abide_session::private_file;

pub use crate::command_line::changes_commands;
use grants::Grants;
pub use hosts::{AllowedHost, shown_host};
pub use sandboxes::{AcceptedSandbox, shown_sandbox};
use settings::{InvalidRules, Remembered};

use crate::clock::SystemClock;
use crate::command_line::{self, Surroundings};
use crate::config;
use crate::lock::lock;
use crate::watched_file::{Look, WatchedFile};

/// Longest file of rules, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most rules and host names that "always" adds.
const MAX_REMEMBERED: usize = 1_000;

/// Rules and the files that they come from.
pub struct PolicyStore {
    /// Configuration file.
    config: PathBuf,
    /// File of rules that "always" has written.
    remembered: PathBuf,
    home: PathBuf,
    loaded: Mutex<Loaded>,
    grants: Grants<Rule>,
    host_grants: Grants<hosts::HostGrant>,
    sandbox_grants: Grants<sandboxes::SandboxGrant>,
}

struct Loaded {
    files: [WatchedFile; 2],
    /// The rules, or the reason why there are none.
    policy: Result<Arc<Policy>, Arc<str>>,
    /// Host names that `always here` has allowed.
    hosts: Arc<[AllowedHost]>,
    /// Weaker sandboxes that `always here` has accepted.
    sandboxes: Arc<[AcceptedSandbox]>,
}

/// Command of an agent that is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct JudgedCommand<'a> {
    /// Agent that wants to run it.
    pub agent: &'a Agent,
    pub conversation: Option<&'a Conversation>,
    /// Working directory of the command.
    pub folder: &'a Path,
    /// Directory that the agent works in.
    pub workspace: &'a Path,
    pub command: &'a str,
    /// Variables that the call sets and that decide which commands run: see [`changes_commands`].
    pub env: &'a [(String, String)],
    /// Standard input that the call gives.
    pub stdin: Option<&'a str>,
}

/// Result of the rules for a command.
#[derive(Clone, Debug)]
pub struct PolicyEvaluation {
    /// Decision with its reason.
    pub decision: Decision,
    pub line: CommandLine,
    /// Answers that a person can give. Empty unless the decision is to ask.
    pub offers: Vec<Offer>,
}

/// Rules that cannot be used, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokenPolicy(pub Arc<str>);

/// File of rules that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
struct RuleFileError {
    path: PathBuf,
    why: RuleFileFault,
}

#[derive(Debug, thiserror::Error)]
enum RuleFileFault {
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    #[error("{0}")]
    Untrusted(&'static str),
    #[error("{0}")]
    Invalid(#[from] InvalidRules),
}

impl PolicyStore {
    /// Policy of the installation with this configuration file.
    pub fn new(config: &Path) -> Self {
        let remembered = config.with_file_name("policy.toml");
        PolicyStore {
            config: config.to_owned(),
            home: config::home(),
            loaded: Mutex::new(Loaded {
                files: [WatchedFile::new(config), WatchedFile::new(&remembered)],
                policy: Err("".into()),
                hosts: Arc::default(),
                sandboxes: Arc::default(),
            }),
            remembered,
            grants: Grants::default(),
            host_grants: Grants::default(),
            sandbox_grants: Grants::default(),
        }
    }

    /// File of rules that "always" has written.
    pub fn remembered_file(&self) -> &Path {
        &self.remembered
    }

    /// Rules as the files have them now.
    pub fn policy(&self) -> Result<Arc<Policy>, BrokenPolicy> {
        self.loaded().policy.clone().map_err(BrokenPolicy)
    }

    /// Contents of the files as they are now.
    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        let mut loaded = lock(&self.loaded);
        let now = SystemClock.mono();
        // Each file is looked at: both may have been emptied.
        let looks = loaded.files.each_mut().map(|file| file.look(now));
        if looks.contains(&Look::Emptied) || looks == [Look::Same; 2] {
            return loaded;
        }
        let (policy, remembered) = match self.read() {
            Ok((policy, remembered)) => (Ok(Arc::new(policy)), remembered),
            Err(broken) => (Err(Arc::from(broken.to_string())), Remembered::default()),
        };
        if let Err(why) = &policy
            && loaded.policy != policy
        {
            tracing::error!("the policy cannot be used: {why}");
        }
        for (file, look) in loaded.files.iter_mut().zip(looks) {
            if let Look::Changed(stamp) = look {
                file.was_read(stamp, policy.is_ok());
            }
        }
        loaded.policy = policy;
        loaded.hosts = remembered.hosts.into();
        loaded.sandboxes = remembered.sandboxes.into();
        loaded
    }

    /// Rules of both files, and what else "always" has written.
    fn read(&self) -> Result<(Policy, Remembered), RuleFileError> {
        let mut policy = read_rules(&self.config, &self.home, settings::read_configured)?;
        let mut remembered = self.remembered()?;
        policy.rules.append(&mut remembered.rules);
        Ok((policy, remembered))
    }

    /// Entries that "always" has written.
    fn remembered(&self) -> Result<Remembered, RuleFileError> {
        read_rules(&self.remembered, &self.home, settings::read_remembered)
    }

    /// Judges a command of an agent.
    pub fn judge(&self, command: JudgedCommand<'_>) -> Result<PolicyEvaluation, BrokenPolicy> {
        let mut policy = self.policy()?;
        let granted = self.granted(command);
        if !granted.is_empty() {
            let rules = policy.rules.iter().cloned().chain(granted).collect();
            policy = Arc::new(Policy {
                rules,
                ..(*policy).clone()
            });
        }
        Ok(judge_by(&policy, &self.home, command))
    }

    /// Rules that "this agent" has added and that still hold.
    pub fn granted_rules(&self) -> Vec<Rule> {
        self.grants.all()
    }

    /// Rules that "this agent" has added for this agent.
    fn granted(&self, command: JudgedCommand<'_>) -> Vec<Rule> {
        let source = Source::Granted(command.conversation.cloned());
        self.grants
            .used(|rule| rule.agent.as_deref() == Some(&*command.agent.0) && rule.source == source)
    }

    /// Adds the rules of an answer. `Once` and `No` add none.
    pub fn remember(&self, choice: Choice, rules: &[Rule]) -> io::Result<()> {
        match choice {
            Choice::Once | Choice::No => Ok(()),
            Choice::ThisAgent => {
                self.grants.add(rules.iter().cloned());
                Ok(())
            }
            Choice::AlwaysHere | Choice::Always => self.change_remembered(|kept| {
                for rule in rules {
                    // Another question may have added it already.
                    if !kept.rules.iter().any(|kept| is_same(kept, rule)) {
                        let mut rule = rule.clone();
                        rule.name = unused_name(kept);
                        kept.rules.push(rule);
                    }
                }
            }),
        }
    }

    /// Adds the rules and the accepted sandboxes of an answer that a question has as text.
    pub fn remember_text(
        &self,
        choice: Choice,
        text: &str,
        conversation: Option<&Conversation>,
    ) -> io::Result<()> {
        let remembered = settings::read_remembered(text, &self.home);
        let Remembered {
            mut rules,
            sandboxes,
            ..
        } = remembered.map_err(io::Error::other)?;
        if choice == Choice::ThisAgent {
            for rule in &mut rules {
                rule.source = Source::Granted(conversation.cloned());
            }
        }
        self.remember_sandboxes(choice, sandboxes, conversation)?;
        self.remember(choice, &rules)
    }

    /// Removes a rule that "always" has written. `false`: there is none of this name.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let mut removed = false;
        self.change_remembered(|kept| {
            let before = kept.count();
            kept.rules.retain(|rule| rule.name != name);
            kept.hosts.retain(|host| host.name != name);
            kept.sandboxes.retain(|accepted| accepted.name != name);
            removed = kept.count() < before;
        })?;
        Ok(removed)
    }

    fn change_remembered(&self, change: impl FnOnce(&mut Remembered)) -> io::Result<()> {
        // Held while the file is written, so that no rule is lost.
        let _writing = lock(&self.loaded);
        let mut remembered = self.remembered().map_err(io::Error::other)?;
        let before = remembered.clone();
        change(&mut remembered);
        if remembered == before {
            return Ok(());
        }
        let text = settings::write_remembered(&remembered);
        // What is too much for the file would refuse all commands. An entry can always be removed.
        let is_full = remembered.count() > MAX_REMEMBERED || text.len() as u64 > MAX_FILE;
        if is_full && remembered.count() > before.count() {
            return Err(io::Error::other(format!(
                "{} is full; remove rules that are not needed with `abide policy remove NAME`",
                self.remembered.display()
            )));
        }
        if let Some(folder) = self.remembered.parent() {
            std::fs::create_dir_all(folder)?;
        }
        private_file::write(&self.remembered, &text)
    }
}

/// Judges a command by these rules.
pub fn judge_by(policy: &Policy, home: &Path, command: JudgedCommand<'_>) -> PolicyEvaluation {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    // Only rules about paths need to know where symbolic links lead.
    let by_path = policy.rules.iter().any(|rule| !rule.folders.is_empty());
    let real = |path: &Path| match by_path || command.command.contains("rm") {
        true => text(&std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        false => text(path),
    };
    let (folder, workspace, home) = (real(command.folder), real(command.workspace), text(home));
    let surroundings = Surroundings {
        folder: &folder,
        home: &home,
        env: command.env,
        stdin: command.stdin,
    };
    let line = command_line::parse(command.command, surroundings);
    let place = Place {
        agent: &command.agent.0,
        conversation: command.conversation,
        home: &home,
        workspace: &workspace,
    };
    let decision = policy.decide(&line, &place);
    let offers = match decision.action {
        Action::Ask => policy::offers(policy, &line, &place),
        Action::Allow | Action::Deny => Vec::new(),
    };
    PolicyEvaluation {
        decision,
        line,
        offers,
    }
}

impl PolicyEvaluation {
    /// Commands in the command line, for people. Empty if it could not be parsed.
    pub fn commands(&self) -> Vec<String> {
        match &self.line.parsed {
            Parsed::Commands(commands) => commands.iter().map(|command| command.shown()).collect(),
            Parsed::Unparsed(_) => Vec::new(),
        }
    }
}

/// Rules as their file has them. Empty if there are none.
pub fn shown_rules(rules: &[Rule]) -> String {
    match rules.is_empty() {
        true => String::new(),
        false => settings::shown_rules(rules),
    }
}

/// True if two rules differ at most in their names and in where they come from.
fn is_same(one: &Rule, other: &Rule) -> bool {
    let other = Rule {
        name: one.name.clone(),
        source: one.source.clone(),
        ..other.clone()
    };
    *one == other
}

fn unused_name(kept: &Remembered) -> String {
    let mut number = kept.count() + 1;
    loop {
        let name = format!("always-{number}");
        let rules = kept.rules.iter().map(|rule| &rule.name);
        let names = rules.chain(kept.hosts.iter().map(|host| &host.name));
        let mut names = names.chain(kept.sandboxes.iter().map(|accepted| &accepted.name));
        if names.all(|used| *used != name) {
            return name;
        }
        number += 1;
    }
}

/// Rules of a file.
fn read_rules<T>(
    path: &Path,
    home: &Path,
    read: fn(&str, &Path) -> Result<T, InvalidRules>,
) -> Result<T, RuleFileError> {
    let rules = read_file(path).and_then(|text| Ok(read(&text, home)?));
    rules.map_err(|why| RuleFileError {
        path: path.to_owned(),
        why,
    })
}

/// Text of a file of rules; empty if there is none.
fn read_file(path: &Path) -> Result<String, RuleFileFault> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(e) => return Err(e.into()),
    };
    if let Some(why) = untrusted(&file.metadata()?) {
        return Err(RuleFileFault::Untrusted(why));
    }
    Ok(io::read_to_string(file)?)
}

/// Reason why rules in this file are not trusted.
fn untrusted(meta: &Metadata) -> Option<&'static str> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // A group of the user's own is the default of some distributions.
    let others = meta.mode() & 0o002 != 0;
    let foreign_group = meta.mode() & 0o020 != 0 && meta.gid() != group.as_raw();
    if !meta.is_file() {
        Some("is no file")
    } else if meta.size() > MAX_FILE {
        Some("is larger than 1 MiB")
    } else if meta.uid() != user.as_raw() && meta.uid() != 0 {
        Some("belongs to another user; it decides which commands run, so make it your own")
    } else if others || foreign_group {
        Some(
            "can be written by other users; it decides which commands run, so run chmod go-w on it",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests;

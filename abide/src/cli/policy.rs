//! `abide policy` and `abide audit`: the rules, what they would decide, and what was decided. They read the files and
//! need no daemon.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use abide_api::{PolicyDecision, PolicyRemoved, cli};
use abide_core::Agent;
use abide_core::policy::{Action, Choice, Rule, Source};
use abide_core::session::StartedBy;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::Paths;
use abide_engine::peer::{Peer, SessionMembership};
use abide_engine::policy::audit::AuditLog;
use abide_engine::policy::{PolicyEvaluation, PolicyStore};
use abide_engine::timestamp;
use abide_output::printable::{one_line, visible};
use abide_session::keeper_record::{self, Meta};

use super::args::{AuditArgs, PolicyCommand, PolicyTestArgs};
use super::error::CliError;
use super::show::{self, outln};
use crate::http::run_request::quoted;
use crate::tools::rules;

/// Most entries of the audit log that are printed.
const MAX_ENTRIES: usize = 100_000;

pub fn policy(paths: &Paths, command: PolicyCommand) -> Result<u8, CliError> {
    let store = PolicyStore::new(&paths.config);
    match command {
        PolicyCommand::List(list) => list_rules(&store, list.json),
        PolicyCommand::Test(test) => test_command(&store, &test),
        PolicyCommand::Remove(remove) => {
            if session_agent(paths).is_some() {
                return Err(CliError::new(
                    "an agent cannot change the rules; only a person can",
                ));
            }
            let audit = AuditLog::new(paths.audit());
            if !rules::remove(&store, &audit, &remove.name)? {
                let shown = one_line(&remove.name);
                return Err(CliError::new(format!(
                    "no rule that the answer `always` wrote is called '{shown}'"
                ))
                .next(
                    "rules of the configuration are removed there; `abide policy list` shows all",
                ));
            }
            match remove.json.json {
                true => show::json(&PolicyRemoved {
                    removed: remove.name,
                }),
                false => outln!("Removed."),
            }
            Ok(0)
        }
        PolicyCommand::Replay(replay) => replay_sessions(&store, paths, replay.json),
    }
}

fn broken(fault: impl std::fmt::Display) -> CliError {
    CliError::new(format!("the policy cannot be used: {fault}"))
        .next("until the file is corrected, commands of agents are refused")
}

fn list_rules(store: &PolicyStore, json: bool) -> Result<u8, CliError> {
    let listed = rules::rules(store);
    if let Some(error) = &listed.error {
        return Err(broken(error));
    }
    if json {
        show::json(&listed);
        return Ok(0);
    }
    let policy = store.policy().map_err(broken)?;
    for rule in &policy.rules {
        let with = match rule.with.is_empty() {
            true => String::new(),
            false => format!(" with {}", rule.with.join(" | ")),
        };
        let folder = rule
            .folders
            .first()
            .map_or_else(String::new, |folder| format!(" in {folder}"));
        let agent = rule
            .agent
            .as_ref()
            .map_or_else(String::new, |agent| format!(" for {agent}"));
        let line = format!(
            "{:5} {}{with}{folder}{agent}  ({}, {}: {})",
            rule.action.as_str(),
            rule.shown(),
            rule.name,
            source(rule),
            rule.why
        );
        outln!("{}", one_line(&line));
    }
    for allowed in store.remembered_hosts().iter() {
        outln!(
            "allow connections to {} in {}  ({}, always)",
            one_line(&allowed.host),
            one_line(&allowed.folder),
            one_line(&allowed.name)
        );
    }
    for accepted in store.remembered_sandboxes().iter() {
        outln!(
            "allow sandboxes by {} in {} for {}  ({}, always)",
            accepted.mechanism().as_str(),
            one_line(&accepted.folder),
            one_line(&accepted.agent),
            one_line(&accepted.name)
        );
    }
    outln!(
        "\nAll other commands: {}. Rules of \"always\" are in {}.",
        policy.otherwise.as_str(),
        store.remembered_file().display()
    );
    Ok(0)
}

fn source(rule: &Rule) -> &'static str {
    match rule.source {
        Source::Builtin => "built-in",
        Source::Configured => "configuration",
        Source::Remembered => "always",
        Source::Granted(_) => "this agent",
    }
}

fn test_command(store: &PolicyStore, test: &PolicyTestArgs) -> Result<u8, CliError> {
    let here = std::env::current_dir()?;
    let folder = test
        .folder
        .as_ref()
        .map_or_else(|| here.clone(), |folder| here.join(folder));
    let command = match test.command.as_slice() {
        [line] => line.clone(),
        [line, next, ..] if line.contains(char::is_whitespace) => {
            return Err(CliError::new(format!(
                "'{}' after a whole command line would be a word of the command",
                one_line(next)
            ))
            .next("options come before the command: `abide policy test --json 'git push'`")
            .code(2));
        }
        words => words
            .iter()
            .map(|word| quoted(word.as_ref()))
            .collect::<Vec<_>>()
            .join(" "),
    };
    let agent = test.agent.name().unwrap_or_else(|| "default".into());
    let agent = Agent(agent.into());
    let judged = rules::test(store, &agent, &folder, &command).map_err(broken)?;
    if test.json.json {
        show::json(&rules::tested(&command, &judged));
    } else {
        outln!("Command: {}", one_line(&command));
        print_judged(&judged);
    }
    Ok(match judged.decision.action {
        Action::Allow => 0,
        Action::Ask => 3,
        Action::Deny => 4,
    })
}

fn print_judged(judged: &PolicyEvaluation) {
    let decision = &judged.decision;
    match &decision.reason {
        Some(reason) if !reason.rule.is_empty() => {
            outln!(
                "{}: {} (rule: {})",
                decision.action.as_str(),
                one_line(&reason.why),
                one_line(&reason.rule)
            );
        }
        Some(reason) => outln!("{}: {}", decision.action.as_str(), one_line(&reason.why)),
        None => outln!("{}: no rule matches", decision.action.as_str()),
    }
    for part in &decision.parts {
        outln!("  {:5} {}", part.action.as_str(), one_line(&part.command));
    }
    for offer in judged.offers.iter().filter(|offer| !offer.rules.is_empty()) {
        if offer.choice == Choice::Always {
            outln!(
                "\"always\" would add:\n{}",
                visible(abide_engine::policy::shown_rules(&offer.rules).trim_end())
            );
        }
    }
}

/// Records of all sessions.
fn recorded(paths: &Paths) -> impl Iterator<Item = Meta> {
    let entries = std::fs::read_dir(paths.sessions()).into_iter().flatten();
    entries.filter_map(|entry| keeper_record::read_meta(&entry.ok()?.path()).ok()?)
}

/// Agent of the session that runs this process, which sees only its own; `None` outside of sessions.
fn session_agent(paths: &Paths) -> Option<String> {
    let meta = match Peer::own().membership()? {
        SessionMembership::Session(id) => {
            let id = id.to_string();
            recorded(paths).find(|meta| meta.launch.session == id)
        }
        SessionMembership::Keeper(pid) => {
            recorded(paths).find(|meta| i32::try_from(meta.keeper.pid) == Ok(pid))
        }
        SessionMembership::Unknown => None,
    };
    Some(meta.map_or_else(|| "default".into(), |meta| meta.launch.agent))
}

fn replay_sessions(store: &PolicyStore, paths: &Paths, json: bool) -> Result<u8, CliError> {
    let own = session_agent(paths);
    let mut metas: Vec<_> = recorded(paths)
        .filter(|meta| !StartedBy::from_name(meta.launch.started_by.as_deref()).is_try())
        .filter(|meta| (own.as_ref()).is_none_or(|own| *own == meta.launch.agent))
        .collect();
    metas.sort_by_key(|meta| meta.launch.created_wall_ms);
    let mut counts = [0_usize; 3];
    let mut shown = Vec::new();
    for meta in &metas {
        let command = String::from_utf8_lossy(&meta.launch.command).into_owned();
        let folder = Path::new(std::ffi::OsStr::from_bytes(&meta.launch.cwd));
        let agent = Agent(meta.launch.agent.as_str().into());
        let judged = rules::test(store, &agent, folder, &command).map_err(broken)?;
        let action = judged.decision.action;
        counts[action as usize] += 1;
        if action != Action::Allow {
            shown.push(cli::PolicyReplayed {
                tested: rules::tested(&command, &judged),
                session_id: meta.launch.session.clone(),
                agent: meta.launch.agent.clone(),
            });
        }
    }
    let [allowed, asked, denied] = counts;
    if json {
        show::json(&cli::PolicyReplay {
            sessions: metas.len(),
            allow: allowed,
            ask: asked,
            deny: denied,
            decisions: shown,
        });
        return Ok(0);
    }
    for cli::PolicyReplayed { tested, .. } in &shown {
        let decision = match tested.decision {
            PolicyDecision::Allow => "allow",
            PolicyDecision::Ask => "ask",
            PolicyDecision::Deny => "deny",
        };
        let why = tested.why.as_deref().unwrap_or_default();
        outln!(
            "{decision:5} {}  ({})",
            one_line(&tested.command),
            one_line(why)
        );
    }
    outln!(
        "{} recorded commands: {allowed} allowed, {asked} asked, {denied} denied.",
        metas.len()
    );
    Ok(0)
}

pub fn audit(paths: &Paths, args: &AuditArgs) -> Result<u8, CliError> {
    if args.verify {
        return verify(paths, args.json.json);
    }
    let now = SystemClock.now().wall.0;
    let since = args.since.map_or(0, |span| now.saturating_sub(span.0));
    let log = AuditLog::new(paths.audit());
    let own = session_agent(paths);
    let entries = log.read_matching(since, MAX_ENTRIES, |entry| {
        let is_visible = own.as_ref().is_none_or(|own| *own == entry.agent);
        is_visible && (!args.ruled || !entry.is_unruled())
    });
    if entries.is_empty() && !args.json.json {
        outln!("No decisions are recorded.");
    }
    for entry in entries {
        if args.json.json {
            let line = serde_json::to_string(&entry).unwrap_or_default();
            super::print(format!("{line}\n").as_bytes())?;
            continue;
        }
        let answer = entry
            .answer
            .map_or_else(String::new, |answer| format!(" {answer}"));
        // What the sandbox of a command refused: `write /etc/x`.
        let refused = match entry.event.as_str() {
            "refused" => format!(": {}", one_line(&entry.commands.join(", "))),
            _ => String::new(),
        };
        let why = entry.why.map_or_else(String::new, |why| {
            format!("  ({}{refused})", one_line(&why))
        });
        let connection = entry.connection.map_or_else(String::new, |connection| {
            format!(" connect to {}", one_line(&connection))
        });
        let about = match entry.command.is_empty() {
            true => format!("rule {}", one_line(&entry.rule.unwrap_or_default())),
            false => format!("{}: {}", one_line(&entry.agent), one_line(&entry.command)),
        };
        outln!(
            "{} {:8}{answer}{connection} {about}{why}",
            timestamp::rfc3339(entry.at),
            entry.event,
        );
    }
    Ok(0)
}

fn verify(paths: &Paths, json: bool) -> Result<u8, CliError> {
    let found = rules::verify(&AuditLog::new(paths.audit()));
    let code = u8::from(!found.intact);
    if json {
        show::json(&found);
        return Ok(code);
    }
    if let Some(error) = found.error {
        return Err(
            CliError::new(format!("the audit log is not intact: {error}"))
                .next(format!("the files are in {}", paths.audit().display())),
        );
    }
    let Some((last, since)) = found.last.zip(found.since) else {
        outln!("The audit log is empty.");
        return Ok(0);
    };
    outln!(
        "The audit log is intact: {} {} since {}.",
        found.lines,
        if found.lines == 1 { "line" } else { "lines" },
        timestamp::rfc3339(since)
    );
    if found.interrupted > 0 {
        outln!(
            "The writing of {} of them was interrupted.",
            found.interrupted
        );
    }
    outln!("Hash of the last line: {last}");
    outln!(
        "Lines that were removed from the end do not show, unless you compare this hash with one that you noted."
    );
    Ok(0)
}

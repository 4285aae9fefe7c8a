//! Outcome of a run as an exit code and a sentence.

use abide_api::cli::Run;
use abide_api::{RunEnded, RunOutcome, Session, SessionEnd, StartError};
use abide_core::Millis;
use abide_output::printable::one_line;

use super::output::RunOutput;
use crate::cli::args::RunArgs;
use crate::cli::error::EXIT_ABIDE_ERROR;
use crate::cli::show::{self, errln};

/// Exit code: the deadline was reached, or the person declined to wait longer.
const TIMED_OUT: u8 = 124;
/// Exit code: the command exists but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code: the command was not found.
const NOT_FOUND: u8 = 127;
/// Exit code: the person interrupted the command.
pub const INTERRUPTED: u8 = 130;
/// Exit code: SIGTERM came before the command was started.
pub const TERMINATED: u8 = 143;

/// Prints the outcome and returns the exit code.
pub fn report(mut ended: RunEnded, cancelled: bool, args: &RunArgs, output: RunOutput) -> u8 {
    let (code, sentence) = exit_code_and_sentence(&ended, cancelled, args);
    if let Some(collected) = output.collected {
        ended.error = sentence.or(ended.error);
        show::json(&Run {
            ended,
            return_code: code.into(),
            stdout: String::from_utf8_lossy(&collected.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&collected.stderr).into_owned(),
            truncated: collected.truncated || output.missing > 0,
        });
        return code;
    }
    if let Some(sentence) = sentence {
        errln!("abide: {sentence}");
    }
    if let Some(left) = ended.session.as_ref().and_then(leftovers) {
        errln!("abide: {left}");
    }
    if let Some(refused) = ended.refused {
        errln!("{refused}");
    }
    code
}

fn exit_code_and_sentence(
    ended: &RunEnded,
    cancelled: bool,
    args: &RunArgs,
) -> (u8, Option<String>) {
    let error = ended.error.clone();
    match ended.outcome {
        RunOutcome::Failed => {
            let error = error.unwrap_or_else(|| "the command failed to start".into());
            (start_code(ended.start_error), Some(error))
        }
        RunOutcome::Undying => {
            let code = match ended.wanted_end {
                _ if cancelled => INTERRUPTED,
                Some(SessionEnd::Deadline | SessionEnd::IdleDeclined) => TIMED_OUT,
                _ => EXIT_ABIDE_ERROR,
            };
            (code, error)
        }
        RunOutcome::Declined => (TIMED_OUT, error),
        RunOutcome::Cancelled => (INTERRUPTED, error),
        RunOutcome::Ended | RunOutcome::Refused => of_session_end(ended, cancelled, args),
    }
}

/// Exit code and sentence that follow from the end of the session.
fn of_session_end(ended: &RunEnded, cancelled: bool, args: &RunArgs) -> (u8, Option<String>) {
    use SessionEnd::{
        Agent, Deadline, Exited, IdleDeclined, Inactivity, Lost, OutOfMemory, Sandbox, Signaled,
        User,
    };
    let error = ended.error.clone();
    let summary = ended.session.as_ref().map(|session| &session.summary);
    let exit_code = summary.and_then(|summary| summary.exit_code);
    let signal = summary.and_then(|summary| summary.signal);
    let code = exit_code
        .map(|code| (code & 0xff) as u8)
        .or(signal.map(|signal| u8::try_from(128 + signal).unwrap_or(u8::MAX)));
    let sentence = match summary.and_then(|summary| summary.end) {
        Some(User) if cancelled => {
            let sentence = "command execution cancelled by user";
            return (INTERRUPTED, Some(sentence.into()));
        }
        Some(Deadline) => {
            // The deadline may have been changed since the start; the daemon's value is the current one.
            let limit = ended.session.as_ref().and_then(|session| session.timeout);
            let limit = limit.map(|limit| Millis((limit * 1_000.0).round() as u64));
            let limit = limit.or(args.timeout);
            let after = limit.map_or_else(String::new, |limit| format!(" after {limit}"));
            return (TIMED_OUT, Some(format!("command timed out{after}")));
        }
        Some(IdleDeclined) => {
            let sentence = "command execution timeout: no output";
            return (TIMED_OUT, Some(sentence.into()));
        }
        Some(OutOfMemory) => "the command ran out of memory and was killed by the kernel",
        Some(Sandbox) => "the command was ended by its sandbox",
        Some(User) => "the command was killed by a person",
        Some(Agent) => "the command was killed by its agent",
        Some(Inactivity) => "the command was closed: it was inactive",
        Some(Exited | Signaled | Lost) | None => {
            let unknown = "the end of the command was not observed; its exit code is unknown";
            return match code {
                Some(code) => (code, error),
                None => (EXIT_ABIDE_ERROR, error.or(Some(unknown.into()))),
            };
        }
    };
    (code.unwrap_or(EXIT_ABIDE_ERROR), Some(sentence.into()))
}

/// Exit code for a command that could not be started, by the convention of shells.
fn start_code(error: Option<StartError>) -> u8 {
    match error {
        Some(StartError::NotFound) => NOT_FOUND,
        Some(StartError::NotExecutable) => NOT_EXECUTABLE,
        Some(StartError::Other) | None => EXIT_ABIDE_ERROR,
    }
}

fn leftovers(session: &Session) -> Option<String> {
    let left = &session.summary.still_running;
    let names = left.iter().map(|process| {
        let command = one_line(&process.command);
        format!("{command} (pid {})", process.pid)
    });
    let names: Vec<String> = names.collect();
    let id = session.summary.session_id.0;
    (!left.is_empty()).then(|| {
        format!(
            "still running in the background: {}\n  `abide session kill {id}` ends it",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::cli::sample;
    use clap::Parser;
    use serde_json::{Value, json};

    fn exit_code(facts: &Value, cancelled: bool) -> u8 {
        let mut ended: RunEnded = serde_json::from_value(facts.clone()).unwrap();
        if ended.outcome == RunOutcome::Ended {
            ended.session = Some(sample::session(facts.clone()));
        }
        let line = Cli::try_parse_from(["abide", "run", "--", "x"]).unwrap();
        let Command::Run(args) = line.command else {
            panic!()
        };
        exit_code_and_sentence(&ended, cancelled, &args).0
    }

    #[test]
    fn exit_codes_are_those_of_the_help() {
        let ended = |end: &str, code: Option<i32>, signal: Option<i32>| json!({"outcome": "ended", "end": end, "exit_code": code, "signal": signal});
        let undying = |wanted: &str| json!({"outcome": "undying", "wanted_end": wanted});
        let failed = |error: &str| json!({"outcome": "failed", "error": "cannot run x: Permission denied", "start_error": error});
        for (facts, cancelled, code) in [
            (ended("exited", Some(0), None), false, 0),
            (ended("exited", Some(7), None), false, 7),
            (ended("signaled", None, Some(15)), false, 143),
            (ended("signaled", None, Some(2)), false, 130),
            (ended("deadline", None, Some(9)), false, 124),
            (ended("user", None, Some(9)), true, 130),
            (ended("user", None, Some(9)), false, 137),
            (ended("lost", None, None), false, 125),
            (json!({"outcome": "declined"}), false, 124),
            (undying("deadline"), false, 124),
            (undying("idle_declined"), false, 124),
            (undying("user"), true, 130),
            (undying("agent"), false, 125),
            (failed("not_found"), false, 127),
            (failed("not_executable"), false, 126),
            (failed("other"), false, 125),
        ] {
            assert_eq!(exit_code(&facts, cancelled), code, "{facts}");
        }
    }
}

//! Outcome of a run as an exit code and a sentence.

use abide_api::StartError;
use abide_core::Millis;
use abide_output::printable::one_line;
use serde_json::{Value, json};

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
pub fn report(ended: &Value, cancelled: bool, args: &RunArgs, output: RunOutput) -> u8 {
    let (code, sentence) = exit_code_and_sentence(ended, cancelled, args);
    if let Some(collected) = output.collected {
        let mut facts = ended.clone();
        facts["stdout"] = json!(String::from_utf8_lossy(&collected.stdout));
        facts["stderr"] = json!(String::from_utf8_lossy(&collected.stderr));
        facts["truncated"] = json!(collected.truncated || output.missing > 0);
        facts["return_code"] = json!(code);
        if let Some(sentence) = &sentence {
            facts["error"] = json!(sentence);
        }
        show::json(&facts);
        return code;
    }
    if let Some(sentence) = sentence {
        errln!("abide: {sentence}");
    }
    if let Some(left) = leftovers(ended) {
        errln!("abide: {left}");
    }
    if let Some(refused) = ended["refused"].as_str() {
        errln!("{refused}");
    }
    code
}

fn exit_code_and_sentence(ended: &Value, cancelled: bool, args: &RunArgs) -> (u8, Option<String>) {
    let error = ended["error"].as_str().map(str::to_owned);
    let outcome = ended["outcome"].as_str().unwrap_or_default();
    let end = ended["end"].as_str().unwrap_or_default();
    let signal = ended["signal"]
        .as_u64()
        .map(|signal| to_exit_code(128 + signal));
    let code = ended["exit_code"]
        .as_i64()
        .map(|code| (code & 0xff) as u8)
        .or(signal);
    match (outcome, end) {
        ("failed", _) => {
            let error = error.unwrap_or_else(|| "the command failed to start".into());
            (start_code(ended), Some(error))
        }
        ("undying", _) => {
            let code = match ended["wanted_end"].as_str() {
                _ if cancelled => INTERRUPTED,
                Some("deadline" | "idle_declined") => TIMED_OUT,
                _ => EXIT_ABIDE_ERROR,
            };
            (code, error)
        }
        ("declined", _) => (TIMED_OUT, error),
        ("cancelled", _) => (INTERRUPTED, error),
        (_, "user") if cancelled => (
            INTERRUPTED,
            Some("command execution cancelled by user".into()),
        ),
        (_, "deadline") => {
            // The deadline may have been changed since the start; the daemon's value is the current one.
            let limit = ended["timeout"].as_f64();
            let limit = limit.map(|limit| Millis((limit * 1_000.0).round() as u64));
            let limit = limit.or(args.timeout.map(|span| Millis(span.0)));
            let after = limit.map_or_else(String::new, |limit| format!(" after {limit}"));
            (TIMED_OUT, Some(format!("command timed out{after}")))
        }
        (_, "idle_declined") => (
            TIMED_OUT,
            Some("command execution timeout: no output".into()),
        ),
        (_, "out_of_memory" | "sandbox" | "user" | "agent" | "inactivity") => {
            let sentence = match end {
                "out_of_memory" => "the command ran out of memory and was killed by the kernel",
                "sandbox" => "the command was ended by its sandbox",
                "user" => "the command was killed by a person",
                "agent" => "the command was killed by its agent",
                _ => "the command was closed: it was inactive",
            };
            (code.unwrap_or(EXIT_ABIDE_ERROR), Some(sentence.into()))
        }
        _ => match code {
            Some(code) => (code, error),
            None => {
                let sentence = "the end of the command was not observed; its exit code is unknown";
                (EXIT_ABIDE_ERROR, error.or_else(|| Some(sentence.into())))
            }
        },
    }
}

/// Exit code for a command that could not be started, by the convention of shells.
fn start_code(ended: &Value) -> u8 {
    match ended["start_error"].as_str().and_then(StartError::of) {
        Some(StartError::NotFound) => NOT_FOUND,
        Some(StartError::NotExecutable) => NOT_EXECUTABLE,
        Some(StartError::Other) | None => EXIT_ABIDE_ERROR,
    }
}

fn to_exit_code(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

fn leftovers(ended: &Value) -> Option<String> {
    let left = ended["still_running"]
        .as_array()
        .filter(|left| !left.is_empty())?;
    let id = ended["session_id"].as_str()?;
    let names: Vec<String> = left
        .iter()
        .map(|process| {
            let command = one_line(process["command"].as_str().unwrap_or_default());
            format!("{command} (pid {})", process["pid"])
        })
        .collect();
    Some(format!(
        "still running in the background: {}\n  `abide session kill {id}` ends it",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;

    fn exit_code(ended: &Value, cancelled: bool) -> u8 {
        let line = Cli::try_parse_from(["abide", "run", "--", "x"]).unwrap();
        let Command::Run(args) = line.command else {
            panic!()
        };
        exit_code_and_sentence(ended, cancelled, &args).0
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

//! Command lines that cannot be read: one sentence, with the command or option that was probably meant.

use std::ffi::OsString;

use abide_output::sanitizer::Sanitizer;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::args::Cli;
use super::error::EXIT_ABIDE_ERROR;

/// Commands that people know from other programs, and ours.
const SYNONYMS: &[(&str, &str)] = &[
    ("ls", "ps"),
    ("list", "ps"),
    ("sessions", "ps"),
    ("start", "session start"),
    ("exec", "run"),
    ("log", "logs"),
    ("tail", "logs --tail"),
    ("delete", "rm"),
    ("remove", "rm"),
    ("rename", "session rename"),
    ("send", "session send"),
    ("timers", "timer list"),
    ("questions", "answer"),
    ("init", "setup"),
];

/// Command that only completions call.
const HIDDEN: &str = "complete";

/// Exit code of a command line that cannot be read. `run` and its relatives return the exit code of a command, which
/// may be 2, so theirs is that of an error of abide.
pub fn exit_code(error: &clap::Error, command: Option<OsString>) -> u8 {
    let runs = ["run", "rerun", "sandbox"];
    let runs = command.is_some_and(|command| runs.iter().any(|name| command == *name));
    match error.exit_code() {
        0 => 0,
        _ if runs => EXIT_ABIDE_ERROR,
        code => u8::try_from(code).unwrap_or(2),
    }
}

/// Text of an error, without control sequences that a word of the command line may contain. `None`: what was asked for is help.
pub fn sentence(error: &clap::Error) -> Option<String> {
    let text = |kind: ContextKind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let mut sentence = match error.kind() {
        ErrorKind::UnknownArgument => {
            let given = text(ContextKind::InvalidArg)?;
            let option = given.strip_prefix('-')?;
            if option.starts_with(|c: char| c.is_ascii_digit()) {
                return Some(format!(
                    "error: unexpected option '{given}'; durations and counts cannot be negative\n  words after `--` are \
                     not treated as options"
                ));
            }
            let meant = text(ContextKind::SuggestedArg).map(str::to_owned);
            format!(
                "unexpected option '{given}'{}",
                did_you_mean(meant.into_iter().collect())
            )
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(ContextKind::InvalidSubcommand)?;
            let meant = suggested_commands(error, given);
            format!("unknown command '{given}'{}", did_you_mean(meant))
        }
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => return None,
        _ => {
            let text = error.render().to_string();
            return Some(Sanitizer::default().clean(text.trim_end().as_bytes()));
        }
    };
    // Clap suggests `--` if a value would be accepted at this position.
    if error.kind() == ErrorKind::UnknownArgument && error.get(ContextKind::Suggested).is_some() {
        sentence.push_str("\n  words after `--` are not treated as options");
    }
    if let Some(usage) = error.get(ContextKind::Usage) {
        sentence.push_str(&format!("\n\n{usage}"));
    }
    let safe = Sanitizer::default().clean(sentence.as_bytes());
    Some(format!("error: {safe}"))
}

/// Commands that were probably meant: of other programs by their names here, else similar ones.
fn suggested_commands(error: &clap::Error, given: &str) -> Vec<String> {
    let at_top = matches!(error.get(ContextKind::Usage), Some(usage) if usage.to_string().contains("abide <COMMAND>"));
    if let Some((_, ours)) = SYNONYMS
        .iter()
        .find(|(theirs, _)| at_top && *theirs == given)
    {
        return vec![(*ours).to_owned()];
    }
    let mut similar = match error.get(ContextKind::SuggestedSubcommand) {
        // The most similar one comes last.
        Some(ContextValue::Strings(similar)) => similar.iter().rev().cloned().collect(),
        Some(ContextValue::String(similar)) => vec![similar.clone()],
        _ => Vec::new(),
    };
    similar.retain(|name| name != HIDDEN);
    // Clap finds no short name with two letters exchanged.
    if similar.is_empty() && at_top && given.len() > 1 {
        let root = Cli::command();
        let names = root.get_subcommands().map(clap::Command::get_name);
        let near = names.filter(|name| *name != HIDDEN && strsim::osa_distance(given, name) == 1);
        similar.extend(near.map(str::to_owned));
    }
    similar
}

fn did_you_mean(meant: Vec<String>) -> String {
    match meant.is_empty() {
        true => String::new(),
        false => format!("; did you mean '{}'?", meant.join("' or '")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn said(line: &str) -> (String, u8) {
        let words = line.split(' ');
        let error = Cli::try_parse_from(words.clone()).expect_err(line);
        let code = exit_code(&error, words.clone().nth(1).map(Into::into));
        (sentence(&error).unwrap_or_default(), code)
    }

    #[test]
    fn mistyped_commands_and_options_are_suggested() {
        for (line, begin) in [
            (
                "abide statsu",
                "error: unknown command 'statsu'; did you mean 'status'",
            ),
            (
                "abide ls",
                "error: unknown command 'ls'; did you mean 'ps'?",
            ),
            (
                "abide session lst",
                "error: unknown command 'lst'; did you mean 'list'?",
            ),
            (
                "abide timer strat",
                "error: unknown command 'strat'; did you mean 'start'",
            ),
            (
                "abide policy tst",
                "error: unknown command 'tst'; did you mean 'test'",
            ),
            (
                "abide rnu",
                "error: unknown command 'rnu'; did you mean 'run'?",
            ),
            (
                "abide complet",
                "error: unknown command 'complet'; did you mean 'completions'?",
            ),
            ("abide xyzzy", "error: unknown command 'xyzzy'\n"),
            (
                "abide logs --folow x",
                "error: unexpected option '--folow'; did you mean '--follow'?",
            ),
            (
                "abide top --jsn",
                "error: unexpected option '--jsn'; did you mean '--json'?",
            ),
        ] {
            let (said, code) = said(line);
            assert!(said.starts_with(begin), "{line}: {said}");
            assert_eq!(code, 2, "{line}");
        }
    }

    #[test]
    fn control_sequences_of_a_refused_value_are_removed() {
        let (said, _) = said("abide run --name \u{1b}]0;x\u{7}\u{1b}[31mred -- ls");
        assert!(said.starts_with("error: invalid value 'red'"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }

    #[test]
    fn usage_errors_of_run_have_the_code_of_abide() {
        assert_eq!(said("abide run --idel 5s -- true").1, 125);
        assert_eq!(said("abide run").1, 125);
        assert_eq!(said("abide rerun").1, 125);
        assert_eq!(said("abide run --help").1, 0);
        assert_eq!(said("abide kill").1, 2);
    }
}

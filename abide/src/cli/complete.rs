//! Shell completions: the script of each shell, and the ids that it asks for while a person types. A running daemon is
//! asked, and none is started for it.

use std::ffi::OsString;

use abide_api::KnownId;
use clap::{Arg, Command};
use clap_complete::Shell;

use super::show::outln;
use crate::http::{self, IdKind};
use abide_engine::config::Paths;
use abide_output::printable::one_line;

/// Adds the ids to the words that the generated function offers. A placeholder such as `<SESSION>` is left out.
const BASH: &str = r#"
_abide_with_ids() {
    _abide "$@"
    local candidate
    local -a others=()
    for candidate in "${COMPREPLY[@]}"; do
        [[ $candidate == '<'* || $candidate == '['* ]] || others+=("$candidate")
    done
    COMPREPLY=("${others[@]}")
    while IFS=$'\t' read -r candidate _; do
        [[ -n $candidate ]] && COMPREPLY+=("$candidate")
    done < <("$1" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _abide_with_ids -o bashdefault -o default abide
"#;

/// Offers ids where the generated script offers files. The words come from the line editor, because nested
/// completions see a part of them only.
const ZSH: &str = r#"
_abide_ids() {
    local -a line ids
    line=(${(z)LBUFFER})
    [[ $LBUFFER == *' ' ]] && line+=('')
    ids=(${(f)"$(abide complete -- "${(@)line[2,-1]}" 2>/dev/null)"})
    ids=(${ids//$'\t'/:})
    _describe 'id' ids
}
"#;

/// Offers ids and words of arguments, and no files where there are such. The generated script has words of options only.
const FISH: &str = r#"
function __abide_words
    abide complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c abide -n '__abide_words >/dev/null' -f -a '(__abide_words)'
"#;
/// End of the line of an option whose value is an id, as fish has it and as it should.
const FISH_OPTION: (&str, &str) = (" -r", " -x -a '(__abide_words)'");

/// Completion script of a shell.
pub fn script(shell: Shell, root: &Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(root), "abide", &mut script);
    let script = String::from_utf8_lossy(&script);
    let script = match shell {
        Shell::Bash => format!("{script}{BASH}"),
        Shell::Zsh => zsh(&script),
        Shell::Fish => format!("{}{FISH}", fish(&script)),
        _ => script.into_owned(),
    };
    script.into_bytes()
}

/// The program without its hidden commands, which the generated scripts would offer.
fn offered(root: &Command) -> Command {
    let commands = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    Command::default()
        .name("abide")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(commands.cloned())
}

/// Script of fish, with ids as values of the option `--session`.
fn fish(script: &str) -> String {
    let lines = script.lines().map(|line| {
        let is_id = line.contains(" -l session ");
        let begin = line.strip_suffix(FISH_OPTION.0).filter(|_| is_id);
        begin.map_or_else(|| line.to_owned(), |begin| begin.to_owned() + FISH_OPTION.1)
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// Script of zsh, with a function for the arguments that are ids. It is defined before the last lines, which call the
/// completion.
fn zsh(script: &str) -> String {
    let is_id = |line: &str| {
        [
            "':session -- ",
            "'::session -- ",
            "':timer -- ",
            "'::timer -- ",
            "'::question -- ",
        ]
        .iter()
        .any(|begin| line.starts_with(begin))
            || line.contains("]:SESSION:_default'")
    };
    let lines = script.lines().map(|line| match is_id(line) {
        true => line.replace(":_default'", ":_abide_ids'"),
        false => line.to_owned(),
    });
    let script = lines.collect::<Vec<_>>().join("\n");
    match script.split_once('\n') {
        Some((first, rest)) => format!("{first}\n{ZSH}{rest}\n"),
        None => script,
    }
}

/// Prints the ids and words that the last word may become, each with what it belongs to behind a tab. `false`: it may
/// become anything else.
pub fn print(paths: &Paths, root: Command, words: &[OsString]) -> bool {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    let Some((command, arg)) = argument_at(&root, before, last) else {
        return false;
    };
    let typed = match last.split_once('=') {
        Some((_, value)) => value,
        None => last,
    };
    if let Some(kind) = kind(arg) {
        print_ids(paths, kind, typed, offered_sessions(command.get_name()));
        return true;
    }
    let values = arg.get_possible_values();
    for value in values
        .iter()
        .filter(|value| value.get_name().starts_with(typed))
    {
        let about = value.get_help().map(ToString::to_string);
        outln!("{}\t{}", value.get_name(), about.unwrap_or_default());
    }
    !values.is_empty()
}

/// Sessions that a command can do something with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedSessions {
    All,
    Alive,
    Ended,
}

fn offered_sessions(command: &str) -> OfferedSessions {
    match command {
        "attach" | "extend" | "kill" | "resize" | "send" | "signal" => OfferedSessions::Alive,
        "rm" => OfferedSessions::Ended,
        _ => OfferedSessions::All,
    }
}

fn print_ids(paths: &Paths, kind: IdKind, typed: &str, offered: OfferedSessions) {
    let Ok(known) = http::known_ids(&paths.http_socket(), &format!("kind={kind}")) else {
        return;
    };
    let is_offered = |known: &&KnownId| match offered {
        OfferedSessions::All => true,
        OfferedSessions::Alive => !known.ended,
        OfferedSessions::Ended => known.ended,
    };
    for known in known.ids.iter().filter(is_offered) {
        let words = known.name.iter().chain([&known.id]);
        for word in words.filter(|word| word.starts_with(typed)) {
            outln!("{}\t{}", one_line(word), one_line(&known.about));
        }
    }
}

/// Argument that the last word of a command line is, or the value of, and its command.
fn argument_at<'a>(
    root: &'a Command,
    before: &[&str],
    last: &str,
) -> Option<(&'a Command, &'a Arg)> {
    let mut command = root;
    let mut option: Option<&Arg> = None;
    let mut positionals = 0;
    for word in before {
        if option.take().is_some() {
            continue;
        }
        if *word == "--" {
            return None;
        }
        if word.starts_with('-') {
            option = named(command, word).filter(|arg| takes_value(arg));
        } else if let Some(below) = command.find_subcommand(word) {
            command = below;
            positionals = 0;
        } else {
            positionals += 1;
        }
    }
    let arg = match last.split_once('=') {
        _ if option.is_some() => option,
        Some((name, _)) if name.starts_with("--") => named(command, name),
        _ if last.starts_with('-') => None,
        _ => command.get_positionals().nth(positionals),
    };
    arg.map(|arg| (command, arg))
}

fn named<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    // A word with `=` has its value already.
    let matches = |arg: &&Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word.ends_with(short)),
    };
    command.get_arguments().find(matches)
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn kind(arg: &Arg) -> Option<IdKind> {
    match arg.get_id().as_str() {
        "session" => Some(IdKind::Session),
        "timer" => Some(IdKind::Timer),
        "question" => Some(IdKind::Question),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    #[test]
    fn ids_are_completed_where_a_command_takes_one() {
        let at = |words: &[&str]| {
            let (last, before) = words.split_last().unwrap();
            argument_at(&Cli::command(), before, last).and_then(|(_, arg)| kind(arg))
        };
        let session = Some(IdKind::Session);
        assert_eq!(at(&["kill", ""]), session);
        assert_eq!(at(&["session", "kill", "--json", "k"]), session);
        assert_eq!(at(&["logs", "--tail", "5", ""]), session);
        assert_eq!(at(&["wait", "--session", "k"]), session);
        assert_eq!(at(&["wait", "--session=k"]), session);
        assert_eq!(at(&["timer", "pause", ""]), Some(IdKind::Timer));
        assert_eq!(at(&["answer", "q"]), Some(IdKind::Question));
        for other in [
            &["kill", "x", ""][..],
            &["kill", "-"],
            &["logs", "--tail", ""],
            &["run", "--", "kill", ""],
            &["timer", "pause", "x", ""],
            &["ki"],
        ] {
            assert_eq!(at(other), None, "{other:?}");
        }
    }

    #[test]
    fn zsh_offers_ids_instead_of_files() {
        let script = String::from_utf8(script(Shell::Zsh, &Cli::command())).unwrap();
        assert!(script.starts_with("#compdef abide\n"), "{script}");
        assert!(
            !script.contains(
                "':session -- Session id or its beginning, its name, or `last`:_default'"
            )
        );
        assert!(script.contains(":_abide_ids' \\"), "{script}");
    }

    #[test]
    fn scripts_offer_no_hidden_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
            let script = String::from_utf8(script(shell, &Cli::command())).unwrap();
            assert!(script.contains("completions"), "{shell}");
            assert!(!script.contains("abide__subcmd__complete\""), "{shell}");
            assert!(!script.contains("Print the ids that complete"), "{shell}");
        }
    }
}

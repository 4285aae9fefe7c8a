//! Programs that run another program or a script that is among their words: both are added.

use abide_core::policy::{Folder, Origin, Piece, RunsCode, SimpleCommand, Word, normalized};

use super::runs_code::runs_code;
use super::{Input, Reader, Scope, Unparsed};

/// Program that runs the command behind its own options.
struct Wrapper {
    name: &'static str,
    /// Options that take the next word as their value.
    valued: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    /// Words before the command, such as the time of `timeout`.
    positions: usize,
    /// `NAME=value` may come before the command.
    assigns: bool,
}

const PLAIN: Wrapper = Wrapper {
    name: "",
    valued: &[],
    flags: &[],
    positions: 0,
    assigns: false,
};

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        name: "env",
        valued: &["-u", "--unset", "-C", "--chdir"],
        flags: &["-i", "-", "--ignore-environment", "-0", "-v", "--debug"],
        assigns: true,
        ..PLAIN
    },
    Wrapper {
        name: "sudo",
        valued: &[
            "-u", "--user", "-g", "--group", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R",
        ],
        flags: &[
            "-n",
            "-E",
            "-H",
            "-S",
            "-k",
            "-b",
            "-i",
            "-s",
            "-A",
            "-P",
            "--non-interactive",
        ],
        assigns: true,
        ..PLAIN
    },
    Wrapper {
        name: "doas",
        valued: &["-u", "-C"],
        flags: &["-n", "-s"],
        ..PLAIN
    },
    Wrapper {
        name: "pkexec",
        valued: &["--user"],
        ..PLAIN
    },
    Wrapper {
        name: "timeout",
        valued: &["-s", "--signal", "-k", "--kill-after"],
        flags: &["--preserve-status", "--foreground", "-v"],
        positions: 1,
        ..PLAIN
    },
    Wrapper {
        name: "nice",
        valued: &["-n", "--adjustment"],
        ..PLAIN
    },
    Wrapper {
        name: "ionice",
        valued: &["-c", "-n"],
        flags: &["-t"],
        ..PLAIN
    },
    Wrapper {
        name: "nohup",
        ..PLAIN
    },
    Wrapper {
        name: "setsid",
        flags: &["-c", "-f", "-w", "--fork", "--wait", "--ctty"],
        ..PLAIN
    },
    Wrapper {
        name: "stdbuf",
        valued: &["-i", "-o", "-e"],
        ..PLAIN
    },
    Wrapper {
        name: "time",
        valued: &["-f", "-o"],
        flags: &["-p", "-v", "-a"],
        ..PLAIN
    },
    Wrapper {
        name: "command",
        flags: &["-p"],
        ..PLAIN
    },
    Wrapper {
        name: "exec",
        valued: &["-a"],
        flags: &["-c", "-l"],
        ..PLAIN
    },
    Wrapper {
        name: "builtin",
        ..PLAIN
    },
    Wrapper {
        name: "coproc",
        ..PLAIN
    },
    Wrapper {
        name: "xargs",
        valued: &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-d",
            "-E",
            "-s",
            "-a",
            "--max-args",
            "--max-procs",
        ],
        flags: &["-0", "-r", "-t", "-p", "-x", "--null", "--no-run-if-empty"],
        ..PLAIN
    },
    Wrapper {
        name: "parallel",
        valued: &["-j", "-n", "-N", "-I"],
        flags: &["-k", "-0"],
        ..PLAIN
    },
    Wrapper {
        name: "watch",
        valued: &["-n", "--interval"],
        flags: &["-d", "-t", "-x", "-g", "-e"],
        ..PLAIN
    },
    Wrapper {
        name: "flock",
        valued: &["-w", "-E", "--timeout"],
        flags: &["-n", "-s", "-x", "-u", "-o", "-F"],
        positions: 1,
        ..PLAIN
    },
    Wrapper {
        name: "chroot",
        positions: 1,
        ..PLAIN
    },
    Wrapper {
        name: "unshare",
        flags: &[
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "-U",
            "-f",
            "-r",
            "--fork",
            "--net",
            "--mount-proc",
        ],
        ..PLAIN
    },
    Wrapper {
        name: "busybox",
        ..PLAIN
    },
    Wrapper {
        name: "chronic",
        ..PLAIN
    },
    Wrapper {
        name: "caffeinate",
        flags: &["-i", "-d", "-s"],
        ..PLAIN
    },
    Wrapper {
        name: "strace",
        valued: &["-e", "-o", "-p", "-s"],
        flags: &["-f", "-ff", "-c"],
        ..PLAIN
    },
];

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];

/// Adds a command and all commands that it runs.
pub(super) fn add(
    reader: &mut Reader,
    mut command: SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Result<(), Unparsed> {
    if let Some(folder) = folder_option(&command) {
        command.folder = folder;
    }
    command.runs_code = runs_code(&command, input != Input::None);
    let program = command.program();
    let outer = command.clone();
    reader.commands.push(command);
    let Some(program) = program else {
        return Ok(());
    };
    let scope = Scope {
        folder: outer.folder.clone(),
        scripts: scope.scripts + 1,
    };
    if SHELLS.contains(&program.as_str()) {
        // `BASH_ENV=x bash -c ls`: the variable changes what the names in the script mean.
        reader.names_changed |= outer.names_changed;
        return shell(reader, &outer, input, scope);
    }
    match program.as_str() {
        "eval" => script(reader, &joined(outer.arguments()), scope),
        "trap" => match outer.arguments().first() {
            Some(handler) => script(reader, &joined(std::slice::from_ref(handler)), scope),
            None => Ok(()),
        },
        "su" | "script" => match value_of(&outer, &["-c", "--command"]) {
            Some(text) => script(reader, &joined(&[text]), scope),
            None => Ok(()),
        },
        "ssh" => remote(reader, &outer, scope),
        "watch"
            if !outer
                .arguments()
                .iter()
                .any(|word| word.text().as_deref() == Some("-x")) =>
        {
            match inner_words(&outer, "watch") {
                Some(words) => script(reader, &joined(&words), scope),
                None => Ok(()),
            }
        }
        "find" => found(reader, &outer, &scope),
        "git" => alias(reader, &outer, &scope),
        "docker" | "podman" => container(reader, &outer, &scope),
        "env" if value_of(&outer, &["-S", "--split-string"]).is_some() => {
            let text = value_of(&outer, &["-S", "--split-string"]);
            script(reader, &joined(&[text.unwrap_or_default()]), scope)
        }
        "flock" if value_of(&outer, &["-c", "--command"]).is_some() => {
            let text = value_of(&outer, &["-c", "--command"]);
            script(reader, &joined(&[text.unwrap_or_default()]), scope)
        }
        "command" if queries(&outer) => Ok(()),
        name => match inner_words(&outer, name) {
            Some(words) => wrapped(reader, words, &outer, input, &scope),
            None => Ok(()),
        },
    }
}

/// True for `command -v x`, which runs nothing.
fn queries(command: &SimpleCommand) -> bool {
    let first = command.arguments().first().and_then(Word::text);
    matches!(first.as_deref(), Some("-v" | "-V"))
}

/// Words of the command that a wrapper runs.
fn inner_words(command: &SimpleCommand, name: &str) -> Option<Vec<Word>> {
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
    let mut words = command.arguments().iter().peekable();
    let mut positions = wrapper.positions;
    while let Some(word) = words.peek() {
        let text = word.text().unwrap_or_default();
        if text == "--" {
            words.next();
            if positions == 0 {
                break;
            }
        } else if wrapper.valued.contains(&text.as_str()) {
            words.next();
            words.next();
        } else if text.starts_with('-') && text.len() > 1 || wrapper.flags.contains(&text.as_str())
        {
            let long = text.split('=').next().unwrap_or_default();
            let number = text[1..].chars().all(|c| c.is_ascii_digit());
            let joined = wrapper
                .valued
                .iter()
                .any(|known| text.starts_with(known) || *known == long);
            let known = wrapper.flags.contains(&text.as_str()) || joined || number;
            words.next();
            if !known {
                // The next word may be a value of this option or the program.
                let rest: Vec<Word> = words.cloned().collect();
                let mut all = vec![Word::unknown()];
                all.extend(rest);
                return Some(all);
            }
        } else if wrapper.assigns && is_assignment(&text) {
            words.next();
        } else if positions > 0 {
            positions -= 1;
            words.next();
        } else {
            break;
        }
    }
    let ends = |word: &&Word| {
        word.text()
            .is_none_or(|text| name != "parallel" || !text.starts_with(":::"))
    };
    let words: Vec<Word> = words.take_while(ends).cloned().collect();
    (!words.is_empty()).then_some(words)
}

fn is_assignment(text: &str) -> bool {
    let name = text.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Adds the command that a wrapper runs. Variables that `env` or `sudo` set count as those of the command.
fn wrapped(
    reader: &mut Reader,
    words: Vec<Word>,
    outer: &SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Result<(), Unparsed> {
    let given = outer
        .arguments()
        .iter()
        .take(outer.arguments().len() - words.len().min(outer.arguments().len()));
    let given = given
        .filter_map(Word::text)
        .filter(|text| is_assignment(text));
    let changed = given
        .clone()
        .any(|text| text.starts_with("PATH=") || text.starts_with("LD_"));
    let mut assignments = outer.assignments.clone();
    assignments.extend(given.filter_map(|text| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), Word::literal(value)))
    }));
    let inner = SimpleCommand {
        words,
        assignments,
        redirects: outer.redirects.clone(),
        folder: outer.folder.clone(),
        origin: Origin::Wrapper(outer.program().unwrap_or_default()),
        runs_code: None,
        names_changed: outer.names_changed || changed,
    };
    reader.add(inner, input, scope)
}

/// Shell: the script after `-c`, a script on its input, or a script file, which the text does not show.
fn shell(
    reader: &mut Reader,
    outer: &SimpleCommand,
    input: Input,
    scope: Scope,
) -> Result<(), Unparsed> {
    let mut arguments = outer.arguments().iter();
    let mut has_script = false;
    while let Some(word) = arguments.next() {
        let text = word.text().unwrap_or_default();
        let is_short = text.starts_with('-') && !text.starts_with("--");
        if has_script && !is_short {
            return script(reader, &joined(std::slice::from_ref(word)), scope);
        }
        match text.as_str() {
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(arguments.next()),
            text if is_short && text.contains('c') => has_script = true,
            text if text.starts_with('-') || text.starts_with('+') => {}
            // A script file.
            _ => return Ok(()),
        }
    }
    match input {
        Input::Text(text) => script(reader, &text, scope),
        Input::None | Input::Unknown => Ok(()),
    }
}

/// Adds the commands of a script.
fn script(reader: &mut Reader, text: &str, scope: Scope) -> Result<(), Unparsed> {
    reader.script(text, scope)
}

/// Words as the text of a script. Unknown parts become a variable, which the parser takes as unknown again.
fn joined(words: &[Word]) -> String {
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(' ');
        }
        for piece in &word.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Home => text.push_str("$HOME"),
                Piece::Glob => text.push('*'),
                Piece::Unknown => text.push_str("${unknown}"),
            }
        }
    }
    text
}

/// Value of the first of these options.
fn value_of(command: &SimpleCommand, names: &[&str]) -> Option<Word> {
    let arguments = command.arguments();
    arguments.iter().enumerate().find_map(|(at, word)| {
        let text = word.text().unwrap_or_else(|| word.shown());
        if names.contains(&text.as_str()) {
            return Some(arguments.get(at + 1)?.clone());
        }
        let long = names.iter().filter(|name| name.starts_with("--"));
        let mut long = long.filter_map(|name| text.strip_prefix(name)?.strip_prefix('='));
        let value = long.next().map(str::to_owned).or_else(|| {
            let short = names.iter().filter(|name| !name.starts_with("--"));
            let mut short = short.filter_map(|name| text.strip_prefix(name));
            short
                .next()
                .filter(|rest| !rest.is_empty())
                .map(str::to_owned)
        });
        value.map(|value| Word::literal(&value))
    })
}

/// `ssh host command`: the command is a script of the other machine.
fn remote(reader: &mut Reader, outer: &SimpleCommand, scope: Scope) -> Result<(), Unparsed> {
    let mut words = outer.arguments().iter();
    let mut host = false;
    while let Some(word) = words.next() {
        let text = word.text().unwrap_or_default();
        if text.starts_with('-') && !host {
            let valued = "bcDEeFIiJLlmOopQRSWw";
            if text.len() == 2 && valued.contains(&text[1..]) {
                words.next();
            }
        } else if !host {
            host = true;
        } else {
            let rest: Vec<Word> = std::iter::once(word).chain(words).cloned().collect();
            let folder = Folder::Unknown;
            return script(reader, &joined(&rest), Scope { folder, ..scope });
        }
    }
    Ok(())
}

/// `find -exec command ;`
fn found(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Result<(), Unparsed> {
    let mut words = outer.arguments().iter();
    while let Some(word) = words.next() {
        let text = word.text().unwrap_or_default();
        if !matches!(text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let more = |word: &&Word| word.text().is_none_or(|text| text != ";" && text != "+");
        let inner: Vec<Word> = words.by_ref().take_while(more).cloned().collect();
        if !inner.is_empty() {
            wrapped(reader, inner, outer, Input::None, scope)?;
        }
    }
    Ok(())
}

/// `git -c alias.p=push p`: the command that the alias stands for.
fn alias(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Result<(), Unparsed> {
    let words: Vec<String> = outer.arguments().iter().map(Word::shown).collect();
    let mut aliases = words.iter().filter_map(|word| word.strip_prefix("alias."));
    let Some((name, value)) = aliases.find_map(|text| text.split_once('=')) else {
        return Ok(());
    };
    let Some(at) = words.iter().position(|word| word == name) else {
        return Ok(());
    };
    let rest = words[at + 1..].join(" ");
    let text = match value.strip_prefix('!') {
        Some(command) => format!("{command} {rest}"),
        None => format!("git {value} {rest}"),
    };
    script(reader, &text, scope.clone())
}

/// `docker exec container command`
fn container(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Result<(), Unparsed> {
    let texts: Vec<String> = outer.arguments().iter().map(Word::shown).collect();
    if texts.first().map(String::as_str) != Some("exec") {
        return Ok(());
    }
    let valued = [
        "-e",
        "-u",
        "-w",
        "--env",
        "--user",
        "--workdir",
        "--env-file",
    ];
    let mut at = 1;
    while texts.get(at).is_some_and(|text| text.starts_with('-')) {
        at += if valued.contains(&texts[at].as_str()) {
            2
        } else {
            1
        };
    }
    let inner: Vec<Word> = outer.arguments().iter().skip(at + 1).cloned().collect();
    match inner.is_empty() {
        true => Ok(()),
        false => wrapped(reader, inner, outer, Input::None, scope),
    }
}

/// Directory that an option of the program chooses.
fn folder_option(command: &SimpleCommand) -> Option<Folder> {
    let program = command.program()?;
    let names: &[&str] = match program.as_str() {
        "git" | "make" | "cargo" | "tar" => &["-C"],
        "env" => &["-C", "--chdir"],
        _ => return None,
    };
    let first = command.arguments().iter().take_while(|word| {
        let text = word.shown();
        program != "git" || text.starts_with('-') || text.contains(['=', '/', '.'])
    });
    let start = SimpleCommand {
        words: std::iter::once(Word::literal(&program))
            .chain(first.cloned())
            .collect(),
        ..command.clone()
    };
    let path = value_of(&start, names)?;
    Some(match (path.text(), &command.folder) {
        (Some(path), Folder::Known(folder)) => Folder::Known(normalized(&path, folder)),
        (Some(path), Folder::Unknown) if path.starts_with('/') => {
            Folder::Known(normalized(&path, "/"))
        }
        _ => Folder::Unknown,
    })
}

/// True if running code is what the shell does: its script is not in the text.
pub(super) fn shell_runs_code(command: &SimpleCommand, has_input: bool) -> Option<RunsCode> {
    let texts: Vec<String> = command.arguments().iter().map(Word::shown).collect();
    let has_script =
        |text: &String| text.starts_with('-') && !text.starts_with("--") && text.contains('c');
    let is_script = texts.iter().any(has_script);
    let has_file = texts.iter().any(|text| !text.starts_with(['-', '+']));
    ((has_file || has_input) && !is_script).then_some(RunsCode::Always)
}

/// True for the shells that scripts are written for.
pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program)
}

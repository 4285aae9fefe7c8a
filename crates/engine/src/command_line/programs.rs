//! Programs that run commands in a way of their own: `git`, `find`, `ssh`, `docker`, `xargs` and others.

use abide_core::policy::{Folder, Piece, SimpleCommand, Word};

use super::wrapper::{as_script, inner_words, joined, option_values, script, value_of, wrapped};
use super::{Added, Input, Reader, Scope, deletes};

/// `git-push` is `git push`.
pub(super) fn dashed_git(command: &SimpleCommand, name: &str) -> Option<Vec<Word>> {
    let subcommand = name.strip_prefix("git-")?;
    let first = [Word::literal("git"), Word::literal(subcommand)];
    Some(
        first
            .into_iter()
            .chain(command.arguments().iter().cloned())
            .collect(),
    )
}

/// Programs with a subcommand that runs a command, and the number of words before it.
const RUNS: &[(&str, &str, usize)] = &[
    ("uv", "run", 0),
    ("poetry", "run", 0),
    ("pipenv", "run", 0),
    ("pdm", "run", 0),
    ("hatch", "run", 0),
    ("rye", "run", 0),
    ("bundle", "exec", 0),
    ("npm", "exec", 0),
    ("pnpm", "exec", 0),
    ("pnpm", "dlx", 0),
    ("yarn", "exec", 0),
    ("yarn", "dlx", 0),
    ("pipx", "run", 0),
    ("mise", "exec", 0),
    ("mise", "x", 0),
    ("rustup", "run", 1),
    ("volta", "run", 0),
    ("asdf", "exec", 0),
    ("direnv", "exec", 1),
    ("op", "run", 0),
    ("doppler", "run", 0),
    ("aws-vault", "exec", 1),
    ("perf", "record", 0),
    ("perf", "stat", 0),
    ("kubectl", "exec", 1),
    ("conda", "run", 0),
    ("ip", "netns", 2),
    ("heroku", "run", 0),
    ("machinectl", "shell", 1),
];

/// Words of the command that a subcommand runs. `python -m twine` is `twine`.
pub(super) fn run_words(command: &SimpleCommand, name: &str) -> Option<Vec<Word>> {
    if name.starts_with("python") {
        let is_module = |word: &Word| word.text().as_deref() == Some("-m");
        let at = command.arguments().iter().position(is_module)?;
        return Some(command.arguments()[at + 1..].to_vec()).filter(|words| !words.is_empty());
    }
    let (first, rest) = command.arguments().split_first()?;
    let first = first.text()?;
    if name == "nix" {
        let is_command = |word: &Word| matches!(word.text().as_deref(), Some("-c" | "--command"));
        let at = rest.iter().position(is_command)?;
        return Some(rest[at + 1..].to_vec()).filter(|words| !words.is_empty());
    }
    let (.., positions) = RUNS
        .iter()
        .find(|(program, subcommand, _)| *program == name && *subcommand == first)?;
    let is = |word: &Word, text: &str| word.text().as_deref() == Some(text);
    if let Some(at) = rest.iter().position(|word| is(word, "--")) {
        return Some(rest[at + 1..].to_vec()).filter(|words| !words.is_empty());
    }
    let is_option = |word: &Word| word.shown().starts_with('-');
    if rest.iter().take(positions + 1).any(is_option) {
        // The next word may be a value of this option or the program.
        let words = std::iter::once(Word::unknown()).chain(rest.iter().cloned());
        return Some(words.collect());
    }
    Some(rest.get(*positions..)?.to_vec()).filter(|words| !words.is_empty())
}

/// Most words of its input that `xargs` is taken to give to a command.
const GIVEN_WORDS: usize = 100;

/// `xargs`: the command with the words of its input, if they are known.
pub(super) fn given_words(
    reader: &mut Reader,
    outer: &SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Added {
    let Some(mut words) = inner_words(outer, "xargs") else {
        return Ok(());
    };
    let place = value_of(outer, &["-I", "--replace"]).and_then(|word| word.text());
    let place = place.filter(|place| !place.is_empty());
    match (&input, place) {
        (Input::Text(text), Some(place)) => words.iter_mut().for_each(|word| {
            for piece in &mut word.pieces {
                if let Piece::Text(part) = piece {
                    *part = part.replace(&place, text.trim());
                }
            }
        }),
        (Input::Text(text), None) => {
            let given = text.split_whitespace().take(GIVEN_WORDS);
            words.extend(given.map(|word| Word::literal(word.trim_matches(['\'', '"']))));
        }
        (Input::Files(names), Some(place)) => {
            let is_place = |word: &Word| word.text().as_deref() == Some(place.as_str());
            if let Some(at) = words.iter().position(is_place) {
                words.splice(at..=at, names.iter().cloned());
            }
        }
        (Input::Files(names), None) => words.extend(names.iter().cloned()),
        (Input::Unknown, None) => words.push(Word::unknown()),
        (Input::None | Input::Unknown, _) => {}
    }
    // Every file of a directory, one by one.
    if matches!(input, Input::Files(_)) && words[0].text().as_deref() == Some("rm") {
        words.insert(1, Word::literal("-r"));
    }
    wrapped(reader, words, outer, Input::None, scope)
}

/// `alias x='command'`: the command of each alias.
pub(super) fn aliases(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    for word in outer.arguments() {
        let text = as_script(word);
        if let Some((_, command)) = text.split_once('=') {
            script(reader, command, scope.clone())?;
        }
    }
    Ok(())
}

/// Programs that run those of their arguments that are scripts: each with a blank in it is taken for one.
pub(super) fn quoted_scripts(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    for word in outer.arguments() {
        let text = as_script(word);
        if text.contains(char::is_whitespace) {
            script(reader, &text, scope.clone())?;
        }
    }
    Ok(())
}

/// `ssh host command`: the command is a script of the other machine.
pub(super) fn remote(reader: &mut Reader, outer: &SimpleCommand, scope: Scope) -> Added {
    ssh_options(reader, outer, &scope)?;
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
        } else if text == "--" {
        } else {
            let rest: Vec<Word> = std::iter::once(word).chain(words).cloned().collect();
            return reader.child(|reader| {
                reader.shell.folder = Folder::Elsewhere;
                reader.script(&joined(&rest), scope)
            });
        }
    }
    Ok(())
}

/// `ssh -o ProxyCommand=…`: the commands that options run on this machine.
pub(super) fn ssh_options(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let mut words = outer.arguments().iter();
    while let Some(word) = words.next() {
        let text = as_script(word);
        let option = match text.strip_prefix("-o") {
            Some("") => words.next().map(as_script),
            joined => joined.map(str::to_owned),
        };
        let option = option.unwrap_or_default();
        let Some((name, command)) = option.trim_start().split_once(['=', ' ']) else {
            continue;
        };
        let names = [
            "ProxyCommand",
            "LocalCommand",
            "KnownHostsCommand",
            "RemoteCommand",
        ];
        if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            script(reader, command, scope.clone())?;
        }
    }
    Ok(())
}

/// `parallel command ::: arguments`: a shell runs the command.
pub(super) fn parallel(reader: &mut Reader, outer: &SimpleCommand, scope: Scope) -> Added {
    let mut words = inner_words(outer, "parallel").unwrap_or_default();
    words.retain(|word| !word.shown().starts_with(":::"));
    script(reader, &joined(&words), scope)
}

/// `fd -x command`. One that deletes all that it finds counts as `find` does.
pub(super) fn run_on_found(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let runs = |word: &Word| {
        let options = ["-x", "-X", "--exec", "--exec-batch"];
        word.text()
            .is_some_and(|text| options.contains(&text.as_str()))
    };
    match outer.arguments().iter().position(runs) {
        Some(at) if at + 1 < outer.arguments().len() => {
            let (given, inner) = outer.arguments().split_at(at);
            let before = reader.commands.len();
            wrapped(reader, inner[1..].to_vec(), outer, Input::None, scope)?;
            match removes(&reader.commands[before..]) {
                true => deletes::found_by_fd(reader, outer, given, scope),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn removes(commands: &[SimpleCommand]) -> bool {
    let mut programs = commands.iter().map(SimpleCommand::program);
    programs.any(|program| program.as_deref() == Some("rm"))
}

/// `find -exec command ;`
pub(super) fn found(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let before = reader.commands.len();
    let mut deletes = false;
    let mut words = outer.arguments().iter();
    while let Some(word) = words.next() {
        let text = word.text().unwrap_or_default();
        deletes |= text == "-delete";
        if !matches!(text.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let more = |word: &&Word| word.text().is_none_or(|text| text != ";" && text != "+");
        let inner: Vec<Word> = words.by_ref().take_while(more).cloned().collect();
        if !inner.is_empty() {
            wrapped(reader, inner, outer, Input::None, scope)?;
        }
    }
    deletes |= removes(&reader.commands[before..]);
    match deletes {
        true => deletes::found(reader, outer, scope),
        false => Ok(()),
    }
}

/// `gdb --args command`.
pub(super) fn debugged(
    reader: &mut Reader,
    outer: &SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Added {
    let mut words = outer.arguments().iter();
    let is_mark = |word: &Word| matches!(word.text().as_deref(), Some("--args" | "-args"));
    match words.find(|word| is_mark(word)) {
        Some(_) if words.len() > 0 => {
            wrapped(reader, words.cloned().collect(), outer, input, scope)
        }
        _ => Ok(()),
    }
}

/// Commands that git runs.
pub(super) fn git(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let words: Vec<String> = outer.arguments().iter().map(Word::shown).collect();
    // `git -c alias.p=push p`: the command that the alias stands for.
    let aliases = words.iter().filter_map(|word| word.strip_prefix("alias."));
    for (name, value) in aliases.filter_map(|text| text.split_once('=')) {
        let Some(at) = words.iter().position(|word| word == name) else {
            continue;
        };
        let rest = words[at + 1..].join(" ");
        let text = match value.strip_prefix('!') {
            Some(command) => format!("{command} {rest}"),
            None => format!("git {value} {rest}"),
        };
        script(reader, &text, scope.clone())?;
    }
    let has = |name: &str| words.iter().any(|word| word == name);
    let behind = |name: &str| {
        let at = words.iter().position(|word| word == name);
        at.map(|at| &outer.arguments()[at + 1..])
    };
    // `git clone 'ext::command'`
    let transports = words.iter().filter_map(|word| word.strip_prefix("ext::"));
    for command in transports {
        script(reader, command, scope.clone())?;
    }
    let of_options = |names: &[&str], reader: &mut Reader| {
        let mut commands = option_values(outer, names).into_iter();
        commands.try_for_each(|(command, _)| script(reader, &joined(&[command]), scope.clone()))
    };
    match () {
        () if has("submodule") && has("foreach") => {
            let rest = behind("foreach").unwrap_or_default().iter();
            let rest = rest.skip_while(|word| word.shown().starts_with('-'));
            run_by_git(reader, rest.cloned().collect(), outer, scope)
        }
        () if has("bisect") && has("run") => {
            let rest = behind("run").unwrap_or_default();
            run_by_git(reader, rest.to_vec(), outer, scope)
        }
        () if has("rebase") || has("difftool") => of_options(&["-x"], reader),
        () if has("clone") => of_options(&["-u"], reader),
        () if has("grep") => of_options(&["-O"], reader),
        () => Ok(()),
    }
}

/// Command that git runs: a script if it is one word.
fn run_by_git(
    reader: &mut Reader,
    words: Vec<Word>,
    outer: &SimpleCommand,
    scope: &Scope,
) -> Added {
    match words.as_slice() {
        [] => Ok(()),
        [only] => script(reader, &as_script(only), scope.clone()),
        _ => wrapped(reader, words, outer, Input::None, scope),
    }
}

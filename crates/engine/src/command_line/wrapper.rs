//! Programs that run another program or a script that is among their words: both are added.

use abide_core::policy::{Folder, Origin, Piece, SimpleCommand, Word};

use super::names::{changes_meaning, hides_program, set_variables};
use super::runs_code::runs_code;
use super::shell_state::in_folder;
use super::{
    Added, Input, Names, Reader, Scope, containers, deletes, interpreters, programs, shell, sql,
    values,
};

/// Programs that run the command behind their own options.
struct Wrapper {
    names: Names,
    /// Options that take the next word as their value.
    valued: Names,
    /// Options without a value.
    flags: Names,
    /// Words before the command, such as the time of `timeout`.
    positions: usize,
    /// `NAME=value` may come before the command.
    assigns: bool,
}

impl Wrapper {
    const fn new(names: &'static str, valued: &'static str, flags: &'static str) -> Self {
        Wrapper {
            names: Names(names),
            valued: Names(valued),
            flags: Names(flags),
            positions: 0,
            assigns: false,
        }
    }

    const fn behind_words(self, positions: usize) -> Self {
        Wrapper { positions, ..self }
    }

    const fn behind_assignments(self) -> Self {
        let assigns = true;
        Wrapper { assigns, ..self }
    }
}

/// Name that stands for all dynamic loaders.
const LOADER: &str = "ld.so";

const WRAPPERS: &[Wrapper] = &[
    Wrapper::new(
        "env",
        "-u --unset -C --chdir",
        "-i - --ignore-environment -0 -v --debug",
    )
    .behind_assignments(),
    Wrapper::new(
        "sudo",
        "-u --user -g --group -h -p -C -r -t -T -U -D -R",
        "-n -E -H -S -k -b -i -s -A -P --non-interactive",
    )
    .behind_assignments(),
    Wrapper::new("doas", "-u -C", "-n -s"),
    Wrapper::new("pkexec", "--user", ""),
    Wrapper::new(
        "timeout",
        "-s --signal -k --kill-after",
        "--preserve-status --foreground -v",
    )
    .behind_words(1),
    Wrapper::new("nice", "-n --adjustment", ""),
    Wrapper::new("ionice", "-c -n", "-t"),
    Wrapper::new("setsid", "", "-c -f -w --fork --wait --ctty"),
    Wrapper::new("stdbuf", "-i -o -e", ""),
    Wrapper::new("time", "-f -o", "-p -v -a"),
    Wrapper::new("command", "", "-p"),
    Wrapper::new("exec", "-a", "-c -l"),
    Wrapper::new(
        "xargs",
        "-I -n -P -L -d -E -s -a --max-args --max-procs",
        "-0 -r -t -p -x --null --no-run-if-empty",
    ),
    Wrapper::new("parallel", "-j -n -N -I", "-k -0"),
    Wrapper::new(
        "npx",
        "-p --package -w --workspace",
        "-y --yes -q --quiet --no --no-install",
    ),
    Wrapper::new("watch", "-n --interval", "-d -t -x -g -e"),
    Wrapper::new("flock", "-w -E --timeout", "-n -s -x -u -o -F").behind_words(1),
    Wrapper::new(
        "unshare",
        "",
        "-m -u -i -n -p -U -f -r --fork --net --mount-proc",
    ),
    Wrapper::new("caffeinate", "", "-i -d -s"),
    Wrapper::new("strace", "-e -o -p -s", "-f -ff -c"),
    // Those whose options are not known.
    Wrapper::new(
        "builtin bunx busybox bwrap catchsegv cgexec choom chronic coproc corepack cpulimit
         dbus-run-session dumb-init eatmydata entr fakeroot firejail i386 ld.so linux32 linux64
         ltrace nohup nsenter numactl prlimit proxychains proxychains4 rlwrap run0 runuser sem
         setpriv ssh-agent sshpass systemd-cat systemd-inhibit systemd-run tini torify torsocks
         toybox unbuffer uvx valgrind watchexec x86_64 xvfb-run",
        "",
        "",
    ),
    Wrapper::new(
        "chroot chrt faketime gosu runcon setarch su-exec taskset",
        "",
        "",
    )
    .behind_words(1),
];

/// Builtins that run in the shell itself, and may change its state.
const IN_SHELL: Names = Names(
    ". builtin cd chdir command eval getopts let mapfile popd printf pushd read readarray set shift
     source unset",
);

/// Adds a command and all commands that it runs.
pub(super) fn add(
    reader: &mut Reader,
    mut command: SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Added {
    if let Some(folder) = folder_option(&command, &reader.home) {
        command.folder = folder;
    }
    command.runs_code = runs_code(&command, input != Input::None);
    let outer = command.clone();
    reader.commands.push(command);
    let scope = Scope {
        scripts: scope.scripts + 1,
        input: input.clone(),
    };
    let program = outer.program();
    let in_shell = program.is_some_and(|program| IN_SHELL.has(&program));
    if in_shell {
        let read = match &input {
            Input::Files(names) if names.len() == 1 => names[0].clone(),
            _ => Word::unknown(),
        };
        add_inner(reader, &outer, input, scope)?;
        reader.shell.run(&outer, &reader.home);
        let is_read = outer.program().as_deref() == Some("read");
        for name in set_variables(&outer) {
            let value = if is_read { &read } else { &Word::unknown() };
            reader.shell.set(&name, value);
        }
        return Ok(());
    }
    reader.child(|reader| {
        reader.shell.folder = outer.folder.clone();
        for (name, value) in &outer.assignments {
            reader.shell.set(name, value);
        }
        add_inner(reader, &outer, input, scope)
    })
}

/// Adds the commands that a command runs.
fn add_inner(reader: &mut Reader, outer: &SimpleCommand, input: Input, scope: Scope) -> Added {
    let first = outer.words.first();
    if let Some(first) = first.filter(|first| first.shown().contains('/'))
        && let Some(text) = reader.written_text(first, &outer.folder)
    {
        return interpreters::add_written(reader, outer, &text, &scope);
    }
    deletes::written_devices(reader, outer, &scope)?;
    let Some(program) = outer.program() else {
        return Ok(());
    };
    let has_value = values::add(reader, outer, &program, &input, &scope)?;
    if shell::is_shell(outer) {
        // `BASH_ENV=x bash -c ls`: the variable changes what the names in the script mean.
        reader.names_changed |= outer.names_changed;
        return shell::add_script(reader, outer, input, scope);
    }
    interpreters::add_code(reader, outer, &program, &input, &scope)?;
    sql::add(reader, outer, &program, &input, &scope)?;
    match program.as_str() {
        // The value of an option is the command.
        "env" | "flock" | "runuser" if has_value => Ok(()),
        _ => add_run(reader, outer, &program, input, scope),
    }
}

/// Adds the commands among the words of a command.
fn add_run(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: Input,
    scope: Scope,
) -> Added {
    match program {
        "eval" => reader.script(&joined(operands(outer)), scope),
        "." | "source" => shell::add_sourced(reader, operands(outer), input, scope),
        "trap" => match operands(outer).first() {
            Some(handler) => script(reader, &as_script(handler), scope),
            None => Ok(()),
        },
        "alias" => programs::aliases(reader, outer, &scope),
        "hyperfine" | "tmux" | "screen" | "nix-shell" | "concurrently" => {
            programs::quoted_scripts(reader, outer, &scope)
        }
        "at" | "batch" => match input {
            Input::Text(text) => script(reader, &text, scope),
            Input::None | Input::Files(_) | Input::Unknown => Ok(()),
        },
        "xargs" => programs::given_words(reader, outer, input, &scope),
        "ssh" => programs::remote(reader, outer, scope),
        "scp" | "sftp" => programs::ssh_options(reader, outer, &scope),
        "watch"
            if !outer
                .arguments()
                .iter()
                .any(|word| word.text().as_deref() == Some("-x")) =>
        {
            match inner_words(outer, "watch") {
                Some(words) => script(reader, &joined(&words), scope),
                None => Ok(()),
            }
        }
        "parallel" => programs::parallel(reader, outer, scope),
        "fd" | "fdfind" => programs::run_on_found(reader, outer, &scope),
        "find" => programs::found(reader, outer, &scope),
        "gdb" => programs::debugged(reader, outer, input, &scope),
        "rsync" => deletes::by_rsync(reader, outer, &scope),
        "rimraf" => deletes::removed(reader, outer.arguments().to_vec(), outer, &scope),
        "git" => programs::git(reader, outer, &scope),
        "docker" | "podman" => containers::container(reader, outer, &scope),
        "command" if queries(outer) => Ok(()),
        name => match programs::dashed_git(outer, name)
            .or_else(|| programs::run_words(outer, name))
            .or_else(|| inner_words(outer, name))
        {
            Some(words) => wrapped(reader, words, outer, input, &scope),
            None => Ok(()),
        },
    }
}

/// Arguments without a `--` before them.
fn operands(command: &SimpleCommand) -> &[Word] {
    match command.arguments() {
        [first, rest @ ..] if first.text().as_deref() == Some("--") => rest,
        all => all,
    }
}

/// True for `command -v x`, which runs nothing.
fn queries(command: &SimpleCommand) -> bool {
    let first = command.arguments().first().and_then(Word::text);
    matches!(first.as_deref(), Some("-v" | "-V"))
}

/// Words of the command that a wrapper runs.
pub(super) fn inner_words(command: &SimpleCommand, name: &str) -> Option<Vec<Word>> {
    // The dynamic loader: `ld-linux-x86-64.so.2`.
    let name = match name {
        loader if loader.starts_with("ld-") && loader.contains(".so") => LOADER,
        name => name,
    };
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.names.has(name))?;
    let mut words = command.arguments().iter().peekable();
    let mut positions = wrapper.positions;
    while let Some(word) = words.peek() {
        let text = word.text().unwrap_or_default();
        if text == "--" {
            words.next();
            if positions == 0 {
                break;
            }
        } else if wrapper.valued.has(&text) {
            words.next();
            words.next();
        } else if text.starts_with('-') && text.len() > 1 || wrapper.flags.has(&text) {
            let long = text.split('=').next().unwrap_or_default();
            let number = text[1..].chars().all(|c| c.is_ascii_digit());
            let joined = wrapper
                .valued
                .iter()
                .any(|known| text.starts_with(known) || known == long);
            let is_help = matches!(text.as_str(), "--help" | "--version");
            let known = wrapper.flags.has(&text) || joined || number || is_help;
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
    let words: Vec<Word> = words.cloned().collect();
    (!words.is_empty()).then_some(words)
}

fn is_assignment(text: &str) -> bool {
    let name = text.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// Adds the command that a wrapper runs. Variables that `env` or `sudo` set count as those of the command.
pub(super) fn wrapped(
    reader: &mut Reader,
    words: Vec<Word>,
    outer: &SimpleCommand,
    input: Input,
    scope: &Scope,
) -> Added {
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
        has_variables: outer.has_variables,
        from_default: false,
        hides_program: false,
    };
    let inner = SimpleCommand {
        hides_program: hides_program(&inner),
        ..inner
    };
    let changes = changes_meaning(&inner);
    reader.add(inner, input, scope)?;
    reader.names_changed |= changes;
    Ok(())
}

/// Adds the commands of a script that runs in a shell of its own.
pub(super) fn script(reader: &mut Reader, text: &str, scope: Scope) -> Added {
    reader.child(|reader| reader.script(text, scope))
}

/// Words as the text of a script. Unknown parts become a variable, which the parser takes as unknown again.
pub(super) fn joined(words: &[Word]) -> String {
    let mut text = String::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            text.push(' ');
        }
        for piece in &word.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Home => text.push_str("$HOME"),
                Piece::HomeOf(name) => text.push_str(&format!("~{name}")),
                Piece::Folder => text.push_str("$PWD"),
                Piece::Repository => text.push_str("$(git rev-parse --show-toplevel)"),
                Piece::Glob => text.push('*'),
                Piece::Unknown => text.push_str("${unknown}"),
            }
        }
    }
    text
}

/// Word as the text of a script.
pub(super) fn as_script(word: &Word) -> String {
    joined(std::slice::from_ref(word))
}

fn is_letters(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphabetic())
}

/// Value of the first of these options.
pub(super) fn value_of(command: &SimpleCommand, names: &[&str]) -> Option<Word> {
    let values = option_values(command, names).into_iter();
    values.map(|(value, _)| value).next()
}

/// Characters of the shortest begin of a long option that is taken for the option: `--` and a letter.
const SHORTEST_BEGIN: usize = 3;

/// Values of these options, each with the number of the argument behind it. Many programs take the begin of a long option
/// for the whole.
pub(super) fn option_values(command: &SimpleCommand, names: &[&str]) -> Vec<(Word, usize)> {
    let arguments = command.arguments();
    let is_long = |given: &str| {
        let is_begin = given.starts_with("--") && given.len() >= SHORTEST_BEGIN;
        is_begin && names.iter().any(|name| name.starts_with(given))
    };
    let values = arguments.iter().enumerate().filter_map(|(at, word)| {
        let text = word.text().unwrap_or_else(|| word.shown());
        // `-qc` has the value of `-c` behind it.
        let last = text.strip_prefix('-').filter(|rest| is_letters(rest));
        let last = last.and_then(|letters| letters.chars().last());
        let is_last = |name: &&str| last.is_some_and(|last| **name == format!("-{last}"));
        if names.contains(&text.as_str()) || is_long(&text) || names.iter().any(is_last) {
            return Some((arguments.get(at + 1)?.clone(), at + 2));
        }
        let long = text.split_once('=').filter(|(given, _)| is_long(given));
        let value = long.map(|(_, value)| value.to_owned()).or_else(|| {
            let short = names.iter().filter(|name| !name.starts_with("--"));
            let mut short = short.filter_map(|name| text.strip_prefix(name));
            short
                .next()
                .filter(|rest| !rest.is_empty())
                .map(str::to_owned)
        });
        value.map(|value| (Word::literal(&value), at + 1))
    });
    values.collect()
}

/// Directory that an option of the program chooses.
fn folder_option(command: &SimpleCommand, home: &str) -> Option<Folder> {
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
    Some(in_folder(&path, &command.folder, home))
}

//! Commands that run code or write files that their words do not show.

use abide_core::policy::{RunsCode, SimpleCommand, Word};

use super::interpreters::is_awk;
use super::{NameTable, Names, shell};

/// Programs whose purpose is to run code.
const RUNNERS: Names = Names(
    "make gmake ninja just rake gradle gradlew mvn ant bazel tox nox pytest python python2 python3
     pypy3 node deno bun perl ruby php lua npx bunx uvx pipx docker podman vim vi nvim ed ex emacs
     gdb source . ssh eval",
);

/// Subcommands that run code.
const SUBCOMMANDS: NameTable = NameTable(
    "npm: run test start exec install ci run-script
    yarn pnpm: run test start exec install
    cargo: run test build bench check install
    go: run generate test build install
    uv: run sync",
);

/// Options that make a program run code or write files. An option that ends with `*` is a prefix.
const OPTIONS: NameTable = NameTable(
    "find: -exec -execdir -ok -okdir -delete -fprint* -fls
    tar: --to-command* --checkpoint-action* -I* --use-compress-program* -F* --info-script*
    sed: -i* --in-place*
    less: +*
    man: -P* --pager* -H*
    rsync: -e* --rsh* --rsync-path*
    curl: -K* --config* -o* -O* --output* --remote-name*
    wget: -O* --output-document* -i* --use-askpass* -e*
    sort: --compress-program* -o* --output*
    rg: --pre* --hostname-bin*
    tee install xargs: *
    dd: of=*
    git: -c* --exec-path* --config-env* --upload-pack* --receive-pack* -p --paginate
    split: --filter*
    date: -s* --set*
    zip: -T* --unzip-command*",
);

/// Subcommands of git. Any other is an alias of the configuration, which can run everything.
const GIT: Names = Names(
    "add am apply archive bisect blame branch bundle cat-file check-ignore checkout cherry
     cherry-pick clean clone commit config count-objects describe diff diff-tree fetch for-each-ref
     format-patch fsck gc grep hash-object help init log ls-files ls-remote ls-tree maintenance
     merge merge-base mv name-rev notes pull push range-diff rebase reflog remote reset restore
     rev-list rev-parse revert rm shortlog show sparse-checkout stash status submodule switch tag
     worktree",
);

/// Mark of a command that runs code.
pub(super) fn runs_code(command: &SimpleCommand, has_input: bool) -> Option<RunsCode> {
    let program = command.program()?;
    if shell::is_shell(command) {
        return shell::runs_code(command, has_input);
    }
    let texts: Vec<String> = command.arguments().iter().map(Word::shown).collect();
    let is = |pattern: &str, text: &str| match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => text == pattern,
    };
    let mut options = OPTIONS.of(&program);
    let by_option = options.any(|option| texts.iter().any(|text| is(option, text)));
    let by_script = match program.as_str() {
        "sed" => !texts.iter().any(|text| is_plain_sed(text)),
        name if is_awk(name) => texts.iter().any(|text| {
            ["system", "|", ">", "getline"]
                .iter()
                .any(|word| text.contains(word))
        }),
        "git" => subcommand(&texts).is_some_and(|name| !GIT.has(name)),
        _ => false,
    };
    if by_option || by_script {
        return Some(RunsCode::ByOption);
    }
    let runs = RUNNERS.has(&program)
        || program.starts_with("python")
        || command
            .words
            .first()
            .and_then(Word::text)
            .is_some_and(|path| path.contains('/') && !is_system(&path));
    let mut subcommands = SUBCOMMANDS.of(&program);
    let is_sub = subcommands.any(|name| texts.first().is_some_and(|first| first == name));
    (runs || is_sub).then_some(RunsCode::Always)
}

fn is_system(path: &str) -> bool {
    let folders = [
        "/bin/",
        "/usr/bin/",
        "/usr/local/bin/",
        "/sbin/",
        "/usr/sbin/",
    ];
    folders.iter().any(|folder| path.starts_with(folder))
}

/// First word that is no option, and no value of one.
fn subcommand(texts: &[String]) -> Option<&str> {
    let valued = [
        "-C",
        "-c",
        "--git-dir",
        "--work-tree",
        "--namespace",
        "--exec-path",
        "--config-env",
    ];
    let mut words = texts.iter();
    while let Some(word) = words.next() {
        if valued.contains(&word.as_str()) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// True for a script of sed that only prints or replaces.
fn is_plain_sed(script: &str) -> bool {
    let numbers = script.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | '$'));
    if matches!(numbers, "p" | "d" | "q") {
        return true;
    }
    let Some(rest) = numbers.strip_prefix('s') else {
        return false;
    };
    let Some(mark) = rest.chars().next() else {
        return false;
    };
    let parts: Vec<&str> = rest[mark.len_utf8()..].split(mark).collect();
    parts.len() == 3
        && parts[2]
            .chars()
            .all(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | '0'..='9'))
}

//! Names in a command line that mean another program than they seem to: variables such as `PATH`, tables of bash, and programs
//! whose name is made from the value of a variable.

use abide_core::policy::{SimpleCommand, Word};
use tree_sitter::Node;

use super::Names;

/// Variables that change which program a name means, or make programs run others.
const NAMES: Names = Names(
    "PATH BASH_ENV ENV IFS PAGER EDITOR VISUAL NODE_OPTIONS PERL5OPT PERL5LIB RUBYOPT
     JAVA_TOOL_OPTIONS PROMPT_COMMAND SHELLOPTS BASHOPTS HOME SHELL CDPATH XDG_CONFIG_HOME
     GLOBIGNORE RUSTC_WRAPPER",
);

/// Variables of bash with the programs and texts that names stand for.
pub(super) const NAME_TABLES: &[&str] = &["BASH_CMDS", "BASH_ALIASES"];

/// Returns whether a loop or arithmetic sets a variable that changes the meaning of names: `for PATH in x`, `((PATH=1))`.
pub(super) fn sets_names(node: Node<'_>, text: &str) -> bool {
    let is_setting = |above: Node<'_>| {
        above.child_by_field_name("variable") == Some(node) || above.kind().ends_with("_expression")
    };
    matches!(node.kind(), "variable_name" | "word")
        && node.parent().is_some_and(is_setting)
        && changes_names(&text[node.byte_range()])
}

pub(super) fn changes_names(name: &str) -> bool {
    let prefixes = ["LD_", "GIT_", "PYTHON", "DYLD_", "BASH_FUNC"];
    let has_prefix = || prefixes.iter().any(|prefix| name.starts_with(prefix));
    // abide sets them itself.
    let harmless = ["PYTHONUNBUFFERED", "GIT_DISCOVERY_ACROSS_FILESYSTEM"];
    NAMES.has(name) || (has_prefix() && !harmless.contains(&name))
}

/// True for commands after which a name may mean something else.
pub(super) fn changes_meaning(command: &SimpleCommand) -> bool {
    let builtins = [
        "alias", "unalias", "hash", "enable", "set", "shopt", "export", "declare", "typeset",
        "readonly", "source", ".", "eval",
    ];
    let program = command.program().unwrap_or_default();
    builtins.contains(&program.as_str())
        || (SETTERS.has(&program) && set_names(command).any(|name| changes_names(&name)))
}

/// Builtins that set the variables that their arguments name.
const SETTERS: Names =
    Names("read mapfile readarray getopts printf let local declare typeset export readonly");

/// Names of variables among the arguments of a builtin.
fn set_names(command: &SimpleCommand) -> impl Iterator<Item = String> {
    let is_named = |word: &&Word| word.shown().starts_with("-v");
    let only_prints = command.program().as_deref() == Some("printf")
        && command.arguments().first().filter(is_named).is_none();
    let words = command.arguments().iter().map(Word::shown);
    let words = words.filter(move |_| !only_prints);
    words.map(|word| {
        let name = word.strip_prefix("-v").unwrap_or(&word);
        name.split(['=', '[', '*', '+'])
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// Variables that a builtin gives values that are not known.
pub(super) fn set_variables(command: &SimpleCommand) -> Vec<String> {
    let setters = [
        "getopts",
        "let",
        "mapfile",
        "printf",
        "read",
        "readarray",
        "unset",
    ];
    let is_setter = |program: String| setters.contains(&program.as_str());
    match command.program().is_some_and(is_setter) {
        true => set_names(command).collect(),
        false => Vec::new(),
    }
}

/// Returns whether a command gives a name another program: `hash -p program name`, `BASH_CMDS[name]=program`.
pub(super) fn hides_program(command: &SimpleCommand) -> bool {
    let program = command.program().unwrap_or_default();
    let is_path_option = |word: &Word| {
        let text = word.shown();
        text.starts_with('-') && text.contains('p')
    };
    match program.as_str() {
        "hash" => command.arguments().iter().any(is_path_option),
        name => {
            let is_table = |name: &str| NAME_TABLES.contains(&name);
            // `declare -n x=BASH_CMDS`
            let refers = |word: &Word| {
                word.shown()
                    .split_once('=')
                    .is_some_and(|(_, to)| is_table(to))
            };
            SETTERS.has(name)
                && (set_names(command).any(|name| is_table(&name))
                    || command.arguments().iter().any(refers))
        }
    }
}

/// Variables of the expansions in a text that cut or change their values, or take them for names of other variables.
pub(super) fn changed_variables(text: &str) -> impl Iterator<Item = &str> {
    let expansions = text.match_indices("${");
    expansions.filter_map(|(at, open)| changed_by_expansion(&text[at + open.len()..]))
}

/// Variable that the expansion behind this `${` changes.
fn changed_by_expansion(inside: &str) -> Option<&str> {
    let indirect = inside.strip_prefix('!');
    let inside = indirect.unwrap_or(inside);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (variable, rest) = inside.split_at(inside.find(|c| !is_part(c))?);
    let subscript = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let rest = subscript.map_or(rest, |(_, rest)| rest);
    let is_cut = rest
        .strip_prefix(':')
        .is_some_and(|rest| !rest.starts_with(['-', '=', '+', '?']));
    let is_changed = is_cut || rest.starts_with(['#', '%', '/', '^', ',', '~', '@']);
    (!variable.is_empty() && (indirect.is_some() || is_changed)).then_some(variable)
}

/// Returns whether a text names a variable other than in an expansion.
pub(super) fn names_variable(text: &str, variable: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(variable).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + variable.len()..]);
        let is_expansion = before.ends_with(['$', '{', '!', '#']);
        !is_expansion && !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

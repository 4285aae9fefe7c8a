//! Code in texts that the parser takes for plain ones: nested backquotes, bodies of `<<-`, and subscripts, which the shell
//! evaluates also in quotes: `[[ -v 'a[$(command)]' ]]`.

use abide_core::policy::Folder;
use tree_sitter::{Node, Tree};

use super::Names;
use super::shell_state::ShellState;
use super::variables::visit;
use super::word::{Source, word};
use super::wrapper::joined;

/// Words before a builtin that leave its arguments as they are.
const BEFORE_BUILTINS: &[&str] = &["builtin", "command", "time", "coproc", "-p", "--"];

/// Signs of arithmetic, which also evaluates the subscripts in the values of variables.
const ARITHMETIC: [&str; 4] = ["((", "[[", "$[", "let "];

/// Text that stands for one that is not known.
const UNKNOWN: &str = "${unknown}";

/// Commands whose arguments may be names of variables with a subscript, or arithmetic.
const EVALUATING: Names = Names(
    "test [ let declare typeset local export readonly printf read unset mapfile readarray wait",
);

/// Script with the code in such a text.
pub(super) struct HiddenScript {
    pub text: String,
    /// The text may also be something else, which need not be a script.
    pub is_possible: bool,
}

/// Scripts with the code in such texts.
pub(super) fn scripts(text: &str, tree: &Tree) -> Vec<HiddenScript> {
    if !text.contains(['`', '$']) {
        return Vec::new();
    }
    let mut found = Vec::new();
    visit(tree.root_node(), &mut |node| {
        let certain = scripts_of(node, text).into_iter();
        found.extend(certain.map(|text| HiddenScript {
            text,
            is_possible: false,
        }));
    });
    let has_arithmetic = ARITHMETIC.iter().any(|sign| text.contains(sign));
    // `${x@P}` expands the value of a variable once more.
    let has_prompt = text.contains("@P}");
    if has_arithmetic || has_prompt {
        visit(tree.root_node(), &mut |node| {
            let value = quoted(node, text);
            let value = value.filter(|value| {
                (has_prompt && has_substitution(value)) || has_code_in_subscript(value)
            });
            let script = value.map(|value| expansion(&value));
            let is_new = |script: &String| found.iter().all(|known| known.text != *script);
            let script = script.filter(is_new);
            found.extend(script.map(|text| HiddenScript {
                text,
                is_possible: true,
            }));
        });
    }
    found
}

fn scripts_of(node: Node<'_>, text: &str) -> Vec<String> {
    match node.kind() {
        "command" => in_arguments(node, text),
        _ => script_of(node, text).into_iter().collect(),
    }
}

/// Scripts with the code in the subscripts among the arguments of a builtin that evaluates them.
fn in_arguments(command: Node<'_>, text: &str) -> Vec<String> {
    let mut cursor = command.walk();
    let words = command.named_children(&mut cursor);
    let words = words.filter(|node| {
        let kind = node.kind();
        kind != "variable_assignment" && !kind.ends_with("_redirect")
    });
    let mut plain_words: Vec<String> = Vec::new();
    let mut end = 0;
    for node in words {
        let part = plain(node, text);
        // The parser makes several words of one with escaped signs.
        match plain_words.last_mut().filter(|_| node.start_byte() == end) {
            Some(word) => word.push_str(&part),
            None => plain_words.push(part),
        }
        end = node.end_byte();
    }
    let mut words = plain_words.into_iter();
    let name = words.find(|word| !BEFORE_BUILTINS.contains(&word.as_str()));
    let evaluates = name.is_some_and(|name| EVALUATING.has(&name));
    let scripts = words.filter(|word| evaluates && has_code_in_subscript(word));
    scripts.map(|word| expansion(&word)).collect()
}

/// Text of a word without its quotes. What an expansion stands for is not known.
fn plain(node: Node<'_>, text: &str) -> String {
    let source = &text[node.byte_range()];
    match node.kind() {
        "concatenation" | "command_name" => {
            let mut cursor = node.walk();
            let parts = node.children(&mut cursor);
            parts.map(|part| plain(part, text)).collect()
        }
        "simple_expansion"
        | "expansion"
        | "command_substitution"
        | "process_substitution"
        | "arithmetic_expansion" => UNKNOWN.to_owned(),
        _ => quoted(node, text).unwrap_or_else(|| source.replace('\\', "")),
    }
}

/// Text of a string in quotes. `None`: the node is none.
fn quoted(node: Node<'_>, text: &str) -> Option<String> {
    let is_quoted = matches!(
        node.kind(),
        "raw_string" | "string" | "ansi_c_string" | "translated_string"
    );
    let shell = ShellState::new(Folder::Unknown);
    let source = Source {
        text,
        shell: &shell,
    };
    is_quoted.then(|| joined(&[word(node, source, &mut Vec::new())]))
}

fn script_of(node: Node<'_>, text: &str) -> Option<String> {
    let source = &text[node.byte_range()];
    match node.kind() {
        "command_substitution" => {
            let inside = source.strip_prefix('`')?.strip_suffix('`')?;
            inside.contains("\\`").then(|| unescaped(inside))
        }
        "heredoc_body" => {
            let is_start = |node: &Node<'_>| node.kind() == "heredoc_start";
            let redirect = node.parent()?;
            let mut cursor = redirect.walk();
            let start = redirect.named_children(&mut cursor).find(is_start)?;
            let is_quoted = text[start.byte_range()].contains(['\'', '"', '\\']);
            let is_missed = node.named_child_count() == 0 && has_substitution(source);
            (!is_quoted && is_missed).then(|| expansion(source))
        }
        "raw_string" | "string" | "ansi_c_string" if is_evaluated(node) => {
            let content = quoted(node, text)?;
            has_code_in_subscript(&content).then(|| expansion(&content))
        }
        _ => None,
    }
}

/// Script that expands a text and does nothing else. Quotes inside substitutions are those of their commands.
pub(super) fn expansion(text: &str) -> String {
    let mut script = String::from(": \"");
    let (mut depth, mut is_backquoted, mut previous) = (0_usize, false, ' ');
    for c in text.chars() {
        match c {
            '(' if depth > 0 || previous == '$' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '`' => is_backquoted = !is_backquoted,
            '"' if depth == 0 && !is_backquoted => script.push('\\'),
            _ => {}
        }
        script.push(c);
        previous = c;
    }
    script.push('"');
    script
}

pub(super) fn has_substitution(text: &str) -> bool {
    text.contains("$(") || text.contains('`')
}

/// Returns whether a text has a subscript of a variable with a substitution in it.
fn has_code_in_subscript(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut subscripts = text.match_indices('[');
    subscripts.any(|(at, _)| text[..at].ends_with(is_name) && has_substitution(&text[at..]))
}

/// Returns whether the shell may evaluate a text as arithmetic or as the name of a variable.
fn is_evaluated(node: Node<'_>) -> bool {
    let mut above = node.parent();
    while let Some(node) = above {
        match node.kind() {
            "concatenation" => above = node.parent(),
            kind => {
                return kind.ends_with("_expression")
                    || kind.starts_with("arithmetic")
                    || ["test_command", "variable_assignment", "compound_statement"]
                        .contains(&kind)
                    || ["declaration_command", "unset_command"].contains(&kind);
            }
        }
    }
    false
}

/// Text between backquotes, as the shell reads it.
fn unescaped(inside: &str) -> String {
    let mut out = String::new();
    let mut chars = inside.chars().peekable();
    while let Some(c) = chars.next() {
        let escaped = chars.next_if(|next| c == '\\' && matches!(next, '`' | '\\' | '$'));
        out.push(escaped.unwrap_or(c));
    }
    out
}

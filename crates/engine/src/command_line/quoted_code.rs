//! Code in texts that the parser takes for plain ones: nested backquotes, bodies of `<<-`, and subscripts, which the shell
//! evaluates also in quotes: `[[ -v 'a[$(command)]' ]]`.

use tree_sitter::{Node, Tree};

use super::variables::visit;
use super::word::word;
use super::wrapper::joined;

/// Commands whose arguments may be names of variables with a subscript, or arithmetic.
const EVALUATING: &[&str] = &[
    "test",
    "[",
    "let",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "printf",
    "read",
    "unset",
    "mapfile",
    "readarray",
    "wait",
];

/// Scripts with the code in such texts.
pub(super) fn scripts(text: &str, tree: &Tree) -> Vec<String> {
    if !text.contains(['`', '$']) {
        return Vec::new();
    }
    let mut found = Vec::new();
    visit(tree.root_node(), &mut |node| {
        found.extend(script_of(node, text));
    });
    found
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
        "raw_string" | "string" | "ansi_c_string" if is_evaluated(node, text) => {
            let content = joined(&[word(node, text, &mut Vec::new())]);
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
fn is_evaluated(node: Node<'_>, text: &str) -> bool {
    let mut above = node.parent();
    while let Some(node) = above {
        match node.kind() {
            "concatenation" | "command_name" => above = node.parent(),
            "command" => {
                let name = node.child_by_field_name("name");
                let name = name.map(|name| &text[name.byte_range()]);
                return name.is_some_and(|name| EVALUATING.contains(&name));
            }
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

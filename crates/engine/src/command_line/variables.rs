//! Variables that a command line sets to a known text and uses afterwards: `cmd='git push'; $cmd --force`, or
//! `for f in *; do rm -r "$f"; done`. Also the defaults of expansions: `git ${cmd:-push} --force`.

use std::collections::HashMap;

use abide_core::policy::{Piece, Word};
use tree_sitter::{Node, Tree};

use super::word::word;
use super::wrapper::joined;

/// Longest text with values in place of variables, in bytes.
const MAX_BYTES: usize = super::MAX_BYTES;

/// Most values of a loop that are tried.
const MAX_VALUES: usize = 8;

/// Variable that is set in one place.
struct Known {
    /// Value, or those that a loop gives it.
    values: Vec<String>,
    /// Byte after the place where it is set.
    from: usize,
}

/// Texts with the values of variables in their places: several if a loop gives one several values. Empty if no variable
/// that is used is set in one place, to a known text.
pub(super) fn expanded(text: &str, tree: &Tree) -> Vec<String> {
    let mut known: HashMap<&str, Known> = HashMap::new();
    let mut named: HashMap<&str, usize> = HashMap::new();
    let mut uses = Vec::new();
    visit(tree.root_node(), &mut |node| {
        let source = &text[node.byte_range()];
        match node.kind() {
            "variable_assignment" => {
                if let Some((name, value)) = value_of(node, text) {
                    let from = node.end_byte();
                    let values = vec![value];
                    known.insert(name, Known { values, from });
                }
            }
            "for_statement" => {
                if let Some((name, values)) = loop_of(node, text) {
                    known.insert(name, values);
                }
            }
            "simple_expansion" | "expansion" => uses.push(node),
            // Whatever else names a variable may set it: another assignment, `for`, `read`.
            "variable_name" | "word" if !is_expanded(node) => {
                *named.entry(source).or_default() += 1;
            }
            _ => {}
        }
    });
    known.retain(|name, _| named.get(name) == Some(&1));
    let counts = known.values().map(|known| known.values.len());
    let rounds = 0..counts.max().unwrap_or(0).min(MAX_VALUES);
    let texts = rounds.map(|round| with_values(text, &known, &uses, round));
    texts.collect::<Option<_>>().unwrap_or_default()
}

/// Text with one value of each variable in its places. `None`: it uses none, or is too long.
fn with_values(
    text: &str,
    known: &HashMap<&str, Known>,
    uses: &[Node<'_>],
    round: usize,
) -> Option<String> {
    let mut out = String::new();
    let mut at = 0;
    for node in uses {
        let source = &text[node.byte_range()];
        let name = source.trim_start_matches(['$', '{']).trim_end_matches('}');
        let Some(known) = known.get(name) else {
            continue;
        };
        if node.start_byte() < known.from.max(at) {
            continue;
        }
        out.push_str(&text[at..node.start_byte()]);
        let value = known.values.get(round).or(known.values.last())?;
        match node
            .parent()
            .is_some_and(|parent| parent.kind() == "string")
        {
            true => push_quoted(value, &mut out),
            false => out.push_str(value),
        }
        at = node.end_byte();
        if out.len() > MAX_BYTES {
            return None;
        }
    }
    out.push_str(&text[at..]);
    (at > 0).then_some(out)
}

/// Text with blanks in the places of `$IFS`, which divides words where it has no quotes. `None`: it has none.
pub(super) fn with_blanks(text: &str) -> Option<String> {
    let mut parts = text.split("${IFS");
    let mut out = parts.next()?.to_owned();
    for part in parts {
        // `${IFS%?}`
        out.push(' ');
        out.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
    }
    let out = out.replace("$IFS", " ");
    (out != text).then_some(out)
}

/// Variables with the path of a shell, as the name of a program.
const SHELLS: [&str; 5] = ["$BASH", "${BASH}", "$SHELL", "${SHELL}", "$0"];

/// Text with `bash` in the places of `$BASH`, `$SHELL` and `$0` where they name the program. `None`: there are none.
pub(super) fn with_shells(text: &str, tree: &Tree) -> Option<String> {
    let mut out = String::new();
    let mut at = 0;
    visit(tree.root_node(), &mut |node| {
        let name = text[node.byte_range()].trim_matches('"');
        if node.kind() == "command_name" && SHELLS.contains(&name) {
            out.push_str(&text[at..node.start_byte()]);
            out.push_str("bash");
            at = node.end_byte();
        }
    });
    out.push_str(&text[at..]);
    (at > 0).then_some(out)
}

/// Default of an expansion: `${NAME:-value}`, `${NAME-value}`, and the same with `=` or `+`.
pub(super) struct DefaultValue<'t> {
    pub name: &'t str,
    pub value: &'t str,
    /// `=`: the variable has the value afterwards.
    pub assigns: bool,
}

/// Text with the default of each expansion that has one in its place, and in the places of later uses if it is assigned.
/// Only the outer one of nested expansions is replaced. `None`: no expansion has a default, or the text is too long.
pub(super) fn with_defaults(text: &str, tree: &Tree) -> Option<String> {
    // Most texts have none.
    if !text.contains("${") {
        return None;
    }
    let mut uses = Vec::new();
    visit(tree.root_node(), &mut |node| {
        if matches!(node.kind(), "simple_expansion" | "expansion") {
            uses.push(node);
        }
    });
    let mut assigned: HashMap<&str, &str> = HashMap::new();
    let mut out = String::new();
    let mut at = 0;
    for node in uses {
        if node.start_byte() < at {
            continue;
        }
        let source = &text[node.byte_range()];
        let value = match default_of(source) {
            Some(default) => {
                if default.assigns {
                    assigned.insert(default.name, default.value);
                }
                Some(default.value)
            }
            None => {
                let name = source.trim_start_matches(['$', '{']).trim_end_matches('}');
                assigned.get(name).copied()
            }
        };
        let Some(value) = value else { continue };
        let is_quoted = node
            .parent()
            .is_some_and(|parent| parent.kind() == "string");
        out.push_str(&text[at..node.start_byte()]);
        push_default(value, is_quoted, &mut out);
        at = node.end_byte();
        if out.len() > MAX_BYTES {
            return None;
        }
    }
    out.push_str(&text[at..]);
    (at > 0).then_some(out)
}

/// Default in the text of an expansion. `None`: it has none, or an empty one, which adds no word.
pub(super) fn default_of(source: &str) -> Option<DefaultValue<'_>> {
    let inside = source.strip_prefix("${")?.strip_suffix('}')?;
    let inside = inside.strip_prefix('!').unwrap_or(inside);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = match inside.starts_with(['@', '*']) {
        true => 1,
        false => inside.find(|c| !is_part(c))?,
    };
    let (name, mut rest) = inside.split_at(end);
    if name.is_empty() {
        return None;
    }
    if rest.starts_with('[') {
        rest = &rest[rest.find(']')? + 1..];
    }
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let value = rest.strip_prefix(['-', '=', '+'])?;
    let is_empty = value.trim_matches(['"', '\'']).is_empty();
    (!is_empty).then_some(DefaultValue {
        name,
        value,
        assigns: rest.starts_with('='),
    })
}

/// Text of a default. Outside of quotes, a sign such as `;` in it separates no commands.
fn push_default(value: &str, is_quoted: bool, out: &mut String) {
    if is_quoted {
        let plain = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
        out.push_str(plain.unwrap_or(value));
        return;
    }
    let is_plain = !value.contains(['"', '\'', '`', '\\', '$']);
    for c in value.chars() {
        if is_plain && ";|&()<>#".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
}

/// Name and value of an assignment of its own. One before a command holds for that command only.
fn value_of<'t>(node: Node<'_>, text: &'t str) -> Option<(&'t str, String)> {
    let is_prefix = node
        .parent()
        .is_some_and(|parent| parent.kind() == "command");
    let name = node.child_by_field_name("name").filter(|_| !is_prefix)?;
    let value = node.child_by_field_name("value")?;
    let is_plain = text[name.end_byte()..value.start_byte()] == *"=";
    let name = &text[name.byte_range()];
    let mut inner = Vec::new();
    let value = word(value, text, &mut inner);
    let is_known = |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Home | Piece::Folder);
    let is_known = is_plain && value.pieces.iter().all(is_known);
    let value = joined(&[value]);
    (is_known && !value.is_empty()).then_some((name, value))
}

/// Name and values of the variable of a loop.
fn loop_of<'t>(node: Node<'_>, text: &'t str) -> Option<(&'t str, Known)> {
    let name = node.child_by_field_name("variable")?;
    let mut cursor = node.walk();
    let values: Vec<Node<'_>> = node.children_by_field_name("value", &mut cursor).collect();
    let from = values.last()?.end_byte();
    let mut inner = Vec::new();
    let words = values
        .into_iter()
        .map(|value| word(value, text, &mut inner));
    let is_known = |word: &Word| !word.pieces.contains(&Piece::Unknown);
    let values: Vec<String> = words.filter(is_known).map(|word| joined(&[word])).collect();
    let name = &text[name.byte_range()];
    (!values.is_empty()).then_some((name, Known { values, from }))
}

/// Text inside double quotes.
fn push_quoted(value: &str, out: &mut String) {
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
}

fn is_expanded(node: Node<'_>) -> bool {
    let is = |kind: &str| matches!(kind, "simple_expansion" | "expansion");
    node.parent().is_some_and(|parent| is(parent.kind()))
}

/// Visits all nodes in the order of the text.
pub(super) fn visit<'t>(root: Node<'t>, see: &mut impl FnMut(Node<'t>)) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        see(node);
        let mut cursor = node.walk();
        let first = open.len();
        open.extend(node.named_children(&mut cursor));
        open[first..].reverse();
    }
}

//! Variables that a command line sets to a known text and uses afterwards: `cmd='git push'; $cmd --force`, or
//! `for f in *; do rm -r "$f"; done`.

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
fn visit<'t>(root: Node<'t>, see: &mut impl FnMut(Node<'t>)) {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        see(node);
        let mut cursor = node.walk();
        let first = open.len();
        open.extend(node.named_children(&mut cursor));
        open[first..].reverse();
    }
}

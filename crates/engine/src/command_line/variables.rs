//! Variables that a command line sets to a known text and uses afterwards: `cmd='git push'; $cmd --force`.

use std::collections::HashMap;

use abide_core::policy::Piece;
use tree_sitter::{Node, Tree};

use super::word::word;
use super::wrapper::joined;

/// Longest text with values in place of variables, in bytes.
const MAX_BYTES: usize = super::MAX_BYTES;

/// Variable that is set once.
struct Known {
    value: String,
    /// Byte after the place where it is set.
    from: usize,
}

/// Text with the values of variables in their places. `None`: it uses none that is set once, to a known text.
pub(super) fn expanded(text: &str, tree: &Tree) -> Option<String> {
    let mut known: HashMap<&str, Known> = HashMap::new();
    let mut named: HashMap<&str, usize> = HashMap::new();
    let mut uses = Vec::new();
    visit(tree.root_node(), &mut |node| {
        let source = &text[node.byte_range()];
        match node.kind() {
            "variable_assignment" => {
                if let Some((name, value)) = value_of(node, text) {
                    let from = node.end_byte();
                    known.insert(name, Known { value, from });
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
        match node
            .parent()
            .is_some_and(|parent| parent.kind() == "string")
        {
            true => push_quoted(&known.value, &mut out),
            false => out.push_str(&known.value),
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

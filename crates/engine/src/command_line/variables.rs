//! Expansions whose value the text tells without an assignment: `$IFS`, `$SHELL`, and defaults such as `git ${cmd:-push} --force`.

use std::collections::HashMap;

use tree_sitter::{Node, Tree};

/// Longest text with values in place of variables, in bytes.
const MAX_BYTES: usize = super::MAX_BYTES;

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

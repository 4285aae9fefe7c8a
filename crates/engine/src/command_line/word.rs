//! Words of a command: quotes and escapes are decoded to what the program gets, and what cannot be decoded is marked.

use abide_core::policy::{Piece, Word};
use tree_sitter::Node;

use super::class_length;

/// Word of a node. Nodes of substitutions inside are added to `inner`.
pub(super) fn word<'t>(node: Node<'t>, text: &str, inner: &mut Vec<Node<'t>>) -> Word {
    let mut word = Word::default();
    let source = &text[node.byte_range()];
    let has_braces = node.kind() == "concatenation" && has_braces(source);
    if has_braces && !has_glob_in_braces(source) {
        collect_inner(node, inner);
        return Word::unknown();
    }
    add(node, text, &mut word, inner);
    if has_braces {
        cut_at_brace(&mut word);
    }
    if word.pieces.is_empty() {
        word.push_text("");
    }
    word
}

/// Adds all substitutions below a node that are not nested in another one.
pub(super) fn collect_inner<'t>(node: Node<'t>, inner: &mut Vec<Node<'t>>) {
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        if matches!(node.kind(), "command_substitution" | "process_substitution") {
            inner.push(node);
            continue;
        }
        let mut cursor = node.walk();
        let first = open.len();
        open.extend(node.named_children(&mut cursor));
        open[first..].reverse();
    }
}

fn add<'t>(node: Node<'t>, text: &str, word: &mut Word, inner: &mut Vec<Node<'t>>) {
    let source = &text[node.byte_range()];
    match node.kind() {
        "word"
        | "number"
        | "file_descriptor"
        | "variable_name"
        | "special_variable_name"
        | "test_operator" => bare(source, word),
        "raw_string" => {
            let content = source.strip_prefix('\'').unwrap_or(source);
            word.push_text(content.strip_suffix('\'').unwrap_or(content));
        }
        "ansi_c_string" => {
            let content = source.strip_prefix("$'").unwrap_or(source);
            match ansi_c(content.strip_suffix('\'').unwrap_or(content)) {
                Some(content) => word.push_text(&content),
                None => word.pieces.push(Piece::Unknown),
            }
        }
        "string" | "translated_string" => quoted(node, text, word, inner),
        "simple_expansion" | "expansion" if expands(source, "HOME") => {
            word.pieces.push(Piece::Home);
        }
        "simple_expansion" | "expansion" | "command_substitution"
            if let Some(folder) = folder(source) =>
        {
            folder.into_iter().for_each(|piece| word.pieces.push(piece));
        }
        "concatenation" | "command_name" => {
            let mut cursor = node.walk();
            let mut is_in_class = false;
            for child in node.named_children(&mut cursor) {
                // A class of characters, which is a glob already, may end in any of the other parts.
                if is_in_class {
                    collect_inner(child, inner);
                    continue;
                }
                add(child, text, word, inner);
                let source = &text[child.byte_range()];
                is_in_class = word.pieces.last() == Some(&Piece::Glob)
                    && source.rfind('[') > source.rfind(']');
            }
        }
        _ => {
            collect_inner(node, inner);
            word.pieces.push(Piece::Unknown);
        }
    }
}

/// Returns whether an expansion has the value of this variable, which is always set: `$X`, `${X}`, `${X:?text}`,
/// `${X:-value}` and the like.
fn expands(source: &str, name: &str) -> bool {
    let inside = |source: &str| {
        let rest = source
            .strip_prefix('{')?
            .strip_suffix('}')?
            .strip_prefix(name)?;
        let operator = rest.strip_prefix(':').unwrap_or(rest);
        Some(rest.is_empty() || rest == "%/" || operator.starts_with(['?', '-', '=', '@']))
    };
    let source = source.strip_prefix('$');
    source.is_some_and(|source| source == name || inside(source) == Some(true))
}

/// Directory that an expansion stands for, if it is the one in which the command runs, the one above, or the root of the
/// repository.
fn folder(source: &str) -> Option<Vec<Piece>> {
    let inside = source
        .strip_prefix("$(")
        .and_then(|rest| rest.strip_suffix(')'));
    let inside = inside.or_else(|| source.strip_prefix('`')?.strip_suffix('`'));
    let plain = inside.unwrap_or(source).replace('"', "");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let above = || vec![Piece::Folder, Piece::Text("/..".to_owned())];
    match words.as_slice() {
        [source] if expands(source, "PWD") => Some(vec![Piece::Folder]),
        ["${PWD%/*}"] => Some(above()),
        ["${HOME%/*}"] => Some(vec![Piece::Home, Piece::Text("/..".to_owned())]),
        _ if inside.is_none() => None,
        ["pwd"] | ["pwd", "-P" | "-L"] => Some(vec![Piece::Folder]),
        ["realpath", "."] | ["readlink", "-f", "."] => Some(vec![Piece::Folder]),
        ["dirname", "$PWD" | "$(pwd)" | "`pwd`"] | ["realpath", ".."] => Some(above()),
        ["git", "rev-parse", "--show-toplevel"] => Some(vec![Piece::Repository]),
        _ => None,
    }
}

/// Text outside of quotes.
fn bare(source: &str, word: &mut Word) {
    let at_start = word.pieces.is_empty();
    let mut rest = source;
    if let Some(after) = source.strip_prefix('~').filter(|_| at_start) {
        let (name, behind) = after.split_at(after.find('/').unwrap_or(after.len()));
        word.pieces.push(match name {
            "" => Piece::Home,
            "+" => Piece::Folder,
            name if is_user(name) => Piece::HomeOf(name.to_owned()),
            _ => Piece::Unknown,
        });
        rest = behind;
    }
    if has_braces(rest) {
        if has_glob_in_braces(rest) {
            word.push_text(rest);
            cut_at_brace(word);
        } else {
            word.pieces.push(Piece::Unknown);
        }
        return;
    }
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(escaped) => word.push_text(escaped.encode_utf8(&mut [0; 4])),
            },
            '[' => {
                // A class of characters such as `[ab]` stands for one of them. One that cannot be read may end at any `]`.
                let inside = chars.as_str();
                let known = class_length(&format!("[{inside}")).map(|length| length - 1);
                if let Some(end) = known.or_else(|| Some(inside.rfind(']')? + 1)) {
                    chars = inside[end..].chars();
                }
                word.pieces.push(Piece::Glob);
            }
            '*' | '?' => word.pieces.push(Piece::Glob),
            c => word.push_text(c.encode_utf8(&mut [0; 4])),
        }
    }
}

fn is_user(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_part)
}

/// True if the shell makes several words of this one.
pub(super) fn has_braces(source: &str) -> bool {
    let Some(open) = source.find('{') else {
        return false;
    };
    let escaped = source[..open].ends_with(['\\', '$']);
    let inside = &source[open..];
    !escaped && inside.contains('}') && (inside.contains(',') || inside.contains(".."))
}

/// Replaces everything from the first brace on by a glob: `{*,.*}` stands for everything, whatever the other words are.
fn cut_at_brace(word: &mut Word) {
    for at in 0..word.pieces.len() {
        if let Piece::Text(text) = &mut word.pieces[at]
            && let Some(open) = text.find('{')
        {
            text.truncate(open);
            word.pieces.truncate(at + 1);
            word.pieces.push(Piece::Glob);
            return;
        }
    }
}

/// True if one of the words that braces stand for begins with `*` in their place.
fn has_glob_in_braces(source: &str) -> bool {
    source.contains("{*") || source.contains(",*")
}

/// Text in double quotes.
fn quoted<'t>(node: Node<'t>, text: &str, word: &mut Word, inner: &mut Vec<Node<'t>>) {
    let range = node.byte_range();
    let source = &text[range.clone()];
    let open = source.find('"').map_or(0, |at| at + 1);
    let mut at = range.start + open;
    let end = range.end - usize::from(source.len() > open && source.ends_with('"'));
    word.push_text("");
    let mut cursor = node.walk();
    let parts = node.named_children(&mut cursor);
    for part in parts.filter(|part| part.kind() != "string_content") {
        // Some blanks belong to no node.
        if part.start_byte() > at {
            unescaped(&text[at..part.start_byte()], word);
        }
        add(part, text, word, inner);
        at = part.end_byte();
    }
    if end > at {
        unescaped(&text[at..end], word);
    }
}

fn unescaped(source: &str, word: &mut Word) {
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        match (c, next) {
            ('\\', Some('\n')) => drop(chars.next()),
            ('\\', Some(escaped @ ('"' | '\\' | '$' | '`'))) => {
                chars.next();
                word.push_text(escaped.encode_utf8(&mut [0; 4]));
            }
            _ => word.push_text(c.encode_utf8(&mut [0; 4])),
        }
    }
}

/// Decodes `$'…'`. `None`: an escape sequence is unknown, or the result is not text.
pub(super) fn ansi_c(source: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let escape = chars.next()?;
        let mut digits = |first: &str, most: usize, radix: u32| {
            let mut found = first.to_owned();
            while found.len() < most
                && let Some(digit) = chars.next_if(|c| c.is_digit(radix))
            {
                found.push(digit);
            }
            u32::from_str_radix(&found, radix).ok()
        };
        match escape {
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'f' => bytes.push(12),
            'v' => bytes.push(11),
            'e' | 'E' => bytes.push(27),
            c @ ('\\' | '\'' | '"' | '?') => bytes.push(c as u8),
            'x' => bytes.push(u8::try_from(digits("", 2, 16)?).ok()?),
            c @ '0'..='7' => {
                let value = digits(c.encode_utf8(&mut [0; 4]), 3, 8)?;
                bytes.push(u8::try_from(value & 0xff).ok()?);
            }
            c @ ('u' | 'U') => {
                let value = digits("", if c == 'u' { 4 } else { 8 }, 16)?;
                let c = char::from_u32(value)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
    }
    String::from_utf8(bytes).ok()
}

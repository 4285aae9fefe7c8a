//! Words of a command: quotes and escapes are decoded to what the program gets, variables with known values are replaced,
//! and what cannot be decoded is marked.

use abide_core::policy::{Piece, Word};
use tree_sitter::Node;

use super::deletes::{below_folder, printed_names};
use super::shell_state::ShellState;
use super::{CLASS, class_length};

/// Parentheses and backquotes in a substitution that is read for the path that it prints.
const MAX_NESTED: usize = 8;

/// Text with the state of the shell that reads it.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub text: &'a str,
    pub shell: &'a ShellState,
}

/// Words that are read from one node: several if the shell divides the value of a variable.
#[derive(Default)]
struct Words {
    done: Vec<Word>,
    last: Word,
}

impl Words {
    fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.last.push_text(&text),
            piece => self.last.pieces.push(piece),
        }
    }

    fn end_word(&mut self) {
        if !self.last.pieces.is_empty() {
            self.done.push(std::mem::take(&mut self.last));
        }
    }

    /// Adds a value outside of quotes: the shell divides it at blanks, and expands patterns in it.
    fn push_divided(&mut self, value: Word) {
        for piece in value.pieces {
            let Piece::Text(text) = piece else {
                self.push(piece);
                continue;
            };
            for c in text.chars() {
                match c {
                    c if c.is_whitespace() => self.end_word(),
                    '*' | '?' => self.last.pieces.push(Piece::Glob),
                    c => self.last.push_text(c.encode_utf8(&mut [0; 4])),
                }
            }
        }
    }

    /// Adds the words of an expansion.
    fn push_expanded(&mut self, words: Vec<Word>, is_quoted: bool) {
        for (at, word) in words.into_iter().enumerate() {
            if at > 0 {
                self.end_word();
            }
            match is_quoted {
                true => word.pieces.into_iter().for_each(|piece| self.push(piece)),
                false => self.push_divided(word),
            }
        }
    }
}

/// Word of a node, which the shell does not divide. Nodes of substitutions inside are added to `inner`.
pub(super) fn word<'t>(node: Node<'t>, source: Source<'_>, inner: &mut Vec<Node<'t>>) -> Word {
    let mut words = words(node, source, inner).into_iter();
    let mut word = words.next().unwrap_or_else(|| Word::literal(""));
    for next in words {
        word.push_text(" ");
        next.pieces.into_iter().for_each(|piece| match piece {
            Piece::Text(text) => word.push_text(&text),
            piece => word.pieces.push(piece),
        });
    }
    word
}

/// Words of a node among the arguments of a command.
pub(super) fn words<'t>(
    node: Node<'t>,
    source: Source<'_>,
    inner: &mut Vec<Node<'t>>,
) -> Vec<Word> {
    let text = &source.text[node.byte_range()];
    let has_braces = node.kind() == "concatenation" && has_braces(text);
    if has_braces && !has_glob_in_braces(text) {
        collect_inner(node, inner);
        return vec![Word::unknown()];
    }
    let mut words = Words::default();
    add(node, source, &mut words, false, inner);
    if has_braces {
        cut_at_brace(&mut words.last);
    }
    if words.done.is_empty() && words.last.pieces.is_empty() {
        words.last.push_text("");
    }
    words.end_word();
    words.done
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

fn add<'t>(
    node: Node<'t>,
    source: Source<'_>,
    words: &mut Words,
    is_quoted: bool,
    inner: &mut Vec<Node<'t>>,
) {
    let text = &source.text[node.byte_range()];
    match node.kind() {
        "word"
        | "number"
        | "file_descriptor"
        | "variable_name"
        | "special_variable_name"
        | "test_operator" => bare(text, source.shell, &mut words.last),
        "raw_string" => {
            let content = text.strip_prefix('\'').unwrap_or(text);
            words
                .last
                .push_text(content.strip_suffix('\'').unwrap_or(content));
        }
        "ansi_c_string" => {
            let content = text.strip_prefix("$'").unwrap_or(text);
            match ansi_c(content.strip_suffix('\'').unwrap_or(content)) {
                Some(content) => words.last.push_text(&content),
                None => words.push(Piece::Unknown),
            }
        }
        "string" | "translated_string" => quoted(node, source, words, inner),
        "simple_expansion" | "expansion" if let Some(known) = source.shell.expanded(text) => {
            words.push_expanded(known, is_quoted);
        }
        "simple_expansion" | "expansion" if expands(text, "HOME") => words.push(Piece::Home),
        "simple_expansion" | "expansion" if let Some(path) = path_expansion(text) => {
            path.into_iter().for_each(|piece| words.push(piece));
        }
        "command_substitution" if let Some(printed) = printed(node, source, inner) => {
            words.push_expanded(printed, is_quoted);
        }
        // The parser divides some classes of characters.
        "concatenation" if text.contains('[') && !text.contains(['"', '\'', '$', '`']) => {
            bare(text, source.shell, &mut words.last);
        }
        "concatenation" | "command_name" => add_parts(node, source, words, inner),
        _ => {
            collect_inner(node, inner);
            words.push(Piece::Unknown);
        }
    }
}

/// Adds the parts of a word that are written without blanks between them.
fn add_parts<'t>(node: Node<'t>, source: Source<'_>, words: &mut Words, inner: &mut Vec<Node<'t>>) {
    let mut cursor = node.walk();
    let mut is_in_class = false;
    for child in node.named_children(&mut cursor) {
        // A class of characters, which is a glob already, may end in any of the other parts.
        if is_in_class {
            collect_inner(child, inner);
            continue;
        }
        add(child, source, words, false, inner);
        let text = &source.text[child.byte_range()];
        is_in_class =
            words.last.pieces.last() == Some(&Piece::Glob) && text.rfind('[') > text.rfind(']');
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

/// Path of an expansion of `$PWD` or `$HOME`.
fn path_expansion(source: &str) -> Option<Vec<Piece>> {
    let above = |piece| vec![piece, Piece::Text("/..".to_owned())];
    match source {
        "${PWD%/*}" => Some(above(Piece::Folder)),
        "${HOME%/*}" => Some(above(Piece::Home)),
        source => expands(source, "PWD").then(|| vec![Piece::Folder]),
    }
}

/// Names that the command of a substitution prints: `$(pwd)`, `$(dirname "$PWD")`, `$(ls)`, `$(cd .. && pwd)`. `None`: they are
/// not known.
fn printed<'t>(node: Node<'t>, source: Source<'_>, inner: &mut Vec<Node<'t>>) -> Option<Vec<Word>> {
    let is_deep = source.text[node.byte_range()].matches(['(', '`']).count() > MAX_NESTED;
    let first = node
        .named_child(0)
        .filter(|_| node.named_child_count() == 1 && !is_deep)?;
    let mut found = Vec::new();
    let mut command = |node: Node<'t>| {
        let mut cursor = node.walk();
        let parts = node.named_children(&mut cursor);
        let words: Vec<Word> = parts
            .flat_map(|part| words(part, source, &mut found))
            .collect();
        (node.kind() == "command").then_some(words)
    };
    let printed = match first.kind() {
        "list" => {
            let (change, print) = (
                command(first.named_child(0)?)?,
                command(first.named_child(1)?)?,
            );
            let is_change = first.named_child_count() == 2 && change[0].shown() == "cd";
            let path = change
                .get(1)
                .filter(|_| is_change && print[0].shown() == "pwd")?;
            vec![below_folder(path)?]
        }
        _ => {
            let words = command(first)?;
            let (program, arguments) = words.split_first()?;
            printed_names(&program.text()?, arguments)?
        }
    };
    inner.append(&mut found);
    Some(printed)
}

/// Text outside of quotes.
fn bare(source: &str, shell: &ShellState, word: &mut Word) {
    let at_start = word.pieces.is_empty();
    let mut rest = source;
    if let Some(after) = source.strip_prefix('~').filter(|_| at_start) {
        let (name, behind) = after.split_at(after.find('/').unwrap_or(after.len()));
        word.pieces.push(match name {
            "" => Piece::Home,
            "+" => Piece::Folder,
            "-" => match shell.previous() {
                Some(folder) => Piece::Text(folder.to_owned()),
                None => Piece::Unknown,
            },
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
    push_patterns(rest, word);
}

/// Adds text outside of quotes, without braces.
fn push_patterns(text: &str, word: &mut Word) {
    let mut chars = text.chars();
    // The last piece stands for all names: `?*` and `[!.]*` do as `*` does.
    let mut is_any = false;
    while let Some(c) = chars.next() {
        let was_any = std::mem::take(&mut is_any);
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
                is_any = inside.starts_with(['!', '^']);
                if !(was_any && is_any) {
                    word.pieces.push(Piece::Glob);
                }
            }
            '*' | '?' => {
                is_any = true;
                if !was_any {
                    word.pieces.push(Piece::Glob);
                }
            }
            CLASS => word.pieces.push(Piece::Glob),
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
fn quoted<'t>(node: Node<'t>, source: Source<'_>, words: &mut Words, inner: &mut Vec<Node<'t>>) {
    let range = node.byte_range();
    let whole = &source.text[range.clone()];
    let open = whole.find('"').map_or(0, |at| at + 1);
    let mut at = range.start + open;
    let end = range.end - usize::from(whole.len() > open && whole.ends_with('"'));
    words.last.push_text("");
    let mut cursor = node.walk();
    let parts = node.named_children(&mut cursor);
    for part in parts.filter(|part| part.kind() != "string_content") {
        // Some blanks belong to no node.
        if part.start_byte() > at {
            unescaped(&source.text[at..part.start_byte()], &mut words.last);
        }
        add(part, source, words, true, inner);
        at = part.end_byte();
    }
    if end > at {
        unescaped(&source.text[at..end], &mut words.last);
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

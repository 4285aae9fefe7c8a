//! Braces of which the shell makes several words: `git pu{sh,ll}` is `git push pull`.

use tree_sitter::{Node, Tree};

use super::variables::visit;

/// Most words that are made of one.
const MAX_WORDS: usize = 256;

/// Text with the words that braces stand for in their places. `None`: there are none, or the text becomes too long.
pub(super) fn expanded(text: &str, tree: &Tree) -> Option<String> {
    if !text.contains('{') {
        return None;
    }
    let mut found: Vec<(Node<'_>, Vec<String>)> = Vec::new();
    visit(tree.root_node(), &mut |node| {
        let is_inside = |(outer, _): &(Node<'_>, _)| node.end_byte() <= outer.end_byte();
        if matches!(node.kind(), "word" | "concatenation")
            && !found.last().is_some_and(is_inside)
            && let Some(words) = words(&text[node.byte_range()])
        {
            found.push((node, words));
        }
    });
    let mut out = String::new();
    let mut at = 0;
    for (node, words) in &found {
        out.push_str(&text[at..node.start_byte()]);
        out.push_str(&words.join(" "));
        at = node.end_byte();
        if out.len() > super::MAX_BYTES {
            return None;
        }
    }
    out.push_str(&text[at..]);
    (at > 0).then_some(out)
}

/// Words that a word with braces stands for. `None`: it has no braces, or ones that are not known to stand for few words.
pub(super) fn words(source: &str) -> Option<Vec<String>> {
    braces(source)?;
    let mut done = Vec::new();
    let mut open = vec![source.to_owned()];
    while let Some(word) = open.pop() {
        match braces(&word) {
            Some(braces) => {
                let (before, after) = (&word[..braces.begin], &word[braces.end..]);
                let parts = braces.parts.iter().rev();
                open.extend(parts.map(|part| [before, part, after].concat()));
            }
            None => done.push(word),
        }
        if open.len() + done.len() > MAX_WORDS {
            return None;
        }
    }
    Some(done)
}

/// Braces in a word, and what stands in their place.
struct Braces {
    begin: usize,
    end: usize,
    parts: Vec<String>,
}

/// First braces of a word that stand for several words.
fn braces(word: &str) -> Option<Braces> {
    // What a substitution prints may have a brace.
    if word.contains("$(") || word.contains('`') {
        return None;
    }
    let mut opened: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut found: Option<Braces> = None;
    for (at, sign) in signs(word) {
        match sign {
            '{' => opened.push((at, Vec::new())),
            ',' => opened.iter_mut().last()?.1.push(at),
            _ => {
                let Some((begin, commas)) = opened.pop() else {
                    continue;
                };
                let inside = &word[begin + 1..at];
                let parts = match commas.as_slice() {
                    [] => letters(inside),
                    commas => Some(split(word, begin, commas, at)),
                };
                // The outer one of nested braces comes first.
                if let Some(parts) = parts
                    && found.as_ref().is_none_or(|found| begin < found.begin)
                {
                    let end = at + 1;
                    found = Some(Braces { begin, end, parts });
                }
            }
        }
    }
    found
}

fn split(word: &str, begin: usize, commas: &[usize], end: usize) -> Vec<String> {
    let begins = std::iter::once(begin).chain(commas.iter().copied());
    let ends = commas.iter().copied().chain([end]);
    begins
        .zip(ends)
        .map(|(begin, end)| word[begin + 1..end].to_owned())
        .collect()
}

/// Letters of a range such as `a..e`.
fn letters(inside: &str) -> Option<Vec<String>> {
    let (first, last) = inside.split_once("..")?;
    let letter = |text: &str| match text.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(*letter),
        _ => None,
    };
    let (first, last) = (letter(first)?, letter(last)?);
    let all = first.min(last)..=first.max(last);
    Some(all.map(|letter| char::from(letter).to_string()).collect())
}

/// Braces and commas inside of them that have no quotes around them.
fn signs(word: &str) -> Vec<(usize, char)> {
    let mut found = Vec::new();
    let mut quote = None;
    // Levels of expansions such as `${x}`, whose braces stand for no words.
    let (mut expansions, mut levels) = (0_usize, 0_usize);
    let mut chars = word.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => drop(chars.next()),
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '$') if chars.peek().is_some_and(|(_, next)| *next == '{') => {
                chars.next();
                expansions += 1;
            }
            (None, '}') if expansions > 0 => expansions -= 1,
            _ if expansions > 0 => {}
            (None, '{') => {
                levels += 1;
                found.push((at, c));
            }
            (None, '}' | ',') if levels > 0 => {
                levels -= usize::from(c == '}');
                found.push((at, c));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn braces_stand_for_the_words_that_the_shell_makes() {
        for (word, expected) in [
            ("pu{sh,ll}", Some("push pull")),
            ("{a,b}{c,d}", Some("ac ad bc bd")),
            ("x{a,{b,c}}", Some("xa xb xc")),
            ("-{f..h}", Some("-f -g -h")),
            ("x{,y}", Some("x xy")),
            ("${x}{a,b}", Some("${x}a ${x}b")),
            ("'{a,b}'", None),
            ("{a}", None),
            ("a{1..3}", None),
            ("stash@{0}", None),
            ("${x:-a,b}", None),
            ("{a,b", None),
        ] {
            assert_eq!(
                words(word).map(|all| all.join(" ")).as_deref(),
                expected,
                "{word}"
            );
        }
        assert_eq!(words(&"{a,b}".repeat(9)), None);
    }
}

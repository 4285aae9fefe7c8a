//! Patterns with `*`, and words of which only a part is known.

use alloc::vec;
use alloc::vec::Vec;

use super::command::{Piece, Word};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
}

fn tokens(pattern: &str) -> Vec<Token> {
    let token = |c| if c == '*' { Token::Any } else { Token::Char(c) };
    pattern.chars().map(token).collect()
}

fn word_tokens(word: &Word) -> Vec<Token> {
    let mut tokens = Vec::new();
    for piece in &word.pieces {
        match piece {
            Piece::Text(text) => tokens.extend(text.chars().map(Token::Char)),
            Piece::Home
            | Piece::HomeOf(_)
            | Piece::Folder
            | Piece::Repository
            | Piece::Glob
            | Piece::Unknown => tokens.push(Token::Any),
        }
    }
    tokens
}

/// Returns whether a text has this pattern, in which `*` is any text.
pub fn matches(pattern: &str, text: &str) -> bool {
    // Every rule is compared with every command, and few can match: most are told apart without tokens.
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, _)) => {
            let tokens_of_text = || text.chars().map(Token::Char).collect::<Vec<Token>>();
            text.starts_with(start) && overlap(&tokens(pattern), &tokens_of_text())
        }
    }
}

/// Returns whether a word could have this pattern when the command runs. A word without any known text could be
/// everything, so it decides nothing.
pub(super) fn could_match(pattern: &str, word: &Word) -> bool {
    match word.pieces.as_slice() {
        _ if pattern == "*" => true,
        [Piece::Text(text)] => !text.is_empty() && matches(pattern, text),
        _ => word.has_text() && overlap(&tokens(pattern), &word_tokens(word)),
    }
}

/// Returns whether some text has both patterns. Takes at most the product of their lengths in steps.
fn overlap(left: &[Token], right: &[Token]) -> bool {
    // `reached[j]`: the first i tokens of `left` and the first j of `right` can stand for the same text.
    let mut reached = vec![false; right.len() + 1];
    for i in 0..=left.len() {
        let mut row = vec![false; right.len() + 1];
        for j in 0..=right.len() {
            let from_left = i > 0 && reached[j] && left[i - 1] == Token::Any;
            let from_right = j > 0 && row[j - 1] && right[j - 1] == Token::Any;
            let from_both = i > 0 && j > 0 && reached[j - 1] && same(left[i - 1], right[j - 1]);
            // A wildcard stands for one more token of the other side.
            let longer_left = i > 0 && j > 0 && row[j - 1] && left[i - 1] == Token::Any;
            let longer_right = i > 0 && j > 0 && reached[j] && right[j - 1] == Token::Any;
            row[j] = (i == 0 && j == 0)
                || from_left
                || from_right
                || from_both
                || longer_left
                || longer_right;
        }
        reached = row;
    }
    reached[right.len()]
}

fn same(left: Token, right: Token) -> bool {
    left == right || left == Token::Any || right == Token::Any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_text() {
        for (pattern, text, same) in [
            ("+*", "+main", true),
            ("+*", "main", false),
            ("delete*", "delete-stack", true),
            ("delete*", "describe", false),
            ("*", "", true),
            ("a*c*", "abcd", true),
            ("push", "push", true),
            ("push", "pushd", false),
            ("pushd", "push", false),
            ("a*", "*", false),
            ("*b", "ab", true),
        ] {
            assert_eq!(matches(pattern, text), same, "{pattern} {text}");
        }
    }

    #[test]
    fn dynamic_word_could_be_what_its_known_part_allows() {
        let word = |pieces: &[Piece]| Word {
            pieces: pieces.to_vec(),
        };
        let text = |text: &str| Piece::Text(text.into());
        assert!(could_match("push", &word(&[text("pus"), Piece::Glob])));
        assert!(could_match("git", &word(&[Piece::Unknown, text("it")])));
        assert!(!could_match("git", &word(&[Piece::Unknown, text("at")])));
        assert!(!could_match("push", &Word::unknown()));
        assert!(could_match(
            "delete*",
            &word(&[text("del"), Piece::Unknown])
        ));
    }
}

//! SQL in the command line of a database client. A statement that deletes or changes all rows of a table counts as a command
//! `sql`, so that rules apply to it: `psql -c 'DROP TABLE users'` runs `sql drop table users`.

use abide_core::policy::{SimpleCommand, Word};

use super::wrapper::{as_script, wrapped};
use super::{Added, Input, Reader, Scope};

const CLIENTS: [&str; 5] = ["psql", "mysql", "mariadb", "sqlite3", "wrangler"];

/// Kinds of things that are not restored once they are dropped. An index can be built again.
const KINDS: [&str; 8] = [
    "database",
    "materialized",
    "owned",
    "role",
    "schema",
    "table",
    "user",
    "view",
];

/// Most words of a statement that are kept.
const MAX_WORDS: usize = 10;

/// Adds the statements that a database client is given as arguments or as its input.
pub(super) fn add(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: &Input,
    scope: &Scope,
) -> Added {
    if !CLIENTS.contains(&program) {
        return Ok(());
    }
    let arguments = outer.arguments().iter();
    let mut texts: Vec<String> = arguments.map(value).collect();
    let files = texts.iter().map(|file| Word::literal(file));
    let files: Vec<String> = files
        .filter_map(|file| reader.written_text(&file, &outer.folder))
        .collect();
    texts.extend(files);
    if let Input::Text(text) = input {
        texts.push(text.clone());
    }
    let is_in_memory = texts.first().is_some_and(|first| first == ":memory:");
    let opens_file = |text: &String| {
        let text = text.to_ascii_lowercase();
        text.contains("attach") || text.contains(".open")
    };
    if is_in_memory && !texts.iter().any(opens_file) {
        return Ok(());
    }
    // Clients differ in what a comment is, so the text counts with and without comments.
    let mut found: Vec<Vec<Word>> = Vec::new();
    for text in texts
        .iter()
        .flat_map(|text| [text.clone(), without_comments(text)])
    {
        for words in text.split(';').filter_map(deletes) {
            if !found.contains(&words) {
                found.push(words);
            }
        }
    }
    for words in found {
        wrapped(reader, words, outer, Input::None, scope)?;
    }
    Ok(())
}

/// Value of an option that is one word with its name, else the word.
fn value(word: &Word) -> String {
    let text = as_script(word);
    match (text.split_once('='), text.get(2..)) {
        // `-- text` is a comment.
        _ if text.starts_with("--") && text[2..].starts_with(char::is_whitespace) => text,
        (Some((name, value)), _) if name.starts_with("--") => value.to_owned(),
        (_, Some(value)) if text.starts_with('-') => value.to_owned(),
        _ => text,
    }
}

/// Text without `-- …`, `# …` and `/* … */` outside of quotes.
fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut quote = None;
    while let Some(c) = rest.chars().next() {
        let end = match quote {
            None if rest.starts_with("--") || c == '#' => rest.find('\n'),
            // `/*!40000 drop table x */` is run by MySQL.
            None if rest.starts_with("/*!") => {
                let is_mark = |c: char| c.is_ascii_digit() || "/*!".contains(c);
                rest.find(|c| !is_mark(c))
            }
            None if rest.starts_with("/*") => rest.find("*/").map(|at| at + 2),
            _ => {
                quote = match (quote, c) {
                    (None, '\'' | '"' | '`') => Some(c),
                    (Some(open), c) if open == c => None,
                    _ => quote,
                };
                out.push(c);
                Some(c.len_utf8())
            }
        };
        let end = end.unwrap_or(rest.len());
        if end > c.len_utf8() {
            out.push(' ');
        }
        rest = &rest[end..];
    }
    out
}

/// Returns whether a statement is limited to some rows.
fn has_condition(statement: &str) -> bool {
    let Some((_, condition)) = statement.split_once("where") else {
        return false;
    };
    let condition: String = condition.split_whitespace().collect();
    !["1", "1=1", "true"].contains(&condition.as_str())
}

/// Words of a statement that deletes a column, all rows of a table, or more.
fn deletes(statement: &str) -> Option<Vec<Word>> {
    let mut words = statement.split_whitespace().map(str::to_owned);
    let first = words.next()?.to_ascii_lowercase();
    let second = words.next()?;
    let kind = second.to_ascii_lowercase();
    let lower = statement.to_ascii_lowercase();
    let has = |word: &str| lower.contains(word);
    let second = match first.as_str() {
        "drop" if KINDS.contains(&kind.as_str()) => kind,
        "truncate" => second,
        "delete" if kind == "from" && !has_condition(&lower) => kind,
        "update" if has(" set ") && !has_condition(&lower) => second,
        "alter" if kind == "table" && has("drop column") => kind,
        _ => return None,
    };
    let all = ["sql".to_owned(), first, second].into_iter().chain(words);
    let all = all.take(MAX_WORDS);
    Some(all.map(|word| Word::literal(&word)).collect())
}

//! SQL in the command line of a database client. A statement that deletes or changes all rows of a table counts as a command
//! `sql`, so that rules apply to it: `psql -c 'DROP TABLE users'` runs `sql drop table users`.

use abide_core::policy::{SimpleCommand, Word};

use super::wrapper::{joined, wrapped};
use super::{Input, Reader, Scope, Unparsed};

const CLIENTS: [&str; 4] = ["psql", "mysql", "mariadb", "sqlite3"];

/// Most words of a statement that are kept.
const MAX_WORDS: usize = 10;

/// Adds the statements that a database client is given as arguments or as its input.
pub(super) fn add(
    reader: &mut Reader,
    outer: &SimpleCommand,
    program: &str,
    input: &Input,
    scope: &Scope,
) -> Result<(), Unparsed> {
    if !CLIENTS.contains(&program) {
        return Ok(());
    }
    let arguments = outer.arguments().iter();
    let mut texts: Vec<String> = arguments
        .map(|word| value(std::slice::from_ref(word)))
        .collect();
    let files = texts.iter().map(|file| Word::literal(file));
    let files: Vec<String> = files
        .filter_map(|file| reader.written_text(&file, &outer.folder))
        .collect();
    texts.extend(files);
    if let Input::Text(text) = input {
        texts.push(text.clone());
    }
    for words in texts
        .iter()
        .flat_map(|text| text.split(';'))
        .filter_map(deletes)
    {
        wrapped(reader, words, outer, Input::None, scope)?;
    }
    Ok(())
}

/// Value of an option that is one word with its name, else the word.
fn value(word: &[Word]) -> String {
    let text = joined(word);
    match (text.split_once('='), text.get(2..)) {
        (Some((name, value)), _) if name.starts_with("--") => value.to_owned(),
        (_, Some(value)) if text.starts_with('-') => value.to_owned(),
        _ => text,
    }
}

/// Words of a statement that deletes a column, all rows of a table, or more.
fn deletes(statement: &str) -> Option<Vec<Word>> {
    let mut words = statement.split_whitespace().map(str::to_owned);
    let first = words.next()?.to_ascii_lowercase();
    let second = words.next()?;
    let kind = second.to_ascii_lowercase();
    let has = |word: &str| statement.to_ascii_lowercase().contains(word);
    let second = match first.as_str() {
        "drop" if ["database", "schema", "table"].contains(&kind.as_str()) => kind,
        "truncate" => second,
        "delete" if kind == "from" && !has("where") => kind,
        "update" if has(" set ") && !has("where") => second,
        "alter" if kind == "table" && has("drop column") => kind,
        _ => return None,
    };
    let all = ["sql".to_owned(), first, second].into_iter().chain(words);
    let all = all.take(MAX_WORDS);
    Some(all.map(|word| Word::literal(&word)).collect())
}

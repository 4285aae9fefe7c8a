//! State of the shell between two commands, as far as the text tells: its directory, the directories to which it can go
//! back, and the values of its variables.

use std::collections::BTreeMap;

use abide_core::policy::{Folder, Piece, SimpleCommand, Word, normalized};

/// Most variables whose values are kept.
const MAX_VARIABLES: usize = 100;
/// Bytes of the longest value that is kept.
const MAX_VALUE: usize = 4 << 10;

/// State of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShellState {
    /// Directory in which its commands run.
    pub folder: Folder,
    /// Directory before the last `cd`: `$OLDPWD`.
    previous: Folder,
    /// Directories of `pushd`, the next one for `popd` at the end.
    stack: Vec<Folder>,
    /// Values of variables that the text sets: several for an array.
    variables: BTreeMap<String, Vec<Word>>,
    /// Positional parameters. `None`: not known.
    pub parameters: Option<Vec<Word>>,
}

impl ShellState {
    /// State in which a shell begins.
    pub fn new(folder: Folder) -> Self {
        ShellState {
            folder,
            previous: Folder::Unknown,
            stack: Vec::new(),
            variables: BTreeMap::new(),
            parameters: None,
        }
    }

    /// State after something that may have happened or not.
    pub fn joined(mut self, other: &ShellState) -> Self {
        let same = |one: Folder, other: &Folder| match one == *other {
            true => one,
            false => Folder::Unknown,
        };
        self.folder = same(self.folder, &other.folder);
        self.previous = same(self.previous, &other.previous);
        if self.stack != other.stack {
            self.stack = vec![Folder::Unknown];
        }
        if self.parameters != other.parameters {
            self.parameters = None;
        }
        for (name, value) in &mut self.variables {
            if other.variables.get(name) != Some(value) {
                *value = vec![Word::unknown()];
            }
        }
        for name in other.variables.keys() {
            let missing = || vec![Word::unknown()];
            self.variables.entry(name.clone()).or_insert_with(missing);
        }
        self
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: &Word) {
        self.set_array(name, std::slice::from_ref(value));
    }

    /// Sets a variable to the elements of an array.
    pub fn set_array(&mut self, name: &str, values: &[Word]) {
        let length: usize = values.iter().map(|value| value.shown().len()).sum();
        let values = match length > MAX_VALUE {
            true => vec![Word::unknown()],
            false => values.iter().map(|value| self.resolved(value)).collect(),
        };
        if self.variables.len() < MAX_VARIABLES || self.variables.contains_key(name) {
            self.variables.insert(name.to_owned(), values);
        }
    }

    /// Word that means the same in another directory.
    pub fn resolved(&self, word: &Word) -> Word {
        let mut out = Word::default();
        for piece in &word.pieces {
            match (piece, &self.folder) {
                (Piece::Text(text), _) => out.push_text(text),
                (Piece::Folder, Folder::Known(folder)) => out.push_text(folder),
                (Piece::Folder, _) => out.pieces.push(Piece::Unknown),
                (piece, _) => out.pieces.push(piece.clone()),
            }
        }
        out
    }

    /// Words that an expansion such as `$X`, `${X:-y}`, `${X%/*}` or `$@` stands for. `None`: the text does not tell.
    pub fn expanded(&self, source: &str) -> Option<Vec<Word>> {
        let inside = source.strip_prefix('$')?;
        let inside = inside
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(inside);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match inside.starts_with(['@', '*']) {
            true => 1,
            false => inside.find(|c| !is_part(c)).unwrap_or(inside.len()),
        };
        let (name, operator) = inside.split_at(length);
        if matches!(name, "@" | "*") {
            return self.parameters.clone().filter(|_| operator.is_empty());
        }
        if matches!(operator, "[@]" | "[*]") {
            return self.variables.get(name).cloned();
        }
        let value = self.value(name)?;
        let is_set = !value.pieces.iter().all(|piece| match piece {
            Piece::Text(text) => text.is_empty(),
            _ => false,
        });
        let given = operator.strip_prefix(':').unwrap_or(operator);
        let value = match operator {
            "" => value,
            "%/" => without_slash(value),
            "%/*" => without_last_part(value),
            _ if given.starts_with(['-', '=', '?']) && is_set => value,
            _ => return None,
        };
        Some(vec![value])
    }

    fn value(&self, name: &str) -> Option<Word> {
        if let Ok(number) = name.parse::<usize>() {
            let at = number.checked_sub(1)?;
            return self.parameters.as_ref()?.get(at).cloned();
        }
        match (self.variables.get(name), name, &self.previous) {
            (Some(values), ..) => values.first().cloned(),
            (None, "OLDPWD", Folder::Known(folder)) => Some(Word::literal(folder)),
            _ => None,
        }
    }

    /// Directory before the last `cd`, if it is known.
    pub fn previous(&self) -> Option<&str> {
        match &self.previous {
            Folder::Known(folder) => Some(folder),
            Folder::Unknown | Folder::Elsewhere => None,
        }
    }

    /// Handles a builtin that changes the state.
    pub fn run(&mut self, command: &SimpleCommand, home: &str) {
        let arguments = command.arguments();
        match command.program().as_deref() {
            Some("cd" | "chdir") => {
                let next = self.target(arguments, home);
                self.go(next);
            }
            Some("pushd") => {
                let is_plain = |word: &Word| !word.shown().starts_with(['+', '-']);
                let next = match arguments {
                    [path] if is_plain(path) => self.target(arguments, home),
                    [] => self.stack.pop().unwrap_or(Folder::Unknown),
                    _ => Folder::Unknown,
                };
                self.stack.push(self.folder.clone());
                self.go(next);
            }
            Some("popd") => {
                let next = self.stack.pop().filter(|_| arguments.is_empty());
                self.go(next.unwrap_or(Folder::Unknown));
            }
            Some("set") => {
                let mut words = arguments.iter();
                if words.any(|word| word.shown() == "--") {
                    let words = words.map(|word| self.resolved(word)).collect();
                    self.parameters = Some(words);
                }
            }
            Some("shift") => match (arguments, &mut self.parameters) {
                ([], Some(words)) if !words.is_empty() => drop(words.remove(0)),
                _ => self.parameters = None,
            },
            _ => {}
        }
    }

    /// Changes the directory.
    fn go(&mut self, next: Folder) {
        self.previous = std::mem::replace(&mut self.folder, next);
    }

    /// Directory to which `cd` with these arguments goes.
    fn target(&self, arguments: &[Word], home: &str) -> Folder {
        let is_option = |word: &&Word| word.shown().starts_with('-') && word.shown() != "-";
        let Some(word) = arguments.iter().find(|word| !is_option(word)) else {
            return Folder::Known(home.to_owned());
        };
        if word.text().as_deref() == Some("-") {
            return self.previous.clone();
        }
        in_folder(word, &self.folder, home)
    }
}

/// Directory that a word names.
pub(super) fn in_folder(word: &Word, folder: &Folder, home: &str) -> Folder {
    let is_vague =
        |piece: &Piece| matches!(piece, Piece::Glob | Piece::Repository | Piece::Unknown);
    let path = word.text_without_unknown(home);
    match folder {
        Folder::Known(_) | Folder::Unknown if word.pieces.iter().any(is_vague) => Folder::Unknown,
        Folder::Elsewhere if word.pieces.iter().any(is_vague) => Folder::Elsewhere,
        _ if path.starts_with('/') => Folder::Known(normalized(&path, "/")),
        Folder::Known(folder) => Folder::Known(normalized(&path, folder)),
        other => other.clone(),
    }
}

/// Path without its last part.
pub(super) fn without_last_part(mut path: Word) -> Word {
    let is_alone = path.pieces.len() == 1;
    match path.pieces.last_mut() {
        Some(Piece::Text(text)) => match text.rfind('/') {
            Some(at) => text.truncate(at),
            None if is_alone => {}
            None => path.push_text("/.."),
        },
        _ => path.push_text("/.."),
    }
    path
}

fn without_slash(mut path: Word) -> Word {
    if let Some(Piece::Text(text)) = path.pieces.last_mut()
        && text.ends_with('/')
    {
        text.pop();
    }
    path
}

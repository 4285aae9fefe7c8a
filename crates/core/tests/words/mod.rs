//! Words of a line of a transcript.

use abide_core::{CallId, Conversation, Millis, SessionId};

pub fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

pub fn duration(text: &str) -> Result<Millis, String> {
    for (unit, size) in [
        ("ms", 1),
        ("s", 1_000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ] {
        if let Some(count) = text.strip_suffix(unit)
            && let Ok(count) = count.parse::<u64>()
        {
            return Ok(Millis(count * size));
        }
    }
    Err(format!("`{text}` is not a duration"))
}

/// Splits at spaces, but not between quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("never empty").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Words of a line that were not read yet.
pub struct Words {
    words: Vec<String>,
    at: usize,
}

impl Words {
    pub fn new(line: &str) -> Self {
        Words {
            words: words(line),
            at: 0,
        }
    }

    /// Next word, if there is one.
    pub fn maybe(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    /// Checks that all words were read.
    pub fn end_of_line(&mut self) -> Result<(), String> {
        match self.maybe() {
            Some(word) => Err(format!("`{word}` means nothing here")),
            None => Ok(()),
        }
    }

    pub fn call(&mut self) -> Result<CallId, String> {
        self.number().map(CallId)
    }

    pub fn next(&mut self) -> Result<String, String> {
        self.maybe().ok_or("a word is missing".into())
    }

    pub fn number(&mut self) -> Result<u64, String> {
        parse(&self.next()?)
    }

    pub fn session(&mut self) -> Result<SessionId, String> {
        let name = self.next()?;
        let number = parse(name.strip_prefix('s').unwrap_or_default())?;
        Ok(SessionId::from_bits(number))
    }

    pub fn conversation(&mut self) -> Option<Conversation> {
        self.value("in").map(|name| Conversation(name.into()))
    }

    /// Takes `name=value` from any position.
    pub fn value(&mut self, name: &str) -> Option<String> {
        let mut rest = self.words.iter().skip(self.at);
        let is = |word: &String| word.starts_with(name) && word[name.len()..].starts_with('=');
        let at = self.at + rest.position(is)?;
        Some(self.words.remove(at)[name.len() + 1..].to_owned())
    }

    pub fn flag(&mut self, name: &str) -> bool {
        let mut rest = self.words.iter().skip(self.at);
        let at = rest.position(|word| word == name);
        at.map(|at| self.words.remove(self.at + at)).is_some()
    }

    pub fn time(&mut self, name: &str) -> Result<Option<Millis>, String> {
        self.value(name).map(|text| duration(&text)).transpose()
    }

    pub fn count(&mut self, name: &str) -> Result<Option<u64>, String> {
        self.value(name).map(|text| parse(&text)).transpose()
    }
}

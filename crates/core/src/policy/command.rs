//! Parsed command line: the simple commands that a shell would run, as far as its text tells.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Command line with the commands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// Text as given.
    pub text: String,
    /// Commands in the text.
    pub parsed: Parsed,
}

/// Result of parsing a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// All simple commands, in the order of the text. A wrapper such as `env` comes before the command that it runs.
    Commands(Vec<SimpleCommand>),
    /// The text cannot be parsed, or it exceeds a limit; the sentence says which.
    Unparsed(&'static str),
}

/// One program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Program and arguments. Never empty.
    pub words: Vec<Word>,
    /// Variables that are set for this command only.
    pub assignments: Vec<(String, Word)>,
    /// Redirections to and from files.
    pub redirects: Vec<Redirect>,
    /// Directory in which the command runs.
    pub folder: Folder,
    /// Construct that runs the command.
    pub origin: Origin,
    /// The command runs code that the text does not show.
    pub runs_code: Option<RunsCode>,
    /// An earlier command changes the meaning of names (`PATH`, an alias, a function), so that no rule can allow this
    /// one.
    pub names_changed: bool,
    /// A word has the value of a variable, so that no rule can allow the command.
    pub has_variables: bool,
    /// The command has the default of an expansion such as `${X:-push}`, so it runs with these words only for some values
    /// of the variable. A rule that refuses it asks instead.
    pub from_default: bool,
    /// Which program this command or a later one runs is hidden: by `hash -p`, or by an expansion that cuts or changes a
    /// value. A person is asked, whatever the words are.
    pub hides_program: bool,
}

/// Redirection to or from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The file is written.
    pub writes: bool,
    /// The file.
    pub target: Word,
}

/// Directory of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// Absolute path.
    Known(String),
    /// The directory depends on something that the text does not tell.
    Unknown,
    /// A directory of another machine or of a container.
    Elsewhere,
}

/// Construct that runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command line itself.
    Plain,
    /// A substitution such as `$(…)`.
    Substitution,
    /// A program that runs another one, such as `sudo` or `bash -c`.
    Wrapper(String),
}

/// Reason why a command runs code that the text does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsCode {
    /// Running code is the purpose of the program: `make`, `python x.py`.
    Always,
    /// An option makes it run code or write files: `tar --to-command`, `sed -i`.
    ByOption,
}

/// Word of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Parts of the word, in order.
    pub pieces: Vec<Piece>,
}

/// Part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that the program gets as it is.
    Text(String),
    /// Home directory of the user: `~` or `$HOME`.
    Home,
    /// Home directory of the user with this name: `~name`.
    HomeOf(String),
    /// Directory in which the command runs: `$PWD` or `$(pwd)`.
    Folder,
    /// Root of the repository: `$(git rev-parse --show-toplevel)`.
    Repository,
    /// File name pattern such as `*`: any text, but never empty if nothing matches.
    Glob,
    /// Text that is known only when the command runs: a variable, a substitution.
    Unknown,
}

impl Word {
    /// Word that the program gets as it is.
    pub fn literal(text: &str) -> Self {
        Word {
            pieces: alloc::vec![Piece::Text(text.to_owned())],
        }
    }

    /// Word without any known text.
    pub fn unknown() -> Self {
        Word {
            pieces: alloc::vec![Piece::Unknown],
        }
    }

    /// Adds text to the end of the word.
    pub fn push_text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    /// Text of the word, if all of it is known.
    pub fn text(&self) -> Option<String> {
        self.pieces.iter().map(Piece::text).collect()
    }

    /// Text of the word if all unknown parts are empty, with `home` for the home directory.
    pub fn text_without_unknown(&self, home: &str) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Home => text.push_str(home),
                Piece::HomeOf(name) => match home.rsplit('/').next() {
                    Some(own) if own == name => text.push_str(home),
                    _ if name == "root" => text.push_str("/root"),
                    // Where most systems have it.
                    _ => text.push_str(&alloc::format!("/home/{name}")),
                },
                Piece::Folder | Piece::Repository => text.push('.'),
                Piece::Glob => text.push('*'),
                Piece::Unknown => {}
            }
        }
        text
    }

    /// Returns whether the program gets something else than what the text shows.
    pub fn is_dynamic(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| !matches!(piece, Piece::Text(_)))
    }

    /// Returns whether at least one character of the word is known.
    pub fn has_text(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Text(text) if !text.is_empty()))
    }

    /// Word for people.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Home => text.push('~'),
                Piece::HomeOf(name) => text.push_str(&alloc::format!("~{name}")),
                Piece::Folder => text.push_str("$PWD"),
                Piece::Repository => text.push_str("$(git rev-parse --show-toplevel)"),
                Piece::Glob => text.push('*'),
                Piece::Unknown => text.push_str("$…"),
            }
        }
        text
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Piece::Text(text) => Some(text),
            Piece::Home
            | Piece::HomeOf(_)
            | Piece::Folder
            | Piece::Repository
            | Piece::Glob
            | Piece::Unknown => None,
        }
    }
}

impl SimpleCommand {
    /// Name of the program without its directory, if it is known. The directory need not be.
    pub fn program(&self) -> Option<String> {
        let word = self.words.first()?;
        if let Some(Piece::Text(last)) = word.pieces.last()
            && let Some((_, name)) = last.rsplit_once('/')
        {
            return Some(name.to_owned());
        }
        word.text()
    }

    /// Word of the program without its directory.
    pub(super) fn program_word(&self) -> Option<Word> {
        let word = self.words.first()?;
        let is_split = |piece: &Piece| piece.text().is_some_and(|text| text.contains('/'));
        let Some(at) = word.pieces.iter().rposition(is_split) else {
            return Some(word.clone());
        };
        let mut pieces = word.pieces[at..].to_vec();
        if let Some(Piece::Text(text)) = pieces.first_mut() {
            *text = text.rsplit('/').next().unwrap_or_default().to_owned();
        }
        Some(Word { pieces })
    }

    /// Arguments of the program.
    pub fn arguments(&self) -> &[Word] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Command for people, on one line.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.assignments {
            text.push_str(name);
            text.push('=');
            text.push_str(&value.shown());
            text.push(' ');
        }
        for (at, word) in self.words.iter().enumerate() {
            if at > 0 {
                text.push(' ');
            }
            text.push_str(&word.shown());
        }
        text
    }
}

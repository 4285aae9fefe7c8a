//! Output of commands as far as the text tells, and files that are written with it: `cat > x.sh <<E … E; sh x.sh` runs the
//! commands of the file.

use abide_core::policy::{Folder, Piece, SimpleCommand, Word, normalized};

use super::deletes::printed_names;
use super::word::ansi_c;
use super::{Input, Reader};

/// File with a text that the command line shows.
pub(super) struct WrittenFile {
    path: String,
    text: String,
}

impl Reader {
    /// Records the files that a command writes.
    pub(super) fn record_written(&mut self, command: &SimpleCommand, input: &Input) {
        let redirects = command.redirects.iter().filter(|redirect| redirect.writes);
        let mut files: Vec<&Word> = redirects.map(|redirect| &redirect.target).collect();
        if command.program().as_deref() == Some("tee") {
            files.extend(command.arguments());
        }
        if files.is_empty() {
            return;
        }
        if let Input::Text(text) = self.output(&command.words, input, &command.folder) {
            for file in files {
                let path = key(file, &command.folder, &self.home);
                let text = text.clone();
                self.written.push(WrittenFile { path, text });
            }
        }
    }

    /// Text of a file that an earlier command has written. All that was written to it counts.
    pub(super) fn written_text(&self, file: &Word, folder: &Folder) -> Option<String> {
        if self.written.is_empty() {
            return None;
        }
        let path = key(file, folder, &self.home);
        let same = self.written.iter().filter(|written| written.path == path);
        let texts: Vec<&str> = same.map(|written| written.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Output of `echo` or `printf` with known words, of `cat` and `tee`, and names that `find` or `ls` prints.
    pub(super) fn output(&self, words: &[Word], input: &Input, folder: &Folder) -> Input {
        let Some((program, arguments)) = words.split_first() else {
            return Input::Unknown;
        };
        let program = program.text().unwrap_or_default();
        if let Some(names) = printed_names(&program, arguments) {
            return Input::Files(names);
        }
        match (program.as_str(), input) {
            ("tee", _) => input.clone(),
            ("cat", _) if arguments.is_empty() => input.clone(),
            ("cat", _) => {
                let texts = arguments.iter().map(|file| self.written_text(file, folder));
                let texts: Option<Vec<String>> = texts.collect();
                texts.map_or(Input::Unknown, |texts| Input::Text(texts.join("\n")))
            }
            ("echo" | "printf", _) => echoed(&program, arguments),
            // All names but some, or in another order.
            ("grep" | "sort" | "tr" | "uniq", Input::Files(_)) => match is_narrowing(arguments) {
                true if program == "grep" => Input::Unknown,
                _ => input.clone(),
            },
            _ => Input::Unknown,
        }
    }
}

/// Returns whether `grep` prints only the lines that it finds.
fn is_narrowing(arguments: &[Word]) -> bool {
    let inverts = |word: &Word| {
        let text = word.shown();
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        text == "--invert-match" || letters.is_some_and(|letters| letters.contains('v'))
    };
    !arguments.iter().any(inverts)
}

fn echoed(program: &str, arguments: &[Word]) -> Input {
    let words: Option<Vec<String>> = arguments.iter().map(Word::text).collect();
    let Some(words) = words else {
        // `echo ~`: what is not text is a directory.
        return match arguments
            .iter()
            .any(|word| word.pieces.contains(&Piece::Unknown))
        {
            true => Input::Unknown,
            false => Input::Files(arguments.to_vec()),
        };
    };
    let is_option = |word: &&String| ["-e", "-n", "-E", "-ne", "-en"].contains(&word.as_str());
    let words: Vec<String> = words
        .into_iter()
        .skip_while(|word| is_option(&word))
        .collect();
    let text = words.join(" ");
    let mut text = ansi_c(&text).unwrap_or(text);
    // The words may stand in another order, or not at all.
    if program == "printf" && text.contains('%') {
        text.push_str("\n${unknown}");
    }
    Input::Text(text)
}

/// Name by which a file is found again: its path, or its text if a part of it is not known.
fn key(file: &Word, folder: &Folder, home: &str) -> String {
    if file.pieces.contains(&Piece::Unknown) {
        return file.shown();
    }
    let folder = match folder {
        Folder::Known(folder) => folder,
        Folder::Unknown | Folder::Elsewhere => "?",
    };
    normalized(&file.text_without_unknown(home), folder)
}

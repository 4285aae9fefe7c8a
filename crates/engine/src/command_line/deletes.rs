//! Deletes without `rm -r`: `find -delete`, and `xargs rm` with the names of all files. Both count as `rm -r` of the same
//! paths, so that the rules about it apply.

use abide_core::policy::{Folder, Piece, SimpleCommand, Word, normalized};

use super::wrapper::wrapped;
use super::{Input, Reader, Scope, Unparsed};

/// Parts of an expression of `find` after which it still finds everything.
const NOT_NARROWING: [&str; 16] = [
    "-delete",
    "-depth",
    "-d",
    "-exec",
    "-execdir",
    "-ok",
    "-okdir",
    "-follow",
    "-maxdepth",
    "-mindepth",
    "-mount",
    "-xdev",
    "-print",
    "-print0",
    "-a",
    "-true",
];

/// Words of `find`: directories at which it begins, and the expression behind them.
struct Find<'a> {
    starts: Vec<Word>,
    expression: &'a [Word],
}

impl<'a> Find<'a> {
    fn new(arguments: &'a [Word]) -> Self {
        let is_option = |word: &Word| matches!(word.shown().as_str(), "-H" | "-L" | "-P");
        let options = arguments.iter().take_while(|word| is_option(word)).count();
        let arguments = &arguments[options..];
        let is_start = |word: &&Word| !word.shown().starts_with(['-', '(', '!']);
        let (starts, expression) =
            arguments.split_at(arguments.iter().take_while(is_start).count());
        let starts = match starts {
            [] => vec![Word::literal(".")],
            given => given.to_vec(),
        };
        Find { starts, expression }
    }

    /// Returns whether it finds only some of the files, such as those of a name.
    fn is_narrowed(&self) -> bool {
        let mut words = self.expression.iter().map(Word::shown);
        while let Some(word) = words.next() {
            match word.as_str() {
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    words.by_ref().find(|word| word == ";" || word == "+");
                }
                "-type" if !matches!(words.next().as_deref(), Some("f" | "d" | "f,d")) => {
                    return true;
                }
                "-type" => {}
                name if name.starts_with(['-', '!', '(']) && !NOT_NARROWING.contains(&name) => {
                    return true;
                }
                _ => {}
            }
        }
        false
    }
}

/// `find` that deletes what it finds: `rm -r` of everything where it begins. One that finds only some of the files counts
/// if it begins above its own directory.
pub(super) fn found(
    reader: &mut Reader,
    outer: &SimpleCommand,
    scope: &Scope,
) -> Result<(), Unparsed> {
    let find = Find::new(outer.arguments());
    let is_narrowed = find.is_narrowed();
    let mut paths = Vec::new();
    for mut start in find.starts {
        let is_known = !start.pieces.contains(&Piece::Unknown);
        match is_narrowed {
            false if is_known => start.pieces.extend([Piece::Text("/".into()), Piece::Glob]),
            false => {}
            true if is_known && is_above(&start, &outer.folder, &reader.home) => {
                start
                    .pieces
                    .extend([Piece::Text("/".into()), Piece::Unknown]);
            }
            true => continue,
        }
        paths.push(start);
    }
    if paths.is_empty() {
        return Ok(());
    }
    let rm = [Word::literal("rm"), Word::literal("-r")].into_iter();
    wrapped(reader, rm.chain(paths).collect(), outer, Input::None, scope)
}

/// Returns whether a path is a directory above this one.
fn is_above(path: &Word, folder: &Folder, home: &str) -> bool {
    let Folder::Known(folder) = folder else {
        return false;
    };
    let path = normalized(&path.text_without_unknown(home), folder);
    let below = folder.strip_prefix(path.trim_end_matches('/'));
    below.is_some_and(|below| below.starts_with('/') && below.len() > 1)
}

/// Names that `find` and `ls` print, if they print those of all files.
pub(super) fn printed_names(program: &str, arguments: &[Word]) -> Option<Vec<Word>> {
    let all = || Word {
        pieces: vec![Piece::Glob],
    };
    match program {
        "find" => {
            let find = Find::new(arguments);
            (!find.is_narrowed()).then_some(find.starts)
        }
        "ls" if arguments.iter().all(|word| word.shown().starts_with('-')) => Some(vec![all()]),
        _ => None,
    }
}

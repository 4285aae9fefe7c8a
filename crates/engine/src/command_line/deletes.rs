//! Deletes without `rm -r`: `find -delete`, `xargs rm` with the names of all files, `rsync --delete` and `rimraf`. They
//! count as `rm -r` of the same paths, so that the rules about it apply. Writes to a device count as `dd`.

use abide_core::policy::{Folder, Origin, Piece, SimpleCommand, Word, normalized};

use super::shell_state::without_last_part;
use super::wrapper::wrapped;
use super::{Added, Input, Names, Reader, Scope};

/// Parts of an expression of `find` after which it still finds everything.
const NOT_NARROWING: Names = Names(
    "-delete -depth -d -exec -execdir -ok -okdir -follow -maxdepth -mindepth -mount -xdev -print
     -print0 -a -true",
);

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

    /// Paths that it finds if it looks for a name. `None`: it looks for something else.
    fn named(&self) -> Option<Vec<Word>> {
        let texts: Vec<String> = self.expression.iter().map(Word::shown).collect();
        let at = texts
            .iter()
            .position(|text| text == "-name" || text == "-path")?;
        let is_negated = at > 0 && matches!(texts[at - 1].as_str(), "!" | "-not");
        let name = self
            .expression
            .get(at + 1)
            .filter(|_| !is_negated && !is_passed_over(&texts))?;
        let with_name = |start: &Word| {
            let mut path = start.clone();
            path.push_text("/");
            path.pieces.extend(name.pieces.clone());
            path
        };
        Some(self.starts.iter().map(with_name).collect())
    }

    /// Returns whether it finds only some of the files, such as those of a name.
    fn is_narrowed(&self) -> bool {
        let words: Vec<String> = self.expression.iter().map(Word::shown).collect();
        let is_or = |word: &String| word == "-o" || word == "-or";
        // `-name .git -prune -o -delete`: what it passes over is not what it finds.
        let mut ways = words.split(is_or).filter(|way| !is_passed_over(way));
        ways.all(is_narrowed)
    }
}

fn is_passed_over(way: &[String]) -> bool {
    let has = |name: &str| way.iter().any(|word| word == name);
    has("-prune") && !has("-delete") && !has("-exec") && !has("-execdir")
}

/// Returns whether a part of an expression of `find`, without `-o`, finds only some of the files.
fn is_narrowed(way: &[String]) -> bool {
    let mut words = way.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                words.by_ref().find(|word| *word == ";" || *word == "+");
            }
            // All files but some are as good as all.
            "!" | "-not" if words.next().is_some_and(|word| word == "(") => {
                words.by_ref().find(|word| *word == ")");
            }
            "!" | "-not" => {}
            "-type" if !matches!(words.next().map(String::as_str), Some("f" | "d" | "f,d")) => {
                return true;
            }
            "-type" => {}
            name if name.starts_with(['-', '!', '(']) && !NOT_NARROWING.has(name) => {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// `find` that deletes what it finds: `rm -r` of everything where it begins. One that finds only some of the files counts
/// if it begins above its own directory.
pub(super) fn found(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let find = Find::new(outer.arguments());
    let is_narrowed = find.is_narrowed();
    let mut paths = match is_narrowed {
        true => find.named().unwrap_or_default(),
        false => Vec::new(),
    };
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
    removed(reader, paths, outer, scope)
}

/// Returns whether a path is a directory above this one.
fn is_above(path: &Word, folder: &Folder, home: &str) -> bool {
    let Folder::Known(folder) = folder else {
        return false;
    };
    let path = normalized(&path.text_without_unknown(home), folder);
    // Files of some name in a directory for temporary ones are no part of the work.
    if ["/tmp", "/var/tmp"].contains(&path.as_str()) {
        return false;
    }
    let below = folder.strip_prefix(path.trim_end_matches('/'));
    below.is_some_and(|below| below.starts_with('/') && below.len() > 1)
}

/// `fd pattern paths -x rm`: `rm -r` of everything in the paths, if the pattern is that of all files. `given` is before `-x`.
pub(super) fn found_by_fd(
    reader: &mut Reader,
    outer: &SimpleCommand,
    given: &[Word],
    scope: &Scope,
) -> Added {
    let is_type = |word: &Word| matches!(word.text().as_deref(), Some("-t" | "--type"));
    let mut given = given.to_vec();
    while let Some(at) = given.iter().position(is_type) {
        let kind = given.get(at + 1).map(Word::shown).unwrap_or_default();
        if !matches!(kind.as_str(), "f" | "d" | "file" | "directory") {
            return Ok(());
        }
        given.drain(at..=at + 1);
    }
    let is_option = |word: &&Word| word.shown().starts_with('-');
    let narrows = |word: &Word| !["-H", "-I", "-HI", "-u", "-0"].contains(&word.shown().as_str());
    let pattern = given.iter().find(|word| !is_option(word)).map(Word::shown);
    let is_all = |pattern: String| [".", "", ".*"].contains(&pattern.as_str());
    if given.iter().filter(is_option).any(narrows) || !pattern.is_none_or(is_all) {
        return Ok(());
    }
    let mut paths: Vec<Word> = given
        .iter()
        .filter(|word| !is_option(word))
        .skip(1)
        .cloned()
        .collect();
    if paths.is_empty() {
        paths.push(Word::literal("."));
    }
    for path in &mut paths {
        path.pieces.extend([Piece::Text("/".into()), Piece::Glob]);
    }
    removed(reader, paths, outer, scope)
}

/// Adds `rm -r` of these paths.
pub(super) fn removed(
    reader: &mut Reader,
    paths: Vec<Word>,
    outer: &SimpleCommand,
    scope: &Scope,
) -> Added {
    let rm = [Word::literal("rm"), Word::literal("-r")].into_iter();
    wrapped(reader, rm.chain(paths).collect(), outer, Input::None, scope)
}

/// Begins of paths below `/dev` that are no disks.
const STREAMS: [&str; 8] = [
    "/dev/fd/",
    "/dev/null",
    "/dev/pts/",
    "/dev/shm/",
    "/dev/std",
    "/dev/tcp/",
    "/dev/tty",
    "/dev/udp/",
];

/// Adds `dd` for each device that a redirection, `tee` or `cp` writes.
pub(super) fn written_devices(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let program = outer.program().unwrap_or_default();
    // A wrapped command has the redirections of its wrapper.
    let is_wrapped = matches!(outer.origin, Origin::Wrapper(_));
    let redirects = outer.redirects.iter().filter(|redirect| redirect.writes);
    let redirects = redirects
        .filter(|_| !is_wrapped)
        .map(|redirect| &redirect.target);
    let arguments = match (program.as_str(), outer.arguments()) {
        ("tee", arguments) => arguments,
        ("cp", [.., last]) => std::slice::from_ref(last),
        _ => &[],
    };
    let is_device = |word: &&Word| {
        let path = word.shown();
        let mut streams = STREAMS.iter();
        path.starts_with("/dev/") && !streams.any(|stream| path.starts_with(stream))
    };
    let targets: Vec<Word> = redirects
        .chain(arguments)
        .filter(is_device)
        .cloned()
        .collect();
    for target in targets {
        let mut written = Word::literal("of=");
        written.pieces.extend(target.pieces);
        let words = vec![Word::literal("dd"), written];
        wrapped(reader, words, outer, Input::None, scope)?;
    }
    Ok(())
}

/// Options of `rsync` whose value is the next word.
const VALUED_OF_RSYNC: Names = Names(
    "-B -M -T -e -f --address --backup-dir --block-size --bwlimit --chmod --chown --compare-dest
     --copy-dest --exclude --exclude-from --files-from --filter --include --include-from
     --link-dest --log-file --max-delete --partial-dir --port --rsh --timeout",
);

/// `rsync --delete`: `rm -r` of everything in the folder that it writes. Files that the source has are written again, but
/// the text does not tell which.
pub(super) fn by_rsync(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let (mut deletes, mut is_trial) = (false, false);
    let mut paths = Vec::new();
    let mut words = outer.arguments().iter();
    while let Some(word) = words.next() {
        let text = word.shown();
        let letters = text.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        deletes |= text == "--del" || text.starts_with("--delete");
        is_trial |= text == "--dry-run" || letters.is_some_and(|letters| letters.contains('n'));
        match text.starts_with('-') {
            true if VALUED_OF_RSYNC.has(&text) => drop(words.next()),
            true => {}
            false => paths.push(word),
        }
    }
    let Some((target, sources)) = paths.split_last() else {
        return Ok(());
    };
    let is_remote = |word: &Word| {
        word.shown()
            .split('/')
            .next()
            .is_some_and(|host| host.contains(':'))
    };
    if !deletes || is_trial || sources.is_empty() || is_remote(target) {
        return Ok(());
    }
    let emptied = sources.iter().map(|source| {
        let mut path = (*target).clone();
        if path.pieces.contains(&Piece::Unknown) {
            return path;
        }
        path.push_text("/");
        // `rsync a b` writes b/a, `rsync a/ b` writes b.
        let source = source.text().unwrap_or_default();
        match source.rsplit('/').next().unwrap_or_default() {
            "" | "." | ".." => {}
            name => path.push_text(&format!("{name}/")),
        }
        path.pieces.push(Piece::Glob);
        path
    });
    removed(reader, emptied.collect(), outer, scope)
}

/// Paths that a command prints, if they are those of all files or known by its words.
pub(super) fn printed_names(program: &str, arguments: &[Word]) -> Option<Vec<Word>> {
    let one = |piece| {
        vec![Word {
            pieces: vec![piece],
        }]
    };
    let words: Vec<String> = arguments.iter().map(Word::shown).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (program, words.as_slice()) {
        ("find", _) => {
            let find = Find::new(arguments);
            match find.is_narrowed() {
                true => find.named(),
                false => Some(find.starts),
            }
        }
        ("ls", words) if words.iter().all(|word| word.starts_with('-')) => Some(one(Piece::Glob)),
        ("git", ["ls-files"] | ["ls-files", "-z"]) => Some(one(Piece::Glob)),
        ("git", ["rev-parse", "--show-toplevel"]) => Some(one(Piece::Repository)),
        ("pwd", [] | ["-P" | "-L"]) => Some(one(Piece::Folder)),
        ("dirname", [_]) => Some(vec![without_last_part(below_folder(arguments.last()?)?)]),
        ("realpath", [_]) | ("readlink", ["-f", _]) => Some(vec![below_folder(arguments.last()?)?]),
        ("mktemp", [] | ["-d"]) => Some(vec![Word::literal("/tmp/tmp.XXXXXXXXXX")]),
        _ => None,
    }
}

/// Path that names the same file from every directory. `None`: a part of it is not known.
pub(super) fn below_folder(path: &Word) -> Option<Word> {
    let mut path = path.clone();
    path.pieces
        .retain(|piece| *piece != Piece::Text(String::new()));
    match path.pieces.first()? {
        _ if path.pieces.contains(&Piece::Unknown) => None,
        Piece::Text(text) if !text.starts_with('/') => {
            let mut below = Word {
                pieces: vec![Piece::Folder],
            };
            below.push_text("/");
            let rest = path.pieces.into_iter();
            rest.for_each(|piece| match piece {
                Piece::Text(text) => below.push_text(&text),
                piece => below.pieces.push(piece),
            });
            Some(below)
        }
        _ => Some(path),
    }
}

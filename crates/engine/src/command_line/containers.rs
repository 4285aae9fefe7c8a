//! `docker` and `podman`: the command that runs in a container. A path of the container at which a directory of this machine
//! is mounted is read as that directory.

use abide_core::policy::{Folder, Piece, SimpleCommand, Word, normalized};

use super::wrapper::wrapped;
use super::{Added, Input, Names, Reader, Scope};

/// Long options without a value. All others have one.
const FLAGS: Names = Names(
    "--build --detach --init --interactive --no-deps --no-healthcheck --oom-kill-disable
     --privileged --publish-all --quiet --read-only --replace --rm --service-ports --tty",
);

/// Letters of short options without a value.
const FLAG_LETTERS: &str = "ditPqT";

/// Directory of this machine, and the path in the container at which it is mounted.
struct Mount {
    host: String,
    inside: String,
}

/// Adds the command of `docker exec` and `docker run`.
pub(super) fn container(reader: &mut Reader, outer: &SimpleCommand, scope: &Scope) -> Added {
    let texts: Vec<String> = outer.arguments().iter().map(Word::shown).collect();
    let first: Vec<&str> = texts.iter().take(2).map(String::as_str).collect();
    let begin = match first.as_slice() {
        ["exec" | "run", ..] => 1,
        ["compose" | "container", "exec" | "run"] => 2,
        _ => return Ok(()),
    };
    let place = |word: &Word| {
        let is_known = !word.pieces.contains(&Piece::Unknown);
        is_known.then(|| word.text_without_unknown(&reader.home))
    };
    let mut mounts = Vec::new();
    let mut inner: Vec<Word> = Vec::new();
    let mut inside = None;
    let mut words = outer.arguments()[begin..].iter();
    while let Some(word) = words.next() {
        let text = place(word).unwrap_or_default();
        if !text.starts_with('-') {
            // This word is the container or the image.
            break;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None if is_flag(&text) => continue,
            None if text.starts_with("--") || text.len() == 2 => {
                let value = words.next().and_then(place).unwrap_or_default();
                (text, value)
            }
            None => {
                let (name, value) = text.split_at(2);
                (name.to_owned(), value.to_owned())
            }
        };
        match name.as_str() {
            "-v" | "--volume" | "--mount" => mounts.extend(mount(&value, &outer.folder)),
            "-w" | "--workdir" => inside = Some(value),
            "--entrypoint" if !value.is_empty() => inner.push(Word::literal(&value)),
            _ => {}
        }
    }
    inner.extend(words.cloned());
    if inner.is_empty() {
        return Ok(());
    }
    for piece in inner.iter_mut().flat_map(|word| &mut word.pieces) {
        if let Piece::Text(text) = piece {
            *text = on_host(text, &mounts);
        }
    }
    let inside = inside.map(|path| on_host(&path, &mounts));
    let is_run = texts[begin - 1] == "run";
    let outer = SimpleCommand {
        folder: match inside.filter(|path| path.starts_with('/')) {
            Some(path) => Folder::Known(path),
            None if is_run => Folder::Elsewhere,
            None => outer.folder.clone(),
        },
        ..outer.clone()
    };
    wrapped(reader, inner, &outer, Input::None, scope)
}

fn is_flag(option: &str) -> bool {
    match option.strip_prefix("--") {
        Some(_) => FLAGS.has(option),
        None => option[1..].chars().all(|c| FLAG_LETTERS.contains(c)),
    }
}

/// Mount of `-v host:inside` or `--mount type=bind,source=host,target=inside`.
fn mount(value: &str, folder: &Folder) -> Option<Mount> {
    let parts = || value.split(',').filter_map(|part| part.split_once('='));
    let named = |names: [&str; 3]| {
        let mut parts = parts();
        parts.find_map(|(name, value)| names.contains(&name).then_some(value))
    };
    let target = named(["target", "destination", "dst"]);
    let (host, inside) = match target {
        Some(target) => (named(["source", "src", "from"])?, target),
        None => {
            let (host, rest) = value.split_once(':')?;
            (host, rest.split(':').next()?)
        }
    };
    let host = match folder {
        _ if host.starts_with('/') => normalized(host, "/"),
        Folder::Known(folder) if host.starts_with('.') => normalized(host, folder),
        // The name of a volume, or a path that is not known.
        _ => return None,
    };
    let inside = normalized(inside, "/");
    Some(Mount { host, inside })
}

/// Text with the paths of this machine in place of those at which they are mounted.
fn on_host(text: &str, mounts: &[Mount]) -> String {
    let mut text = text.to_owned();
    for mount in mounts {
        let mut replaced = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(&mount.inside) {
            let is_begin = before.chars().next_back().is_none_or(is_outside_path);
            let is_end = after
                .chars()
                .next()
                .is_none_or(|c| c == '/' || is_outside_path(c));
            replaced.push_str(before);
            match is_begin && is_end {
                true if mount.host == "/" && after.starts_with('/') => {}
                true => replaced.push_str(&mount.host),
                false => replaced.push_str(&mount.inside),
            }
            rest = after;
        }
        replaced.push_str(rest);
        text = replaced;
    }
    text
}

fn is_outside_path(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\'' | '"' | ';' | '&' | '|' | '(' | ')' | '=')
}

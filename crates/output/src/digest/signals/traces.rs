//! Stack traces of any language: a run of frames, the message above or below it, and the messages of its causes.
//!
//! Of a trace, the messages of the whole chain matter, and the frames of one's own code next to them. A frame is
//! foreign if its path or its module is that of a runtime, a standard library or an installed package.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::Regex;

use crate::digest::line_shape::HashKeyMap;
use crate::digest::view::ViewLine;

use super::levels::{Finding, Importance};
use super::patterns::compiled;

/// Number of lines between two frames of one trace: source lines, marks, names of functions.
const BETWEEN_MAX: usize = 3;
/// Number of lines above the first frame among which the message is looked for.
const MESSAGE_WITHIN: usize = 6;
/// Number of frames of one's own code that are shown for each message.
const OWN_FRAMES: usize = 2;
/// Number of messages of a chain that are shown.
const MESSAGES_MAX: usize = 5;

/// Number of stacks without a message, as in a dump of all threads, among which one can be rare, and of those that
/// begin like a rare one.
const STACKS_MIN: usize = 12;
const RARE_STACKS: usize = 2;

/// Number of lines between two stacks of one report, and of those that are shown.
const FURTHER_WITHIN: usize = 6;
const FURTHER_HEADING: usize = 2;

/// Lines of a trace, as indices into the view.
#[derive(Debug, PartialEq, Eq)]
pub struct Trace {
    /// All lines, from the first message to the last frame.
    pub range: Range<usize>,
    /// The most important message: the first above the frames, or the last below them.
    pub main: usize,
    /// Other lines that are shown.
    pub with: Vec<usize>,
}

impl Trace {
    /// Adds a further stack of the same report, such as where memory was freed, with the lines that introduce it.
    fn extend(&mut self, lines: &[ViewLine<'_>], frames: &[usize], end: usize) {
        let Some(first) = frames.first().copied() else {
            return;
        };
        let between = self.range.end..first;
        if between.len() > FURTHER_WITHIN {
            return;
        }
        self.with.extend(
            between
                .filter(|at| !lines[*at].is_blank())
                .rev()
                .take(FURTHER_HEADING),
        );
        self.with
            .extend(own_frames(lines, frames.iter()).iter().take(1));
        self.range.end = end;
    }
}

static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?x) ^(?:
            at\s\S+.*[(:\s]\S*[\w>)\]] | File\ "[^"]+",\ line\ \d+ | \#\d+\s+\S | (?:at|by)\ 0x[0-9A-Fa-f]+:
          | \S*/\S+\.\w+:\d+(?:\s\+0x[0-9a-f]+)?$ | (?:from\ )?\S+\.\w+:\d+:in\ | ❯\ \S.*:\d+:\d+$
          | \(\S+\ [\d.]+\)\ \S+:\d+:\  | (?:\d+:\ )?\S+::\S+$ | \#\ \./\S+:\d+:in
        )"#,
    )
});

/// Sentences between the parts of a chain.
static CHAIN: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)^(?: caused\ by | the\ above\ exception | during\ handling\ of | the\ following\ error | \.\.\.\ \d+\ (?:more|common)
            | suppressed: | --->\  | traceback\ \(most | \[cause\] | goroutine\ \d+ | \[fault )",
    )
});

/// Parts of a frame that is not one's own.
static FOREIGN: LazyLock<AhoCorasick> = LazyLock::new(|| {
    super::patterns::case_insensitive(&[
        "node_modules",
        "site-packages",
        "dist-packages",
        "node:",
        "/usr/lib",
        "/usr/local/",
        "lib/python",
        "<frozen",
        "(<anonymous>)",
        "/go-1.",
        "/go/src/",
        "at java.",
        "at javax.",
        "at jdk.",
        "at sun.",
        "java.base",
        "org.springframework",
        "org.junit",
        "org.apache",
        "org.hibernate",
        "com.sun.",
        "kotlin.",
        "scala.",
        "/vendor/",
        "/gems/",
        ".cargo/registry",
        "/rustc/",
        "core::",
        "std::",
        "at system.",
        "at microsoft.",
        "(stdlib)",
        "(elixir ",
        "(ex_unit",
        "(stdlib ",
        "(kernel ",
        "internal/",
        "libc.",
        "libpthread",
        "vgpreload",
        "??",
        "start_thread",
        "in clone",
        "_libc_",
        "libsanitizer",
        "sysdeps/",
        "strdup.c",
        "malloc.c",
    ])
});

/// Returns whether a line is a frame of a stack.
pub fn is_frame(line: &ViewLine<'_>) -> bool {
    let begin = line.text.as_bytes();
    let may_be = match begin {
        [b'a' | b'F' | b'#' | b'b' | b'(' | b'f', ..] => true,
        [b'/' | b'.', ..] => line.indent > 0,
        [0xE2, ..] => true,
        _ => line.indent > 0 && line.text.contains([':']),
    };
    may_be && line.text.len() < 1_000 && FRAME.is_match(line.text)
}

/// Returns whether a frame is not of one's own code.
pub fn is_foreign(text: &str) -> bool {
    FOREIGN.is_match(text)
}

/// Stack traces of an output.
#[derive(Default)]
pub struct Traces {
    /// Traces with a message, in order.
    pub failures: Vec<Trace>,
    /// Stacks without a message that begin like few others: in a dump of all threads, those that do something else.
    pub rare: Vec<Trace>,
}

/// All traces.
pub fn traces(lines: &[ViewLine<'_>]) -> Traces {
    let mut found: Vec<Trace> = Vec::new();
    let mut stacks: Vec<Vec<usize>> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        if !is_frame(&lines[at]) {
            at += 1;
            continue;
        }
        let (frames, end) = run_of_frames(lines, at);
        if let Some(trace) = trace(lines, &frames, end) {
            at = trace.range.end.max(end);
            found.push(trace);
        } else {
            if let Some(before) = found.last_mut() {
                before.extend(lines, &frames, end);
            }
            stacks.push(frames);
            at = end;
        }
    }
    Traces {
        failures: found,
        rare: rare_stacks(lines, &stacks),
    }
}

/// Stacks of one's own code that begin like few others, each with the lines above it that name its thread.
fn rare_stacks(lines: &[ViewLine<'_>], stacks: &[Vec<usize>]) -> Vec<Trace> {
    if stacks.len() < STACKS_MIN {
        return Vec::new();
    }
    let mut counts: HashKeyMap<usize> = HashKeyMap::default();
    let begin = |frames: &[usize]| lines[frames[0]].line.shape.without_numbers;
    for frames in stacks {
        *counts.entry(begin(frames)).or_default() += 1;
    }
    let is_rare = |frames: &&Vec<usize>| {
        counts[&begin(frames)] <= RARE_STACKS && !is_foreign(lines[frames[0]].text)
    };
    let trace = |frames: &Vec<usize>| {
        let first = frames[0];
        let above = (first.saturating_sub(FURTHER_HEADING)..first).rev();
        let main = above
            .take_while(|at| !lines[*at].is_blank() && !is_frame(&lines[*at]))
            .last();
        let main = main.unwrap_or(first);
        finished(main..first + 1, main, (main + 1..=first).collect())
    };
    stacks.iter().filter(is_rare).map(trace).collect()
}

/// Frames from `first` on, and the end of the run.
fn run_of_frames(lines: &[ViewLine<'_>], first: usize) -> (Vec<usize>, usize) {
    let mut frames = vec![first];
    let mut between = 0;
    let mut at = first + 1;
    while at < lines.len() && between <= BETWEEN_MAX {
        let line = &lines[at];
        if is_frame(line) {
            frames.push(at);
            between = 0;
        } else if CHAIN.is_match(line.text) {
            between = 0;
        } else if line.is_blank() && !chain_follows(lines, at) {
            break;
        } else {
            between += 1;
        }
        at += 1;
    }
    let last = frames.last().map_or(first, |last| *last);
    (frames, last + 1)
}

/// Returns whether a chain goes on behind blank lines.
fn chain_follows(lines: &[ViewLine<'_>], at: usize) -> bool {
    let mut next = lines[at..].iter().skip_while(|line| line.is_blank());
    let close = lines[at..]
        .iter()
        .take_while(|line| line.is_blank())
        .count()
        <= 2;
    close
        && next
            .next()
            .is_some_and(|line| CHAIN.is_match(line.text) && !line.text.starts_with("goroutine"))
}

fn trace(lines: &[ViewLine<'_>], frames: &[usize], end: usize) -> Option<Trace> {
    let first = *frames.first()?;
    let is_python = lines[first].text.starts_with("File \"");
    if frames.len() < 2 && !is_python {
        return None;
    }
    if is_python {
        return python(lines, frames, end);
    }
    let from = first.saturating_sub(MESSAGE_WITHIN);
    let above = (from..first).rev();
    // The nearest finding, and what stands directly above it.
    let message = above
        .take_while(|at| !is_frame(&lines[*at]))
        .find(|at| lines[*at].finding.is_some())?;
    let mut main = message;
    if main > 0
        && first - main < MESSAGE_WITHIN
        && lines[main - 1].finding.is_some()
        && !lines[main - 1].is_usual()
    {
        main -= 1;
    }
    // A message can have several lines.
    let mut with: Vec<usize> = (main + 1..first)
        .filter(|at| !lines[*at].is_blank())
        .collect();
    let mut messages = vec![message];
    let is_message = |at: &usize| {
        let line = &lines[*at];
        is_cause(line.text) || (line.indent == 0 && is_error(line) && !is_frame(line))
    };
    messages.extend((first..end).filter(is_message));
    if messages.len() > MESSAGES_MAX {
        messages.drain(MESSAGES_MAX - 1..messages.len() - 1);
    }
    for (n, message) in messages.iter().enumerate() {
        with.push(*message);
        let until = messages.get(n + 1).copied().unwrap_or(end);
        with.extend(own_frames(
            lines,
            frames.iter().filter(|at| (message..&until).contains(at)),
        ));
    }
    Some(finished(main..end, main, with))
}

fn is_error(line: &ViewLine<'_>) -> bool {
    let is_error = |finding: Finding| finding.importance == Importance::Error;
    line.finding.is_some_and(is_error)
}

fn is_cause(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 10 && bytes[..9].eq_ignore_ascii_case(b"caused by")
}

/// Trace whose messages stand below the frames.
fn python(lines: &[ViewLine<'_>], frames: &[usize], mut end: usize) -> Option<Trace> {
    let first = *frames.first()?;
    let start = first
        .checked_sub(1)
        .filter(|at| lines[*at].text.starts_with("Traceback"));
    let indent = lines[first].indent;
    let mut with = Vec::new();
    let mut messages = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        let until = frames.get(n + 1).copied().unwrap_or(lines.len());
        let mut below = frame + 1..until.min(frame + 12);
        if let Some(message) = below.find(|at| lines[*at].indent < indent && !lines[*at].is_blank())
        {
            messages.push((message, n));
        }
    }
    let (main, _) = *messages.last()?;
    end = end.max(main + 1);
    let mut from = 0;
    for (message, last) in messages {
        with.push(message);
        with.extend(own_frames(lines, frames[from..=last].iter().rev()));
        from = last + 1;
    }
    Some(finished(start.unwrap_or(first)..end, main, with))
}

/// The first frames of one's own code, or the first of all if there is none, each with the line above it if that has
/// the function.
fn own_frames<'a>(
    lines: &[ViewLine<'_>],
    frames: impl Iterator<Item = &'a usize> + Clone,
) -> Vec<usize> {
    let frames = frames.filter(|at| !has_function_above(lines, **at + 1));
    let own = frames.clone().filter(|at| !is_foreign(lines[**at].text));
    let mut shown: Vec<usize> = own.take(OWN_FRAMES).copied().collect();
    if shown.is_empty() {
        shown.extend(frames.take(1));
    }
    let functions: Vec<usize> = shown
        .iter()
        .filter(|at| has_function_above(lines, **at))
        .map(|at| at - 1)
        .collect();
    shown.extend(functions);
    shown
}

/// Returns whether a frame is the location of the function on the line above, as some languages write it.
fn has_function_above(lines: &[ViewLine<'_>], at: usize) -> bool {
    let Some([function, place]) = lines.get(at.saturating_sub(1)..=at) else {
        return false;
    };
    let is_place = place.text.starts_with("at ") && is_frame(function);
    place.line.text.starts_with("\t/") || (is_place && function.indent < place.indent)
}

fn finished(range: Range<usize>, main: usize, mut with: Vec<usize>) -> Trace {
    with.sort_unstable();
    with.dedup();
    with.retain(|at| *at != main);
    Trace { range, main, with }
}

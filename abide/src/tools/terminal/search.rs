//! `search`: matching lines of the whole log.

use abide_api::arguments::SearchArgs;
use abide_api::{ActionResult, FoundLine};
use abide_core::{Millis, limit};
use abide_output::digest::rendered_rows;

use super::{ActionOutcome, ActionRunner, BadInput, SessionRef, unreadable};
use crate::tools::args::pattern;
use abide_engine::clock::SystemClock;
use abide_engine::search::{self, Line, Pattern, SearchResult};
use abide_session::log::Log;

/// Time limit of a search. The rest of the log is left unsearched, and the result says so.
const TIME_LIMIT: Millis = Millis(20_000);
/// Characters of a line that are shown.
const CHARS: usize = 1_000;

pub(in crate::tools) struct Search {
    pattern: Pattern,
    context: usize,
    most: usize,
}

pub(super) fn read(args: SearchArgs) -> Result<Search, BadInput> {
    let pattern = pattern("pattern", args.pattern.map(|text| text.0))?.ok_or_else(|| {
        BadInput::about(
            "pattern",
            "is required and must be a regular expression; got nothing.",
        )
    })?;
    Ok(Search {
        pattern,
        context: args.context.map_or(0, |lines| lines.0) as usize,
        most: args
            .max_lines
            .map_or(limit::LINES_DEFAULT, |lines| lines.0 as usize),
    })
}

impl ActionRunner {
    pub(super) async fn search(&self, session_ref: &SessionRef, search: Search) -> ActionOutcome {
        let view = self.session(session_ref)?;
        let guard = self.attend(view.id).await;
        let log = Log::open(&view.folder).with_written(view.bytes());
        let wanted = search::Search {
            pattern: search.pattern,
            context: search.context,
            max_lines: search.most,
            from: 0,
            fold_equal: true,
        };
        let work = move || {
            let stop = SystemClock.mono() + TIME_LIMIT;
            search::search(&log, &wanted, || SystemClock.mono() >= stop)
        };
        let found = tokio::task::spawn_blocking(work).await;
        drop(guard);
        let found = found.map_err(std::io::Error::other).flatten();
        let found = found.map_err(unreadable)?;
        let view = self.newest(&view);
        let text = self.mask(&view, text(&found));
        let lines = found.lines.iter().map(|line| FoundLine {
            line: line.number,
            r#match: line.matches,
            text: self.mask(&view, words(line)),
            equal_lines: line.equal.map_or(0, |(_, more)| more),
            last_equal_line: line.equal.map(|(last, _)| last),
        });
        let action = ActionResult::Search {
            matches: found.matches,
            lines_total: found.total,
            found: lines.collect(),
            complete: !found.stopped,
        };
        Ok(self.result(&view, text, action))
    }
}

fn text(found: &SearchResult) -> String {
    let mut lines = Vec::new();
    let mut last = None;
    for line in &found.lines {
        if last.is_some_and(|last| last + 1 < line.number) && found.lines.iter().any(|l| !l.matches)
        {
            lines.push("--".to_owned());
        }
        last = Some(line.number);
        let sign = if line.matches { ':' } else { '-' };
        let equal = line.equal.map_or_else(String::new, |(last, more)| {
            format!(" [{more} more like it, last in line {last}]")
        });
        lines.push(format!("{}{sign}{}{equal}", line.number, words(line)));
    }
    let stands_for = |line: &Line| 1 + line.equal.map_or(0, |(_, more)| more);
    let matching = found.lines.iter().filter(|line| line.matches);
    let shown: u64 = matching.map(stands_for).sum();
    let lines_total = found.total;
    lines.push(match found.matches {
        0 => format!("[no line of {lines_total} matches]"),
        all if all > shown => {
            format!("[{all} lines of {lines_total} match; the first {shown} are shown]")
        }
        all => format!("[{all} of {lines_total} lines match]"),
    });
    if found.missing > 0 {
        lines.push(format!(
            "[{} bytes are missing from the log; lines are counted without them]",
            found.missing
        ));
    }
    if found.stopped {
        lines.push(format!(
            "[stopped after {TIME_LIMIT}: only the first {} bytes were searched; use a simpler pattern]",
            found.searched
        ));
    }
    lines.join("\n")
}

/// Line as a person sees it, with marks where it was cut.
fn words(line: &Line) -> String {
    let mut words = rendered_rows(&line.text, CHARS).join(" ");
    if line.cut.0 > 0 {
        words.insert_str(0, &format!("[… {} bytes …]", line.cut.0));
    }
    if line.cut.1 > 0 {
        words.push_str(&format!("[… {} bytes …]", line.cut.1));
    }
    words
}

//! Signals of importance, one file per family. None of them knows a tool: each looks for a form that many tools share.
//!
//! | file | signal | example |
//! | --- | --- | --- |
//! | `levels` | a level or a word of failure with the punctuation of a message, a location with a message, a summary; in several languages | `error[E0308]: …`, `make: *** … Erreur 2`, `a.go:3:5: undefined: x`, `2 failed, 3 passed` |
//! | `patterns` | the keywords and regular expressions of `levels` | |
//! | `keyword_scan` | the same keywords, in output so long that not all of it is read as lines | |
//! | `traces` | stack traces: messages of the whole chain, frames of one's own code, further stacks of a report | `Caused by: …`, `File "app.py", line 3` |
//! | `blocks` | lines that explain a finding: its location or file, the step, heading or paragraph above it, the title of its table or section, values, differences and details below it | `DETAIL: …`, `- expected`, `checking for x` |
//! | `rarity` | values, marks and cells that differ from those of all similar lines or records, words in a hex dump, and the first line of each kind | one `Pending` in a table of `Running`, `"level":50` |
//! | `verdicts` | the word at the end of a line that differs from that of nearly all lines | one `- fail` among `- pass` |
//! | `amounts` | numbers that are far from those between the same words in other lines | one `in 48211 ms` among 3 to 30 |
//!
//! To add a signal, add its form to the file of its family and a line to the tests there. `tests/digest/corpus.rs` shows
//! what it gains and costs.

use levels::Importance;

pub mod amounts;
pub mod blocks;
pub mod keyword_scan;
pub mod levels;
mod patterns;
pub mod rarity;
pub mod traces;
pub mod verdicts;

/// Byte offset of the place in a long line that tells most: a record that differs from all others, else an error.
pub fn telling_place(line: &str) -> Option<usize> {
    let error = || levels::classify(line).filter(|found| found.importance == Importance::Error);
    rarity::odd_record(line).or_else(|| error().map(|found| found.at))
}

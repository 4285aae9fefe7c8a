//! Lines of a session's log, as a log view shows them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::words::words;

/// Consecutive lines of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogLines {
    /// Lines in order; fewer than requested if they are long.
    pub lines: Vec<LogLine>,
    /// Number of lines in the log so far. A last line without a newline counts.
    pub total: u64,
    /// Bytes missing from the log so far. When there are more than before, the lines after them have other numbers.
    pub dropped: u64,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogLine {
    /// Number of the line, from 1.
    pub number: u64,
    /// Arrival of its first byte, in Unix milliseconds.
    pub at: u64,
    /// Stream that it came from; `both`: begun by one stream, continued by the other.
    pub stream: LogStream,
    /// The line without escape sequences, after carriage returns and erasures.
    pub text: String,
    /// Bytes left out in the middle of a long line, where `text` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    /// Bytes before this line that are missing from the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<u64>,
    /// Parts of the text that have a colour or are bold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub styles: Vec<LogStyle>,
    /// Parts of the text that match `pattern`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<LogRange>,
}

words! {
    /// Stream of a line; `both`: begun by one stream, continued by the other.
    LogStream {
        Stdout = "stdout",
        Stderr = "stderr",
        Both = "both",
        Pty = "pty",
    };
}

/// Part of a text that has a style, in UTF-16 code units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogStyle {
    /// First code unit.
    pub start: usize,
    /// Code unit after the last one.
    pub end: usize,
    /// Number of the colour, 0 to 15.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colour: Option<u8>,
    /// True if the text is bold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bold: bool,
}

/// Part of a text, in UTF-16 code units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogRange {
    /// First code unit.
    pub start: usize,
    /// Code unit after the last one.
    pub end: usize,
}

/// Numbers of the lines of a log that match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogMatches {
    /// Line numbers in order.
    pub lines: Vec<u64>,
    /// Number of matching lines after `after`, including those that are not listed.
    pub total: u64,
    /// `after` of the next page, if there are more: a byte offset in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// True if the search took too long and `total` counts only the lines before `next`.
    pub stopped: bool,
}

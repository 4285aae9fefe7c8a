//! Lines that belong to a finding: the heading above it and the explanation below it.
//!
//! Blocks are found by indentation, blank lines and words that begin an explanation.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::digest::view::ViewLine;

use super::levels::{Finding, Importance, is_success};
use super::patterns::compiled;
use super::rarity::json_pair;
use super::traces::{is_foreign, is_frame};

/// Number of lines that are looked at above and below.
const ABOVE_MAX: usize = 60;
const BELOW_MAX: usize = 24;
/// Number of lines of a paragraph above a finding that are shown.
const PARAGRAPH_MAX: usize = 6;
/// Number of lines above and below a finding among which its location is looked for.
const PLACE_ABOVE_MAX: usize = 6;
const PLACE_BELOW_MAX: usize = 2;
/// Number of lines above a finding among which the heading with its file is looked for, and the step of the program.
const FILE_ABOVE_MAX: usize = 200;
const STEP_ABOVE_MAX: usize = 40;
/// Number of parents of a key that are shown.
const PARENTS_MAX: usize = 4;
/// Number of lines of a paragraph that are shown below an error that ends with a colon.
const INTRODUCED_MAX: usize = 3;
/// Number of lines above and below a line of indented JSON among which other values of its object are looked for, and of
/// those that are shown.
const SIBLING_WITHIN: usize = 40;
const SIBLINGS_MAX: usize = 7;
/// Number of lines of the same indentation that follow a finding and belong to it.
const SAME_INDENT_MAX: usize = 3;
/// Number of lines below a finding among which a ruled line can begin its section.
const SECTION_WITHIN: usize = 2;
/// Number of lines between a ruled line and a finding whose section begins there.
const TITLE_WITHIN: usize = 8;
/// Number of lines above an outlier among which its record begins.
const RECORD_WITHIN: usize = 16;
/// Number of characters that make a ruled line.
const RULE_CHARS: usize = 10;
/// Number of bytes that make a line of a hex dump.
const HEX_DUMP_BYTES: usize = 8;
/// Number of lines of a block that are shown below its finding.
const SHOWN_MAX: usize = 8;
/// Number of frames of a block that are shown.
const FRAMES_MAX: usize = 2;

/// Begin of a line that explains the line above.
static EXPLAINS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)^(?:\d[\d:.,\-/TZ]*\s+|\[[^\]]*\]\s*|\S+@\S+\s+|UTC\s+|=\s)*
            (?:detail|hint|context|statement|query|note|help|cause|reason|because|expected|actual|received|got|want|wanted|left|right|symbol
              |location|found|required|message|caused\ by|line\ \d+)\s*[:=]",
    )
});

/// Expected or actual value, or a changed line of a difference.
static VALUE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)^(?:(?:\$?(?:expected|actual|received|got|want|wanted|left|right|code|before|after))\b.{0,40}?[:=]\s | [-+]\s*[^-+\s] | E\s{2,})",
    )
});

/// Excerpt of source code, or a mark below it.
static EXCERPT: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"^(?:>?\s*\d*\s*\|(?:\s|$)|[\^~\s|]*[\^~]+[\^~\s|-]*$|>?\s*\d+\s*[|│])")
});

/// Location of a finding on a line of its own.
static PLACE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r#"(?x)^(?:-->|:::|❯)\s | ^File\ " | \bline\ \d+ | ^\S+\.\w{1,5}:\d+ | ^\(?(?:at|in)\s.*\S:\d+ | ^l\.\d+ | ^\([^)]*\.\w+:\d+"#,
    )
});

/// Location within a line.
static PLACE_WITHIN: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?-u:[\w)\]-]\.\w{1,8})(?::|\(|\x22, line )[0-9]+"));

/// Returns whether a line only accompanies another: an excerpt of source code, or nothing but a location.
pub fn is_accompanying(line: &ViewLine<'_>) -> bool {
    let place = BEGINS_WITH_PLACE.find(line.text);
    let is_place = place.is_some_and(|place| place.end() == line.text.len());
    is_place || EXCERPT.is_match(line.body().trim_start())
}

/// Returns whether a line says where something is.
fn is_place(text: &str) -> bool {
    PLACE.is_match(text)
}

/// Line that begins with a location, perhaps behind a mark: `--> src/app.rs:3:5`, `app.yml:7 in task copy`.
static BEGINS_WITH_PLACE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"^(?:\S{1,6}\s+)?(?:,-\[|╭─\[|\()?(?-u:[\w.@+/\\~-]+\.\w{1,8})[:(][0-9]+(?:[:,] ?[0-9]+)?(?:[\]):]|\s|$)",
    )
});

/// Location of a finding that has none in its own line: the nearest line above or below it that begins with one.
pub fn place(lines: &[ViewLine<'_>], main: usize) -> Option<usize> {
    if PLACE_WITHIN.is_match(lines[main].text) {
        return None;
    }
    let is_place = |at: &usize| BEGINS_WITH_PLACE.is_match(lines[*at].text);
    let ends = |at: &usize| lines[*at].finding.is_some() && !is_place(at);
    let above = (main.saturating_sub(PLACE_ABOVE_MAX)..main).rev();
    let mut above = above.take_while(|at| !ends(at));
    let mut below = (main + 1..lines.len())
        .take(PLACE_BELOW_MAX)
        .take_while(|at| !ends(at) && !lines[*at].is_blank());
    below
        .find(is_place)
        .or_else(|| above.find(is_place))
        .or_else(|| file_above(lines, main))
}

/// Location directly above a line that has none.
pub fn place_above(lines: &[ViewLine<'_>], main: usize) -> Option<usize> {
    let above = main.checked_sub(1)?;
    let is_place = |at: usize| BEGINS_WITH_PLACE.is_match(lines[at].text);
    (is_place(above) && !is_place(main)).then_some(above)
}

/// Nearest line above a finding that is nothing but the name of a file: the heading of all findings in that file.
fn file_above(lines: &[ViewLine<'_>], main: usize) -> Option<usize> {
    let mut above = (main.saturating_sub(FILE_ABOVE_MAX)..main).rev();
    above.find(|at| FILE.is_match(lines[*at].text))
}

/// Step of a program above an error: the nearest line with a verb of progress, such as `checking for x`.
pub fn step(lines: &[ViewLine<'_>], main: usize) -> Option<usize> {
    let mut above = (main.saturating_sub(STEP_ABOVE_MAX)..main).rev();
    above.find(|at| {
        let line = &lines[*at];
        line.finding.is_none() && STEP.is_match(line.text)
    })
}

/// Name of a file, alone on its line: `src/app.js`, `FILE: lib/Way.php`.
static FILE: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"^(?i:file:?\s+|in\s+)?(?-u:[\w.@+/\\~-]*\w\.[A-Za-z]\w{0,7}):?$"));

/// Begin of a step: a verb of progress, perhaps behind a time, a level or the name of a program.
static STEP: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"(?ix)^.{0,48}?\b(?:(?:check|runn|build|compil|link|process|test|install|execut|start|apply|migrat|load|generat|creat|updat|download|fetch|configur|pack|prepar|copy|deploy)ing
            |step|task|stage|phase)\b[\s:/\[]+\S",
    )
});

/// Lines above a finding that belong to it, as indices.
pub fn above(lines: &[ViewLine<'_>], main: usize) -> Vec<usize> {
    let own = &lines[main];
    let mut shown: Vec<usize> = title(lines, main).into_iter().collect();
    if is_changed(own) {
        let mut above = (main.saturating_sub(ABOVE_MAX)..main).rev();
        shown.extend(above.find(|at| is_heading(&lines[*at])));
        return shown;
    }
    if own.indent == 0 {
        // Some write it, or what they did, on the line above.
        let is_error = |finding: Finding| finding.importance == Importance::Error;
        let before = main.checked_sub(1);
        shown.extend(before.filter(|at| {
            let line = &lines[*at];
            let is_usual = line.is_usual() && !line.text.contains(" started");
            let is_ordinary =
                line.is_blank() || is_usual || is_success(line.text) || is_rule(line.text);
            own.finding.is_some_and(is_error)
                && line.finding.is_none()
                && line.indent == 0
                && !is_ordinary
        }));
        if own.finding.is_some_and(is_error) {
            shown.extend(paragraph_above(lines, main));
        }
        return shown;
    }
    let from = main.saturating_sub(ABOVE_MAX);
    let mut indent = own.indent;
    // Behind a key, its parents up to the item of a list that it belongs to.
    let is_key = is_key(own.text);
    for at in (from..main).rev() {
        let line = &lines[at];
        if line.is_blank() {
            break;
        }
        if is_rule(line.text) {
            continue;
        }
        if line.indent < indent {
            shown.push(at);
            indent = line.indent;
            if !is_key
                || !is_key_or_item(line.text)
                || line.text.starts_with("- ")
                || shown.len() == PARENTS_MAX
            {
                break;
            }
        }
    }
    shown
}

/// Returns whether a line is an indented one that a difference marks as changed: `-   replicas: 6`.
fn is_changed(line: &ViewLine<'_>) -> bool {
    line.indent == 0 && (line.text.starts_with("-  ") || line.text.starts_with("+  "))
}

/// Returns whether a line can be the heading of a difference.
fn is_heading(line: &ViewLine<'_>) -> bool {
    line.indent == 0
        && line
            .text
            .starts_with(|c: char| c.is_alphabetic() || c == '@')
}

/// Returns whether a line is a key with or without its value, as in YAML: `phase: Pending`.
fn is_key(text: &str) -> bool {
    let key = text.split([' ', '\t']).next().unwrap_or_default();
    let name = key.strip_suffix(':').unwrap_or_default();
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
}

fn is_key_or_item(text: &str) -> bool {
    is_key(text.strip_prefix("- ").unwrap_or(text))
}

/// Other values of the object that a line of indented JSON is in.
pub fn siblings(lines: &[ViewLine<'_>], main: usize) -> Vec<usize> {
    let indent = lines[main].indent;
    let is_inside = |at: &usize| lines[*at].indent >= indent;
    let above = (main.saturating_sub(SIBLING_WITHIN)..main).rev();
    let below = (main + 1..lines.len()).take(SIBLING_WITHIN);
    let around = above
        .take_while(is_inside)
        .chain(below.take_while(is_inside));
    let is_value =
        |at: &usize| json_pair(lines[*at].text).is_some_and(|(_, value)| value != "null");
    let mut values: Vec<usize> = around.filter(is_value).collect();
    // Then texts of the objects in it, such as a message and its place.
    let is_text =
        |at: usize| json_pair(lines[at].text).is_some_and(|(_, value)| value.starts_with('"'));
    values.retain(|at| lines[*at].indent == indent || is_text(*at));
    values.sort_by_key(|at| lines[*at].indent);
    values.truncate(SIBLINGS_MAX);
    values
}

/// Begin of the record that a line is in, if it is one of many: the first line behind a blank line, or a ruled line with a
/// title and the line below it.
pub fn record(lines: &[ViewLine<'_>], main: usize) -> Range<usize> {
    let is_begin =
        |at: &usize| has_ruled_title(lines[*at].text) || *at == 0 || lines[*at - 1].is_blank();
    let mut above = (main.saturating_sub(RECORD_WITHIN)..main).rev();
    let begin = above
        .find(|at| lines[*at].is_blank() || is_begin(at))
        .filter(|at| lines[*at].is_usual() && !lines[*at].is_blank());
    begin.map_or(main..main, |at| {
        at..at + 1 + usize::from(has_ruled_title(lines[at].text))
    })
}

/// Returns whether a line is a title with a rule behind it, such as `-[ RECORD 7 ]-----------`.
pub fn has_ruled_title(text: &str) -> bool {
    let ends = ["-----", "*****", "====="];
    let is_ruled = text.starts_with(['-', '*', '=']) && text.contains(' ');
    is_ruled && ends.iter().any(|end| text.ends_with(end))
}

/// Lines between a finding and the blank or ruled line above it, if that is near: what the finding is about.
fn paragraph_above(lines: &[ViewLine<'_>], main: usize) -> Vec<usize> {
    let mut above = Vec::new();
    for at in (main.saturating_sub(PARAGRAPH_MAX + 1)..main).rev() {
        let line = &lines[at];
        if line.is_blank() || is_rule(line.text) {
            return above;
        }
        if line.finding.is_some() || is_success(line.text) {
            break;
        }
        above.push(at);
    }
    Vec::new()
}

/// Lines below a finding that belong to it, as indices, the most important ones if there are many.
pub fn below(lines: &[ViewLine<'_>], main: usize) -> Vec<usize> {
    let own = &lines[main];
    let mut block = Vec::new();
    let mut same_indent = 0;
    let end = lines.len().min(main + 1 + BELOW_MAX);
    let mut in_section = false;
    for at in main + 1..end {
        let line = &lines[at];
        if is_rule(line.text) && (in_section || at - main <= SECTION_WITHIN) {
            if in_section {
                break;
            }
            in_section = true;
            continue;
        }
        if in_section && !line.is_blank() {
            block.push(at);
            continue;
        }
        if line.is_blank() {
            let next = lines[at..end].iter().find(|line| !line.is_blank());
            let goes_on =
                |next: &ViewLine<'_>| next.indent > own.indent && !is_finding_of(own, next);
            if in_section || next.is_some_and(goes_on) {
                continue;
            }
            // `requirements were not met:`, then a blank line and what they are.
            if at == main + 1 && own.text.ends_with(':') {
                let introduced = (at + 1..end).take(INTRODUCED_MAX);
                block.extend(introduced.take_while(|at| !lines[*at].is_blank()));
            }
            break;
        }
        if EXPLAINS.is_match(line.text) {
            block.push(at);
        } else if is_finding_of(own, line) {
            break;
        } else if line.indent > own.indent {
            block.push(at);
        } else if same_indent < SAME_INDENT_MAX
            && line.indent == own.indent
            && (!line.is_usual() || line.text.ends_with(':'))
        {
            same_indent += 1;
            block.push(at);
        } else {
            break;
        }
    }
    most_important(lines, block)
}

/// Returns whether a line shows bytes of memory.
fn is_hex_dump(text: &str) -> bool {
    let is_byte = |word: &&str| word.len() == 2 && word.bytes().all(|b| b.is_ascii_hexdigit());
    text.split([' ', '[', ']']).filter(is_byte).count() >= HEX_DUMP_BYTES
}

/// Returns whether a line is drawn across the page, to separate sections or rows.
fn is_rule(text: &str) -> bool {
    let Some(first) = text.chars().next().filter(|c| !c.is_alphanumeric()) else {
        return false;
    };
    text.chars().take_while(|c| *c == first).count() >= RULE_CHARS || is_drawn(text)
}

/// Returns whether a line consists of the characters of which tables are drawn.
fn is_drawn(text: &str) -> bool {
    let is_line = |c: &char| matches!(c, '-' | '=' | '_' | '+' | '|' | '─'..='╿');
    let drawn = text.chars().filter(is_line).count();
    let others = text.chars().filter(|c| !is_line(c) && *c != ' ').count();
    drawn >= RULE_CHARS && others == 0 && 2 * drawn > text.chars().count()
}

/// Title of the section that a finding is in: the line between the two ruled lines above it, as in a table, else the
/// first line below the nearest one.
fn title(lines: &[ViewLine<'_>], main: usize) -> Option<usize> {
    let mut above = (main.saturating_sub(ABOVE_MAX)..main).rev();
    let rule = above.find(|at| is_drawn(lines[*at].text))?;
    let is_title = |at: usize| !lines[at].is_blank() && !is_drawn(lines[at].text);
    let is_between = rule >= 2 && is_title(rule - 1) && is_drawn(lines[rule - 2].text);
    match is_between {
        true => Some(rule - 1),
        false => (main - rule <= TITLE_WITHIN && is_title(rule + 1)).then_some(rule + 1),
    }
}

/// Returns whether a line is a finding of its own beside another.
fn is_finding_of(own: &ViewLine<'_>, line: &ViewLine<'_>) -> bool {
    let is_certain =
        |finding: Finding| !matches!(finding.importance, Importance::Mention | Importance::Place);
    line.finding.is_some_and(is_certain) && line.indent <= own.indent
}

fn most_important(lines: &[ViewLine<'_>], block: Vec<usize>) -> Vec<usize> {
    let mut frames = 0;
    let mut weighted: Vec<(u8, usize)> = Vec::new();
    let any_own = block
        .iter()
        .any(|at| is_frame(&lines[*at]) && !is_foreign(lines[*at].text));
    for at in block {
        let line = &lines[at];
        let weight = if is_frame(line) {
            if frames == FRAMES_MAX || (any_own && is_foreign(line.text)) {
                continue;
            }
            frames += 1;
            1
        } else if line.finding.is_some()
            || VALUE.is_match(line.text)
            || EXPLAINS.is_match(line.text)
        {
            0
        } else if EXCERPT.is_match(line.body().trim_start()) || is_hex_dump(line.text) {
            4
        } else if is_place(line.text) {
            1
        } else {
            2
        };
        weighted.push((weight, at));
    }
    weighted.sort_unstable();
    let mut shown: Vec<usize> = weighted
        .into_iter()
        .filter(|(weight, _)| *weight < 4)
        .take(SHOWN_MAX)
        .map(|(_, at)| at)
        .collect();
    shown.sort_unstable();
    shown
}

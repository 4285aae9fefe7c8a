//! Line diff of a configuration change, in the usual format.

use abide_output::printable::one_line;
use anstyle::Style;

use crate::cli::show;

/// Number of context lines.
const CONTEXT: usize = 3;
/// Characters that are shown of what a removed and an added line have in common at their start or end.
const COMMON: usize = 24;

/// Line of a diff: its mark and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    mark: char,
    text: String,
}

impl DiffLine {
    /// Line with its colour, truncated to the width of the terminal.
    pub fn coloured(&self, width: Option<usize>) -> String {
        let style = match self.mark {
            '+' => show::GOOD,
            '-' => show::BAD,
            '@' => show::FAINT,
            _ => Style::new(),
        };
        let text = self.to_string();
        let text = match width {
            Some(width) => show::truncate(&text, width.max(8)),
            None => text,
        };
        format!("{style}{text}{style:#}")
    }
}

impl std::fmt::Display for DiffLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.mark {
            '@' => f.write_str(&self.text),
            mark => write!(f, "{mark} {}", self.text),
        }
    }
}

/// Diff as a single hunk: the lines between the first and the last difference, with context around them.
pub fn lines(before: &str, after: &str) -> Vec<DiffLine> {
    if before == after {
        return Vec::new();
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let least = old.len().min(new.len());
    let same_begin = (0..least).take_while(|at| old[*at] == new[*at]).count();
    let same_end = (0..least - same_begin)
        .take_while(|at| old[old.len() - 1 - at] == new[new.len() - 1 - at])
        .count();
    let (old_end, new_end) = (old.len() - same_end, new.len() - same_end);
    let from = same_begin.saturating_sub(CONTEXT);
    let until = (old_end + CONTEXT).min(old.len());
    let shown = until - from;
    let mut lines = vec![DiffLine {
        mark: '@',
        text: format!(
            "@@ -{},{shown} +{},{} @@",
            from + 1,
            from + 1,
            shown + new_end - old_end
        ),
    }];
    let owned = |some: &[&str]| some.iter().map(|text| (*text).to_owned()).collect();
    let mut removed: Vec<String> = owned(&old[same_begin..old_end]);
    let mut added: Vec<String> = owned(&new[same_begin..new_end]);
    shorten_common(&mut removed, &mut added);
    let mut add = |mark: char, some: Vec<String>| {
        lines.extend(some.iter().map(|text| DiffLine {
            mark,
            text: one_line(&text.replace('\t', "    ")),
        }));
    };
    add(' ', owned(&old[from..same_begin]));
    add('-', removed);
    add('+', added);
    add(' ', owned(&old[old_end..until]));
    lines
}

/// Shortens what the first two lines begin with and the last two end with, so that a change within a long line is visible:
/// some clients write their whole file as one line.
fn shorten_common(removed: &mut [String], added: &mut [String]) {
    if let (Some(old), Some(new)) = (removed.first_mut(), added.first_mut()) {
        let common = common_length(old.chars(), new.chars());
        for line in [old, new] {
            if common > COMMON {
                let kept = line.chars().skip(common - COMMON);
                *line = std::iter::once('…').chain(kept).collect();
            }
        }
    }
    if let (Some(old), Some(new)) = (removed.last_mut(), added.last_mut()) {
        let common = common_length(old.chars().rev(), new.chars().rev());
        for line in [old, new] {
            if common > COMMON {
                let kept = line.chars().count() - common + COMMON;
                *line = line.chars().take(kept).chain(['…']).collect();
            }
        }
    }
}

fn common_length(left: impl Iterator<Item = char>, right: impl Iterator<Item = char>) -> usize {
    left.zip(right)
        .take_while(|(left, right)| left == right)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> String {
        let lines: Vec<String> = lines(before, after)
            .iter()
            .map(ToString::to_string)
            .collect();
        lines.join("\n")
    }

    #[test]
    fn diff_shows_changed_lines_with_context() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let after = before.replace("5\n", "five\nand a half\n");
        assert_eq!(
            shown(before, &after),
            "@@ -2,7 +2,8 @@\n  2\n  3\n  4\n- 5\n+ five\n+ and a half\n  6\n  7\n  8"
        );
        assert_eq!(shown("", "a\n"), "@@ -1,0 +1,1 @@\n+ a");
        assert_eq!(shown("a\n", ""), "@@ -1,1 +1,0 @@\n- a");
        assert_eq!(
            shown("a\na\n", "a\na\na\n"),
            "@@ -1,2 +1,3 @@\n  a\n  a\n+ a"
        );
        assert_eq!(shown("same", "same"), "");
    }

    #[test]
    fn change_within_a_long_line_is_visible() {
        let (begin, end) = ("b".repeat(200), "e".repeat(200));
        let before = format!("{begin}[]{end}\n");
        let (shown_begin, shown_end) = (&begin[..COMMON - 1], &end[..COMMON - 1]);
        assert_eq!(
            shown(&before, &format!("{begin}[\n  1\n]{end}\n")),
            format!(
                "@@ -1,1 +1,3 @@\n- …{shown_begin}[]{shown_end}…\n+ …{shown_begin}[\n+   1\n+ ]{shown_end}…"
            )
        );
    }

    #[test]
    fn control_characters_are_escaped_in_the_diff() {
        assert!(!shown("", "\u{1b}]0;x\u{7}").contains('\u{1b}'));
    }
}

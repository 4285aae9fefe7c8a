//! Truncation of a text to a number of characters, with a mark that counts what is left out.

use super::row::{Omission, floor, output_bytes};

/// Maximum number of characters around a place in the middle.
const PART_CHARS: usize = 600;

/// Truncated text.
pub struct Truncated {
    /// Text with marks.
    pub text: String,
    /// Number of bytes of the output in it, without marks.
    pub bytes: u64,
}

impl Truncated {
    fn whole(text: &str) -> Self {
        Truncated {
            text: text.to_owned(),
            bytes: output_bytes(text),
        }
    }
}

/// Truncates at the end, without a mark.
pub fn start(text: &str, max_chars: usize) -> Truncated {
    let text: String = text.chars().take(max_chars).collect();
    Truncated {
        bytes: output_bytes(&text),
        text,
    }
}

/// Truncates in the middle: two thirds of what is kept are the begin.
pub fn middle(text: &str, omission: Option<Omission>, max_chars: usize) -> Truncated {
    let held = text.chars().count();
    let missing = omission.map_or(0, |omission| omission.chars);
    if omission.is_none() && held <= max_chars {
        return Truncated::whole(text);
    }
    let total = held as u64 + missing;
    let room = max_chars.saturating_sub(mark(total).chars().count());
    let head = (room * 2 / 3).min(held);
    let tail = (room - head).min(held - head);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(held - tail).collect();
    Truncated {
        bytes: output_bytes(&begin) + output_bytes(&end),
        text: format!("{begin}{}{end}", mark(total - (head + tail) as u64)),
    }
}

/// Truncates so that the text at byte offset `at` stays.
pub fn around(text: &str, at: usize, max_chars: usize) -> Truncated {
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return Truncated::whole(text);
    }
    let before = text[..floor(text, at)].chars().count();
    let lead = max_chars / 4;
    if before <= lead {
        return middle(text, None, max_chars);
    }
    let skipped = before - lead;
    let rest: String = text.chars().skip(skipped).collect();
    let mark = mark(skipped as u64);
    let room = max_chars.saturating_sub(mark.chars().count());
    let rest = middle(&rest, None, room);
    Truncated {
        text: format!("{mark}{}", rest.text),
        ..rest
    }
}

/// Truncates so that both ends and the text around byte offset `at` stay.
pub fn with_part(text: &str, omission: Option<Omission>, at: usize, max_chars: usize) -> Truncated {
    let held = text.chars().count();
    let omission = omission.unwrap_or_default();
    let total = held as u64 + omission.chars;
    let room = max_chars.saturating_sub(2 * mark(total).chars().count());
    let part = (room / 3).min(PART_CHARS);
    let place = text[..floor(text, at)].chars().count();
    let begin = (room - part) / 2;
    let end = held.saturating_sub(room - part - begin);
    let from = place.saturating_sub(part / 4);
    let to = (from + part).min(held);
    if from <= begin || to >= end {
        return around(text, at, max_chars);
    }
    let chars =
        |from: usize, to: usize| text.chars().skip(from).take(to - from).collect::<String>();
    let (first, middle, last) = (chars(0, begin), chars(from, to), chars(end, held));
    // The part that was kept of the middle divides what was omitted.
    let is_behind = floor(text, at) >= omission.at;
    let before = if is_behind { omission.chars_before } else { 0 };
    let marks = [
        mark((from - begin) as u64 + before),
        mark((end - to) as u64 + omission.chars - before),
    ];
    Truncated {
        bytes: output_bytes(&first) + output_bytes(&middle) + output_bytes(&last),
        text: format!("{first}{}{middle}{}{last}", marks[0], marks[1]),
    }
}

/// Mark in place of omitted characters.
fn mark(chars: u64) -> String {
    format!("[… {chars} characters …]")
}

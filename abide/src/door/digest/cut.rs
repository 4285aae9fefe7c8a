//! Cuts a text to a number of characters and says how many it left out.

use super::row::{Hole, floor};

/// Shortens the middle: two thirds of what is kept are its begin.
pub fn middle(text: &str, hole: Option<Hole>, max_chars: usize) -> String {
    let held = text.chars().count();
    let missing = hole.map_or(0, |hole| hole.chars);
    if hole.is_none() && held <= max_chars {
        return text.to_owned();
    }
    let total = held as u64 + missing;
    let room = max_chars.saturating_sub(mark(total).chars().count());
    let head = (room * 2 / 3).min(held);
    let tail = (room - head).min(held - head);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(held - tail).collect();
    format!("{begin}{}{end}", mark(total - (head + tail) as u64))
}

/// Shortens so that what stands at a byte offset stays.
pub fn around(text: &str, at: usize, max_chars: usize) -> String {
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return text.to_owned();
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
    format!("{mark}{}", middle(&rest, None, room))
}

/// What stands where characters were left out.
fn mark(chars: u64) -> String {
    format!("[… {chars} characters …]")
}

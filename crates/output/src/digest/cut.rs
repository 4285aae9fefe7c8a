//! Cuts a text to a number of characters and says how many it left out.

use super::row::{Hole, floor};

/// A text in so many characters.
pub struct Cut {
    pub text: String,
    /// How many bytes of the whole text are in it; the mark is none of them.
    pub bytes: u64,
}

impl Cut {
    fn whole(text: &str) -> Self {
        Cut {
            text: text.to_owned(),
            bytes: text.len() as u64,
        }
    }
}

/// Shortens the middle: two thirds of what is kept are its begin.
pub fn middle(text: &str, hole: Option<Hole>, max_chars: usize) -> Cut {
    let held = text.chars().count();
    let missing = hole.map_or(0, |hole| hole.chars);
    if hole.is_none() && held <= max_chars {
        return Cut::whole(text);
    }
    let total = held as u64 + missing;
    let room = max_chars.saturating_sub(mark(total).chars().count());
    let head = (room * 2 / 3).min(held);
    let tail = (room - head).min(held - head);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(held - tail).collect();
    Cut {
        bytes: (begin.len() + end.len()) as u64,
        text: format!("{begin}{}{end}", mark(total - (head + tail) as u64)),
    }
}

/// Shortens so that what stands at a byte offset stays.
pub fn around(text: &str, at: usize, max_chars: usize) -> Cut {
    if text.len() <= max_chars || text.chars().count() <= max_chars {
        return Cut::whole(text);
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
    Cut {
        text: format!("{mark}{}", rest.text),
        ..rest
    }
}

/// What stands where characters were left out.
fn mark(chars: u64) -> String {
    format!("[… {chars} characters …]")
}

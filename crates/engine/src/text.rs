//! Sentences about sessions, timers, messages and refusals that tool results, messages and wakers share. Built from
//! facts, without decisions.

mod message;
mod refusal;
mod session;

pub(crate) use message::COMMAND_CHARS;
pub use message::{
    listed_message_text, message_text, timer_completion, timer_label, timer_message,
};
pub use refusal::{refusal_sentence, timer_not_found, timer_refusal_sentence};
pub(crate) use session::{ending_and_last_lines, ending_text};
pub use session::{ending_line, last_lines, omitted_hint, short_command, whole_seconds};

use abide_core::Millis;
use abide_output::mask::Mask;
use abide_output::printable;

/// Words of an agent or a person, without control characters and tokens of known formats.
pub(crate) fn safe_words(words: &str) -> String {
    printable::words(&Mask::default().apply(words.to_owned()))
}

/// A duration as a number of seconds, without a fraction if it has none.
pub fn seconds_number(time: Millis) -> String {
    match time.0 % 1_000 {
        0 => (time.0 / 1_000).to_string(),
        _ => serde_json::json!(time.0 as f64 / 1_000.0).to_string(),
    }
}

/// A measured duration as people read it: whole seconds from ten seconds on, tenths from one second on.
pub fn rounded(time: Millis) -> Millis {
    let unit = match time.0 {
        ..1_000 => 1,
        1_000..10_000 => 100,
        10_000.. => 1_000,
    };
    Millis(time.0 / unit * unit)
}

/// Elapsed time of a timer as people read it. The whole of a duration stays exact.
pub fn rounded_elapsed(elapsed: Millis, total: Millis) -> Millis {
    match elapsed == total {
        true => total,
        false => rounded(elapsed),
    }
}

/// A duration such as `600 seconds` or `1 second`.
pub fn seconds(time: Millis) -> String {
    match time {
        Millis(1_000) => "1 second".into(),
        time => format!("{} seconds", seconds_number(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_second_is_singular() {
        assert_eq!(seconds(Millis(1_000)), "1 second");
        assert_eq!(seconds(Millis(1_100)), "1.1 seconds");
        assert_eq!(seconds(Millis(600_000)), "600 seconds");
    }
}

//! Reasons of cancellations. A person who interrupts a call ends the command; a client whose own timeout
//! expired has only stopped waiting.

use abide_core::Millis;

/// Phrases (in lower case) by which clients report an expired timeout: the official libraries for TypeScript
/// (`Request timed out`), Python (`timed out after 60s`) and Rust (`request timeout`, `maximum total timeout
/// exceeded`), and the messages of aborted signals and deadlines in other languages.
const TIMEOUT_PHRASES: [&str; 6] = [
    "timed out",
    "timeout",
    "timed-out",
    "time limit",
    "deadline",
    "-32001",
];

/// Phrases that name a person, whatever else the reason says.
const PERSON_PHRASES: [&str; 2] = ["by user", "by the user"];

/// Phrases that do not tell a timeout from an interruption. The Rust library sends the first for any dropped
/// call; Codex 0.166 sends the second both when a person interrupts and when its timeout expires.
const AMBIGUOUS_PHRASES: [&str; 2] = ["abandoned by the caller", "response future dropped"];
/// Granularity of usual timeouts. An ambiguous cancellation shortly after a multiple of this is taken for a
/// timeout, because a command that continues can still be ended, and an ended one cannot continue.
const TIMEOUT_STEP: Millis = Millis::from_secs(5);
/// Delay after such a multiple within which a cancellation counts as a timeout.
const TIMEOUT_DELAY: Millis = Millis(250);

/// True if a cancellation with this reason, after the call `waited` so long, means that the client's timeout expired.
pub fn is_timeout(reason: Option<&str>, waited: Millis) -> bool {
    let Some(reason) = reason.map(str::to_lowercase) else {
        return false;
    };
    if PERSON_PHRASES.iter().any(|phrase| reason.contains(phrase)) {
        return false;
    }
    if TIMEOUT_PHRASES.iter().any(|phrase| reason.contains(phrase)) {
        return true;
    }
    AMBIGUOUS_PHRASES
        .iter()
        .any(|phrase| reason.contains(phrase))
        && waited >= TIMEOUT_STEP
        && waited.0 % TIMEOUT_STEP.0 <= TIMEOUT_DELAY.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_phrases_are_timeouts_and_others_are_not() {
        for (reason, timeout) in [
            (None, false),
            (Some(""), false),
            (Some("McpError: MCP error -32001: Request timed out"), true),
            (Some("SdkError: Request timed out"), true),
            (Some("timed out after 60s"), true),
            (Some("request timeout"), true),
            (Some("maximum total timeout exceeded"), true),
            (
                Some("TimeoutError: The operation was aborted due to timeout"),
                true,
            ),
            (Some("context deadline exceeded"), true),
            (Some("client time limit reached"), true),
            (Some("AbortError: This operation was aborted"), false),
            (Some("caller cancelled"), false),
            (Some("User requested cancellation"), false),
            (Some("cancelled by the user before the timeout"), false),
            (Some("request abandoned by the caller"), false),
            (Some("MCP response future dropped"), false),
        ] {
            assert_eq!(is_timeout(reason, Millis(3_100)), timeout, "{reason:?}");
        }
    }

    #[test]
    fn ambiguous_cancellation_at_a_usual_limit_is_a_timeout() {
        for reason in [
            "request abandoned by the caller",
            "MCP response future dropped",
        ] {
            for (waited, timeout) in [
                (100, false),
                (4_900, false),
                (60_040, true),
                (61_000, false),
                (300_100, true),
                (299_000, false),
            ] {
                assert_eq!(
                    is_timeout(Some(reason), Millis(waited)),
                    timeout,
                    "{waited}"
                );
            }
        }
    }
}

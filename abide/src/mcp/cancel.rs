//! Why a client no longer wants an answer. A person who interrupts ends the command; a client whose
//! own time ran out has only stopped waiting.

use abide_core::Millis;

/// How clients say that their time ran out (in lower case): the official libraries for TypeScript
/// (`Request timed out`), Python (`timed out after 60s`) and Rust (`request timeout`, `maximum total
/// timeout exceeded`), and what an aborted signal or a deadline of other languages says.
const TIME: [&str; 6] = [
    "timed out",
    "timeout",
    "timed-out",
    "time limit",
    "deadline",
    "-32001",
];

/// The Rust library says the first of any call that was let go of, and Codex 0.166 the second: it lets
/// go of a call both when a person interrupts it and when its time is up.
const LET_GO: [&str; 2] = ["abandoned by the caller", "response future dropped"];
/// Limits are set in multiples of this; an interruption that falls right behind one is taken for a
/// limit, because a command that goes on can still be ended, and an ended one cannot go on.
const USUAL_LIMITS: Millis = Millis::from_secs(5);
/// How far behind.
const LATE: Millis = Millis(250);

/// Whether this reason, given after the call was waited for so long, says that the client's time ran
/// out.
pub fn time_ran_out(reason: Option<&str>, waited: Millis) -> bool {
    let Some(reason) = reason.map(str::to_lowercase) else {
        return false;
    };
    if TIME.iter().any(|said| reason.contains(said)) {
        return true;
    }
    LET_GO.iter().any(|said| reason.contains(said))
        && waited >= USUAL_LIMITS
        && waited.0 % USUAL_LIMITS.0 <= LATE.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_person_from_a_clock() {
        for (reason, time) in [
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
            (Some("request abandoned by the caller"), false),
            (Some("MCP response future dropped"), false),
        ] {
            assert_eq!(time_ran_out(reason, Millis(3_100)), time, "{reason:?}");
        }
    }

    #[test]
    fn a_call_let_go_of_at_a_usual_limit_ran_out_of_time() {
        for let_go in [
            "request abandoned by the caller",
            "MCP response future dropped",
        ] {
            for (waited, time) in [
                (100, false),
                (4_900, false),
                (60_040, true),
                (61_000, false),
                (300_100, true),
                (299_000, false),
            ] {
                assert_eq!(time_ran_out(Some(let_go), Millis(waited)), time, "{waited}");
            }
        }
    }
}

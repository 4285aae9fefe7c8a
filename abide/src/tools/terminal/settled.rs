//! Rule that decides when the response to typed input is complete.

use std::time::Duration;

/// Rule that decides when the response to typed input is complete.
pub(super) struct Settled<'a> {
    /// Offset of the end of the log when the input was sent.
    pub sent_at: u64,
    /// Bytes that the terminal itself may echo of the input; they are no response.
    pub shown: u64,
    /// Time without output after which the response is complete.
    pub quiet: Duration,
    /// Shorter time without output, after which `waits` is checked.
    pub prompt: Duration,
    /// True if no output will come before more input is sent. If so, the response is complete after `prompt`.
    pub waits: &'a (dyn Fn() -> bool + Send + Sync),
}

impl Settled<'_> {
    /// Time to wait for more output after `seen` bytes of the log. `looked`: `waits` was false when it was
    /// checked after the last output.
    pub fn patience(&self, seen: u64, looked: bool, left: Duration) -> Duration {
        let answered = seen > self.sent_at + self.shown;
        match (seen > self.sent_at, looked) {
            (false, _) => left,
            (true, false) => left.min(self.prompt),
            (true, true) if !answered => left,
            (true, true) => left.min(self.quiet.saturating_sub(self.prompt)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_shows_by_itself_is_no_answer() {
        let millis = Duration::from_millis;
        let settled = Settled {
            sent_at: 100,
            shown: 4,
            quiet: millis(150),
            prompt: millis(10),
            waits: &|| false,
        };
        let left = millis(900);
        // No output yet, or only the echo of `hi` and its line end: a program that starts slowly has not read
        // the input.
        assert_eq!(settled.patience(100, false, left), left);
        assert_eq!(settled.patience(104, false, left), millis(10));
        assert_eq!(settled.patience(104, true, left), left);
        // More than the echo: this is a response, which is complete when no more output comes.
        assert_eq!(settled.patience(105, false, left), millis(10));
        assert_eq!(settled.patience(105, true, left), millis(140));
        assert_eq!(settled.patience(105, true, millis(5)), millis(5));
    }
}

//! When an answer to what was typed is complete.

use std::time::Duration;

/// When an answer to what was typed is complete.
pub(super) struct Settled<'a> {
    /// Where the log ended when it was typed.
    pub sent_at: u64,
    /// Bytes that the terminal by itself may have shown of what was typed: they are no answer.
    pub shown: u64,
    /// Nothing more comes for this long;
    pub quiet: Duration,
    /// or for this long,
    pub prompt: Duration,
    /// if nothing will come before somebody types again.
    pub waits: &'a (dyn Fn() -> bool + Send + Sync),
}

impl Settled<'_> {
    /// How long to wait for more, where so much has come. `looked`: it was seen since then that the program
    /// does not wait for input.
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
        // Nothing has come, or nothing but `hi` and the end of its line: a program that is slow to start
        // has not read it yet.
        assert_eq!(settled.patience(100, false, left), left);
        assert_eq!(settled.patience(104, false, left), millis(10));
        assert_eq!(settled.patience(104, true, left), left);
        // More has come: it is an answer, which is over when it becomes quiet.
        assert_eq!(settled.patience(105, false, left), millis(10));
        assert_eq!(settled.patience(105, true, left), millis(140));
        assert_eq!(settled.patience(105, true, millis(5)), millis(5));
    }
}

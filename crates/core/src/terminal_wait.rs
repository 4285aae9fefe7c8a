//! Waiting rules of terminals: when a start has shown its first output, when typed input has been answered, and when a
//! read is complete. An answer that comes a moment too early costs the caller another call.

use crate::time::{Millis, Mono};

/// Time without output after which the output counts as complete.
pub const QUIET: Millis = Millis(150);
/// Shorter time without output, after which the processes are checked: if they wait for input and for nothing else,
/// the output is complete.
pub const PROMPT: Millis = Millis(10);
/// Longest wait of a start and of an input for output, and of a read for more output behind a line.
pub const LONGEST: Millis = Millis(1_000);

/// Output that the caller has not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// None.
    Nothing,
    /// No more than the terminal itself echoes of typed input, which is no answer.
    Echo,
    /// The beginning of a line, such as a prompt or a progress bar.
    PartialLine,
    /// Lines, possibly with the beginning of another one.
    Lines,
    /// As much as one answer can hold.
    Full,
}

/// Next step of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Answer with what there is.
    Return {
        /// Include a line that has no newline yet.
        partial_line: bool,
    },
    /// Check whether the processes wait for input, and report it with [`TerminalWait::processes_checked`].
    CheckProcesses,
    /// Wait for output until this time.
    WaitUntil(Mono),
}

/// Reason of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Start,
    Input,
    Read {
        /// Lines are not returned at once, so that what follows right behind them comes with them.
        settles: bool,
    },
}

/// A wait for output of one session.
#[derive(Clone, Debug)]
pub struct TerminalWait {
    purpose: Purpose,
    began: Mono,
    /// Time at which the caller is answered, if there is no output at all.
    until: Mono,
    unread: Unread,
    /// Time of the last output, if there is unread output.
    last_output: Mono,
    /// Time at which a complete line was unread for the first time.
    lines_since: Option<Mono>,
    /// The processes were checked after the last output, and did other things than wait for input.
    processes_checked: bool,
    /// Number of looks before the first output.
    silent_looks: u32,
    /// No more output comes without input, or ever.
    complete: bool,
}

impl TerminalWait {
    /// Wait of `start` for the first output: until it is complete, the program waits for input, or [`LONGEST`].
    /// `standby`: time that the caller can wait.
    pub fn start(now: Mono, standby: Option<Millis>) -> Self {
        TerminalWait::new(
            now,
            Purpose::Start,
            standby.map_or(LONGEST, |most| most.min(LONGEST)),
        )
    }

    /// Wait of `send_input` for the answer to what was typed.
    pub fn input(now: Mono) -> Self {
        TerminalWait::new(now, Purpose::Input, LONGEST)
    }

    /// Wait of `read_output` for lines. `settles`: the session has a terminal.
    pub fn read(now: Mono, standby: Millis, settles: bool) -> Self {
        TerminalWait::new(now, Purpose::Read { settles }, standby)
    }

    fn new(now: Mono, purpose: Purpose, standby: Millis) -> Self {
        TerminalWait {
            purpose,
            began: now,
            until: now + standby,
            unread: Unread::Nothing,
            last_output: now,
            lines_since: None,
            processes_checked: false,
            silent_looks: 0,
            complete: false,
        }
    }

    /// Output came at this time, and the caller has not seen so much now.
    pub fn output(&mut self, at: Mono, unread: Unread) {
        if unread == Unread::Nothing {
            return;
        }
        self.unread = unread;
        self.last_output = at;
        self.processes_checked = false;
        if matches!(unread, Unread::Lines | Unread::Full) {
            self.lines_since.get_or_insert(at.max(self.began));
        }
    }

    /// The processes were checked: they wait for input and for nothing else, or do other things.
    pub fn processes_checked(&mut self, only_input: bool) {
        self.complete |= only_input;
        self.processes_checked = true;
        if self.unread == Unread::Nothing {
            self.silent_looks += 1;
        }
    }

    /// No more output comes.
    pub fn ended(&mut self) {
        self.complete = true;
    }

    /// Next step of the wait.
    pub fn next(&self, now: Mono) -> Next {
        let quiet = self.unread != Unread::Nothing && now >= self.last_output + QUIET;
        let limit = self.limit();
        let over = self.complete
            || now >= limit
            || match self.unread {
                Unread::Nothing | Unread::Echo => false,
                Unread::PartialLine => quiet,
                Unread::Lines => quiet || self.purpose == Purpose::Read { settles: false },
                Unread::Full => true,
            };
        if over {
            let mid_line = matches!(self.purpose, Purpose::Read { .. })
                && matches!(self.unread, Unread::Lines | Unread::Full);
            return Next::Return {
                partial_line: self.complete || quiet || !mid_line,
            };
        }
        match self.next_process_check() {
            Some(at) if now >= at => Next::CheckProcesses,
            Some(at) => Next::WaitUntil(at.min(limit)),
            None if matches!(self.unread, Unread::Nothing | Unread::Echo) => Next::WaitUntil(limit),
            None => Next::WaitUntil((self.last_output + QUIET).min(limit)),
        }
    }

    /// Time at which the caller is answered at the latest.
    fn limit(&self) -> Mono {
        match (self.purpose, self.unread, self.lines_since) {
            (Purpose::Read { .. }, _, Some(since)) => since + LONGEST,
            // A progress bar ends no wait before its time. What is there already is returned even to a caller
            // that does not wait.
            (Purpose::Read { .. }, Unread::PartialLine, None) => {
                self.until.max(self.began + LONGEST)
            }
            _ => self.until,
        }
    }

    /// Time of the next look at the processes: shortly after output; before the first output of a start at growing
    /// intervals, because a program such as `cat` waits for input without a prompt.
    fn next_process_check(&self) -> Option<Mono> {
        match (self.unread, self.purpose) {
            (Unread::Nothing, Purpose::Start) => {
                let factor = (1 << self.silent_looks.min(16)) * 2 - 1;
                Some(self.began + Millis(PROMPT.0 * factor))
            }
            (Unread::Nothing, _) => None,
            _ if self.processes_checked => None,
            _ => Some(self.last_output + PROMPT),
        }
    }
}

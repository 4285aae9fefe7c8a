//! Control lines: messages besides MCP between a front and the daemon on their socket. They begin with
//! [`PREFIX`], which no JSON value begins with.

/// First byte of every control line.
pub const PREFIX: &[u8] = b"!";
/// From the daemon: the hello was read, and the connection is served.
pub const ACCEPTED: &str = "!accepted\n";
/// From the daemon: it is alive, in reply to [`ControlLine::Check`].
pub const ALIVE: &str = "!alive\n";
/// From the daemon, before a number and a newline: the cancellation of the request with this number was carried out.
pub const CANCELLED: &str = "!cancelled ";

/// Control line from a front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlLine {
    /// The next line is a replayed request with this number, which arrived this many milliseconds ago.
    Again(u64, u64),
    /// Asks the daemon to send [`ALIVE`] this many milliseconds after it has read everything before this line.
    Check(u64),
}

impl ControlLine {
    /// Encodes the line, with its newline.
    pub fn line(self) -> String {
        match self {
            ControlLine::Again(number, age) => format!("!again {number} {age}\n"),
            ControlLine::Check(millis) => format!("!check {millis}\n"),
        }
    }

    /// Decodes a line. `None`: unknown control line.
    pub fn read(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let (word, number) = (words.next()?, words.next()?.parse().ok()?);
        match word {
            "!again" => Some(ControlLine::Again(number, words.next()?.parse().ok()?)),
            "!check" => Some(ControlLine::Check(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_lines_decode_to_what_was_encoded() {
        for control in [ControlLine::Again(7, 9), ControlLine::Check(8)] {
            let line = control.line();
            assert_eq!(ControlLine::read(line.as_bytes()), Some(control));
            assert!(line.as_bytes().starts_with(PREFIX));
        }
        for unknown in [
            "!",
            "!again",
            "!again x",
            "!again 1",
            "!again 1 x",
            "!check -1",
            "!other 1",
            "\u{0}",
        ] {
            assert_eq!(ControlLine::read(unknown.as_bytes()), None, "{unknown}");
        }
    }
}

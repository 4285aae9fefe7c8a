//! Keyboard input: named keys and text, as the bytes that a terminal sends for them.

use abide_engine::screen::Modes;

/// Error for a name that is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a key; the keys are a single character, enter, tab, shift-tab, esc, eof, space, backspace, \
     delete, insert, up, down, left, right, home, end, page-up, page-down and f1 to f12, and each with \
     ctrl-, alt- or shift- before it, such as ctrl-c, alt-x or ctrl-left"
)]
pub struct UnknownKey(String);

/// Bytes of the key that ends the input of a terminal (Ctrl-D).
pub const END_OF_FILE: &[u8] = b"\x04";
/// Bytes of the key that interrupts the program in a terminal (Ctrl-C).
pub const INTERRUPT: &[u8] = b"\x03";

/// Bytes of one key.
pub fn key(name: &str, modes: Modes) -> Result<Vec<u8>, UnknownKey> {
    let unknown = || UnknownKey(abide_output::printable::one_line(name));
    let mut modifiers = Modifiers::default();
    let mut rest = name;
    // The part after the last separator is the key itself, which may be a separator character.
    while let Some(after) = modifiers.take_from(rest) {
        rest = after;
    }
    let mut letters = rest.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return character(letter, modifiers).ok_or_else(unknown);
    }
    let plain: String = rest
        .chars()
        .filter(|c| !matches!(c, '-' | '_' | ' '))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    named(&plain, modifiers, modes).ok_or_else(unknown)
}

#[derive(Clone, Copy, Default)]
struct Modifiers {
    ctrl: bool,
    alt: bool,
    shift: bool,
}

impl Modifiers {
    fn any(self) -> bool {
        self.ctrl || self.alt || self.shift
    }

    /// Parameter by which xterm encodes the held modifiers.
    fn code(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl)
    }

    /// Takes a modifier off the beginning of a name, if a key follows it. Returns the rest.
    fn take_from<'a>(&mut self, name: &'a str) -> Option<&'a str> {
        let at = name.find(['-', '+'])?;
        let rest = &name[at + 1..];
        if rest.is_empty() {
            return None;
        }
        let held = match name[..at].to_ascii_lowercase().as_str() {
            "ctrl" | "control" | "c" => &mut self.ctrl,
            "alt" | "meta" | "option" | "m" => &mut self.alt,
            "shift" | "s" => &mut self.shift,
            _ => return None,
        };
        *held = true;
        Some(rest)
    }
}

/// Bytes of a character key.
fn character(letter: char, modifiers: Modifiers) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if modifiers.alt {
        out.push(0x1b);
    }
    if modifiers.ctrl {
        out.push(match letter.to_ascii_lowercase() {
            letter @ 'a'..='z' => letter as u8 & 0x1f,
            ' ' | '@' | '2' => 0x00,
            '[' | '3' => 0x1b,
            '\\' | '4' => 0x1c,
            ']' | '5' => 0x1d,
            '^' | '6' => 0x1e,
            '_' | '/' | '-' | '7' => 0x1f,
            '?' | '8' => 0x7f,
            _ => return None,
        });
        return Some(out);
    }
    let letter = if modifiers.shift {
        letter.to_uppercase().next()?
    } else {
        letter
    };
    let mut utf8 = [0; 4];
    out.extend_from_slice(letter.encode_utf8(&mut utf8).as_bytes());
    Some(out)
}

fn named(name: &str, modifiers: Modifiers, modes: Modes) -> Option<Vec<u8>> {
    Some(match name {
        "enter" | "return" | "cr" => simple(b"\r", modifiers),
        "eof" if !modifiers.any() => END_OF_FILE.to_vec(),
        "linefeed" | "newline" | "lf" => simple(b"\n", modifiers),
        "tab" if modifiers.shift => simple(b"\x1b[Z", modifiers),
        "tab" => simple(b"\t", modifiers),
        "backtab" => simple(b"\x1b[Z", modifiers),
        "esc" | "escape" => simple(b"\x1b", modifiers),
        "space" if modifiers.ctrl => simple(b"\0", modifiers),
        "space" => simple(b" ", modifiers),
        "backspace" | "bs" if modifiers.ctrl => simple(b"\x08", modifiers),
        "backspace" | "bs" => simple(b"\x7f", modifiers),
        "up" => arrow(b'A', modifiers, modes),
        "down" => arrow(b'B', modifiers, modes),
        "right" => arrow(b'C', modifiers, modes),
        "left" => arrow(b'D', modifiers, modes),
        "home" => arrow(b'H', modifiers, modes),
        "end" => arrow(b'F', modifiers, modes),
        "insert" | "ins" => numbered(2, modifiers),
        "delete" | "del" => numbered(3, modifiers),
        "pageup" | "pgup" => numbered(5, modifiers),
        "pagedown" | "pgdn" | "pgdown" => numbered(6, modifiers),
        _ => return function(name, modifiers),
    })
}

/// Bytes of a key that ignores modifiers, except that Alt prepends an escape.
fn simple(bytes: &[u8], modifiers: Modifiers) -> Vec<u8> {
    let mut out = Vec::new();
    if modifiers.alt {
        out.push(0x1b);
    }
    out.extend_from_slice(bytes);
    out
}

fn arrow(letter: u8, modifiers: Modifiers, modes: Modes) -> Vec<u8> {
    if modifiers.any() {
        format!("\x1b[1;{}{}", modifiers.code(), letter as char).into_bytes()
    } else if modes.application_cursor {
        vec![0x1b, b'O', letter]
    } else {
        vec![0x1b, b'[', letter]
    }
}

fn numbered(number: u8, modifiers: Modifiers) -> Vec<u8> {
    if modifiers.any() {
        format!("\x1b[{number};{}~", modifiers.code()).into_bytes()
    } else {
        format!("\x1b[{number}~").into_bytes()
    }
}

/// F1 to F12. F1 to F4 end in a letter and the others have a number; the numbers 16 and 22 are unused.
fn function(name: &str, modifiers: Modifiers) -> Option<Vec<u8>> {
    let number: u8 = name.strip_prefix('f')?.parse().ok()?;
    let letter = |letter: u8| {
        if modifiers.any() {
            format!("\x1b[1;{}{}", modifiers.code(), letter as char).into_bytes()
        } else {
            vec![0x1b, b'O', letter]
        }
    };
    Some(match number {
        1..=4 => letter(b'P' + number - 1),
        5 => numbered(15, modifiers),
        6..=10 => numbered(number + 11, modifiers),
        11 | 12 => numbered(number + 12, modifiers),
        _ => return None,
    })
}

/// Text as typed at a terminal: a line end is the Enter key.
pub fn typed(text: &str) -> Vec<u8> {
    text.replace("\r\n", "\r").replace('\n', "\r").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(name: &str) -> Vec<u8> {
        key(name, Modes::default()).unwrap()
    }

    #[test]
    fn named_keys_encode_as_xterm_sends_them() {
        for (name, bytes) in [
            ("enter", "\r"),
            ("eof", "\u{4}"),
            ("ctrl-d", "\u{4}"),
            ("Enter", "\r"),
            ("tab", "\t"),
            ("shift-tab", "\x1b[Z"),
            ("esc", "\x1b"),
            ("ESCAPE", "\x1b"),
            ("ctrl-c", "\x03"),
            ("Ctrl+C", "\x03"),
            ("c-d", "\x04"),
            ("ctrl-space", "\0"),
            ("ctrl-]", "\x1d"),
            ("ctrl-\\", "\x1c"),
            ("ctrl--", "\x1f"),
            ("alt-x", "\x1bx"),
            ("alt-enter", "\x1b\r"),
            ("shift-a", "A"),
            ("up", "\x1b[A"),
            ("ctrl-left", "\x1b[1;5D"),
            ("shift-alt-up", "\x1b[1;4A"),
            ("home", "\x1b[H"),
            ("page-up", "\x1b[5~"),
            ("PageDown", "\x1b[6~"),
            ("page_down", "\x1b[6~"),
            ("delete", "\x1b[3~"),
            ("backspace", "\x7f"),
            ("f1", "\x1bOP"),
            ("f5", "\x1b[15~"),
            ("f6", "\x1b[17~"),
            ("f10", "\x1b[21~"),
            ("f12", "\x1b[24~"),
            ("shift-f5", "\x1b[15;2~"),
            ("space", " "),
            ("a", "a"),
            ("-", "-"),
            ("é", "é"),
        ] {
            assert_eq!(plain(name), bytes.as_bytes(), "{name}");
        }
    }

    #[test]
    fn application_mode_changes_cursor_keys_only() {
        let modes = Modes {
            application_cursor: true,
            ..Modes::default()
        };
        assert_eq!(key("up", modes).unwrap(), b"\x1bOA");
        assert_eq!(key("end", modes).unwrap(), b"\x1bOF");
        assert_eq!(key("ctrl-up", modes).unwrap(), b"\x1b[1;5A");
        assert_eq!(key("f1", modes).unwrap(), b"\x1bOP");
    }

    #[test]
    fn unknown_key_error_lists_the_keys() {
        for name in [
            "", "f13", "f0", "ctrl-", "hyper-x", "ctrl-é", "entre", "\x1b[31m",
        ] {
            let error = key(name, Modes::default()).unwrap_err().to_string();
            assert!(error.contains("enter, tab, shift-tab"), "{name}: {error}");
            assert!(!error.contains('\x1b'));
        }
    }

    #[test]
    fn each_line_end_is_the_enter_key() {
        assert_eq!(typed("a\r\nb\tc\n\n"), b"a\rb\tc\r\r");
    }
}

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

const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// Text as typed at a terminal: a line end is the Enter key. Several lines are sent as one paste if the
/// program has turned bracketed paste on, so that it does not indent, complete or run them one by one. Line
/// ends after the last line stay keys, so that the pasted text is entered.
pub fn typed(text: &str, modes: Modes) -> Vec<u8> {
    let text = text.replace("\r\n", "\r").replace('\n', "\r");
    let body = text.trim_end_matches('\r');
    let one_line = !body.contains(|c: char| c.is_control());
    if !modes.bracketed_paste || one_line {
        return text.into_bytes();
    }
    let mut out = PASTE_BEGIN.to_vec();
    out.extend_from_slice(without_paste_marks(body).as_bytes());
    out.extend_from_slice(PASTE_END);
    out.extend_from_slice(&text.as_bytes()[body.len()..]);
    out
}

/// Paste marks, with the two-byte and the one-character form of CSI.
const PASTE_MARKS: [&str; 4] = ["\x1b[201~", "\x1b[200~", "\u{9b}201~", "\u{9b}200~"];

/// Removes paste marks, because text with an end mark could leave the paste early and type commands. Removing
/// one can join the text around it into another mark, which is removed too.
fn without_paste_marks(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for part in text.split_inclusive('~') {
        clean.push_str(part);
        if let Some(mark) = PASTE_MARKS.iter().find(|mark| clean.ends_with(**mark)) {
            clean.truncate(clean.len() - mark.len());
        }
    }
    clean
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
    fn several_lines_are_pasted_only_in_bracketed_paste_mode() {
        let paste = Modes {
            bracketed_paste: true,
            ..Modes::default()
        };
        assert_eq!(typed("ls\n", paste), b"ls\r");
        assert_eq!(typed("a\r\nb\n", Modes::default()), b"a\rb\r");
        assert_eq!(typed("a\nb\n", paste), b"\x1b[200~a\rb\x1b[201~\r");
        assert_eq!(typed("a\tb", paste), b"\x1b[200~a\tb\x1b[201~");
        assert_eq!(typed("\n", paste), b"\r");
    }

    #[test]
    fn end_mark_in_pasted_text_is_removed() {
        let paste = Modes {
            bracketed_paste: true,
            ..Modes::default()
        };
        let hostile = "x\n\x1b[20\x1b[201~1~rm\n";
        assert_eq!(typed(hostile, paste), b"\x1b[200~x\rrm\x1b[201~\r");
    }

    #[test]
    fn nested_paste_marks_are_removed_in_linear_time() {
        let paste = Modes {
            bracketed_paste: true,
            ..Modes::default()
        };
        // A new search from the beginning for each mark would take days.
        let depth = 400_000;
        let deep = format!("x\n{}{}y", "\x1b[20".repeat(depth), "1~".repeat(depth));
        assert_eq!(typed(&deep, paste), b"\x1b[200~x\ry\x1b[201~");
        let mixed = "x\n\x1b[\u{9b}200~201~\u{9b}20\x1b[200~1~z";
        assert_eq!(typed(mixed, paste), b"\x1b[200~x\rz\x1b[201~");
    }
}

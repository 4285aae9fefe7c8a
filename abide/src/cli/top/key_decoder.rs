//! Decoder for keys from the bytes that a terminal sends.

/// Key with a function in `abide top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Next,
    Previous,
    Enter,
    Backspace,
    Escape,
    Interrupt,
    Char(char),
}

/// Longest escape sequence of a key, in bytes.
const SEQUENCE_LIMIT: usize = 16;

/// Decoder state: the beginning of a sequence whose rest has not arrived.
#[derive(Default)]
pub struct KeyDecoder {
    incomplete: Vec<u8>,
}

impl KeyDecoder {
    /// Decodes the keys in these bytes. A lone escape byte at the end is the Escape key, because a
    /// terminal sends the sequence of one key at once.
    pub fn decode(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.incomplete.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while !self.incomplete.is_empty() {
            let (used, key) = decode_first(&self.incomplete);
            if used == 0 {
                if self.incomplete.len() > SEQUENCE_LIMIT {
                    self.incomplete.clear();
                }
                break;
            }
            self.incomplete.drain(..used);
            keys.extend(key);
        }
        keys
    }
}

/// Decodes the first key and returns the number of bytes that it used. Zero bytes: the sequence is incomplete.
fn decode_first(bytes: &[u8]) -> (usize, Option<Key>) {
    match bytes {
        [0x1b] => (1, Some(Key::Escape)),
        [0x1b, b'[' | b'O', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            match end {
                Some(end) => (end + 3, sequence(&rest[..=end])),
                None => (0, None),
            }
        }
        [0x1b, ..] => (2.min(bytes.len()), None),
        [b'\r' | b'\n', ..] => (1, Some(Key::Enter)),
        [b'\t', ..] => (1, Some(Key::Next)),
        [0x03, ..] => (1, Some(Key::Interrupt)),
        [0x08 | 0x7f, ..] => (1, Some(Key::Backspace)),
        [byte, ..] if byte.is_ascii_graphic() || *byte == b' ' => {
            (1, Some(Key::Char(char::from(*byte))))
        }
        [0xc2..=0xf4, ..] => letter(bytes),
        _ => (1, None),
    }
}

/// Decodes a letter beyond ASCII.
fn letter(bytes: &[u8]) -> (usize, Option<Key>) {
    let begin = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(begin) {
        Ok(text) => text,
        Err(fault) => std::str::from_utf8(&begin[..fault.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(letter) => {
            let key = (!letter.is_control()).then_some(Key::Char(letter));
            (letter.len_utf8(), key)
        }
        // The rest has not arrived, or the byte begins no letter.
        None if begin.len() < 4 => (0, None),
        None => (1, None),
    }
}

fn sequence(rest: &[u8]) -> Option<Key> {
    Some(match rest {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"H" | b"1~" | b"7~" => Key::First,
        b"F" | b"4~" | b"8~" => Key::Last,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        b"Z" => Key::Previous,
        b"3~" => Key::Char('x'),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_decode_from_whole_and_split_sequences() {
        let mut keys = KeyDecoder::default();
        assert_eq!(
            keys.decode(b"j\x1b[A\x1bOB\t\x1b[Z\r"),
            [
                Key::Char('j'),
                Key::Up,
                Key::Down,
                Key::Next,
                Key::Previous,
                Key::Enter
            ]
        );
        assert_eq!(keys.decode(b"\x1b[5"), []);
        assert_eq!(keys.decode(b"~q"), [Key::PageUp, Key::Char('q')]);
        assert_eq!(keys.decode(b"\x1b"), [Key::Escape]);
        assert_eq!(keys.decode(b"\x03"), [Key::Interrupt]);
        assert_eq!(
            keys.decode("é\x1b[99;5u\x7f".as_bytes()),
            [Key::Char('é'), Key::Backspace]
        );
        assert_eq!(keys.decode(&"é".as_bytes()[..1]), []);
        assert_eq!(keys.decode(&"é".as_bytes()[1..]), [Key::Char('é')]);
        assert_eq!(keys.decode(b"\xffx"), [Key::Char('x')]);
    }
}

//! One line of output as text with colours: what a terminal would show after carriage returns, backspaces and
//! erasures within the line.

use std::ops::Range;

use abide_api::LogStyle;
use abide_output::tokenizer::{Token, Tokenizer};

/// Longest parameter list of a control sequence that is understood.
const PARAMETERS: usize = 64;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Style {
    colour: Option<u8>,
    bold: bool,
}

/// Text of a line and its styles. Bytes that are not UTF-8 become replacement characters.
pub fn render(line: &[u8]) -> (String, Vec<LogStyle>) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut row = Row::default();
    let mut tokenizer = Tokenizer::default();
    let mut parameters = Vec::new();
    let mut text = Vec::new();
    for &byte in line {
        match tokenizer.step(byte) {
            Token::Text => text.push(byte),
            Token::Control => {
                row.write(&mut text);
                row.control(byte);
            }
            Token::CsiBegin => {
                row.write(&mut text);
                parameters.clear();
            }
            Token::CsiPart if parameters.len() < PARAMETERS => parameters.push(byte),
            Token::CsiEnd => row.sequence(byte, &parameters),
            _ => {}
        }
    }
    row.write(&mut text);
    row.finish()
}

/// The cells of one row, and the place of the cursor in it.
#[derive(Default)]
struct Row {
    cells: Vec<(char, Style)>,
    at: usize,
    style: Style,
}

impl Row {
    fn write(&mut self, text: &mut Vec<u8>) {
        for char in String::from_utf8_lossy(text).chars() {
            let cell = (char, self.style);
            match self.cells.get_mut(self.at) {
                Some(old) => *old = cell,
                None => self.cells.push(cell),
            }
            self.at += 1;
        }
        text.clear();
    }

    fn control(&mut self, byte: u8) {
        match byte {
            b'\r' => self.at = 0,
            b'\x08' => self.at = self.at.saturating_sub(1),
            _ => {}
        }
    }

    fn sequence(&mut self, last: u8, parameters: &[u8]) {
        match (last, parameters) {
            (b'm', _) => self.select(parameters),
            (b'K', b"" | b"0") => self.cells.truncate(self.at),
            (b'K', b"2") => {
                self.cells.clear();
                self.at = 0;
            }
            (b'G', b"" | b"1") => self.at = 0,
            _ => {}
        }
    }

    /// Applies the parameters of "select graphic rendition".
    fn select(&mut self, parameters: &[u8]) {
        let text = String::from_utf8_lossy(parameters);
        let mut codes = text.split([';', ':']).map(|code| match code {
            "" => Some(0),
            code => code.parse::<u16>().ok(),
        });
        while let Some(code) = codes.next() {
            match code {
                Some(0) => self.style = Style::default(),
                Some(1) => self.style.bold = true,
                Some(22) => self.style.bold = false,
                Some(code @ 30..=37) => self.style.colour = Some((code - 30) as u8),
                Some(code @ 90..=97) => self.style.colour = Some((code - 82) as u8),
                Some(39) => self.style.colour = None,
                Some(code @ (38 | 48)) => {
                    let colour = extended(&mut codes);
                    if code == 38 {
                        self.style.colour = colour;
                    }
                }
                _ => {}
            }
        }
    }

    fn finish(self) -> (String, Vec<LogStyle>) {
        let text = self.cells.iter().map(|(char, _)| *char).collect();
        let mut styles: Vec<LogStyle> = Vec::new();
        let mut start = 0;
        for (char, style) in self.cells {
            let end = start + char.len_utf16();
            match styles.last_mut() {
                Some(last)
                    if last.end == start
                        && (last.colour, last.bold) == (style.colour, style.bold) =>
                {
                    last.end = end;
                }
                _ if style == Style::default() => {}
                _ => styles.push(LogStyle {
                    start,
                    end,
                    colour: style.colour,
                    bold: style.bold,
                }),
            }
            start = end;
        }
        (text, styles)
    }
}

/// Reads an extended colour. Of the 256 colours the first 16 are kept; the others, and RGB, are shown without colour.
fn extended(codes: &mut impl Iterator<Item = Option<u16>>) -> Option<u8> {
    match codes.next()? {
        Some(5) => codes
            .next()?
            .filter(|code| *code < 16)
            .map(|code| code as u8),
        Some(2) => {
            codes.by_ref().take(3).for_each(drop);
            None
        }
        _ => None,
    }
}

/// Range of bytes of a text as UTF-16 code units.
pub fn utf16_range(text: &str, range: Range<usize>) -> (usize, usize) {
    let units = |to: usize| -> usize {
        let chars = text.char_indices().take_while(|(at, _)| *at < to);
        chars.map(|(_, char)| char.len_utf16()).sum()
    };
    (units(range.start), units(range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(start: usize, end: usize, colour: Option<u8>, bold: bool) -> LogStyle {
        LogStyle {
            start,
            end,
            colour,
            bold,
        }
    }

    #[test]
    fn carriage_return_and_erasure_leave_what_a_terminal_shows() {
        for (line, shown) in [
            (&b"10%\r20%\r100%"[..], "100%"),
            (b"downloading\rdone\x1b[K", "done"),
            (b"abc\rx", "xbc"),
            (b"ab\x08c\r", "ac"),
            (b"\x1b]0;title\x07text", "text"),
            (b"a\tb\xff", "a\tb\u{fffd}"),
        ] {
            assert_eq!(render(line).0, shown, "{line:?}");
        }
    }

    #[test]
    fn styles_are_ranges_of_utf16_code_units() {
        let (text, styles) = render("\u{1f600}\x1b[1;31merr\x1b[0mor \x1b[92mok".as_bytes());
        assert_eq!(text, "\u{1f600}error ok");
        let wanted = [style(2, 5, Some(1), true), style(8, 10, Some(10), false)];
        assert_eq!(styles, wanted);
    }

    #[test]
    fn extended_colours_consume_their_parameters() {
        let (_, styles) = render(b"\x1b[38;5;9mred\x1b[38;2;1;2;31mplain\x1b[48;5;1mplain");
        assert_eq!(styles, [style(0, 3, Some(9), false)]);
    }

    #[test]
    fn match_ranges_count_utf16_code_units() {
        assert_eq!(utf16_range("\u{1f600}\u{e9}x", 6..7), (3, 4));
    }
}

//! Filter for output that is written to a person's own terminal.
//!
//! Text, colours and cursor movements pass. Titles, clipboard writes, colour palettes, images and
//! printing pass only if the person asked for them. Queries never pass: the emulated terminal of the
//! session answers them, and a second answer from the person's terminal would be typed into the session.

use memchr::{memchr_iter, memchr2};

use crate::tokenizer;

const ESC: u8 = 0x1b;
/// ENQ: asks a terminal to identify itself.
const ENQ: u8 = 0x05;
/// Maximum length of an incomplete sequence that is kept for the next bytes.
const MAX_INCOMPLETE: usize = 64 << 10;

/// Filter of one stream, which may be cut anywhere.
///
/// ```
/// use abide_output::terminal_filter::TerminalFilter;
///
/// let mut filter = TerminalFilter::new(false);
/// let shown = filter.pass(b"\x1b[31mred\x1b[0m\x1b]0;title\x07");
/// assert_eq!(shown, b"\x1b[31mred\x1b[0m");
/// ```
pub struct TerminalFilter {
    unfiltered: bool,
    held: Vec<u8>,
    screen: ScreenSwitches,
}

/// Treatment of sequences that switch between the main and the alternate screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenSwitches {
    Pass,
    /// They are removed. `left`: the program has left its alternate screen since the last question about it.
    Removed {
        left: bool,
    },
}

/// Erases the screen, instead of a switch to an empty one.
const ERASE: &[u8] = b"\x1b[0m\x1b[H\x1b[2J";

impl TerminalFilter {
    /// Filter that removes queries only, if `unfiltered`, else everything but text and painting.
    pub fn new(unfiltered: bool) -> Self {
        TerminalFilter {
            unfiltered,
            held: Vec::new(),
            screen: ScreenSwitches::Pass,
        }
    }

    /// The same filter for a program that is shown on the alternate screen of the person's terminal: the program
    /// cannot leave it.
    pub fn on_alternate_screen(self) -> Self {
        TerminalFilter {
            screen: ScreenSwitches::Removed { left: false },
            ..self
        }
    }

    /// True if the program has left its own alternate screen since the last call. Its main screen has to be drawn
    /// then, because the terminal does not have it.
    pub fn take_left_screen(&mut self) -> bool {
        match &mut self.screen {
            ScreenSwitches::Pass => false,
            ScreenSwitches::Removed { left } => std::mem::take(left),
        }
    }

    /// Bytes that may be written to the terminal.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(all.len());
        let mut rest = &all[..];
        while let Some(at) = memchr2(ESC, ENQ, rest) {
            text(&rest[..at], &mut out);
            rest = &rest[at..];
            if rest[0] == ENQ {
                rest = &rest[1..];
                continue;
            }
            let Some(length) = tokenizer::escape_len(rest) else {
                if rest.len() <= MAX_INCOMPLETE {
                    self.held = rest.to_vec();
                }
                return out;
            };
            let (found, after) = rest.split_at(length);
            if self.may_pass(found) {
                self.pass_sequence(found, &mut out);
            }
            rest = after;
        }
        let (whole, begun) = rest.split_at(rest.len() - tokenizer::incomplete_char_len(rest));
        text(whole, &mut out);
        self.held = begun.to_vec();
        out
    }

    fn pass_sequence(&mut self, found: &[u8], out: &mut Vec<u8>) {
        let ScreenSwitches::Removed { left } = &mut self.screen else {
            return out.extend_from_slice(found);
        };
        // A full reset would leave the alternate screen too.
        if found == b"\x1bc" {
            return out.extend_from_slice(ERASE);
        }
        let modes = found.strip_prefix(b"\x1b[?").and_then(<[u8]>::split_last);
        let Some((kind @ (b'h' | b'l'), modes)) = modes else {
            return out.extend_from_slice(found);
        };
        let switches = |mode: &&[u8]| matches!(*mode, b"47" | b"1047" | b"1049");
        let all = || modes.split(|byte| *byte == b';');
        if !all().any(|mode| switches(&mode)) {
            return out.extend_from_slice(found);
        }
        let others: Vec<&[u8]> = all().filter(|mode| !switches(mode)).collect();
        if !others.is_empty() {
            out.extend_from_slice(b"\x1b[?");
            out.extend_from_slice(&others.join(&b';'));
            out.push(*kind);
        }
        match kind {
            b'h' => out.extend_from_slice(ERASE),
            _ => *left = true,
        }
    }

    fn may_pass(&self, found: &[u8]) -> bool {
        match found.get(1) {
            Some(b'[') => self.control(found),
            Some(b']') => self.command(found),
            // DCS, SOS, PM and APC carry images, settings and queries.
            Some(b'P' | b'X' | b'^' | b'_') => self.unfiltered && !is_query_string(found),
            // DECID, change of the character coding, C1 mode, title of a multiplexer.
            Some(b'Z' | b'%' | b' ' | b'k') => false,
            Some(_) => has_no_control(&found[1..]),
            None => false,
        }
    }

    fn control(&self, found: &[u8]) -> bool {
        let [_, _, marker, ..] = *found else {
            return false;
        };
        // A terminal executes a control character within a sequence and continues the sequence.
        if !has_no_control(&found[1..]) {
            return false;
        }
        let holds = |sign: u8| found.contains(&sign);
        match found.last() {
            // Queries: device attributes and status, terminal parameters, modes, keyboard reports.
            Some(b'c' | b'n' | b'x') => false,
            Some(b'p') => !holds(b'$'),
            Some(b'q') => marker != b'>',
            Some(b'u') => marker != b'?' && !holds(b'$'),
            Some(b'w') => !holds(b'$') && !holds(b'\''),
            // Queries: graphics, key modifiers, colours, displayed extent, mouse, checksum.
            Some(b'S' | b'm') => marker != b'?',
            Some(b'R') => !holds(b'#'),
            Some(b'v') => !holds(b'"'),
            Some(b'y') => !holds(b'*'),
            Some(b'|') => !holds(b'#') && !holds(b'\''),
            // Window operations: move, resize, report, title.
            Some(b't') => false,
            // Printing.
            Some(b'i') => self.unfiltered,
            Some(0x40..=0x7e) => true,
            // Broken sequence.
            _ => false,
        }
    }

    fn command(&self, found: &[u8]) -> bool {
        let text = &found[2..];
        let ended = text.strip_suffix(b"\x07");
        let Some(text) = ended.or_else(|| text.strip_suffix(b"\x1b\\")) else {
            return false;
        };
        let asks = text.windows(2).any(|pair| pair == b";?");
        let plain = std::str::from_utf8(text).is_ok_and(|text| !text.contains(char::is_control));
        let link = text.starts_with(b"8;") && plain;
        // Terminals ignore control characters in a string, so these could hide a query.
        link || (self.unfiltered && !asks && has_no_control(text))
    }
}

/// Appends text without C1 control characters (U+0080 to U+009F), which are equivalent to ESC and a
/// letter. Some terminals also accept them as single bytes.
fn text(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        let mut valid = chunk.valid().as_bytes();
        while let Some(at) = control_in(valid) {
            out.extend_from_slice(&valid[..at]);
            valid = &valid[at + 2..];
        }
        out.extend_from_slice(valid);
        let other = chunk.invalid().iter();
        out.extend(other.filter(|byte| !matches!(byte, 0x80..=0x9f)));
    }
}

fn control_in(text: &[u8]) -> Option<usize> {
    memchr_iter(0xc2, text).find(|at| matches!(text.get(at + 1), Some(0x80..=0x9f)))
}

fn has_no_control(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| !matches!(byte, 0..0x20 | 0x7f))
}

/// Returns whether a DCS is a query: `$q` (settings) or `+q` (capabilities), perhaps with numbers and
/// control characters in between, which terminals ignore.
fn is_query_string(found: &[u8]) -> bool {
    let Some(string) = found.strip_prefix(b"\x1bP") else {
        return false;
    };
    let last = string.iter().position(|byte| matches!(byte, 0x40..=0x7e));
    last.is_some_and(|last| {
        string[last] == b'q' && string[..last].iter().any(|b| matches!(b, b'$' | b'+'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passed(unfiltered: bool, text: &str) -> String {
        let whole = TerminalFilter::new(unfiltered).pass(text.as_bytes());
        for cut in 0..text.len() {
            let mut filter = TerminalFilter::new(unfiltered);
            let mut parts = filter.pass(&text.as_bytes()[..cut]);
            parts.extend(filter.pass(&text.as_bytes()[cut..]));
            assert_eq!(parts, whole, "{text:?} cut at {cut}");
        }
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn painting_passes() {
        let painting = "a\x1b[1;31mb\x1b[2J\x1b[3;4H\x1b(0lqk\x1b(B\x1b[?25l\x1b[?1049h\x1b7\x1b8é\u{1f980}\r\n\x1b[2 q";
        assert_eq!(passed(false, painting), painting);
        let link = "\x1b]8;;http://a\x1b\\text\x1b]8;;\x1b\\";
        assert_eq!(passed(false, link), link);
    }

    #[test]
    fn program_cannot_leave_the_alternate_screen() {
        let mut filter = TerminalFilter::new(false).on_alternate_screen();
        assert_eq!(filter.pass(b"a\x1b[?1049hb"), b"a\x1b[0m\x1b[H\x1b[2Jb");
        assert!(!filter.take_left_screen());
        assert_eq!(filter.pass(b"\x1b[?25;1049"), b"");
        assert_eq!(filter.pass(b"lc\x1b[?25h"), b"\x1b[?25lc\x1b[?25h");
        assert!(filter.take_left_screen() && !filter.take_left_screen());
        assert_eq!(filter.pass(b"\x1bcd"), b"\x1b[0m\x1b[H\x1b[2Jd");
    }

    #[test]
    fn settings_and_images_pass_only_unfiltered() {
        for hostile in [
            "\x1b]0;title\x07",
            "\x1b]52;c;aGk=\x07",
            "\x1b]4;1;rgb:00/00/00\x1b\\",
            "\x1b]1337;File=:x\x07",
            "\x1bPq#0\x1b\\",
            "\x1b_Gf=32;x\x1b\\",
            "\x1b[5i",
        ] {
            assert_eq!(passed(false, &format!("a{hostile}b")), "ab", "{hostile:?}");
            let all = format!("a{hostile}b");
            assert_eq!(passed(true, &all), all, "{hostile:?}");
        }
    }

    #[test]
    fn queries_never_pass() {
        for query in [
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[?2004$p",
            "\x1b[>q",
            "\x1b[?u",
            "\x1b[14t",
            "\x1b[21t",
            "\x1b]11;?\x07",
            "\x1b]52;c;?\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1bZ",
            "\x05",
            "\x1b[?1;1;0S",
            "\x1b[?4m",
            "\x1b[1$u",
            "\x1b[1;1;1;1;1;1*y",
            "\x1b[\"v",
            "\x1b[#R",
            "\x1b[1;1;1;1#|",
            "\x1b['|",
        ] {
            for unfiltered in [false, true] {
                let shown = passed(unfiltered, &format!("a{query}b"));
                assert_eq!(shown, "ab", "{query:?}");
            }
        }
    }

    #[test]
    fn control_character_within_a_query_does_not_hide_it() {
        // A terminal executes the control character and continues the sequence.
        for query in [
            "\x1b[\x006n",
            "\x1b[6\x08n",
            "\x1b[1\x7f4t",
            "\x1b[\rc",
            "\x1b\rZ",
            "\x1b\t[c",
            "\x1b\r]0;t\x07",
            "\x1bP\r1$\tqm\x1b\\",
            "\x1b]11;\t?\x07",
        ] {
            for unfiltered in [false, true] {
                assert_eq!(passed(unfiltered, query), "", "{query:?}");
            }
        }
    }

    #[test]
    fn c1_control_characters_never_pass() {
        // As UTF-8 characters, and as single bytes.
        let text = "a\u{9b}6n\u{9d}52;c;aGk=\u{9c}\u{90}$qm\u{9c}\u{85}é\u{a0}\u{200b}日b";
        let shown = "a6n52;c;aGk=$qmé\u{a0}\u{200b}日b";
        assert_eq!(passed(false, text), shown);
        assert_eq!(passed(true, text), shown);
        let bytes = b"a\x9b6n\x9d0;t\x07\xe6\x97\xa5\xc3\x9b\xf0\x9f\xa6\x80\xe6\x97\x9bb\xc2";
        let mut filter = TerminalFilter::new(false);
        let whole = filter.pass(bytes);
        assert_eq!(
            whole,
            b"a6n0;t\x07\xe6\x97\xa5\xc3\x9b\xf0\x9f\xa6\x80\xe6\x97\x9bb"
        );
        for cut in 0..bytes.len() {
            let mut filter = TerminalFilter::new(false);
            let mut parts = filter.pass(&bytes[..cut]);
            parts.extend(filter.pass(&bytes[cut..]));
            assert_eq!(parts, whole, "cut at {cut}");
        }
    }

    #[test]
    fn change_of_character_coding_does_not_pass() {
        // ISO 2022, in which single bytes are C1 controls; and the title of a multiplexer.
        assert_eq!(passed(false, "a\x1b%@b\x1b%Gc"), "abc");
        assert_eq!(passed(false, "\x1bktitle\x1b\\"), "title\x1b\\");
    }

    #[test]
    fn link_without_terminator_does_not_pass() {
        assert_eq!(passed(false, "\x1b]8;;http://a\nnext"), "\nnext");
        assert_eq!(passed(false, "\x1b]8;;http://a\x1b[1mnext"), "\x1b[1mnext");
    }

    /// Sequences that must not pass, as another parser finds them.
    #[derive(Default)]
    struct Oracle {
        forbidden: Vec<String>,
    }

    impl vte::Perform for Oracle {
        fn hook(&mut self, _: &vte::Params, _: &[u8], _: bool, action: char) {
            self.forbidden.push(format!("DCS {action}"));
        }

        fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
            if params.first() != Some(&&b"8"[..]) {
                self.forbidden.push(format!("OSC {params:?}"));
            }
        }

        fn csi_dispatch(&mut self, _: &vte::Params, between: &[u8], _: bool, action: char) {
            if matches!(action, 'c' | 'n' | 'x' | 't' | 'i')
                || (action == 'p' && between.contains(&b'$'))
            {
                self.forbidden.push(format!("CSI {action}"));
            }
        }

        fn esc_dispatch(&mut self, between: &[u8], _: bool, byte: u8) {
            if between.is_empty() && matches!(byte, b'Z' | b'k') {
                self.forbidden.push(format!("ESC {byte}"));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn another_parser_finds_nothing_forbidden_in_what_passes(
            bytes in prop::collection::vec(prop_oneof![
                4 => Just(ESC),
                4 => prop::sample::select(b"[]P_X^\\(Z".to_vec()),
                4 => prop::sample::select(b"0128;?$+qcntm".to_vec()),
                4 => prop::sample::select(b"\t\r\n\x07\x18\x1a\x08\x7f\x05".to_vec()),
                2 => prop::sample::select(vec![0xc2, 0x9b, 0x9c, 0x9d, 0x90, 0xe2]),
                1 => any::<u8>(),
            ], 0..80),
            cut in 0usize..80,
        ) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let mut filter = TerminalFilter::new(false);
            let mut out = filter.pass(first);
            out.extend(filter.pass(second));
            let mut oracle = Oracle::default();
            vte::Parser::new().advance(&mut oracle, &out);
            prop_assert!(oracle.forbidden.is_empty(), "{:?} in {out:?}", oracle.forbidden);
        }
    }
}

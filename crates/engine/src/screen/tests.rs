//! Screens of output that is easy to get wrong.

use super::*;
use proptest::prelude::*;

const SIZE: Size = Size { cols: 20, rows: 5 };

fn shown(bytes: &[u8]) -> Snapshot {
    let mut screen = Screen::new(SIZE);
    screen.feed(bytes);
    screen.snapshot()
}

#[test]
fn snapshot_has_the_visible_text() {
    let seen = shown("ab\tc\r\n\x1b[31mred\x1b[0m  \r\n日本e\u{301}🦀!\x1b[8mhidden".as_bytes());
    assert_eq!(seen.lines, ["ab      c", "red", "日本e\u{301}🦀!", "", ""]);
    assert_eq!((seen.cursor.row, seen.cursor.col), (2, 14));
}

#[test]
fn snapshot_has_title_and_modes() {
    let seen = shown(b"\x1b]2;hello\x07\x1b[?1049h\x1b[?2004h\x1b[?1h\x1b[?1002h\x1b[?25l");
    assert_eq!(seen.title.as_deref(), Some("hello"));
    assert!(seen.alternate && !seen.cursor.visible);
    assert!(seen.modes.bracketed_paste && seen.modes.application_cursor && seen.modes.mouse);
}

#[test]
fn queries_are_answered_once_and_not_on_replay() {
    let mut screen = Screen::new(SIZE);
    assert_eq!(screen.feed(b"ab\x1b[6n"), b"\x1b[1;3R");
    assert_eq!(screen.feed(b"\x1b[c"), b"\x1b[?6c");
    assert_eq!(
        screen.feed(b"\x1b[5n\x1b[?2004$p"),
        b"\x1b[0n\x1b[?2004;2$y"
    );
    assert_eq!(screen.feed(b"\x1b[18t"), b"\x1b[8;5;20t");
    assert_eq!(
        screen.feed(b"\x1b]11;?\x07"),
        b"\x1b]11;rgb:0000/0000/0000\x07"
    );
    assert_eq!(screen.feed(b"\x1b]52;c;?\x07"), b"");
    screen.replay(b"\x1b[c\x1b[6n");
    assert_eq!(screen.feed(b"x"), b"");
}

#[test]
fn query_in_two_parts_is_answered_after_its_last_byte() {
    let mut screen = Screen::new(SIZE);
    assert_eq!(screen.feed(b"\x1b["), b"");
    assert_eq!(screen.feed(b"6"), b"");
    assert_eq!(screen.feed(b"n"), b"\x1b[1;1R");
}

#[test]
fn replies_to_many_queries_are_limited() {
    let mut screen = Screen::new(SIZE);
    let replies = screen.feed(&b"\x1b[6n".repeat(100_000));
    assert!(replies.len() <= REPLY_LIMIT);
}

#[test]
fn smallest_and_largest_sizes_work() {
    for (cols, rows) in [(0, 0), (1, 1), (u16::MAX, u16::MAX)] {
        let mut screen = Screen::new(Size { cols, rows });
        screen.feed("日本語\u{301}\r\nabc".as_bytes());
        screen.resize(Size { cols: 3, rows: 2 });
        screen.resize(Size { cols, rows });
        screen.feed(b"\x1b[2J\x1b[Hx");
        assert_eq!(screen.snapshot().lines[0], "x");
    }
}

#[test]
fn combining_marks_per_cell_are_limited() {
    let mut screen = Screen::new(SIZE);
    screen.feed(b"e");
    for _ in 0..40 {
        screen.feed("\u{301}".repeat(30_000).as_bytes());
    }
    assert!(screen.line(0).len() < 2 * MARK_CHECK_INTERVAL);
}

#[test]
fn synchronized_update_without_end_is_painted() {
    assert_eq!(shown(b"\x1b[?2026hseen").lines[0], "seen");
}

#[test]
fn origin_mode_survives_compacting() {
    let mut screen = Screen::new(SIZE);
    screen.feed(b"\x1b[2;4r\x1b[?6h\x1b[2;3Hx");
    let mut unfolded = screen.compact().expand();
    assert_eq!(unfolded.feed(b"\x1b[6n"), b"\x1b[3;4R");
    unfolded.feed(b"\x1b[1;1Htop");
    assert_eq!(unfolded.snapshot().lines, ["", "top", "  x", "", ""]);
}

/// Output in pieces that programs write, so that random streams have an effect. Wide characters are not cut in half
/// here; another test does that.
fn output() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        stream("日本🦀", b"ABCDHLMSTdG"),
        stream("narrow", b"ABCDHJKLMPSTX@dG")
    ]
}

fn stream(special: &'static str, moves: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[a-z ]{1,12}".prop_map(String::into_bytes),
        2 => Just(special.into()),
        1 => Just("e\u{301}\u{200d}".into()),
        3 => prop_oneof![
            Just("\r\n"), Just("\n"), Just("\r"), Just("\t"), Just("\x08"), Just("\x1bM"),
            Just("\x1b7"), Just("\x1b8"), Just("\x1b(0"), Just("\x1b(B"), Just("\x1b)0"),
            Just("\x0e"), Just("\x0f"), Just("\x1b[?1049h"), Just("\x1b[?1049l"),
            Just("\x1b[?7l"), Just("\x1b[?7h"),
            Just("\x1b[4h"), Just("\x1b[4l"), Just("\x1b[?25l"), Just("\x1b[?2004h"),
            Just("\x1b[r"), Just("\x1b]2;a title\x07"), Just("\x1b[1;4;38;5;9m"),
            Just("\x1b[0m"), Just("\x1b[44;97m"), Just("\x1b[58;2;1;2;3;4:3m"),
            Just("\x1b]8;;http://x\x1b\\"), Just("\x1b]8;;\x1b\\"), Just("\x1bc"),
        ].prop_map(|text| text.as_bytes().to_vec()),
        3 => (0u8..12, 0u8..30, prop::sample::select(moves))
            .prop_map(|(a, b, last)| format!("\x1b[{a};{b}{}", last as char).into_bytes()),
        1 => (1u8..6, 1u8..8).prop_map(|(a, b)| format!("\x1b[{a};{b}r").into_bytes()),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Blanks halves of wide characters, as compacting does: they are invisible, but the emulator clears their neighbours
/// when they are overwritten.
fn make_halves_blank(screen: &mut Screen) {
    for row in 0..screen.term.screen_lines() {
        for (col, cell) in screen.cells(row).into_iter().enumerate() {
            screen.term.grid_mut()[Line(row as i32)][Column(col)] = cell;
        }
    }
}

/// A row whose continuation was overwritten need not count as wrapped any more.
fn without_wraps(screen: &Screen) -> Snapshot {
    Snapshot {
        wraps: Vec::new(),
        ..screen.snapshot()
    }
}

fn cells(screen: &Screen) -> Vec<(char, String, u16)> {
    let shown = Flags::all() - Flags::WRAPLINE - Flags::LEADING_WIDE_CHAR_SPACER;
    (0..screen.term.screen_lines())
        .flat_map(|row| screen.cells(row))
        .map(|cell| {
            let color = format!("{:?} {:?}", cell.fg, cell.bg);
            (cell.c, color, (cell.flags & shown).bits())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn compacted_screen_expands_to_an_equal_one(
        stream in output(),
        cut in 0usize..400,
    ) {
        let (before, after) = stream.split_at(cut.min(stream.len()));
        let mut screen = Screen::new(SIZE);
        let mut twin = Screen::new(SIZE);
        screen.feed(before);
        twin.feed(before);
        let mut unfolded = screen.compact().expand();
        prop_assert_eq!(without_wraps(&unfolded), without_wraps(&twin));
        make_halves_blank(&mut twin);
        prop_assert_eq!(cells(&unfolded), cells(&twin));
        prop_assert_eq!(unfolded.feed(after), twin.feed(after));
        prop_assert_eq!(without_wraps(&unfolded), without_wraps(&twin));
    }

    #[test]
    fn output_cut_anywhere_gives_the_same_screen(stream in output(), cuts in prop::collection::vec(0usize..400, 0..8)) {
        let whole = shown(&stream);
        let mut screen = Screen::new(SIZE);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts.into_iter().chain([stream.len()]) {
            screen.feed(&stream[from..cut]);
            from = cut;
        }
        prop_assert_eq!(screen.snapshot(), whole);
    }

    #[test]
    fn any_bytes_and_any_size_do_not_panic(
        stream in prop::collection::vec(any::<u8>(), 0..400),
        cols in 0u16..40,
        rows in 0u16..12,
    ) {
        let mut screen = Screen::new(Size { cols, rows });
        screen.feed(&stream);
        screen.resize(Size { cols: rows, rows: cols });
        screen.feed(&stream);
        let _ = screen.compact().expand().snapshot();
    }
}

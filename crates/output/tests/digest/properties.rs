//! Properties of any input.

use abide_output::digest::{Digest, Limits, digest, rendered_rows};
use abide_output::printable::one_line;
use proptest::prelude::*;

use super::limits;

/// Pieces that are combined at every boundary: text, numbers, parts of characters, sequences.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[ a-z0-9:%=-]{0,20}".prop_map(String::into_bytes),
        4 => Just(b"\n".to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
        2 => prop::sample::select(vec![
            "\r", "\r\n", "\x08", "\t", "é", "進", "👩‍💻", "e\u{301}", "\u{9b}2A", "\u{202e}", "\x1b[2J", "\x1b[H",
            "\x1b[?1049h", "\x1b[?1049l", "\x1b]0;t\x07", "\x1bPq\x1b\\", "\x1b7", "\x1b8", "\x1b[K", "\x1b[1K",
            "\x1b[3P", "\x1b[2@", "\x1b[5X", "\x1b[2L", "\x1b[M", "\x1b[2;5r", "\x1b[r", "\x1b[S", "\x1b[T", "\x1bM", "\x1bc",
            "error: broken\n", "warning: odd\n", "same\n", "same\n", "tick 12:00:01\n", "tick 12:00:02\n",
        ]).prop_map(|s| s.as_bytes().to_vec()),
        1 => (0u16..90, prop::sample::select(vec!['A', 'B', 'C', 'D', 'G', 'd', 'E', 'F', 'm', 'J']))
            .prop_map(|(n, c)| format!("\x1b[{n}{c}").into_bytes()),
        1 => (1usize..3_000).prop_map(|n| vec![b'x'; n]),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..120).prop_map(|pieces| pieces.concat())
}

/// A repeated line with a number that increases by this step each time.
fn flood() -> impl Strategy<Value = Vec<u8>> {
    let shape = prop::sample::select(vec![
        (
            "2026-01-01T00:00:00Z INFO worker[000] request ",
            12,
            " handled GET /items/00000 200 in 4 ms ok\n",
        ),
        ("12:00:00 tick ", 6, " of many\n"),
        ("12:00:00 answered with status ", 3, " in 5 ms\n"),
        ("12:00:00 answered with ", 1, " errors\r\n"),
        ("12:00:00 took ", 3, ".5 seconds, exit\n"),
        ("at 12:00:00 the address ", 1, "xff is read\n"),
        ("copied file number ", 4, "\n"),
        ("\x1b[32m12:00:00\x1b[0m done with ", 5, " of them\n"),
        ("", 5, "\n"),
    ]);
    let step = prop_oneof![0usize..3, 0usize..400];
    (shape, 0usize..100, step, 0usize..1_500).prop_map(
        |((before, width, after), from, step, times)| {
            let highest = 10_usize.pow(width);
            let width = width as usize;
            let line = |n: usize| format!("{before}{:0width$}{after}", (from + n * step) % highest);
            (0..times).map(line).collect::<String>().into_bytes()
        },
    )
}

/// Bytes that begin, continue, end or break escape sequences far more often than any program does.
fn escapes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        6 => Just(0x1b),
        6 => prop::sample::select(b"[]PX^_\\(".to_vec()),
        4 => prop::sample::select(b"0123456789;:?$ ".to_vec()),
        4 => prop::sample::select(b"mJHKbhqAB".to_vec()),
        6 => prop::sample::select(b"\t\r\x08\x07\n\x18\x1a\x00\x0b\x0e\x0f\x7f".to_vec()),
        3 => 0x80u8..0xa0,
        3 => Just(0xc2),
        2 => prop::sample::select(vec![0xe2, 0x82, 0xac, 0xf0, 0xff]),
        1 => any::<u8>(),
    ];
    prop::collection::vec(byte, 0..200)
}

fn first_control(text: &str) -> Option<char> {
    text.chars()
        .find(|c| c.is_control() && !matches!(c, '\n' | '\t'))
}

#[test]
fn control_sequence_with_a_tab_in_it_lets_no_escape_through() {
    for bytes in [
        &b"\x1b[\t\x1b[2J"[..],
        b"\x1b[1\t\x1b]0;t\x07",
        b"\x1b[\xc2\x1b[2J",
        b"\x1b(\xc2\x9b2J",
        b"\x1b\xc2\x9b\x1b[2J",
    ] {
        let text = digest(bytes, &limits(1_000)).text;
        assert_eq!(first_control(&text), None, "{bytes:?}: {text:?}");
        let lines = rendered_rows(bytes, 1_000).concat();
        assert_eq!(first_control(&lines), None, "{bytes:?}: {lines:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_control_character_of_any_bytes_reaches_the_text(bytes in escapes(), cut in 0usize..200, max in 20usize..2_000) {
        let limits = limits(max);
        let whole = digest(&bytes, &limits);
        prop_assert_eq!(first_control(&whole.text), None);
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        let mut in_two = Digest::new(&limits);
        in_two.push(first);
        in_two.push(second);
        prop_assert_eq!(in_two.finish(), whole);
        for line in bytes.split(|byte| *byte == b'\n') {
            let rows = rendered_rows(line, max).concat();
            prop_assert_eq!(first_control(&rows), None);
        }
        let text = String::from_utf8_lossy(&bytes);
        let line = one_line(&text);
        prop_assert!(!line.contains(char::is_control));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Small chunks never use the fast path for a flood, large ones do.
    #[test]
    fn digest_of_a_flood_does_not_depend_on_chunks(
        parts in prop::collection::vec(prop_oneof![2 => flood(), 1 => piece()], 1..8),
        cut in 17_000usize..80_000,
        rows in prop::sample::select(vec![6u16, 64]),
        max in 500usize..12_000,
    ) {
        let bytes = parts.concat();
        let limits = Limits { rows, ..limits(max) };
        let in_chunks = |of: usize| {
            let mut digest = Digest::new(&limits);
            bytes.chunks(of).for_each(|chunk| _ = digest.push(chunk));
            digest.finish()
        };
        let slowly = in_chunks(1_000);
        prop_assert_eq!(&in_chunks(cut), &slowly);
        prop_assert_eq!(&digest(&bytes, &limits), &slowly);
        let without = Limits { repeat_fast_path: false, ..limits };
        prop_assert_eq!(&digest(&bytes, &without), &slowly);
    }

    #[test]
    fn c9_chunks_make_no_difference(bytes in stream(), cuts in prop::collection::vec(1usize..40, 1..20), max in 50usize..4_000, raw: bool) {
        let limits = Limits { raw, rows: 6, ..limits(max) };
        let mut in_chunks = Digest::new(&limits);
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, later) = rest.split_at((*cut).min(rest.len()));
            in_chunks.push(chunk);
            rest = later;
        }
        prop_assert_eq!(in_chunks.finish(), digest(&bytes, &limits));
    }

    #[test]
    fn c11_the_limit_holds_and_nothing_harmful_passes(bytes in stream(), times in 1usize..40, max in 1usize..3_000) {
        let digested = digest(&bytes.repeat(times), &limits(max));
        prop_assert!(digested.text.chars().count() <= max);
        let harmful = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
        prop_assert_eq!(digested.text.chars().find(harmful), None);
        let misleading = digested.text.contains(['\u{202e}', '\u{2066}']);
        prop_assert!(!misleading);
    }

    #[test]
    fn plain_text_is_unchanged(words in prop::collection::hash_set("[a-zäß]{3,9}( [A-Z(){};,]{0,5}){0,6}", 1..80)) {
        let input = words.into_iter().collect::<Vec<_>>().join("\n");
        let digested = digest(input.as_bytes(), &limits(10_000));
        prop_assert_eq!(&digested.text, &input);
        prop_assert!(!digested.shortened);
        prop_assert_eq!(digest(format!("{input}\n").as_bytes(), &limits(10_000)).text, input);
    }

    #[test]
    fn c9_invalid_utf8_is_decoded_like_the_standard_library(bytes in prop::collection::vec(prop_oneof![0x20u8..0x7f, 0xa0u8..=0xff], 0..60)) {
        let expected = String::from_utf8_lossy(&bytes).into_owned();
        let harmless = !expected.chars().any(|c| c.is_control() || matches!(c, '\u{61c}' | '\u{200e}'..='\u{206f}' | '\u{e0000}'..));
        prop_assume!(harmless);
        prop_assert_eq!(digest(&bytes, &limits(10_000)).text, expected);
    }
}

/// Output so long that most of it is only scanned, with everything that a scan must handle.
fn very_long() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => (1usize..400).prop_map(|n| (0..n).map(|at| format!("served {} of {n}\n", at * n)).collect::<String>().into_bytes()),
        2 => prop::sample::select(vec![
            "error: broken\n  at a.rs:3\n", "\x1b[31mERROR\x1b[0m gone\r\n", " 10%\r 20%\r100%\n", "\x1b[2A\x1b[Kpainted\n", "\n\n\n", "é 進 warning: odd\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => (1usize..90_000).prop_map(|n| [vec![b'x'; n], b"\n".to_vec()].concat()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
    ];
    prop::collection::vec(piece, 1..40).prop_map(|pieces| {
        let first: Vec<u8> = (0..110_000)
            .flat_map(|n| format!("line {n} of {}\n", n % 7_919 * 13).into_bytes())
            .collect();
        let repeated = pieces.concat().repeat(6);
        [
            first,
            b"q\n".repeat(20),
            b"the first lines end here, and they are many\n"
                .repeat(3)
                .to_vec(),
            vec![b'y'; 600_000],
            b"\n".to_vec(),
            repeated,
        ]
        .concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 0, ..ProptestConfig::with_cases(5) })]

    #[test]
    fn very_long_output_does_not_depend_on_chunks(bytes in very_long(), size in 1usize..90_000) {
        let whole = digest(&bytes, &limits(2_000));
        let mut cut = Digest::new(&limits(2_000));
        for piece in bytes.chunks(size.max(500)) {
            cut.push(piece);
        }
        prop_assert_eq!(&cut.finish(), &whole);
        prop_assert_eq!(first_control(&whole.text), None);
        prop_assert_eq!(whole.bytes_total, bytes.len() as u64);
    }
}

//! Tests of the search in a log.

use super::*;
use proptest::prelude::*;

fn find(pattern: &str, context: usize, chunks: &[&[u8]]) -> SearchResult {
    let search = Search {
        pattern: Pattern::new(pattern).unwrap(),
        context,
        max_lines: 1_000,
        from: 0,
        fold_equal: false,
    };
    let mut searcher = Searcher::new(&search);
    for chunk in chunks {
        searcher.feed(chunk);
    }
    searcher.finish()
}

fn summary(result: &SearchResult) -> Vec<String> {
    let sign = |line: &Line| if line.matches { ':' } else { '-' };
    result
        .lines
        .iter()
        .map(|line| {
            format!(
                "{}{}{}",
                line.number,
                sign(line),
                String::from_utf8_lossy(&line.text)
            )
        })
        .collect()
}

#[test]
fn matches_have_line_numbers_and_context() {
    let log = b"one\r\ntwo\r\n\x1b[31mthree\x1b[0m\r\nfour\r\nfive\r\nthree again\nlast";
    assert_eq!(summary(&find("^three$", 0, &[log])), ["3:three"]);
    let result = find("three", 1, &[log]);
    let wanted = [
        "2-two",
        "3:three",
        "4-four",
        "5-five",
        "6:three again",
        "7-last",
    ];
    assert_eq!(summary(&result), wanted);
    assert_eq!((result.matches, result.total), (2, 7));
    assert_eq!(summary(&find("last", 0, &[log])), ["7:last"]);
    assert_eq!(summary(&find("^$", 0, &[b"a\n\nb\n"])), ["2:"]);
    assert_eq!(find("nothing like it", 3, &[log]).lines, []);
}

#[test]
fn match_does_not_span_lines() {
    let log = b"a\nb\nab\n";
    assert_eq!(summary(&find(r"a\s*b", 0, &[log])), ["3:ab"]);
    assert_eq!(summary(&find(r"\Ab\z", 0, &[log])), ["2:b"]);
    assert_eq!(find("[^x]+", 0, &[log]).matches, 3);
}

#[test]
fn matches_beyond_max_lines_are_counted() {
    let search = Search {
        pattern: Pattern::new("x").unwrap(),
        context: 1,
        max_lines: 2,
        from: 0,
        fold_equal: false,
    };
    let mut searcher = Searcher::new(&search);
    searcher.feed(&b"x\n".repeat(1_000));
    let result = searcher.finish();
    assert_eq!((result.lines.len(), result.matches), (2, 1_000));
}

#[test]
fn equal_matches_in_a_row_are_folded() {
    let log = b"retry\nok\nretry\nretry\nretry 2\nretry\n";
    let search = |context: usize| {
        let search = Search {
            pattern: Pattern::new("retry").unwrap(),
            context,
            max_lines: 100,
            from: 0,
            fold_equal: true,
        };
        let mut searcher = Searcher::new(&search);
        searcher.feed(log);
        searcher.finish()
    };
    let result = search(0);
    let folded: Vec<_> = result.lines.iter().map(|l| (l.number, l.equal)).collect();
    assert_eq!(folded, [(1, Some((4, 2))), (5, None), (6, None)]);
    assert_eq!((result.matches, result.total), (5, 6));
    let result = search(1);
    assert!(result.lines.iter().all(|line| line.equal.is_none()));
}

/// Result of a search for `x`, with at most two lines, from a byte offset. Missing bytes are `None`.
fn page(from: u64, chunks: &[Result<&[u8], u64>]) -> SearchResult {
    let search = Search {
        pattern: Pattern::new("x").unwrap(),
        context: 0,
        max_lines: 2,
        from,
        fold_equal: false,
    };
    let mut searcher = Searcher::new(&search);
    for chunk in chunks {
        match chunk {
            Ok(bytes) => _ = searcher.feed(bytes),
            Err(missing) => searcher.gap(*missing),
        }
    }
    searcher.finish()
}

#[test]
fn search_from_an_offset_continues_behind_the_last_line() {
    let chunks: [Result<&[u8], u64>; 2] = [Ok(b"x1\n\x1b[1mx2\x1b[0m\nx"), Ok(b"3\nno\nx5")];
    let first = page(0, &chunks);
    assert_eq!(summary(&first), ["1:x1", "2:x2"]);
    assert_eq!((first.matches, first.total), (4, 5));
    let second = page(first.next, &chunks);
    assert_eq!(summary(&second), ["3:x3", "5:x5"]);
    assert_eq!((second.matches, second.total), (2, 5));
    assert_eq!(page(second.next, &chunks).matches, 0);
}

#[test]
fn no_line_is_skipped_when_the_quota_drops_a_part_between_two_pages() {
    let before: [Result<&[u8], u64>; 2] = [Ok(b"x head\n"), Ok(b"x 2\nx 3\nx 4\nx 5\n")];
    let first = page(7, &before);
    assert_eq!(summary(&first), ["2:x 2", "3:x 3"]);
    let after: [Result<&[u8], u64>; 3] = [Ok(b"x head\n"), Err(4), Ok(b"x 3\nx 4\nx 5\n")];
    assert_eq!(summary(&page(0, &after)), ["1:x head", "2:x 3"]);
    let second = page(first.next, &after);
    assert_eq!(summary(&second), ["3:x 4", "4:x 5"]);
}

#[test]
fn line_that_begins_before_a_gap_ends_there() {
    let chunks: [Result<&[u8], u64>; 3] = [Ok(b"x 1"), Err(10), Ok(b"x 2\n")];
    assert_eq!(summary(&page(1, &chunks)), ["2:x 2"]);
    assert_eq!(summary(&page(3, &chunks)), ["2:x 2"]);
}

#[test]
fn line_longer_than_a_block_is_returned_once_and_shortened() {
    let mut log = b"x".repeat(3 * BLOCK_SIZE);
    log.extend_from_slice(b"needle");
    log.extend(b"y".repeat(2 * BLOCK_SIZE));
    log.extend_from_slice(b"needle\nnext needle\n");
    let chunks: Vec<&[u8]> = log.chunks(10_000).collect();
    let result = find("needle", 0, &chunks);
    assert_eq!(result.matches, 2);
    assert_eq!(result.total, 2);
    let line = &result.lines[0];
    assert_eq!(line.number, 1);
    assert!(line.text.len() <= MAX_LINE_BYTES);
    let place = line.text.windows(6).position(|part| part == b"needle");
    let (before, after) = line.cut;
    assert_eq!(before + place.expect("the match"), 3 * BLOCK_SIZE);
    assert_eq!(before + line.text.len() + after, 5 * BLOCK_SIZE + 12);
    assert_eq!(result.lines[1].number, 2);
}

#[test]
fn bytes_left_out_of_a_context_line_longer_than_a_block_are_counted() {
    let long = b"x".repeat(2 * BLOCK_SIZE);
    let result = find("needle", 1, &[&long, b"y\nneedle\n", &long, b"\n"]);
    let cuts: Vec<(usize, usize)> = result.lines.iter().map(|line| line.cut).collect();
    let rest = 2 * BLOCK_SIZE - MAX_LINE_BYTES;
    assert_eq!(cuts, [(0, rest + 1), (0, 0), (0, rest)]);
}

#[test]
fn invalid_pattern_is_refused_with_its_position() {
    let refused = |pattern: &str| Pattern::new(pattern).unwrap_err().to_string();
    assert_eq!(refused("ab(c"), "unclosed group, at character 3");
    assert_eq!(refused("é[z-a]").split(", at").nth(1), Some(" character 3"));
    assert!(refused(r"(\w{500}){500}").contains("bytes when compiled"));
    assert!(refused(&"a".repeat(5_000)).contains("5000"));
    assert!(refused(&"(".repeat(200)).contains("at character"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn search_finds_what_matching_every_line_finds(
        lines in prop::collection::vec("[ab\u{1b}\\[m]{0,6}\r?", 0..40),
        pattern in prop::sample::select(vec!["a", "ab", "^b", "a$", "^$", r"a\s*b", "[^a]", "a|b", r"\bab"]),
        context in 0usize..3,
        cut in 1usize..50,
    ) {
        let log = lines.join("\n").into_bytes();
        let chunks: Vec<&[u8]> = log.chunks(cut).collect();
        let result = find(pattern, context, &chunks);
        let whole = Pattern::new(pattern).unwrap();
        let mut clean = Vec::new();
        tokenizer::strip_escapes(&log, &mut clean);
        let mut all: Vec<&[u8]> = clean.split(|b| *b == b'\n').map(without_end).collect();
        if clean.is_empty() || clean.ends_with(b"\n") {
            all.pop();
        }
        let hits: Vec<usize> = (0..all.len()).filter(|at| whole.matches(all[*at])).collect();
        let near = |at: &usize| hits.iter().any(|hit| hit.abs_diff(*at) <= context);
        let wanted: Vec<(u64, bool, &[u8])> = (0..all.len())
            .filter(near)
            .map(|at| (at as u64 + 1, hits.contains(&at), all[at]))
            .collect();
        let got: Vec<(u64, bool, &[u8])> =
            result.lines.iter().map(|line| (line.number, line.matches, &line.text[..])).collect();
        prop_assert_eq!(got, wanted);
        prop_assert_eq!(result.total, all.len() as u64);
    }
}

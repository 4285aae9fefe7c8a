//! Output that is too long, too wide, raw, or has gaps.

use abide_output::digest::{Digest, Gap, Limits, digest};

use super::{limits, text, usual};

fn novel(lines: usize) -> String {
    let word = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
    (0..lines)
        .map(|n| format!("{}{}{} goes on\n", word(n), word(n / 26), word(n / 676)))
        .collect()
}

#[test]
fn head_and_tail_stay_and_a_note_counts_the_rest() {
    let digested = usual(novel(5_000));
    assert!(digested.text.starts_with("aaa goes on\nbaa goes on\n"));
    assert!(
        digested
            .text
            .ends_with(novel(5_000).lines().last().unwrap())
    );
    let note = format!(
        "[… {} lines, {} bytes left out; terminal_session search, or read_output with since, on session_k3v9x2bc has them.]",
        digested.lines_left_out, digested.bytes_left_out
    );
    assert!(
        digested.text.lines().any(|line| line == note),
        "{}",
        digested.text
    );
    let shown = digested.text.lines().count() as u64 - 1;
    assert_eq!(shown + digested.lines_left_out, 5_000);
    assert_eq!(digested.lines_total, 5_000);
    assert!(digested.shortened);
}

/// Shown and omitted bytes add up to all bytes, with any limit.
#[test]
fn omitted_bytes_are_counted_exactly_with_any_limit() {
    let input = format!("{}error: the disk is on fire\n{}", novel(900), novel(900));
    let all = input.len() as u64;
    for limit in [1, 150, 200, 300, 500, 800, 1_200, 3_000, 10_000] {
        let digested = digest(input.as_bytes(), &limits(limit));
        let shown: Vec<_> = digested
            .text
            .lines()
            .filter(|line| !line.starts_with('['))
            .map(|line| {
                line.split_once(": ")
                    .filter(|(n, _)| n.parse::<u64>().is_ok())
                    .map_or(line, |(_, text)| text)
            })
            .collect();
        let bytes: usize = shown.iter().map(|line| line.len() + 1).sum();
        assert_eq!(
            digested.bytes_left_out + bytes as u64,
            all,
            "{limit}: {}",
            digested.text
        );
        assert_eq!(
            digested.lines_left_out + shown.len() as u64,
            1_801,
            "{limit}: {}",
            digested.text
        );
    }
}

#[test]
fn limit_without_room_for_the_note_shows_the_start_of_a_single_line() {
    let input = novel(300).replace('\n', ", ");
    for limit in [1, 20, 100, 120] {
        let digested = digest(input.as_bytes(), &limits(limit));
        assert_eq!(digested.text, input[..limit]);
        let left_out = (input.len() - limit) as u64;
        assert_eq!(digested.bytes_left_out, left_out, "{limit}");
        assert!(digested.shortened, "{limit}");
    }
}

#[test]
fn limit_without_room_for_a_whole_line_shows_the_start_of_one() {
    let line = |first: &str| novel(30).replace('\n', ", ") + first + "\n";
    let input = line("a") + &line("b") + &line("c");
    for limit in [60, 80] {
        let limits = Limits {
            max_chars: limit,
            ..Limits::default()
        };
        let digested = digest(input.as_bytes(), &limits);
        let (start, note) = digested.text.split_once('\n').unwrap();
        assert!(start.len() >= 20 && input.starts_with(start), "{start}");
        let left_out = input.len() - start.len();
        assert_eq!(note, format!("[… 3 lines, {left_out} bytes left out.]"));
        assert_eq!(digested.bytes_left_out, left_out as u64);
    }
}

/// Lines of source code, each different from all others.
fn code(lines: usize) -> String {
    novel(lines)
        .lines()
        .map(|line| format!("    {};\n", line.replace(' ', "_")))
        .collect()
}

#[test]
fn dense_output_fills_the_limit() {
    for (lines, max) in [(600, 10_000), (5_000, 10_000), (5_000, 20_000)] {
        let input = code(lines);
        assert!(input.len() > max, "{}", input.len());
        let digested = digest(input.as_bytes(), &limits(max));
        let shown = digested.text.chars().count();
        assert!(shown > max - 100, "{lines} lines, {max}: {shown}");
        assert!(shown <= max, "{lines} lines, {max}: {shown}");
        let first: Vec<_> = input.lines().take(100).collect();
        assert!(digested.text.starts_with(&first.join("\n")));
        let kept = digested.text.lines().count() as u64 - 1;
        assert_eq!(kept + digested.lines_left_out, lines as u64);
    }
}

#[test]
fn invalid_bytes_are_counted_as_bytes_of_the_output() {
    let lines = (0..4_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 8).to_le_bytes());
    let lines =
        lines.flat_map(|word| [word.map(|byte| byte | 0x80).repeat(20), vec![b'\n']].concat());
    for input in [b"\xff".repeat(3_000_000), lines.collect()] {
        let digested = digest(&input, &limits(1_000));
        let shown = digested.text.chars().filter(|c| *c == '\u{FFFD}').count() as u64;
        let all = input.len() as u64;
        let counted = digested.bytes_left_out + shown;
        assert!(counted <= all, "{counted} of {all}: {}", digested.text);
        let note = format!("{} bytes left out", digested.bytes_left_out);
        assert!(digested.text.contains(&note), "{}", digested.text);
    }
}

/// More lines fit the limit than are held before some are dropped. Looking for lines to drop at each further line would
/// take hours.
#[test]
fn highest_limit_is_filled_and_smaller_output_is_complete() {
    let mut state = 1_u32;
    let mut letter = |n: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match n % 9 {
            0 => ' ',
            _ => char::from(b'a' + (state >> 27) as u8 % 26),
        }
    };
    let lines = (0..35_000).map(|_| (1..60).map(&mut letter).chain(['\n']).collect::<String>());
    let input: String = lines.collect();
    let max = 1_000_000;
    assert!(input.len() > 2 * max, "{}", input.len());
    let shown = digest(input.as_bytes(), &limits(max)).text.chars().count();
    assert!((max - 100..=max).contains(&shown), "{shown}");
    let part = &input[..input[..max].rfind('\n').unwrap_or(0)];
    let whole = digest(part.as_bytes(), &limits(max));
    assert!(!whole.shortened && whole.text == part);
}

#[test]
fn error_in_dense_output_is_shown_once_at_any_position() {
    let all = code(3_000);
    let lines: Vec<_> = all.lines().collect();
    for at in [5, 150, 300, 1_500, 2_700, 2_850, 2_990] {
        let mut lines = lines.clone();
        lines.insert(at, "kettle.c:7:5: error: 'teapot' undeclared");
        let digested = usual(lines.join("\n"));
        let shown = digested.text.matches("'teapot' undeclared").count();
        assert_eq!(shown, 1, "at {at}: {}", digested.text);
        let kept = digested
            .text
            .lines()
            .filter(|line| !line.starts_with('['))
            .count() as u64;
        assert_eq!(
            kept + digested.lines_left_out,
            3_001,
            "at {at}: {}",
            digested.text
        );
    }
}

#[test]
fn log_of_few_kinds_of_lines_does_not_fill_the_limit() {
    let log: String = novel(5_000)
        .lines()
        .map(|line| format!("INFO served {line}\n"))
        .collect();
    let shown = usual(log).text.chars().count();
    assert!(shown < 5_000, "{shown}");
}

#[test]
fn text_within_the_limit_is_complete() {
    let input = novel(700);
    let digested = usual(&input);
    assert_eq!(digested.text, input.trim_end());
    assert_eq!((digested.lines_left_out, digested.shortened), (0, false));
}

#[test]
fn both_ends_of_a_long_line_are_shown_at_any_position() {
    let long: String = (0..4_000).map(|n| format!("{{\"id\":{n}}},")).collect();
    for input in [
        format!("begin\n{long}\nend\n"),
        format!("{long}\nend\n"),
        format!("begin\n{long}\n"),
        format!("{}{long}\n{}", novel(5), novel(10)),
    ] {
        let digested = usual(&input);
        assert!(digested.shortened);
        let text = digested.text;
        assert!(text.contains("{\"id\":0},{\"id\":1},"), "{text}");
        assert!(text.contains("{\"id\":3999},"), "{text}");
        let cut = text.split("[… ").find_map(|part| {
            let (count, _) = part.split_once(" characters …]")?;
            count.parse::<u64>().ok()
        });
        // The reported number is the number of cut bytes: the mark in their place is not counted.
        assert_eq!(cut, Some(digested.bytes_left_out));
    }
}

#[test]
fn error_within_a_long_line_stays_at_any_position() {
    let half: String = (0..2_000).map(|n| format!("{{\"id\":{n}}},")).collect();
    let long = format!("{half} ERROR: the disk is on fire {half}");
    for input in [
        long.clone(),
        format!("begin\n{long}\nend\n"),
        format!("{long}\nend\n"),
        format!("begin\n{long}\n"),
        format!("{}{long}\n{}", novel(300), novel(300)),
    ] {
        let digested = usual(&input);
        let text = digested.text;
        assert!(text.contains("ERROR: the disk is on fire"), "{text}");
        assert!(digested.shortened);
        assert!(
            digested.bytes_left_out > 30_000,
            "{}",
            digested.bytes_left_out
        );
    }
}

#[test]
fn expected_and_actual_value_stay_with_the_failed_test() {
    let failed = "thread 'tests::adds' panicked at src/lib.rs:9:9:\nassertion `left == right` failed\n  left: 3\n right: 4\n";
    let text = usual(format!("{}{failed}{}", novel(2_000), novel(2_000))).text;
    let kept = "2002: assertion `left == right` failed\n2003:   left: 3\n2004:  right: 4\n";
    assert!(text.contains(kept), "{text}");
}

#[test]
fn repetitions_behind_an_error_are_not_counted_as_errors() {
    let repeated: String = (0..300)
        .map(|n| format!("polling the queue, round {n}\n"))
        .collect();
    let failed = "error: the queue is closed\n  --> src/queue.rs:3:5\n";
    let text = usual(format!(
        "{}{failed}{repeated}{}",
        novel(2_000),
        novel(2_000)
    ))
    .text;
    let kept = "2001: error: the queue is closed\n2002:   --> src/queue.rs:3:5\n";
    assert!(text.contains(kept), "{text}");
}

#[test]
fn c8_endless_line_is_truncated_in_its_middle() {
    let mut digest = Digest::new(&limits(10_000));
    let piece = "é".repeat(50_000);
    for _ in 0..500 {
        digest.push(piece.as_bytes());
    }
    let digested = digest.finish();
    assert!(digested.text.chars().count() < 10_000);
    assert!(digested.text.starts_with("éééé"));
    let shown = digested.text.lines().next().unwrap().matches('é').count();
    assert!(
        digested
            .text
            .contains(&format!("[… {} characters …]", 25_000_000 - shown))
    );
    assert_eq!(digested.lines_total, 1);
}

#[test]
fn long_line_within_the_limit_is_complete() {
    let line = format!("{{{}}}", "\"k\": 1, ".repeat(1_100));
    assert_eq!(text(&line), line);
}

#[test]
fn raw_text_is_only_truncated() {
    let raw = Limits {
        raw: true,
        ..limits(1_000)
    };
    let input = "a\r\x1b[1mb\x1b[0m\na\na\n\n\n\n";
    assert_eq!(digest(input.as_bytes(), &raw).text, input);
    assert_eq!(digest(b"\xffx", &raw).text, "\u{fffd}x");
    let long = "0123456789\n".repeat(5_000);
    let digested = digest(long.as_bytes(), &raw);
    assert!(digested.text.chars().count() <= 1_000);
    assert!(digested.text.starts_with("0123456789\n") && digested.text.ends_with("0123456789\n"));
    assert!(
        digested
            .text
            .contains(&format!("{} bytes left out", digested.bytes_left_out))
    );
}

#[test]
fn gaps_are_noted_in_their_place() {
    let mut digest = Digest::new(&limits(10_000));
    digest.push(b"begin \x1b[3");
    digest.gap(Gap::Dropped(1_234));
    digest.push(b"end\n");
    let digested = digest.finish();
    assert_eq!(
        digested.text,
        "begin \n[… 1234 bytes from here on are missing from the log …]\nend"
    );
    assert_eq!(digested.bytes_total, 9 + 1_234 + 4);
    assert_eq!(digested.bytes_left_out, 1_234);
    assert!(!digested.uncounted);
}

#[test]
fn one_note_counts_what_was_not_read_too() {
    for raw in [false, true] {
        let mut digest = Digest::new(&Limits {
            raw,
            ..limits(10_000)
        });
        digest.push(novel(3_000).as_bytes());
        digest.gap(Gap::Unread(99));
        digest.push(b"error: behind the gap\n");
        digest.push(novel(3_000).as_bytes());
        let digested = digest.finish();
        assert!(
            digested.uncounted,
            "nobody knows how many lines 99 bytes are"
        );
        let note = format!(
            "[… at least {} lines, {} bytes left out, with a gap of 99 bytes that were not read; terminal_session search,",
            digested.lines_left_out, digested.bytes_left_out
        );
        let text = digested.text;
        assert!(text.contains(&note), "{note} is not in:\n{text}");
        assert_eq!(text.matches("[…").count(), 1, "{text}");
        assert_eq!(digested.bytes_total, 6_000 * 12 + 99 + 22);
        let error = text.contains("\ngap+1: error: behind the gap");
        assert_eq!(error, !raw, "{text}");
    }
}

#[test]
fn short_output_with_a_part_that_was_not_read_has_a_note_in_its_place() {
    for raw in [false, true] {
        let mut digest = Digest::new(&Limits {
            raw,
            ..limits(10_000)
        });
        digest.push(b"begin\n");
        digest.gap(Gap::Unread(99));
        digest.push(b"end\n");
        let text = digest.finish().text;
        let note = "[… 99 bytes left out, with a gap of 99 bytes that were not read; ";
        assert!(
            text.starts_with(&format!("begin\n{}{note}", if raw { "\n" } else { "" })),
            "{text}"
        );
        assert!(text.trim_end().ends_with("]\nend"), "{text}");
    }
}

#[test]
fn rest_of_an_output_is_numbered_from_its_beginning() {
    let rest = format!("{}error: no space left\n{}", novel(900), novel(900));
    let limits = Limits {
        lines_before: 5_000,
        ..limits(3_000)
    };
    let digested = digest(rest.as_bytes(), &limits);
    let error = "5901: error: no space left";
    assert!(digested.text.contains(error), "{}", digested.text);
}

#[test]
fn lines_have_their_numbers_among_the_lines_of_all_streams() {
    let repeated: String = (10_000..70_000)
        .map(|number| format!("item {number} was copied\n"))
        .collect::<String>()
        + &novel(900);
    // Short output, repeated lines, and output so long that it is only scanned.
    for text in [novel(900), repeated, novel(60_000)] {
        let mut digest = Digest::new(&limits(3_000));
        let (mut own, mut others) = (0, 0);
        let mut push = |digest: &mut Digest, text: &str| {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            for lines in lines.chunks(100) {
                own += digest.push(lines.concat().as_bytes());
                digest.other_lines(7);
                others += 7;
            }
            own + others
        };
        let before = push(&mut digest, &text);
        push(&mut digest, &format!("error: no space left\n{text}"));
        let text = digest.finish().text;
        let error = format!("\n{}: error: no space left\n", before + 1);
        assert!(text.contains(&error), "{error}{text}");
    }
}

#[test]
fn single_long_line_fills_the_limit_and_counts_no_lines() {
    let names: Vec<String> = novel(2_000).split(' ').map(str::to_owned).collect();
    let line = format!("{{\"names\": {names:?}}}\n");
    let digested = digest(line.as_bytes(), &limits(10_000));
    let chars = digested.text.chars().count();
    assert!((9_800..=10_000).contains(&chars), "{chars}");
    let note = format!("\n[… {} bytes left out;", digested.bytes_left_out);
    assert!(digested.text.contains(&note), "{note}");
    assert_eq!(digested.lines_left_out, 0);
}

#[test]
fn column_of_numbers_fills_the_limit() {
    let rows = (1..9_000_u64).map(|n| format!("0.{}\n", n * 7_919_u64.pow(3) % 1_000_003));
    let shown = text(rows.collect::<String>()).chars().count();
    assert!((9_500..=10_000).contains(&shown), "{shown}");
}

/// Number that looks random.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8
}

/// Whole lines of an output with about so many characters.
fn lines_of(max: usize, line: impl Fn(u64) -> String) -> String {
    let mut text = String::new();
    for n in 1.. {
        let line = line(n);
        if text.len() + line.len() > max {
            break;
        }
        text.push_str(&line);
    }
    text
}

/// Name of letters alone.
fn name(n: u64) -> String {
    let letter = |at: u32| char::from(b'a' + (scattered(n) / 26_u64.pow(at) % 26) as u8);
    (0..5 + (n % 7) as u32).map(letter).collect()
}

fn path(n: u64) -> String {
    format!("/usr/lib/x86_64-linux-gnu/lib{}.so.{}\n", name(n), n % 9)
}

fn listed_file(n: u64) -> String {
    let (name, size) = (name(n), scattered(n) % 900_000);
    format!(
        "-rwxr-xr-x 1 root root {size:7} Mar  {} 2024 {name}\n",
        1 + n % 9
    )
}

fn file_with_size(n: u64) -> String {
    format!(
        "{}\t/usr/lib/{}/{}\n",
        scattered(n) % 9_000,
        name(n / 9),
        name(n)
    )
}

fn row_of_bytes(n: u64) -> String {
    let word = |at: u64| format!("{:04x}", scattered(n * 8 + at) % 65_536);
    let words: Vec<_> = (0..8).map(word).collect();
    format!(
        "{:08x}: {}  ..q.w.{}\n",
        n * 16,
        words.join(" "),
        &name(n)[..4]
    )
}

fn few_words(n: u64) -> String {
    let words = ["kettle", "teapot", "harbour", "window", "garden"];
    let word = |at: u64| words[(scattered(n * 8 + at) % 5) as usize];
    let words: Vec<_> = (0..3 + n % 5).map(word).collect();
    format!("{}\n", words.join(" "))
}

fn word_and_number(n: u64) -> String {
    let words = ["kettle", "teapot", "harbour", "window", "garden"];
    let word = words[(scattered(n) % 5) as usize];
    format!("{word} took {} ms\n", scattered(n + 7) % 90)
}

#[test]
fn output_that_is_somewhat_over_the_limit_fills_it() {
    let kinds = [path, listed_file, file_with_size, row_of_bytes, few_words];
    for (at, line) in kinds.into_iter().enumerate() {
        for (length, max) in [(10_150, 10_000), (10_900, 10_000), (54_000, 50_000)] {
            let input = lines_of(length, line);
            assert!(input.len() > max, "{}", input.len());
            let digested = digest(input.as_bytes(), &limits(max));
            let shown = digested.text.chars().count();
            let most_unused = 250 + max / 100;
            assert!(
                shown > max - most_unused,
                "kind {at}, {length} for {max}: {shown}"
            );
            assert!(shown <= max, "kind {at}, {length} for {max}: {shown}");
            let first: Vec<_> = input.lines().take(30).collect();
            assert!(digested.text.starts_with(&first.join("\n")));
            assert!(digested.text.ends_with(input.lines().last().unwrap()));
        }
    }
}

#[test]
fn listing_and_hex_dump_fill_the_limit_at_several_times_its_length() {
    for line in [path, listed_file, file_with_size, row_of_bytes] {
        let shown = text(lines_of(35_000, line)).chars().count();
        assert!((9_750..=10_000).contains(&shown), "{shown}: {}", line(1));
    }
    for line in [path, listed_file, file_with_size] {
        let shown = text(lines_of(500_000, line)).chars().count();
        assert!((9_750..=10_000).contains(&shown), "{shown}: {}", line(1));
    }
}

type LineOf = fn(u64) -> String;

/// One more line of output does not take away most of the text.
#[test]
fn longer_repetitive_output_uses_less_of_the_limit_little_by_little() {
    let kinds: [(LineOf, usize); 2] = [(word_and_number, 10_900), (few_words, 13_900)];
    for (line, from) in kinds {
        let shown = |length| text(lines_of(length, line)).chars().count();
        let mut before = shown(from);
        assert!(before > 9_500, "{before}");
        for length in (from + 50..from + 2_100).step_by(50) {
            let now = shown(length);
            assert!(now + 1_000 > before, "{length}: {now} after {before}");
            before = now;
        }
        assert!(before < 6_000, "{before}");
    }
}

#[test]
fn long_lines_fill_the_limit() {
    let row = |chars: usize, n: usize| {
        let cells = (0..).map(|at| format!("({at},'{:x}')", (at + n + 1) * 0x9E37_79B9));
        let text = cells.take(chars / 8).collect::<Vec<_>>().join(",");
        format!(
            "{} {}",
            ["one", "two", "three", "four", "five"][n],
            &text[..chars]
        )
    };
    let numbers = (0..150).map(|n| (n * n).to_string());
    let numbers = numbers.collect::<Vec<_>>().join("\n");
    for (limit, input) in [
        (50_000, [0, 1, 2].map(|n| row(19_000, n)).join("\n")),
        (10_000, [0, 1, 2, 3, 4].map(|n| row(3_000, n)).join("\n")),
        (10_000, format!("{numbers}\n{}\n{numbers}", row(9_000, 3))),
    ] {
        let shortened = digest(input.as_bytes(), &limits(limit));
        let most = (input.len() - limit + 400) as u64;
        let left_out = shortened.bytes_left_out;
        assert!(left_out <= most, "{left_out}: {}", shortened.text);
    }
}

#[test]
fn settings_of_one_section_fill_the_limit() {
    let setting = |n: u64| format!("kernel.{}.max = {n}\n", name(n));
    let settings: String = (0..700).map(setting).collect();
    let shortened = usual(&settings);
    assert!(shortened.text.len() > 9_000, "{}", shortened.text);
}

#[test]
fn note_is_left_out_with_the_lines_that_it_counts() {
    let dots = (1..200).map(|n| ".".repeat(n * 7 % 60 + 1) + "\n");
    let cycle = "a fixed\nb fixed\nc fixed\nd fixed\n".repeat(126);
    let frames = (1..=60).map(|n| format!("frame={n} fps={}\n", n % 9));
    let input = format!(
        "begin\n{}{cycle}{}the end\n",
        dots.collect::<String>(),
        frames.collect::<String>()
    );
    for limit in 100..400 {
        let seen = digest(input.as_bytes(), &limits(limit)).text;
        let counts_cycle = seen.contains("[these 4 lines ×126]");
        assert!(!counts_cycle || seen.contains("a fixed\n"), "{seen}");
        let counts_frames = seen.contains("58 more with");
        assert!(!counts_frames || seen.contains("frame=1 "), "{seen}");
    }
}

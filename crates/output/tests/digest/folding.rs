//! Repetitions, and lines that only look like repetitions.

use super::signals::name;
use super::text;

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (1..=count).map(|n| line(n) + "\n").collect()
}

/// Number that looks random, below a limit.
fn below(limit: usize, n: usize) -> usize {
    ((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) % limit
}

#[test]
fn equal_lines_are_one_with_a_count() {
    assert_eq!(
        text("a\n".to_owned() + &"the line\n".repeat(1203) + "b\n"),
        "a\nthe line [×1203]\nb"
    );
}

#[test]
fn blank_lines_are_counted_only_when_many() {
    assert_eq!(text("a\n\n\nb\n"), "a\n\n\nb");
    assert_eq!(text("a\n\n\n\n\nb\n"), "a\n[4 blank lines]\nb");
}

#[test]
fn blank_lines_at_the_end_are_counted_if_they_fill_the_screen() {
    assert_eq!(text("a".to_owned() + &"\n".repeat(60)), "a");
    assert_eq!(
        text("a".to_owned() + &"\n".repeat(100)),
        "a\n[99 blank lines]"
    );
    assert_eq!(text("\n".repeat(100)), "[100 blank lines]");
}

#[test]
fn percentages_times_and_counters_are_repetitions() {
    assert_eq!(
        text(lines(100, |n| format!("Downloading {n}%"))),
        "Downloading 1%\n[… 98 more with other numbers; raw: true shows all …]\nDownloading 100%"
    );
    assert_eq!(
        text(lines(50, |n| format!(
            "[12:00:{n:02}] heartbeat seq={}",
            4800 + n
        ))),
        "[12:00:01] heartbeat seq=4801\n[… 48 more with other numbers; raw: true shows all …]\n[12:00:50] heartbeat seq=4850"
    );
    assert_eq!(
        text(lines(200, |n| format!("item {n}: ok"))),
        "item 1: ok\n[… 198 more with other numbers; raw: true shows all …]\nitem 200: ok"
    );
    assert_eq!(
        text(lines(200, |n| format!("Step {n}/200"))),
        "Step 1/200\n[… 198 more with other numbers; raw: true shows all …]\nStep 200/200"
    );
    let ids = lines(30, |n| {
        format!(
            "2026-05-01T10:00:{n:02}Z request {:08x}-e89b-12d3-a456-426614174000 done",
            n * 7919
        )
    });
    assert_eq!(text(ids).lines().count(), 3);
}

#[test]
fn lines_whose_content_is_numbers_stay() {
    let whole = |input: String| assert_eq!(text(&input), input.trim_end_matches('\n'));
    whole(lines(100, |n| n.to_string()));
    whole(lines(60, |n| format!("{n},{}.5,{}", n * 3, n * n)));
    whole(lines(20, |n| {
        format!("epoch {n} loss 0.{} acc 0.{}", 93 - n, n + 12)
    }));
    whole(lines(30, |n| {
        format!("-rw-r--r-- 1 dev dev {} May  1 12:00 part_{n}.c", n * 97)
    }));
    whole(lines(30, |n| format!("part_{n}.c")));
    whole(lines(30, |n| format!("{:064x}  file{n}.txt", n * 7919)));
    whole(lines(5, |n| format!("test {n} passed")));
    let subjects = [
        "Fix the door",
        "Add a window",
        "Paint the wall",
        "Mend the roof",
        "Sweep the floor",
    ];
    whole(lines(5, |n| {
        format!("{:07x} {}", 0xabc_def1 + n * 99, subjects[n - 1])
    }));
}

#[test]
fn line_with_a_failing_number_is_not_folded() {
    let log = lines(100, |n| {
        format!("checked file {n}: {} errors", if n == 57 { 3 } else { 0 })
    });
    assert!(text(log).contains("checked file 57: 3 errors"));
    let log = lines(100, |n| {
        format!(
            "job {n} ended with exit code {}",
            if n == 57 { 1 } else { 0 }
        )
    });
    assert!(text(log).contains("job 57 ended with exit code 1"));
    let log = lines(100, |n| {
        format!(
            "10:00:{:02} \"GET /health HTTP/1.1\" {} 12",
            n % 60,
            if n == 57 { 503 } else { 200 }
        )
    });
    assert!(text(log).contains(" 503 12"));
}

#[test]
fn few_lines_with_other_numbers_stay() {
    let whole = |input: String| assert_eq!(text(&input), input.trim_end_matches('\n'));
    whole(lines(5, |n| format!("node{n} cpu {}%", n * 17)));
    whole(lines(8, |n| format!("test_case_{n} {}", u32::from(n != 3))));
    whole(lines(20, |n| format!("GET /orders {}ms", 10 + n)));
    whole(lines(12, |n| {
        format!("12:00:{n:02} lines {}.{n}% covered", 80 + n)
    }));
}

#[test]
fn outlier_among_many_lines_is_shown() {
    for wrong in [3, 20, 57, 99, 1_500, 2_999] {
        let log = lines(3_000, |n| {
            format!("test_case_{n} returned {}", u32::from(n != wrong))
        });
        let wanted = format!("test_case_{wrong} returned 0");
        assert!(text(&log).contains(&wanted), "{wrong}: {}", text(&log));
        let log = lines(3_000, |n| {
            let ms = if n == wrong { 48_211 } else { 10 + n % 80 };
            format!("12:00:{:02} request {n} served in {ms} ms", n % 60)
        });
        assert!(text(&log).contains(" 48211 ms"), "{wrong}: {}", text(&log));
    }
}

#[test]
fn http_server_errors_are_not_folded_into_client_errors() {
    let log = |wrong: usize| {
        lines(2_000, move |n| {
            let status = if n == wrong { 503 } else { 404 };
            format!("10.0.0.1 - - \"GET /item HTTP/1.1\" {status} {}", 100 + n)
        })
    };
    for wrong in [7, 1_000, 1_990] {
        let seen = text(log(wrong));
        assert!(seen.contains("\" 503 "), "{wrong}: {seen}");
    }
    let shortened = |n: usize| format!("line {n} is {}", "filler ".repeat(n % 7));
    let mixed = lines(4_000, |n| match n {
        2_222 => "10.0.0.1 - - \"GET /item HTTP/1.1\" 500 12".into(),
        n if n % 5 == 0 => format!("10.0.0.1 - - \"GET /item HTTP/1.1\" 404 {n}"),
        n => shortened(n),
    });
    assert!(text(&mixed).contains("\" 500 "), "{}", text(&mixed));
}

#[test]
fn amount_far_from_the_others_is_no_repetition() {
    let log = |odd: usize| {
        lines(2_000, move |n| {
            let depth = if n == 1_200 { odd } else { 10 + n * 7 % 11 };
            format!("queue depth {depth}")
        })
    };
    for odd in [985, 300, 40, 0, 3] {
        let seen = text(log(odd));
        assert!(
            seen.contains(&format!("depth {odd}\n[… 799 more")),
            "{seen}"
        );
        assert_eq!(seen.lines().count(), 6, "{seen}");
    }
    assert_eq!(text(log(30)).lines().count(), 3);
    for odd in [39, 36] {
        assert!(text(log(odd)).contains(&format!("depth {odd}\n")));
    }
}

#[test]
fn all_amounts_far_from_the_others_are_shown_unless_they_are_frequent() {
    type IsSlow = fn(usize) -> bool;
    let log = |count, is_slow: IsSlow| {
        lines(count, move |n| {
            let took = if is_slow(n) { 500 + n % 97 } else { 1 + n % 9 };
            format!("request {n:05} of user{} took {took} ms", below(9, n))
        })
    };
    let rare: [(usize, IsSlow); 3] = [
        (400, |n| n % 40 == 39),
        (2_000, |n| n % 100 == 99),
        (30_000, |n| n % 1_000 < 3),
    ];
    for (count, is_slow) in rare {
        let seen = text(log(count, is_slow));
        for n in (1..=count).filter(|n| is_slow(*n) && *n > 12) {
            assert!(seen.contains(&format!("{n:05} of")), "{n}: {seen}");
        }
    }
    let frequent: [IsSlow; 2] = [|n| n % 5 == 0, |n| n > 2_000];
    for is_slow in frequent {
        let seen = text(log(4_000, is_slow));
        assert!(seen.lines().count() < 80, "{seen}");
    }
}

#[test]
fn amount_far_from_others_that_grew_is_shown() {
    for odd in [985, 0, 20] {
        let log = lines(3_000, |n| {
            let depth = if n == 1_200 { odd } else { 100 + n / 12 };
            format!("step {n} has {depth} open files")
        });
        let seen = text(&log);
        assert!(seen.contains(&format!(" {odd} open files")), "{seen}");
        assert!(seen.lines().count() < 20, "{seen}");
    }
}

#[test]
fn amount_of_another_magnitude_or_form_is_not_folded() {
    for odd in ["87.4", "1.2", "0", "14", "88123456", "-12.3", "none"] {
        for count in [2_000, 20_000] {
            let log = lines(count, |n| match n {
                1_900 => format!("the temperature of sensor {n:05} is {odd} degrees"),
                n => format!(
                    "the temperature of sensor {n:05} is 1{}.{} degrees",
                    2 + n % 3,
                    n * 7 % 10
                ),
            });
            let wanted = format!("sensor 01900 is {odd} degrees");
            let seen = text(&log);
            assert!(seen.contains(&wanted), "{wanted} is not in:\n{seen}");
            assert!(seen.lines().count() < 12, "{seen}");
        }
    }
}

#[test]
fn value_far_outside_the_range_of_the_others_is_shown() {
    type LineOf = fn(usize, &str) -> String;
    type Usual = fn(usize) -> String;
    let kinds: [(LineOf, Usual, &[&str]); 5] = [
        (
            |n, value| format!("node{n:04} uses {value}% of its memory"),
            |n| (20 + below(20, n)).to_string(),
            &["99", "95"],
        ),
        (
            |n, value| format!("request {n} was answered in {value} ms by the server"),
            |n| (90 + below(21, n)).to_string(),
            &["150", "160", "300", "900", "5"],
        ),
        (
            |n, value| format!("epoch {n} ended with a loss of {value} on the test set"),
            |n| format!("0.{}", 300 + below(11, n)),
            &["0.5", "0.9", "0.901", "0.02"],
        ),
        (
            |n, value| format!("table t{n} was loaded with {value} rows"),
            |n| (90 + below(21, n)).to_string(),
            &["5", "170"],
        ),
        (
            |n, value| format!("2026-05-01T10:00:00Z sensor {n} reads a temperature of {value} C"),
            |n| (60 + below(6, n)).to_string(),
            &["95", "20"],
        ),
    ];
    for (line, usual, odd) in kinds {
        for odd in odd {
            for count in [400, 2_000, 20_000] {
                for place in [2, 7, 30, count / 2, count - 4] {
                    let log = lines(count, |n| match n == place {
                        true => line(n, odd),
                        false => line(n, &usual(n)),
                    });
                    let (seen, wanted) = (text(&log), line(place, odd));
                    assert!(
                        seen.contains(&wanted),
                        "{wanted} of {count} is not in:\n{seen}"
                    );
                    assert!(seen.lines().count() < 30, "{seen}");
                }
            }
        }
    }
}

#[test]
fn odd_duration_date_stamp_or_ratio_is_shown() {
    type Value = fn(usize) -> String;
    let kinds: [(&str, Value, &str); 5] = [
        ("test # took", |n| format!("0:00:0{}", n % 9 + 1), "2:41:07"),
        (
            "cert# is valid until",
            |n| format!("2027-0{}-1{}", n % 9 + 1, n % 9),
            "2024-01-03",
        ),
        (
            "backup # of",
            |n| format!("2024-05-1{}", n % 9),
            "1970-01-01",
        ),
        (
            "key # expires",
            |n| (1_790_000_000 + n * 3_600).to_string(),
            "0",
        ),
        (
            "pod-# Running",
            |n| format!("{}/{}", n % 3 + 1, n % 3 + 1),
            "1/3",
        ),
    ];
    for (name, value, odd) in kinds {
        for count in [300, 1_500, 20_000] {
            let log = lines(count, |n| {
                let value = if n == count / 2 { odd.into() } else { value(n) };
                format!("{} {value}", name.replace('#', &n.to_string()))
            });
            let seen = text(&log);
            assert!(seen.contains(&format!(" {odd}\n")), "{odd}: {seen}");
        }
    }
    // The time at which a line was written is no value.
    let clock = lines(20_000, |n| {
        let time = format!("{:02}:{:02}:{:02}", n / 900, n / 15 % 60, n * 4 % 60);
        format!("2026-05-{:02} {time} polled the queue", 1 + n / 5_000)
    });
    assert_eq!(text(&clock).lines().count(), 3, "{}", text(&clock));
}

#[test]
fn values_that_grow_are_no_outliers() {
    for step in [1, 7, 1_000] {
        let log = lines(3_000, |n| {
            let late = below(3, n);
            format!(
                "copied {} bytes in {}.{} s",
                n * step + late,
                n / 10,
                n % 10
            )
        });
        assert_eq!(text(&log).lines().count(), 3, "{}", text(&log));
    }
}

#[test]
fn random_amounts_are_shown_as_long_as_they_fit_the_limit() {
    let order = |n| {
        let (amount, cents) = (below(900, n), 10 + below(90, n + 1));
        format!(
            "order {} of customer {} is paid: {amount}.{cents} EUR",
            1_000 + n,
            below(99, n)
        )
    };
    let usage = |n| format!("node{n:03} cpu {}% mem {}%", below(99, n), below(99, n + 5));
    for line in [order, usage] {
        for count in [70, 150] {
            let input = lines(count, line);
            assert!((1_200..10_000).contains(&input.len()), "{}", input.len());
            assert_eq!(text(&input), input.trim_end());
        }
        let seen = text(lines(1_000, line));
        assert!(seen.lines().count() < 30, "{seen}");
    }
    // Longer output is folded from its beginning.
    let seen = text(lines(100, order) + "\n" + &lines(100, usage) + "\n" + &lines(300, order));
    assert!(seen.lines().count() < 30, "{seen}");
}

#[test]
fn lines_of_an_unfinished_cycle_stay() {
    for period in 2..=7 {
        for rest in 1..period {
            let equal = lines(4 * period + rest, |n| {
                format!("part {}", "x".repeat(n % period))
            });
            let last = (4 * period + 1..).take(rest);
            let last = last.map(|n| format!("\npart {}", "x".repeat(n % period)));
            let end = format!("[these {period} lines ×4]{}", last.collect::<String>());
            assert!(text(&equal).ends_with(&end), "{}", text(&equal));
            let numbers = lines(30 * period + rest, |n| {
                format!("part {} is number {n}", "x".repeat(n % period))
            });
            let last = numbers.lines().last().unwrap();
            assert!(text(&numbers).ends_with(last), "{}", text(&numbers));
        }
    }
    let triples = lines(4, |n| format!("a item {n}\nb item {n}\nc item {n}"));
    let pairs = lines(100, |n| format!("a item {n}\nb item {n}"));
    let dots = lines(500, |n| ".".repeat(n * 7 % 60 + 1));
    let seen = text(triples + &pairs + &dots);
    let begin = "c item 4\na item 1\nb item 1\n[… these 2 lines 98 more times";
    assert!(seen.contains(begin), "{seen}");
}

#[test]
fn cycles_of_lines_are_folded() {
    assert_eq!(
        text("ping\npong\nwait\n".repeat(40)),
        "ping\npong\nwait\n[these 3 lines ×40]"
    );
    let log = lines(40, |n| {
        format!("10:00:{n:02} poll started\n10:00:{n:02} nothing to do")
    });
    let folded = text(log);
    assert_eq!(folded.lines().count(), 5, "{folded}");
    let note = "[… these 2 lines 38 more times with other numbers; raw: true shows all …]";
    assert!(folded.contains(note), "{folded}");
    // An interrupted cycle returns the lines that it held.
    assert_eq!(
        text("a b\nc d\n".repeat(3) + "a b\nend\n"),
        "a b\nc d\n[these 2 lines ×3]\na b\nend"
    );
}

#[test]
fn first_note_says_how_to_see_all_lines_if_there_is_a_way() {
    let note = |count: usize| {
        let part = |word: &str| lines(count, |n| format!("{word} case {n} is passed"));
        let text = text(part("north") + "\nnow the rest\n" + &part("south"));
        let end = "more with other numbers …]";
        assert!(text.lines().filter(|line| line.ends_with(end)).count() == 1);
        text.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        note(100),
        "[… 98 more with other numbers; raw: true shows all …]"
    );
    assert_eq!(
        note(1_000),
        "[… 998 more with other numbers; raw: true with max_output: 50000 shows all …]"
    );
    assert_eq!(
        note(50_000),
        "[… 49998 more with other numbers; terminal_session search, or read_output with since, on session_k3v9x2bc has them …]"
    );
    // A longer text says it in its note about what is left out.
    let source = (0..900).map(|n| format!("fn {}() {{}}\n", name(n)));
    let long = lines(100, |n| format!("case {n} is passed")) + &source.collect::<String>();
    let text = text(long);
    assert!(text.contains("[… 98 more with other numbers …]"), "{text}");
}

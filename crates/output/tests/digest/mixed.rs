//! Output of parts of different kinds, some of which are repetition.

use abide_output::digest::digest;

use super::signals::name;
use super::{limits, text, usual};

type LineOf = fn(usize) -> String;

/// Number that looks random.
fn scattered(n: usize) -> usize {
    (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
}

fn encoded(n: usize) -> String {
    let letter = |at: usize| char::from(b"ABCDEFGHabcdefgh01234567+/"[scattered(n * 80 + at) % 26]);
    (0..76).map(letter).collect()
}

fn source(n: usize) -> String {
    match n % 6 {
        0 => format!("fn {}(input: &str) -> bool {{", name(n)),
        1 => format!("    let {} = parse(input);", name(n)),
        2 => format!("    {} += {}.length();", name(n - 1), name(n)),
        3 => format!("    // The {} of {} is not known.", name(n), name(n + 7)),
        4 => format!("    {}.is_{}()", name(n - 3), name(n)),
        _ => "}".into(),
    }
}

fn difference(n: usize) -> String {
    match n % 5 {
        0 => format!("@@ -{n},7 +{n},7 @@ {}", name(n)),
        1 | 2 => format!("     {} = {};", name(n), name(n + 1)),
        3 => format!("-    {}({});", name(n), name(n + 2)),
        _ => format!("+    {}({});", name(n - 1), name(n + 3)),
    }
}

fn row(n: usize) -> String {
    format!(
        "{:<14}  {:<12}  {:>8}",
        name(n),
        name(n + 9),
        scattered(n) % 90_000
    )
}

fn step(n: usize) -> String {
    format!("step {n} of 2000")
}

fn passed(n: usize) -> String {
    format!("PASS tests/{}/{}.test.ts", name(n / 7), name(n))
}

fn served(n: usize) -> String {
    format!(
        "12:00:{:02} INFO served /{} in {} ms",
        n % 60,
        name(n),
        scattered(n) % 90
    )
}

const UNIQUE: [LineOf; 4] = [encoded, source, difference, row];
const REPEATED: [LineOf; 3] = [step, passed, served];

/// Lines of one kind with about so many characters.
fn part(line: LineOf, from: usize, chars: usize) -> String {
    let mut part = String::new();
    for n in from.. {
        part.push_str(&line(n));
        part.push('\n');
        if part.len() > chars {
            break;
        }
    }
    part
}

/// A part in each place among repetitions.
fn mixed(line: LineOf, repeated: LineOf, chars: usize) -> [String; 4] {
    let unique = part(line, 0, chars);
    let half = part(line, 0, chars / 2);
    let other = part(line, 1_000, chars / 2);
    let [before, behind] = [0, 9_000].map(|from| part(repeated, from, 30_000));
    [
        format!("{unique}{behind}"),
        format!("{before}{unique}"),
        format!("{before}{unique}{behind}"),
        format!("{half}{before}{other}{behind}"),
    ]
}

#[test]
fn short_part_among_repetitions_is_complete() {
    for line in UNIQUE {
        for repeated in REPEATED {
            for (place, input) in mixed(line, repeated, 4_000).iter().enumerate() {
                let text = text(input);
                let is_lost = |wanted: &&str| {
                    let is_unique = REPEATED.iter().all(|line| {
                        let word = line(0)[..4].to_owned();
                        !wanted.starts_with(&word)
                    });
                    is_unique && !wanted.starts_with("12:") && !text.contains(wanted.trim())
                };
                let lost: Vec<_> = input.lines().filter(is_lost).collect();
                assert!(lost.is_empty(), "place {place}, lost {lost:#?} in:\n{text}");
            }
        }
    }
}

#[test]
fn long_part_among_repetitions_fills_the_limit() {
    for line in UNIQUE {
        for repeated in REPEATED {
            for (place, input) in mixed(line, repeated, 25_000).iter().enumerate() {
                let digested = usual(input);
                let shown = digested.text.chars().count();
                let of = (line(1), repeated(1));
                assert!(
                    (9_500..=10_000).contains(&shown),
                    "{of:?}, {place}: {shown}\n{}",
                    digested.text
                );
            }
        }
    }
}

#[test]
fn limit_of_any_size_is_filled() {
    for max in [2_000, 5_000, 30_000] {
        let input = part(encoded, 0, max) + &part(step, 0, 20_000) + &part(encoded, 2_000, max);
        let shown = digest(input.as_bytes(), &limits(max)).text.chars().count();
        assert!((max - 300..=max).contains(&shown), "{max}: {shown}");
    }
}

#[test]
fn repetition_alone_does_not_fill_the_limit() {
    for line in [passed, served] {
        let shown = text(part(line, 0, 60_000)).chars().count();
        assert!(shown < 5_000, "{shown}");
    }
}

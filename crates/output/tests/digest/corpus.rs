//! Score of the digest on logs of many tools: which of the facts that a developer needs are in the text, and how many
//! tokens the text has. `tests/corpus` has two parts, with different tools. Signals are tuned on the first; for the
//! second only the total is used. When a log of the second part has been looked at, it moves to the first.
//!
//! `bench/digest` prints the table.

use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;

use super::text;

/// Log with its facts.
struct Sample {
    name: String,
    bytes: Vec<u8>,
    /// Weight and text of each fact.
    facts: Vec<(u32, String)>,
}

fn samples(half: &str) -> Vec<Sample> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(half);
    let facts = std::fs::read_to_string(folder.join("facts.txt")).unwrap();
    let mut samples: Vec<Sample> = Vec::new();
    for line in facts.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            let packed = std::fs::read(folder.join(format!("{name}.log.gz"))).unwrap();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&packed[..])
                .read_to_end(&mut bytes)
                .unwrap();
            samples.push(Sample {
                name: name.to_owned(),
                bytes,
                facts: Vec::new(),
            });
        } else if !line.is_empty() && !line.starts_with('#') {
            let (weight, fact) = line.split_once(' ').unwrap();
            let sample = samples.last_mut().unwrap();
            sample
                .facts
                .push((weight.parse().unwrap(), fact.to_owned()));
        }
    }
    samples
}

/// Estimate of the tokens of a text: a token is up to six letters, three digits, or one other character.
fn tokens(text: &str) -> usize {
    let (mut tokens, mut letters, mut digits, mut blanks) = (0, 0, 0, 0);
    for c in text.chars() {
        let class = |is: bool, run: &mut usize, most: usize| {
            let begins = is && run.is_multiple_of(most);
            *run = if is { *run + 1 } else { 0 };
            usize::from(begins)
        };
        tokens += class(c.is_alphabetic() && c.is_ascii(), &mut letters, 6);
        tokens += class(c.is_ascii_digit(), &mut digits, 3);
        // A single space belongs to the following word.
        let is_blank = c == ' ';
        tokens += usize::from(is_blank && blanks == 1);
        blanks = if is_blank { blanks + 1 } else { 0 };
        tokens += usize::from(!c.is_ascii_alphanumeric() && !is_blank);
    }
    tokens
}

/// Text without escape sequences. Other methods do not remove them, so they are not counted.
fn plain(bytes: &[u8]) -> String {
    let mut clean = Vec::new();
    abide_output::tokenizer::strip_escapes(bytes, &mut clean);
    String::from_utf8_lossy(&clean).into_owned()
}

/// First and last lines of a text, each up to a limit in some unit.
fn both_ends(text: &str, most: usize, size: impl Fn(&str) -> usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let fitting = |lines: &mut dyn Iterator<Item = &&str>| {
        let mut sum = 0;
        lines
            .take_while(|line| {
                sum += size(line);
                sum <= most
            })
            .count()
    };
    let head = fitting(&mut lines.iter());
    let tail = fitting(&mut lines.iter().rev()).min(lines.len() - head);
    let mut kept = lines[..head].to_vec();
    kept.extend(&lines[lines.len() - tail..]);
    kept.join("\n")
}

/// Method that shortens a text.
type Method = fn(&str) -> String;

/// Methods to compare with the digest.
const OTHERS: [(&str, Method); 3] = [
    // 10,000 tokens.
    ("head and tail", |text| {
        both_ends(text, 5_000, |line| tokens(line) + 1)
    }),
    // 10 KiB or 256 lines.
    ("Codex-like", |text| {
        let by_lines = both_ends(text, 128, |_| 1);
        both_ends(&by_lines, 5 << 10, |line| line.len() + 1)
    }),
    // 30,000 characters.
    ("Claude-Code-like", |text| {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() <= 30_000 {
            return text.to_owned();
        }
        let (head, tail) = (&chars[..15_000], &chars[chars.len() - 15_000..]);
        head.iter().chain(tail).collect()
    }),
];

#[derive(Clone, Copy, Default)]
struct Score {
    found: u32,
    tokens: usize,
}

impl Sample {
    fn score(&self, text: &str) -> Score {
        let found = self.facts.iter().filter(|(_, fact)| text.contains(fact));
        Score {
            found: found.map(|(weight, _)| weight).sum(),
            tokens: tokens(text),
        }
    }

    fn weight(&self) -> u32 {
        self.facts.iter().map(|(weight, _)| weight).sum()
    }
}

/// Share of the facts by weight, and tokens compared with those of head and tail, in percent.
fn score(half: &str) -> (f64, f64) {
    let samples = samples(half);
    let mut table = String::from("| log | facts |");
    let mut totals = [Score::default(); 1 + OTHERS.len()];
    let names = std::iter::once("digest").chain(OTHERS.iter().map(|(name, _)| *name));
    names.for_each(|name| write!(table, " {name}, tokens |").unwrap());
    table.push_str("\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
    let share = |found: u32, of: u32| 100. * f64::from(found) / f64::from(of);
    let all: u32 = samples.iter().map(Sample::weight).sum();
    for sample in &samples {
        let whole = plain(&sample.bytes);
        let digest = text(&sample.bytes);
        let texts = OTHERS.iter().map(|(_, method)| method(&whole));
        let texts: Vec<String> = std::iter::once(digest).chain(texts).collect();
        write!(table, "| {} | {} |", sample.name, sample.facts.len()).unwrap();
        for (text, total) in texts.iter().zip(&mut totals) {
            let score = sample.score(text);
            total.found += score.found;
            total.tokens += score.tokens;
            let percent = share(score.found, sample.weight());
            write!(table, " {percent:.0} %, {} |", score.tokens).unwrap();
        }
        table.push('\n');
        for (_, fact) in &sample.facts {
            assert!(
                whole.contains(fact),
                "{}: not in the log: {fact}",
                sample.name
            );
            if half == "work" && !texts[0].contains(fact) {
                println!("{}: lost {fact}", sample.name);
            }
        }
    }
    table.push_str("| all | |");
    for total in totals {
        write!(
            table,
            " {:.1} %, {} |",
            share(total.found, all),
            total.tokens
        )
        .unwrap();
    }
    let [digest, cut, ..] = totals;
    let cost = 100. * digest.tokens as f64 / cut.tokens as f64;
    if half == "work" || std::env::var_os("ABIDE_DIGEST_TABLE").is_some() {
        println!("{half}\n\n{table}\n");
    } else {
        println!("{half}: {}", table.lines().last().unwrap());
    }
    (share(digest.found, all), cost)
}

#[test]
fn work_half_of_the_corpus_keeps_its_facts() {
    let (facts, cost) = score("work");
    assert!(facts >= 99., "{facts:.1} % of the facts");
    assert!(cost <= 20., "{cost:.1} % of the tokens");
}

#[test]
fn judge_half_of_the_corpus_keeps_its_facts() {
    let (facts, cost) = score("judge");
    assert!(facts >= 99., "{facts:.1} % of the facts");
    assert!(cost <= 20., "{cost:.1} % of the tokens");
}

//! Lines that differ from many similar ones.

use abide_output::digest::{Digest, Gap};

use super::signals::{assert_shown, name, request, within};
use super::{limits, text};

#[test]
fn key_with_a_mark_that_it_has_nowhere_else_is_shown() {
    let resource = |n: usize| {
        let (of, replicas) = (name(n), n % 5 + 2);
        format!(
            "shop, {of}, Deployment has changed:\n  kind: Deployment\n    name: {of}\n      app: {of}\n        id: {of}\n\
             -   image: shop:1\n+   image: shop:2\n    replicas: {replicas}\n    cpu: 500m\n"
        )
    };
    let odd = "shop, ledger, Deployment has changed:\n  kind: Deployment\n-   image: shop:1\n+   image: shop:2\n\
               -   replicas: 6\n+   replicas: 4\n    cpu: 500m\n";
    assert_shown(
        &within(resource, odd),
        &["shop, ledger", "-   replicas: 6", "+   replicas: 4"],
    );
}

#[test]
fn rare_cell_of_a_drawn_table_is_shown_whatever_the_number_of_words() {
    let row = |n: usize, severity: &str| {
        let title = "word ".repeat(n % 20 + 1);
        format!(
            "│ {:<9} │ CVE-2020-{n:04} │ {severity:<8} │ {title:<100} │\n",
            name(n)
        )
    };
    let usual = |n: usize| row(n, if n.is_multiple_of(3) { "MEDIUM" } else { "LOW" });
    let odd = row(9_001, "HIGH") + &usual(9_002) + &row(9_004, "HIGH") + &row(9_006, "HIGH");
    assert_shown(
        &within(usual, &odd),
        &["CVE-2020-9001", "CVE-2020-9004", "CVE-2020-9006"],
    );
}

#[test]
fn each_of_few_lines_with_a_rare_begin_is_shown() {
    let odd: String = [
        (547, 16, "the statement"),
        (8_152, 16, "text is longer"),
        (1_205, 13, "chosen as victim"),
    ]
    .into_iter()
    .map(|(code, level, said)| {
        format!(
            "Msg {code}, Level {level}, Line {}\n{said}\n{}",
            code * 3,
            request(code)
        )
    })
    .collect();
    assert_shown(&within(request, &odd), &["Msg 547", "Msg 8152", "Msg 1205"]);
}

#[test]
fn each_line_with_a_level_at_its_end_is_a_kind_of_its_own() {
    let usual = |n: usize| {
        format!(
            "  - Checking {:<20} [ OK ]\n  * Not a problem of {}: there is not enough of it and it does not matter\n",
            name(n),
            name(n + 5)
        )
    };
    let warning = |of: &str| format!("  - {of:<30} [ WARNING ]\n");
    let odd: String = (1..4)
        .map(|n| {
            usual(n)
                + &warning(
                    [
                        "Checking packages",
                        "Permissions of homes",
                        "Running log daemon",
                    ][n - 1],
                )
        })
        .collect();
    assert_shown(
        &within(usual, &odd),
        &[
            "Checking packages",
            "Permissions of homes",
            "Running log daemon",
        ],
    );
}

#[test]
fn another_verdict_at_the_end_of_a_line_is_shown_whatever_the_names_mention() {
    let title = |n: usize| match n % 3 {
        0 => format!("failed to open {} is reported as error", name(n)),
        1 => format!("connection refused by {}: error is retried", name(n)),
        _ => format!("{} and nothing else", name(n)),
    };
    for (usual, other) in [
        (" - pass", " - fail"),
        (" ... ok", " ... NOT OK"),
        (" = OK", " = KO"),
        (": proved", ": unproved"),
        ("... yes", "... no"),
        (" => true", " => false"),
        (" 1", " 0"),
        (",pass,0.1", ",fail,0.1"),
        ("  # passed", "  # pending"),
        (": SUCCESS", ": FAILURE"),
    ] {
        let wanted = ["alpha order", "beta cart", "gamma stock", "delta queue"];
        let log = (0..800).map(|n| match n {
            150 | 300 | 450 | 600 => format!("{}{other}\n", wanted[n / 150 - 1]),
            n => format!("{}{usual}\n", title(n)),
        });
        assert_shown(&log.collect::<String>(), &wanted);
    }
}

#[test]
fn line_of_words_that_no_other_line_has_is_shown() {
    let wanted = [
        "stepping down, node 3 leads now",
        "falling back to the slow path",
        "3 modules will be rebuilt because the toolchain changed",
    ];
    let part = |n: usize| ["order", "cart", "stock", "ledger", "queue", "shard"][n * 7 / 3 % 6];
    let pair = |n: usize| format!("{}_{}", part(n), part(n / 6 + n));
    for line in [
        |pair: &str| format!("Compiling {pair}"),
        |pair: &str| format!("  Analyzing {pair}"),
        |pair: &str| format!("level=info msg=\"served\" path=/{pair}"),
    ] {
        let log = (0..900).map(|n| match n {
            200 => wanted[0].to_owned() + "\n",
            400 => wanted[1].to_owned() + "\n",
            600 => wanted[2].to_owned() + "\n",
            n => line(&pair(n)) + "\n",
        });
        assert_shown(&log.collect::<String>(), &wanted);
    }
}

#[test]
fn amount_far_from_those_of_other_lines_is_shown() {
    let usual = |n: usize| match n * 7 % 5 {
        0 | 2 => format!("GET /{} completed in {} ms\n", name(n), 3 + n * 13 % 27),
        1 => format!("cache hit ratio {} of {}\n", 90 + n % 9, name(n)),
        _ => format!("worker of {} idle\n", name(n)),
    };
    let odd = "GET /orders completed in 48211 ms\n";
    assert_shown(&within(usual, odd), &["48211"]);
    let table = |n: usize| {
        format!(
            "OK table {} [SELECT {} in 0.{} s]\n",
            name(n),
            100 + n * 587 % 900,
            n % 9
        )
    };
    let odd = "OK table payments [SELECT 0 in 0.3 s]\n";
    assert_shown(&within(table, odd), &["payments"]);
}

#[test]
fn number_far_from_the_others_of_its_cell_is_shown() {
    let by_commas = |n: usize, heat: f64, turns: usize| {
        format!(
            "2026-03-01T10:{:02}:00Z,s{},{heat},{turns},ok\n",
            n % 60,
            n % 12
        )
    };
    let usual = |n: usize| by_commas(n, 55. + (n * 7 % 11) as f64, 1_480 + n % 40);
    for odd in [by_commas(7, 960.4, 1_500), by_commas(7, 60., 0)] {
        assert_shown(&within(usual, &odd), &[&odd]);
    }
    let by_blanks = |n: usize| format!("{} {} 0 {} ab\n", n % 3, 400 + n * 7 % 90, 20 + n % 7);
    let odd = "1 420 0 11783 ab\n";
    assert_shown(&within(by_blanks, odd), &[odd]);
}

#[test]
fn record_with_an_odd_value_is_shown_with_its_begin() {
    let record = |n: usize, currency: &str, state: &str| {
        format!(
            "-[ RECORD {n} ]-----------\norder    | {n}\namount   | {}\ncurrency |{currency}\nstate    | {state}\n",
            n * 7_919 % 9_001
        )
    };
    let usual = |n: usize| record(n, " EUR", "PAID");
    let odd = record(7_217, "", "PAID") + &usual(1) + &record(7_333, " EUR", "DISPUTED");
    assert_shown(
        &within(usual, &odd),
        &[
            "order    | 7217",
            "currency |",
            "order    | 7333",
            "| DISPUTED",
            "-[ RECORD 799 ]",
        ],
    );
    let record = |n: usize, owner: &str| {
        format!(
            "file: data/{}/{n}\nowner: {owner}\nuser: rw-\ngroup: r--\n\n",
            name(n)
        )
    };
    let odd = record(7_217, "nobody");
    assert_shown(
        &within(|n| record(n, "root"), &odd),
        &["/7217", "owner: nobody"],
    );
}

#[test]
fn odd_value_in_a_long_list_of_keys_is_shown() {
    let keys: [fn(usize) -> String; 4] = [
        |n| format!("user{n}"),
        |n| format!("{:08x}", n * 2_654_435_761 % (1 << 32)),
        |n| format!("{}{}", name(n / 10), n % 10),
        name,
    ];
    for key in keys {
        for odd in ["FAILED", "none", "-1", "3", "87.4", "8812345"] {
            let log = (0..5_000).map(|n| match n {
                2_713 => format!("{}: {odd}\n", key(n)),
                n => format!("{}: {}\n", key(n), 100 + n * 7_919 % 9_901),
            });
            let text = text(log.collect::<String>());
            let wanted = format!("2714: {}: {odd}", key(2_713));
            assert!(text.contains(&wanted), "{wanted} is not in:\n{text}");
            let used = text.chars().count();
            assert!(used > 9_500, "{used} characters:\n{text}");
        }
    }
}

#[test]
fn amount_of_another_magnitude_is_shown_among_very_different_ones() {
    let row = |n: usize| {
        let (name, size) = (name(n), 100 + n * 7_919 % 9_901);
        format!("{name} has size {size}\n")
    };
    assert_shown(&within(row, "ledger has size 3\n"), &["size 3\n"]);
}

#[test]
fn blank_line_is_not_shown_as_an_unusual_one() {
    let part = (0..400).map(request).collect::<String>();
    let mut digest = Digest::new(&limits(500));
    digest.push(part.as_bytes());
    digest.gap(Gap::Dropped(9_000));
    digest.push(format!("\n{part}").as_bytes());
    let text = digest.finish().text;
    assert!(!text.contains("gap+1:"), "{text}");
}

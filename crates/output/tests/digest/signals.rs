//! Forms of important lines that many tools share, each within a long output.

use super::text;

/// Unimportant log lines around other lines.
pub(super) fn within(ordinary: impl Fn(usize) -> String, lines: &str) -> String {
    let part = |from: usize| (from..from + 400).map(&ordinary).collect::<String>();
    format!("{}{lines}{}", part(0), part(400))
}

/// Line that differs from all others in a word.
pub(super) fn request(n: usize) -> String {
    let name = name(n);
    format!(
        "12:00:{:02} handled request of {name} in {} ms\n",
        n % 60,
        n * 7 % 90
    )
}

/// Word without digits for each number.
pub(super) fn name(n: usize) -> String {
    let letter = |n: usize| char::from(b'k' + u8::try_from(n % 9).unwrap());
    [n, n / 9, n / 81, n / 729, n / 6_561, n / 59_049]
        .map(letter)
        .iter()
        .collect()
}

#[track_caller]
pub(super) fn assert_shown(log: &str, wanted: &[&str]) {
    let text = text(log);
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
    }
}

#[test]
fn state_that_differs_in_a_table_is_shown() {
    let pod = |n: usize, ready: &str, state: &str, restarts: &str| {
        format!(
            "shop   web-{n:04}-{:04x}   {ready}   {state}   {restarts}   {}d\n",
            n * 7919 % 65_536,
            n % 40 + 1
        )
    };
    let usual = |n: usize| pod(n, "1/1", "Running", "0");
    let odd = pod(9_001, "0/1", "Pending", "0") + &usual(1) + &pod(9_002, "0/1", "Init:0/2", "57");
    assert_shown(&within(usual, &odd), &["web-9001", "web-9002"]);
}

#[test]
fn place_with_a_message_is_shown_whatever_the_extension() {
    let usual = |n: usize| format!("  Analyzing {}\n", name(n));
    for place in [
        "src/post.erl:88:2:",
        "src/post.hs:88:2-9:",
        "src/post.pas(88,2)",
        "src/post.nim(88, 2) Hint:",
        "src/post.cbl:88:",
        "File \"src/post.ml\", line 88, characters 2-9:",
        "src/post.tcl|88 col 2|",
        "::notice file=src/post.sql,line=88::",
    ] {
        let odd = format!("{place} analyzing is done twice\n");
        assert_shown(&within(usual, &odd), &["analyzing is done twice"]);
    }
    // In a log that has them everywhere they say nothing.
    let log = |n: usize| format!("12:00:01 handler.go:{}: served {}\n", n % 90, name(n));
    let text = text(within(log, ""));
    assert!(text.len() < 3_000, "{text}");
}

#[test]
fn numeric_level_of_a_record_is_shown() {
    let record = |n: usize, level: u32, said: &str| {
        format!(
            "{{\"level\":{level},\"time\":17948911{n:05},\"errors\":0,\"req\":{{\"id\":{n}}},\"msg\":\"{said}\"}}\n"
        )
    };
    let odd = record(9, 50, "gateway gone") + &record(10, 40, "pool is full");
    let log = within(|n| record(n, 30, "request completed"), &odd);
    assert_shown(&log, &["gateway gone", "pool is full"]);
}

#[test]
fn planned_deletion_among_changes_is_shown() {
    let change = |n: usize| {
        format!(
            "  # store.item[{n}] will be updated in-place\n      ~ tag = \"a{n}\" -> \"b{n}\"\n\n"
        )
    };
    let odd = "  # store.ledger will be destroyed\n  - resource \"store\" \"ledger\" {}\n\n";
    assert_shown(&within(change, odd), &["store.ledger will be destroyed"]);
}

#[test]
fn root_cause_and_own_frames_of_a_trace_are_shown() {
    let foreign =
        (0..30).map(|n| format!("\tat org.springframework.web.Filter.doFilter(Filter.java:{n})\n"));
    let foreign: String = foreign.collect();
    let trace = format!(
        "12:00:01 ERROR checkout failed\njava.lang.IllegalStateException: order not stored\n{foreign}\tat shop.Orders.store(Orders.java:77)\n{foreign}\
         Caused by: java.sql.SQLException: disk full\n{foreign}\tat shop.Ledger.append(Ledger.java:12)\n\t... 40 more\n"
    );
    let wanted = [
        "order not stored",
        "disk full",
        "Orders.java:77",
        "Ledger.java:12",
    ];
    assert_shown(&within(request, &trace), &wanted);
}

#[test]
fn chained_python_exceptions_are_shown() {
    let trace = "Traceback (most recent call last):\n  File \"/srv/app/quote.py\", line 15, in quote\n    return 10 / base\nZeroDivisionError: division by zero\n\n\
         The above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n\
         \x20 File \"/usr/lib/python3/dist-packages/web.py\", line 3, in call\n    raise_it()\n  File \"/srv/app/view.py\", line 16, in view\n    raise ValueError(error)\nValueError: no base price\n";
    let wanted = [
        "ZeroDivisionError",
        "quote.py\", line 15",
        "no base price",
        "view.py\", line 16",
    ];
    assert_shown(&within(request, trace), &wanted);
}

#[test]
fn heading_values_and_details_stay_with_a_finding() {
    let lint = "lib/pay.js\n   3:5   error  'total' is constant  no-const-assign\n\n";
    let usual = |n: usize| format!("lib/f{n}.js\n   1:1   warning  Unexpected var  no-var\n\n");
    assert_shown(&within(usual, lint), &["lib/pay.js", "no-const-assign"]);
    let failed = "  ● cart › keeps the currency\n\n    expect(received).toBe(expected)\n\n    Expected: \"EUR\"\n    Received: \"CHF\"\n\n      at Object.<anonymous> (test/cart.js:9:3)\n\n";
    assert_shown(
        &within(request, failed),
        &[
            "keeps the currency",
            "\"EUR\"",
            "\"CHF\"",
            "test/cart.js:9:3",
        ],
    );
    let database = "2026-01-01 12:00:01.5 UTC [7] ERROR:  duplicate key\n2026-01-01 12:00:01.5 UTC [7] DETAIL:  Key (code)=(P17) already there.\n2026-01-01 12:00:01.5 UTC [7] HINT:  Use another code.\n";
    assert_shown(
        &within(request, database),
        &["duplicate key", "(P17)", "another code"],
    );
}

/// Diagnostics of one kind, each with a location above or below it.
#[test]
fn location_on_a_line_of_its_own_stays_with_its_finding() {
    let above = |n: usize| format!("src/f{n}.vue:{n}:1\nWarn: {} has no title\n\n", name(n));
    let odd = "src/page.vue:6:46\nError: no property of that name\n\n";
    assert_shown(&within(above, odd), &["src/page.vue:6:46"]);
    let below = |n: usize| format!("W2001 {} is not used\nsite{n}.yaml:4:3\n\n", name(n));
    let odd = "E3012 'soon' is not an integer\nshop.yaml:14:7\n\n";
    assert_shown(&within(below, odd), &["shop.yaml:14:7"]);
    let compiled = "fc -c hull.f90\nhull.f90:29:4:\n\n   29 |     h = 3\n      |    1\nError: h cannot be assigned at (1)\n";
    assert_shown(&within(request, compiled), &["hull.f90:29:4"]);
}

#[test]
fn paragraph_that_ends_with_an_error_is_shown() {
    let checked = |n: usize, result: &str| {
        let name = name(n);
        format!(
            "URL      {name}.html\nParent   index-{name}.html\nTime     0.{n} s\nResult   {result}\n\n"
        )
    };
    let log = within(
        |n| checked(n, "Valid: 200 OK"),
        &checked(9_000, "Error: 404 no file"),
    );
    let wanted = format!("index-{}.html", name(9_000));
    assert_shown(&log, &["Error: 404", &wanted]);
}

#[test]
fn further_stacks_of_a_report_are_shown() {
    let report = "ERROR: use after free on address 0x602\n    #0 0x55 in check src/ticket.c:9\n    #1 0x56 in main src/main.c:280\n\n0x602 is inside of a region of 10 bytes\nfreed by thread T0 here:\n    #0 0x7f in free ../src/libsanitizer/malloc.cpp:52\n    #1 0x55 in close src/ticket.c:8\n";
    assert_shown(
        &within(request, report),
        &["src/ticket.c:9", "region of 10 bytes", "src/ticket.c:8"],
    );
}

#[test]
fn message_below_a_warning_is_shown() {
    let warning = "Warning (assay.R:9): reads the scale\nNAs made by conversion\n";
    assert_shown(&within(request, warning), &["assay.R:9", "NAs made"]);
}

#[test]
fn first_of_each_code_comes_before_a_second_of_any() {
    let often = |n: usize| {
        format!(
            "src/f{n}.py:{n}:80: E501 line too long ({} > 79 characters)\n",
            80 + n % 30
        )
    };
    let rare: String = (700..730)
        .map(|code| {
            format!(
                "src/app.py:3:1: F{code} message {} of its kind\n",
                name(code)
            )
        })
        .collect();
    let wanted: Vec<String> = (700..730).map(|code| format!("F{code}")).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    assert_shown(&within(often, &rare), &wanted);
}

#[test]
fn zero_counts_and_names_are_not_errors() {
    let harmless = |n: usize| {
        let name = [
            "parses errors",
            "reports a failure",
            "error page",
            "fatal is logged",
        ][n % 4];
        format!(
            "  ✓ {name} {} (3 ms)\nsuite {n}: \"failed\":0, errors=0, error=null\n",
            self::name(n)
        )
    };
    let text = text(within(harmless, "✗ adds numbers\n    expected 3, got 4\n"));
    assert!(
        text.contains("✗ adds numbers\n") && text.contains("expected 3, got 4"),
        "{text}"
    );
    let found = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let found: Vec<&str> = found.collect();
    assert!(
        found.iter().all(|line| !line.contains("errors=0")),
        "{found:?}"
    );
}

#[test]
fn failures_in_other_languages_are_shown() {
    for failed in [
        "cp: 'a' kann nicht zum Lesen geöffnet werden: Keine Berechtigung",
        "ls: impossible d'accéder à 'x': Aucun fichier ou dossier de ce type",
        "a.c:3:5: エラー: expected ‘;’",
        "错误：找不到文件",
        "ошибка: файл не найден",
    ] {
        assert_shown(&within(request, &format!("{failed}\n")), &[failed]);
    }
}

#[test]
fn tail_begins_at_a_block() {
    let block = |n: usize| {
        let inner: String = (0..9)
            .map(|at| format!("    step {} of block {n}\n", (b'a' + at) as char))
            .collect();
        format!("block {} {n}\n{inner}", "ab".repeat(n % 7))
    };
    let log: String = (0..300).map(block).collect();
    let text = text(&log);
    let (_, tail) = text.split_once("[The end, from line").unwrap();
    let first = tail.lines().nth(1).unwrap();
    assert!(first.starts_with("block"), "{first}");
}

/// Most of an output beyond the first megabytes is only scanned.
#[test]
fn error_deep_in_a_very_long_output_is_shown_with_its_line_number() {
    let mut log: String = (0..120_000).map(request).collect();
    log.push_str("error: the disk is on fire\n  at depot.rs:7\n");
    log.extend((0..120_000).map(request));
    let digested = super::usual(&log);
    assert!(
        digested
            .text
            .contains("120001: error: the disk is on fire\n120002:   at depot.rs:7"),
        "{}",
        digested.text
    );
    assert_eq!(digested.lines_total, 240_002);
    assert!(
        digested.text.ends_with(request(119_999).trim_end()),
        "{}",
        digested.text
    );
}

/// More lines are held than fit into memory, so the last errors are dropped and only counted.
#[test]
fn errors_that_are_no_longer_held_count_as_last() {
    let mut log: String = (0..2_000).map(request).collect();
    log.extend((0..30).map(|n| format!("error: cannot open '{}'\n", name(n))));
    log.extend((0..36_000).map(|n| format!("read {}\n", name(n))));
    let text = text(&log);
    let wanted = "2001: error: cannot open 'kkkkkk' [×30, last at 2030]";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn message_of_several_lines_and_own_location_of_a_backtrace_are_shown() {
    let trace = "\
thread 'main' panicked at src/tide.rs:20:5:
gauge thirteen is dry
  left: 2
 right: 6
stack backtrace:
   0: rust_begin_unwind
             at /rustc/5980/library/std/src/panicking.rs:689:5
   1: harbor::tide::level
             at ./src/tide.rs:20:5
   2: harbor::main
             at ./src/main.rs:7:9
";
    let wanted = ["gauge thirteen is dry", "right: 6", "./src/main.rs:7:9"];
    assert_shown(&within(request, trace), &wanted);
}

#[test]
fn first_finding_of_each_rule_in_brackets_is_shown() {
    let rule = |n: usize| ["FinalParameters", "MagicNumber", "DesignForExtension"][n % 3];
    let usual = |n: usize| {
        format!(
            "[ERROR] /home/dev/src/{0}.java:{n}: Parameter {0} of a rather long explanation of what is wrong. [{1}]\n",
            name(n),
            rule(n)
        )
    };
    let odd = "[ERROR] /home/dev/src/A.java:3: Parameter x has no hash. [EqualsHashCode]\n\
               [ERROR] /home/dev/src/B.java:9: Parameter y has no default. [MissingSwitchDefault]\n";
    let wanted = ["[EqualsHashCode]", "[MissingSwitchDefault]"];
    assert_shown(&within(usual, odd), &wanted);
}

#[test]
fn section_between_ruled_lines_below_a_failed_test_is_shown() {
    let passed = |n: usize| format!("{:3}/820 harbor:{} OK 0.20s\n", n + 1, name(n));
    let rule = "―".repeat(40);
    let odd = format!(
        " 92/820 harbor:tide FAIL 0.20s exit status 3\n>>> RUN=1 /home/dev/tide\n{rule}\nstdout:\nreading gauge\n\
         stderr:\nchart says six\n{rule}\n"
    );
    assert_shown(&within(passed, &odd), &["reading gauge", "chart says six"]);
}

#[test]
fn very_rare_one_of_several_values_is_shown() {
    let packet =
        |n: usize, flags: &str| format!("12:00:00.{n:06} IP {} > quay: Flags {flags}\n", name(n));
    let usual = |n: usize| packet(n, ["[S],", "[P.],", "[.],", "[F.],"][n % 4]);
    let odd = packet(9_001, "[R.],");
    assert_shown(&within(usual, &odd), &["Flags [R.]"]);
}

#[test]
fn line_above_an_error_is_shown() {
    let passed = |n: usize| format!("{}/820 harbor.{}...OK\n", n + 1, name(n));
    let odd = "92/820 harbor.tide...expected 9, found 3\nFAIL (TestExpectedEqual)\n";
    assert_shown(&within(passed, odd), &["harbor.tide...expected 9, found 3"]);
}

#[test]
fn list_of_passed_tests_is_repetition() {
    let passed = |n: usize| format!("{}/820 harbor.{}...OK\n", n + 1, name(n));
    let log = within(passed, "FAIL (TestExpectedEqual)\n");
    let text = text(&log);
    assert!(
        text.len() < 3_000,
        "{} of {}:\n{text}",
        text.len(),
        log.len()
    );
}

#[test]
fn file_above_a_finding_is_shown_with_it() {
    let file = |n: usize| {
        format!(
            "\n    src/{}.py\n     ❱ plain-rule\n          a remark\n",
            name(n)
        )
    };
    let odd =
        "\n    src/vault.py\n     ❱ plain-rule\n          a remark\n\n   ❯❯❱ hard-coded-password\n";
    assert_shown(
        &within(file, odd),
        &["hard-coded-password", "    src/vault.py".trim()],
    );
}

#[test]
fn step_above_an_error_is_shown_with_it() {
    let step = |n: usize| {
        format!(
            "configure:{n}: checking for lib{}\nconfigure:{n}: gcc -o conftest conftest.c\nconfigure:{n}: result: yes\n",
            name(n)
        )
    };
    let odd = "configure:9000: checking for libheron\nconfigure:9001: gcc -o conftest conftest.c\nld: cannot find -lheron: No such file or directory\n";
    assert_shown(
        &within(step, odd),
        &["cannot find -lheron", "checking for libheron"],
    );
}

#[test]
fn event_without_a_word_of_failure_is_shown() {
    let odd = "12:00:07 INFO node: became leader at term 9\n";
    let others = |n: usize| match n % 9 {
        0 => format!("12:00:{:02} INFO node: beat of {}\n", n % 60, name(n)),
        1 => format!(
            "12:00:{:02} INFO node: sent {n} bytes to {}\n",
            n % 60,
            name(n)
        ),
        _ => format!(
            "12:00:{:02} INFO node: handled request {}\n",
            n % 60,
            name(n)
        ),
    };
    assert_shown(&within(others, odd), &["became leader at term 9"]);
}

#[test]
fn record_with_a_rare_value_in_indented_json_is_shown() {
    let record = |code: &str, file: &str, said: &str| {
        format!(
            "  {{\n    \"code\": \"{code}\",\n    \"at\": {{\n      \"row\": 3\n    }},\n    \"file\": \"{file}\",\n    \"message\": \"{said}\"\n  }},\n"
        )
    };
    let usual = |n: usize| record(["F401", "F841"][n % 2], &name(n), "Import is not used");
    let odd = record("F821", "quay.py", "Name has no value");
    assert_shown(
        &within(usual, &odd),
        &["\"code\": \"F821\"", "quay.py", "Name has no value"],
    );
}

#[test]
fn second_message_between_two_stacks_is_shown() {
    let said = "Fatal error: Uncaught TypeError: berth is null in /srv/quay.php:4";
    let stack = "Stack trace:\n#0 /srv/quay.php(5): Quay->first()\n#1 /srv/quay.php(6): show()\n#2 {main}\n  thrown in /srv/quay.php on line 4\n";
    let odd = format!("{said}\n{stack}[500]: GET /quay?n=377 - {said}\n{stack}");
    assert_shown(&within(request, &odd), &["GET /quay?n=377"]);
}

#[test]
fn value_below_a_usual_label_stays_with_a_failed_check() {
    let passed = |n: usize| {
        format!("t.cpp:{n}: PASSED:\n  CHECK( toll({n}) )\nwith expansion:\n  {n} == {n}\n\n")
    };
    let odd = "t.cpp:9001: FAILED:\n  CHECK( toll(axles) == 17 )\nwith expansion:\n  15 == 17\n\n";
    assert_shown(&within(passed, odd), &["15 == 17"]);
}

#[test]
fn each_message_without_a_level_behind_a_location_is_shown() {
    let word = |n: usize| ["teh ==> the", "recieve ==> receive", "adress ==> address"][n % 3];
    let log = within(|n| format!("doc{n}.txt:{n}: {}\n", word(n * 7 / 3)), "");
    assert_shown(&log, &["teh ==>", "recieve ==>", "adress ==>"]);
}

#[test]
fn stack_of_own_code_that_begins_like_no_other_in_a_thread_dump_is_shown() {
    let thread = |name: &str, top: &str| {
        format!(
            "\"{name}\" daemon prio=5\n   java.lang.Thread.State: RUNNABLE\n\tat {top}\n\tat java.lang.Thread.run(Thread.java:840)\n\n"
        )
    };
    let idle = |n: usize| {
        thread(
            &format!("pool-{}", name(n)),
            "java.lang.Object.wait(Native Method)",
        )
    };
    let busy = thread("tide-counter", "Harbor.spin(Harbor.java:6)");
    let log = within(idle, &busy);
    assert_shown(
        &log,
        &["\"tide-counter\" daemon", "Harbor.spin(Harbor.java:6)"],
    );
}

#[test]
fn rare_value_of_a_key_on_a_line_of_its_own_is_shown() {
    let host = |n: usize, tier: &str| {
        format!(
            "- host: {}\n  owner: {}\n  tier: {tier}\n",
            name(n),
            name(n + 7)
        )
    };
    let odd = host(9_000, "spare");
    assert_shown(&within(|n| host(n, "front"), &odd), &["tier: spare"]);
}

#[test]
fn item_of_a_list_is_shown_with_its_rare_value() {
    let item = |n: usize, phase: &str| {
        format!("- name: worker-{n}\n  status:\n    phase: {phase}\n    restarts: 0\n")
    };
    let log = within(|n| item(n, "Running"), &item(9_001, "Pending"));
    assert_shown(&log, &["phase: Pending", "- name: worker-9001"]);
}

#[test]
fn paragraph_below_an_error_with_a_colon_is_shown() {
    let lines = "configure: error: requirements were not met:\n\nPackage libdepot is too old\n\nUse another prefix.\n";
    assert_shown(&within(request, lines), &["Package libdepot is too old"]);
}

#[test]
fn words_in_a_hex_dump_are_shown_and_the_rest_is_repetition() {
    let row = |n: usize, shown: &str| {
        let word = |at: usize| format!("{:04x}", (n * 31 + at * 7) * 2_654_435_761 % 65_536);
        format!(
            "{:08x}: {}  {shown}\n",
            n * 16,
            (0..8).map(word).collect::<Vec<_>>().join(" ")
        )
    };
    let log = within(
        |n| row(n, ".?}.3.k,...e.~.."),
        &row(9_001, ".J3kernel panic."),
    );
    let text = text(&log);
    assert!(text.contains("kernel panic"), "{text}");
    assert!(text.len() < 2_000, "{} characters", text.len());
}

#[test]
fn record_that_differs_in_a_line_of_json_is_shown_at_any_length() {
    for count in [100, 900, 9_000] {
        let record = |n: usize| match n * 2 == count {
            true => format!("{{\"id\": {n}, \"fault\": \"no tariff for zone Q\"}}"),
            false => format!(
                "{{\"id\": {n}, \"zone\": \"N\", \"note\": \"handled by {}\"}}",
                name(n)
            ),
        };
        let records: Vec<_> = (1..=count).map(record).collect();
        let line = format!("{{\"items\": [{}]}}", records.join(", "));
        assert_shown(
            &format!("{line}{}\n", " ".repeat(12_000)),
            &["no tariff for zone Q"],
        );
    }
}

#[test]
fn structure_behind_a_prefix_of_a_task_or_step_is_seen() {
    for prefix in ["[build:web] ", "#12 0.345 ", ""] {
        let lines = "Traceback (most recent call last):\n  File \"/srv/app/cart.py\", line 7, in total\n    \
            return price(row)\n  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode\n    \
            raise error\nKeyError: 'zone-9'\n";
        let lines: String = lines
            .lines()
            .map(|line| format!("{prefix}{line}\n"))
            .collect();
        let log = within(|n| format!("{prefix}{}", request(n)), &lines);
        assert_shown(&log, &["cart.py\", line 7, in total", "KeyError: 'zone-9'"]);
    }
}

#[test]
fn title_of_the_table_or_section_of_a_finding_is_shown() {
    let rule = " ------ ------------------------------------";
    let table = |n: usize| {
        format!(
            "{rule}\n  Line   lib/{}.php\n{rule}\n  12     Method {}() has no return type.\n{rule}\n\n",
            name(n),
            name(n + 3)
        )
    };
    let odd = format!(
        "{rule}\n  Line   lib/odd.php\n{rule}\n  {}\n  31     Syntax error, unexpected '}}'\n{rule}\n\n",
        "12     Method go() has no return type."
    );
    assert_shown(&within(table, &odd), &["lib/odd.php", "Syntax error"]);
    let state = |id: &str, result: &str, said: &str| {
        format!(
            "----------\n          ID: {id}\n    Function: file.managed\n      Result: {result}\n     Comment: {said}\n"
        )
    };
    let usual = |n: usize| state(&name(n), "True", "is in the correct state");
    let odd = state("gateway", "False", "Unable to manage file");
    assert_shown(&within(usual, &odd), &["ID: gateway", "Unable to manage"]);
}

#[test]
fn location_above_the_first_line_of_a_kind_is_shown() {
    let warning = |n: usize| {
        format!(
            "lib/{}.ex:{n}:unmatched_return\nThe value is matched later.\n",
            name(n)
        )
    };
    let odd = "lib/tariff.ex:57:no_return\nThe value is matched.\n";
    assert_shown(&within(warning, odd), &["lib/tariff.ex:57:no_return"]);
}

#[test]
fn last_test_that_started_before_a_crash_is_shown() {
    let test = |n: usize| {
        let name = name(n);
        format!("Test case {name} started at 10:00\nTest case {name} passed (0.001 seconds)\n")
    };
    let crash =
        "Test case empties started at 10:00\nArray.swift:600: Fatal error: Index out of range\n\n";
    assert_shown(&within(test, crash), &["Test case empties started"]);
}

#[test]
fn element_that_contains_a_trace_is_shown() {
    let case = |n: usize| {
        let (case, class, file) = (name(n), name(n / 3), name(n % 3));
        format!("    <testcase name=\"{case}\" class=\"{class}\" file=\"{file}\"/>\n")
    };
    let odd = "    <testcase name=\"currency\" time=\"0.1\">\n      \
               <failure message=\"expected EUR\" type=\"org.example.AssertionFailedError\">org.example.AssertionFailedError: no\n\
               \tat org.example.Assertions.fail(Assertions.java:55)\n\tat com.shop.OrderTest.currency(OrderTest.java:57)\n\
               ]]></failure>\n    </testcase>\n";
    let cases: String = (1_000..1_200).map(case).collect();
    let suites: String = (1..4)
        .map(|n| format!("  <testsuite name=\"suite{n}\" failures=\"1\">\n{cases}"))
        .collect();
    assert_shown(
        &within(case, &format!("{suites}{odd}")),
        &["name=\"currency\"", "OrderTest.java:57"],
    );
}

#[test]
fn texts_within_an_object_with_a_rare_value_are_shown() {
    let result = |level: &str, said: &str, file: &str| {
        format!(
            "    {{\n      \"level\": \"{level}\",\n      \"message\": {{\n        \"text\": \"{said}\"\n      }},\n      \
             \"place\": {{\n        \"uri\": \"{file}\"\n      }},\n      \"rank\": 3\n    }},\n"
        )
    };
    let usual = |n: usize| result(["note", "warning"][n % 2], &name(n), &name(n + 5));
    let odd = result("error", "The query depends on a value", "src/orders.js");
    assert_shown(
        &within(usual, &odd),
        &["The query depends on a value", "src/orders.js"],
    );
}

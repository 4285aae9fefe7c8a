//! An error is kept at any position, in any noise, and does not cost much.

use std::path::Path;

use super::usual;

const ERRORS: &[&str] = &[
    "ERROR db connection lost id=77",
    "panic: send on closed channel",
    "error: linking failed",
    "Traceback (most recent call last):\n  File \"/home/dev/app.py\", line 3, in <module>\n    run()\nValueError: x is gone",
    "FAIL src/a.test.ts",
    "Killed",
    "main.c:(.text+0x9): undefined reference to `frobnicate'",
    "error[E0382]: borrow of moved value: `teapot`\n  --> src/kettle.rs:7:5",
    "kettle.c:7:5: error: 'teapot' undeclared",
    "Segmentation fault (core dumped)",
    "thread 'main' panicked at src/kettle.rs:7:5:\nno water in the kettle",
    "fatal: unable to access the teapot",
    "AssertionError: teapot is empty",
    "E: Unable to locate package teapot",
    "npm ERR! code ETEAPOT",
    "FAILED tests/test_teapot.py::test_pour - assert 1 == 2",
    "OSError: [Errno 28] No space left on device",
    "bash: teapot: command not found",
    "make: *** [Makefile:3: teapot] Error 2",
    "{\"level\":\"error\",\"msg\":\"teapot broke\"}",
];

/// Similar to the log of a server; 40 000 lines are 3 MB.
fn service_log(lines: usize) -> Vec<String> {
    let says = [
        "INFO  http request served path=/orders",
        "INFO  http request served path=/health",
        "DEBUG cache miss for key user",
        "INFO  queue depth",
        "WARN  pool slow query",
        "INFO  session opened",
        "INFO  session closed",
        "DEBUG token refreshed",
        "INFO  job finished with 0 errors",
    ];
    let mut seed: usize = 7;
    let mut next = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    (0..lines)
        .map(|n| {
            let (minute, second) = (n / 600 % 60, n / 10 % 60);
            let what = says[next(says.len())];
            format!(
                "2026-05-01T10:{minute:02}:{second:02}.{:03}Z {what} id={} took={}ms",
                next(1000),
                next(100_000),
                next(900)
            )
        })
        .collect()
}

fn real_log(name: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digest/logs");
    let bytes = std::fs::read(folder.join(name)).unwrap();
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn survives(log: &[String], at: usize, error: &str) {
    let mut lines: Vec<&str> = log.iter().map(String::as_str).collect();
    lines.insert(at, error);
    let digested = usual(lines.join("\n"));
    let telling = error.lines().next_back().unwrap().trim();
    assert!(
        digested.text.contains(telling),
        "lost {error:?} at line {at}:\n{}",
        digested.text
    );
    assert!(digested.text.chars().count() <= 10_000);
}

#[test]
fn every_error_survives_anywhere_in_a_service_log() {
    let log = service_log(6_000);
    for (n, error) in ERRORS.iter().enumerate() {
        for part in [0, 1, 4, 9] {
            let at = (log.len() * part / 9 + n * 613) % (log.len() + 1);
            survives(&log, at, error);
        }
    }
}

#[test]
fn every_error_survives_anywhere_in_real_logs() {
    for name in [
        "make_gcc.log",
        "cargo_warnings_colour.log",
        "cargo_test_failing.log",
        "apt_install.log",
        "pytest_failing_verbose_colour.log",
        "pip_install.log",
    ] {
        let log = real_log(name);
        for (n, error) in ERRORS.iter().enumerate() {
            for part in 0..2 {
                survives(
                    &log,
                    (log.len() * part / 2 + n * 7) % (log.len() + 1),
                    error,
                );
            }
        }
    }
}

#[test]
fn all_errors_survive_together_at_a_small_price() {
    let mut log = service_log(40_000);
    for (n, error) in ERRORS.iter().enumerate() {
        log.insert(1_000 + n * 1_900, (*error).to_owned());
    }
    let digested = usual(log.join("\n"));
    for error in ERRORS {
        let telling = error.lines().next_back().unwrap().trim();
        assert!(
            digested.text.contains(telling),
            "lost {error:?}:\n{}",
            digested.text
        );
    }
    assert!(
        digested.text.chars().count() < 8_000,
        "{}",
        digested.text.chars().count()
    );
}

#[test]
fn many_errors_of_one_kind_do_not_displace_another() {
    let names: Vec<String> = (0..3_000)
        .map(|n| format!("ERROR user {} not found", word(n)))
        .collect();
    survives(&names, 2_000, "panic: send on closed channel");
    let names: Vec<String> = (0..3_000)
        .map(|n| format!("x.c:{n}: warning: {} is odd", word(n)))
        .collect();
    survives(&names, 1_500, "error: linking failed");
}

#[test]
fn strong_forms_survive_in_megabytes_of_names_with_keywords() {
    let noises: [fn(String, String) -> String; 4] = [
        |a, b| format!("tests/test_{a}.py::test_{b}_raises_error PASSED"),
        |a, b| format!("compiled error_{a}.c into {b}_error.o"),
        |a, b| format!("job {a} failed, retrying as {b}"),
        |a, b| format!("[       OK ] {a}.{b}_error_path (0 ms)"),
    ];
    let errors = [
        "Fatal Python error: Segmentation fault",
        "Killed",
        "FAILED tests/test_post.py::test_settle - AssertionError",
        "Caused by: java.io.IOException: disk full",
        "error: linking with cc failed",
    ];
    for noise in noises {
        let names = |n: usize| noise(word(n * 7_919 % 9_973), word(n * 104_729 % 99_991));
        let mut log: Vec<String> = (0..100_000).map(names).collect();
        for (n, error) in errors.iter().enumerate() {
            log.insert(60_000 + n * 8_000, (*error).to_owned());
        }
        let digested = usual(log.join("\n"));
        for error in errors {
            assert!(digested.text.contains(error), "{error}:\n{}", digested.text);
        }
    }
}

/// A word without digits for each number.
fn word(mut n: usize) -> String {
    let mut word = String::from("q");
    while n > 0 {
        word.push(char::from(b'a' + u8::try_from(n % 26).unwrap()));
        n /= 26;
    }
    word
}

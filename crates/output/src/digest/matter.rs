//! Which lines matter?
//!
//! A first, fast look finds the few lines that hold one of some words; only these are read more
//! closely. The words and forms themselves are in `signs`. A line that merely mentions an error is kept apart from one that is an error.

use super::signs::{
    BAD_SUMMARY, BESIDE, CALM, DIAGNOSTIC, ERROR, GOOD, MENTION, NOTHING, OUTCOME, PLACE, SUMMARY,
    VALUE, WARNING, WORDED,
};

/// How much a line matters; the order is the order in which room is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Warning,
    /// Speaks of something going wrong, but may be harmless.
    Mention,
    /// The outcome of tests, of a build.
    Summary,
    Error,
}

/// What a line says, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub weight: Weight,
    /// Byte offset of the words that tell.
    pub at: usize,
}

/// A line longer than this is read only around the words that may matter.
const READ_WHOLE: usize = 1_024;
const READ_BEFORE: usize = 160;
const READ_AFTER: usize = 320;
/// In a long line, how many places are read.
const PLACES_MAX: usize = 6;

/// Does a number in this line tell how something went?
pub fn speaks_of_outcome(line: &str) -> bool {
    OUTCOME.is_match(line)
}

pub fn weigh(line: &str) -> Option<Finding> {
    if line.len() <= READ_WHOLE {
        return WORDED.is_match(line).then(|| read(line)).flatten();
    }
    let mut best: Option<Finding> = None;
    let mut read_to = 0;
    let mut places = 0;
    for word in WORDED.find_iter(line) {
        if word.start() < read_to {
            continue;
        }
        places += 1;
        if places > PLACES_MAX {
            break;
        }
        let from = super::row::floor(line, word.start().saturating_sub(READ_BEFORE).max(read_to));
        let to = super::row::ceil(line, word.end() + READ_AFTER);
        read_to = to;
        let Some(found) = read(&line[from..to]) else {
            continue;
        };
        if best.is_none_or(|best| found.weight > best.weight) {
            best = Some(Finding {
                weight: found.weight,
                at: from + found.at,
            });
        }
    }
    best
}

/// Where something is: the line behind a compiler's message, a frame of a stack.
pub fn is_place(line: &str) -> bool {
    PLACE.is_match(line)
}

/// What a test that failed had wanted, or had got.
pub fn is_value(line: &str) -> bool {
    VALUE.is_match(line)
}

fn is_diagnostic(line: &str) -> bool {
    let said = DIAGNOSTIC.captures(line);
    said.is_some_and(|found| !BESIDE.is_match(&found["said"]))
}

pub fn opens_traceback(line: &str) -> bool {
    line.trim_start()
        .starts_with("Traceback (most recent call last)")
}

/// A message whose own text comes on the next line.
pub fn announces(line: &str) -> bool {
    line.ends_with(':') && line.contains("panicked at ")
}

fn read(line: &str) -> Option<Finding> {
    if GOOD.is_match(line) {
        return None;
    }
    if SUMMARY.is_match(line) {
        let failed = BAD_SUMMARY.is_match(line);
        let weight = if failed {
            Weight::Error
        } else {
            Weight::Summary
        };
        return Some(Finding { weight, at: 0 });
    }
    let cleaned;
    let line = if NOTHING.is_match(line) {
        cleaned = NOTHING.replace_all(line, |found: &regex::Captures<'_>| {
            " ".repeat(found[0].len())
        });
        &*cleaned
    } else {
        line
    };
    let error = ERROR
        .iter()
        .filter_map(|form| form.find(line))
        .map(|found| found.start())
        .min();
    let warning = WARNING.find(line).map(|found| found.start());
    let found = |weight, at| Some(Finding { weight, at });
    match (error, warning) {
        (Some(error), Some(warning)) if warning < error => found(Weight::Warning, warning),
        (Some(error), _) if CALM.find(line).is_some_and(|calm| calm.start() < error) => {
            found(Weight::Mention, error)
        }
        (Some(error), _) => found(Weight::Error, error),
        (None, Some(warning)) => found(Weight::Warning, warning),
        (None, None) if is_diagnostic(line) => found(Weight::Error, 0),
        (None, None) => MENTION
            .find(line)
            .and_then(|mention| found(Weight::Mention, mention.start())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(line: &str) -> Option<Weight> {
        weigh(line).map(|found| found.weight)
    }

    #[test]
    fn answers_of_servers_that_are_no_answers_are_mentioned() {
        for line in [
            "npm http fetch GET 404 https://packages.example/thing 31ms (cache skip)",
            "10.0.0.1 - - [01/May/2024] \"GET /x HTTP/1.1\" 404 12",
        ] {
            assert_eq!(weight(line), Some(Weight::Mention), "{line}");
        }
        assert_eq!(
            weight("npm http fetch GET 200 https://packages.example/thing 31ms"),
            None
        );
    }

    #[test]
    fn errors_of_many_tools_are_errors() {
        for line in [
            "ERROR db connection lost id=77",
            "panic: runtime error: index out of range [5] with length 3",
            "error: linking with `cc` failed: exit status: 1",
            "error[E0308]: mismatched types",
            "src/app.ts(3,5): error TS2322: Type 'string' is not assignable to type 'number'.",
            "ValueError: x",
            "requests.exceptions.ConnectionError: HTTPSConnectionPool",
            "FAIL src/a.test.ts",
            "--- FAIL: TestOrders (0.00s)",
            "FAILED tests/test_b.py::test_parse - assert {'a': 1} == {'a': 2}",
            "Killed",
            "/usr/bin/ld: main.o: in function `main': undefined reference to `missing'",
            "collect2: error: ld returned 1 exit status",
            "make: *** [Makefile:4: all] Error 1",
            "npm ERR! code ERESOLVE",
            "npm error code E404",
            "E: Unable to locate package foo",
            "fatal: not a git repository (or any of the parent directories): .git",
            "Segmentation fault (core dumped)",
            "bash: foo: command not found",
            "thread 'main' panicked at src/main.rs:3:5:",
            "E   assert 1 == 2",
            "Exception in thread \"main\" java.lang.NullPointerException: order",
            "Caused by: java.io.IOException: disk",
            "{\"level\":\"error\",\"msg\":\"gone\"}",
            "time=2024-05-01T00:00:00Z level=error msg=\"gone\"",
            "[ERROR] Failed to execute goal",
            "E1115 03:46:35.123456 1 main.go:3] boom",
            "CONFLICT (content): Merge conflict in a.txt",
            "process exited with code 137",
            "10.0.0.1 - - \"GET /x HTTP/1.1\" 503 12",
            "not ok 12 - parses",
            "    ✕ adds numbers (3 ms)",
            "OSError: [Errno 28] No space left on device",
            "part_37.c:9:31: error: 'undeclared_thing' undeclared (first use in this function)",
            "test tests::adds ... FAILED",
            "2 failed, 3 passed in 0.12s",
            "❌ lint",
            "./main.go:3:5: undefined: total",
            "src/app.py:3:80: E501 line too long (91 > 79 characters)",
            "e: file:///src/Main.kt:3:5 Unresolved reference: total",
            "! Undefined control sequence.",
            "---- tests::adds stdout ----",
            "rpc failed with context deadline exceeded",
            "django.core.exceptions.ImproperlyConfigured: no SECRET_KEY",
            "./deploy.sh: line 3: TARGET: unbound variable",
            "Undefined subroutine &main::go called at lib/Way.pm line 3.",
        ] {
            assert_eq!(weight(line), Some(Weight::Error), "{line}");
        }
    }

    #[test]
    fn warnings_are_warnings() {
        for line in [
            "warning: unused variable: `x`",
            "part_1.c:3:51: warning: unused parameter 'error' [-Wunused-parameter]",
            "npm warn deprecated request@2.88.2: request has been deprecated",
            "2024-05-01 WARN  pool: slow query failed over",
            "W: Some index files are old",
            "tests/a.py:3: DeprecationWarning: thirteen is deprecated",
        ] {
            assert_eq!(weight(line), Some(Weight::Warning), "{line}");
        }
    }

    #[test]
    fn summaries_are_seen_and_failed_ones_are_errors() {
        assert_eq!(
            weight("test result: ok. 12 passed; 0 failed; 0 ignored"),
            Some(Weight::Summary)
        );
        assert_eq!(weight("=== 20 passed in 0.31s ==="), Some(Weight::Summary));
        assert_eq!(
            weight("test result: FAILED. 1 passed; 2 failed"),
            Some(Weight::Error)
        );
        assert_eq!(
            weight("=== 3 failed, 20 passed in 0.31s ==="),
            Some(Weight::Error)
        );
        assert_eq!(weight("BUILD FAILED in 3s"), Some(Weight::Error));
    }

    #[test]
    fn what_is_no_error_is_not_taken_for_one() {
        for line in [
            "   Compiling thiserror v1.0.69",
            "found 0 errors, 0 warnings",
            "test parses_errors_and_failures ... ok",
            "tests/test_a.py::test_error_handling PASSED                [ 3%]",
            "Get:3 http://deb.example.invalid/debian bookworm/main amd64 libgpg-error0 amd64 1.46-1 [91.6 kB]",
            "gcc -Werror -c src/error.c -o build/error.o",
            "INFO retrying after error: timed out",
            "failed=0 changed=3 ok=12",
            "drwxr-xr-x 2 dev dev 4096 May  1 12:00 errors",
            "process exited with code 0",
            "src/app.c:3:5: note: declared here",
            "src/app.ts:3:5",
            "handler.go:31: served in 3ms",
        ] {
            assert_ne!(weight(line), Some(Weight::Error), "{line}");
        }
    }
}

//! Importance of a line.
//!
//! A fast search finds the few lines with one of some keywords; only these are matched against patterns.
//! Keywords and patterns are in `patterns`. A line that merely mentions an error is less important than
//! one that is an error.

use std::ops::Range;

use crate::digest::line_shape::Fnv1a;

use super::patterns::{
    DIAGNOSTIC, ERROR, KEYWORDS, LOCATION, LOW_LEVEL, MENTION, NEGATION, OUTCOME, PLACE, RULE_CODE,
    SIDE_NOTE, SUCCESS, SUMMARY, WARNING, ZERO_COUNT,
};

/// Importance of a line; the most important lines get space first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// The first line of its kind.
    Sample,
    /// Has words that no other line has.
    Unlike,
    /// Begins with a place in a file, which says nothing if many lines do.
    Place,
    /// A warning.
    Warning,
    /// Mentions a failure, but may be harmless.
    Mention,
    /// Differs from similar lines.
    Outlier,
    /// Result of a test run or a build.
    Summary,
    /// An error.
    Error,
}

/// Importance of a line and the place in it that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    pub importance: Importance,
    /// Byte offset of the match.
    pub at: usize,
}

/// A longer line is matched only around its keywords.
const MAX_WHOLE_LINE: usize = 1_024;
const BYTES_BEFORE: usize = 160;
const BYTES_AFTER: usize = 320;
/// Number of keywords of a long line that are looked at, and of those in the same context.
const PLACES_MAX: usize = 64;
const SAME_CONTEXT_MAX: u8 = 2;
/// Bytes of a context on either side of a keyword, and slots for contexts.
const CONTEXT_BYTES: usize = 8;
const CONTEXTS: usize = 256;

/// Returns whether a number in this line may be the outcome of something, such as an exit status.
pub fn mentions_outcome(line: &str) -> bool {
    OUTCOME.is_match(line)
}

/// Returns whether a line says that one of many parts succeeded.
pub fn is_success(text: &str) -> bool {
    let text = text.trim_start();
    let ends = ["OK", "ok", "PASS", "PASSED", "passed", "Passed"];
    ends.iter().any(|end| text.ends_with(end)) || text.starts_with(['✓', '✔', '√'])
}

/// Importance of a line; `None` for an ordinary one.
pub fn classify(line: &str) -> Option<Finding> {
    if line.len() <= MAX_WHOLE_LINE {
        let has_location = LOCATION.is_match(line);
        let may_be =
            has_location || is_numbered(line) || is_crossed(line) || KEYWORDS.is_match(line);
        let found = may_be.then(|| read(line)).flatten();
        let is_certain = |found: &Finding| found.importance != Importance::Mention;
        return found
            .filter(is_certain)
            .or_else(|| rule_code(line))
            .or(found)
            .or_else(|| negation(line))
            .or_else(|| has_location.then(|| place(line)).flatten());
    }
    let mut best: Option<Finding> = None;
    let mut read_to = 0;
    let mut places = 0;
    let mut contexts = [0; CONTEXTS];
    for word in KEYWORDS.find_iter(line) {
        if word.start() < read_to || !is_fresh(line, word.range(), &mut contexts) {
            continue;
        }
        places += 1;
        if places > PLACES_MAX {
            break;
        }
        let from =
            crate::digest::row::floor(line, word.start().saturating_sub(BYTES_BEFORE).max(read_to));
        let to = crate::digest::row::ceil(line, word.end() + BYTES_AFTER);
        read_to = to;
        let Some(found) = read(&line[from..to]) else {
            continue;
        };
        if best.is_none_or(|best| found.importance > best.importance) {
            best = Some(Finding {
                importance: found.importance,
                at: from + found.at,
            });
        }
        if found.importance == Importance::Error {
            break;
        }
    }
    best
}

/// Returns whether a keyword of a long line stands in a context that did not come often before.
fn is_fresh(line: &str, word: Range<usize>, contexts: &mut [u8; CONTEXTS]) -> bool {
    let from = word.start.saturating_sub(CONTEXT_BYTES);
    let to = (word.end + CONTEXT_BYTES).min(line.len());
    let mut sum = Fnv1a::default();
    for byte in &line.as_bytes()[from..to] {
        sum.add(if byte.is_ascii_digit() { b'0' } else { *byte });
    }
    let slot = &mut contexts[usize::try_from(sum.0 >> 32).unwrap_or(0) % CONTEXTS];
    let is_fresh = *slot < SAME_CONTEXT_MAX;
    *slot += u8::from(is_fresh);
    is_fresh
}

/// Returns whether a word of failure is only a part of a name, such as that of a package: `panic-halt`, `failure v0.1.8`.
fn is_in_name(line: &str, word: Range<usize>) -> bool {
    let is_word = line[word.clone()]
        .bytes()
        .all(|byte| byte.is_ascii_lowercase());
    let after = &line.as_bytes()[word.end..];
    let is_version = matches!(after, [b' ', b'v', digit, ..] if digit.is_ascii_digit());
    let goes_on = matches!(after, [b'-' | b'_' | b'@', next, ..] if next.is_ascii_alphanumeric());
    let before = &line.as_bytes()[..word.start];
    let has_begun =
        matches!(before, [.., before, b'-' | b'_' | b'/'] if before.is_ascii_alphanumeric());
    is_word && (is_version || goes_on || has_begun)
}

/// Returns whether a line begins like the name of a failed test: `  1) adds`.
fn is_numbered(line: &str) -> bool {
    let text = line.trim_start_matches(' ');
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.len() + 2 <= line.len() && number.len() < text.len() && number.starts_with(") ")
}

/// Returns whether a line begins with the letter that stands for a cross where only ASCII is written: `  x no-var: …`.
fn is_crossed(line: &str) -> bool {
    line.starts_with(' ') && line.trim_start().starts_with("x ")
}

/// A line with the code of a rule, such as `B006 Do not use mutable defaults`, is a warning without the word.
fn rule_code(line: &str) -> Option<Finding> {
    let mut pairs = line.as_bytes().array_windows();
    let may_be = pairs.any(|[a, b]| a.is_ascii_uppercase() && b.is_ascii_digit());
    let found = may_be.then(|| RULE_CODE.find(line)).flatten()?;
    Some(Finding {
        importance: Importance::Warning,
        at: found.start(),
    })
}

/// A line that says what is not as it should be may be about a failure.
fn negation(line: &str) -> Option<Finding> {
    let found = NEGATION.find(line)?;
    (!SUCCESS.is_match(line)).then_some(Finding {
        importance: Importance::Mention,
        at: found.start(),
    })
}

/// Offset of the message of a line with file, line and column, but without a level.
fn diagnostic(line: &str) -> Option<usize> {
    let place = DIAGNOSTIC.find(line)?;
    message_behind(line, place.end()).filter(|_| !SIDE_NOTE.is_match(line.trim_start()))
}

/// A line that begins with a file and the number of a line.
fn place(line: &str) -> Option<Finding> {
    let at = message_behind(line, PLACE.find(line)?.end())?;
    Some(Finding {
        importance: Importance::Place,
        at,
    })
}

/// Offset of the message behind a place that ends at `end`. Digits directly behind it make it a time or an address.
fn message_behind(line: &str, end: usize) -> Option<usize> {
    let rest = &line[end..];
    let is_apart = |c: char| matches!(c, ':' | '[' | ']' | '|' | '@' | '-') || c.is_whitespace();
    let said = rest.trim_start_matches(is_apart);
    let is_longer =
        |gap: &str| !gap.contains(' ') && said.starts_with(|c: char| c.is_ascii_digit());
    let gap = &rest[..rest.len() - said.len()];
    let is_message = !said.is_empty() && !is_longer(gap) && !SIDE_NOTE.is_match(said);
    is_message.then(|| line.len() - said.len())
}

fn read(line: &str) -> Option<Finding> {
    if SUCCESS.is_match(line) {
        return None;
    }
    let whole = line;
    let without_zero_counts;
    let line = if ZERO_COUNT.is_match(line) {
        without_zero_counts = ZERO_COUNT.replace_all(line, |found: &regex::Captures<'_>| {
            " ".repeat(found[0].len())
        });
        &*without_zero_counts
    } else {
        line
    };
    let mut errors = ERROR.find_iter(line);
    let error = errors.find(|found| !is_in_name(line, found.range()));
    let error = error.map(|found| found.start());
    if SUMMARY.is_match(whole) {
        let importance = match error {
            Some(_) => Importance::Error,
            None => Importance::Summary,
        };
        return Some(Finding { importance, at: 0 });
    }
    let warning = WARNING.find(line).map(|found| found.start());
    let found = |importance, at| Some(Finding { importance, at });
    match (error, warning) {
        (Some(error), Some(warning)) if warning < error => found(Importance::Warning, warning),
        (Some(error), _)
            if LOW_LEVEL
                .find(line)
                .is_some_and(|level| level.start() < error) =>
        {
            found(Importance::Mention, error)
        }
        (Some(error), _) => found(Importance::Error, error),
        (None, Some(warning)) => found(Importance::Warning, warning),
        (None, None) => match (diagnostic(line), MENTION.find(line)) {
            (Some(said), _) => found(Importance::Error, said),
            (None, Some(mention)) => found(Importance::Mention, mention.start()),
            (None, None) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn importance(line: &str) -> Option<Importance> {
        classify(line).map(|found| found.importance)
    }

    #[test]
    fn http_client_errors_are_mentions() {
        for line in [
            "npm http fetch GET 404 https://packages.example/thing 31ms (cache skip)",
            "10.0.0.1 - - [01/May/2024] \"GET /x HTTP/1.1\" 404 12",
        ] {
            assert_eq!(importance(line), Some(Importance::Mention), "{line}");
        }
        assert_eq!(
            importance("npm http fetch GET 200 https://packages.example/thing 31ms"),
            None
        );
    }

    #[test]
    fn another_value_than_expected_is_a_mention() {
        assert_eq!(
            importance("4000ns scoreboard expected 0xdeadbeef got 0xdeadbeee at beat 7"),
            Some(Importance::Mention)
        );
        assert_eq!(importance("example: expected to grow"), None);
    }

    #[test]
    fn places_with_messages_are_errors_whatever_the_extension() {
        for line in [
            "src/ledger/post.erl:88:2: Function settle has only one clause",
            "src/a.hs:88:2-9: Suspicious use of head",
            "src/a.pas(88,2) comparison is always true",
            "src/a.cob(88,2,88,9): numeric literal is too long",
            "source/a.d(12:3)[style]: comparison with itself",
            "src/a.tcl|88 col 2| too many arguments",
            "; src/a.lisp:88:2: the variable is never read",
            "docs/a.adoc:8:2 - Unusual word (recieve)",
            "::notice file=src/a.sql,line=88::the column is never read",
            "File \"src/a.ml\", line 88, characters 2-9: the case is never matched",
            "C:\\src\\a.nim(88, 2) the branch is never taken",
        ] {
            assert_eq!(importance(line), Some(Importance::Error), "{line}");
        }
        assert_eq!(
            importance("%Warning-WIDTH: rtl/arb.sv:77:22: operator expects 8 bits"),
            Some(Importance::Warning)
        );
        for line in [
            "src/a.erl:88: the clause is never reached",
            "src/a.pas(88): the branch is never taken",
        ] {
            assert_eq!(importance(line), Some(Importance::Place), "{line}");
        }
        for line in [
            "app.log:12:30:01 request served",
            "10.0.0.1:8080:12 ready",
            "db.internal:5432",
            "http://shop.example:8080/a is up",
            "release 1.2.3:4:5 is out",
            "crate::module.rs is built",
            "src/a.hs:88:2: note: declared here",
            "src/app.rb:3:in 'main'",
            "src/app.ts:3:5",
        ] {
            assert_eq!(importance(line), None, "{line}");
        }
    }

    #[test]
    fn codes_of_rules_are_warnings() {
        for line in [
            "B006 Do not use mutable data structures for argument defaults",
            "UP032 [*] Use f-string instead of `format` call",
            ">> Issue: [B324:hashlib] Use of weak MD5 hash for security.",
            "L:   1 | P:  30 | AL01 | Implicit/explicit aliasing of table.",
        ] {
            assert_eq!(importance(line), Some(Importance::Warning), "{line}");
        }
        for line in [
            "I1115 03:46:35.123456 1 main.go:3] listening",
            "ABC123",
            "commit A1B2C3D4 of branch",
            " 17 | A1 | done",
        ] {
            assert_eq!(importance(line), None, "{line}");
        }
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
            "[allocator] (err): leaked 77 bytes",
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
            assert_eq!(importance(line), Some(Importance::Error), "{line}");
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
            assert_eq!(importance(line), Some(Importance::Warning), "{line}");
        }
    }

    #[test]
    fn failed_summaries_are_errors() {
        assert_eq!(
            importance("test result: ok. 12 passed; 0 failed; 0 ignored"),
            Some(Importance::Summary)
        );
        assert_eq!(
            importance("=== 20 passed in 0.31s ==="),
            Some(Importance::Summary)
        );
        assert_eq!(
            importance("test result: FAILED. 1 passed; 2 failed"),
            Some(Importance::Error)
        );
        assert_eq!(
            importance("=== 3 failed, 20 passed in 0.31s ==="),
            Some(Importance::Error)
        );
        assert_eq!(importance("BUILD FAILED in 3s"), Some(Importance::Error));
    }

    #[test]
    fn counts_of_zero_are_no_findings() {
        for line in [
            "tuples: 3 removed, 464 remain, 0 are dead",
            "5 packets sent, 0 lost, 0 rejected",
        ] {
            assert_eq!(importance(line), None, "{line}");
        }
        let line = "tuples: 3 removed, 464 remain, 60 are dead";
        assert_eq!(importance(line), Some(Importance::Mention));
    }

    #[test]
    fn harmless_lines_are_not_errors() {
        for line in [
            "   Compiling thiserror v1.0.69",
            "   Compiling failure v0.1.8",
            "Unpacking rust-panic-halt (0.2.0-1) ...",
            "npm http fetch GET 200 https://packages.example/crash 31ms",
            "added crash-reporter@1.2.3 and fatal-handler",
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
            assert_ne!(importance(line), Some(Importance::Error), "{line}");
        }
    }
}

//! Keywords and patterns of important lines, as compilers, test runners, package managers, shells and
//! servers write them. The meaning of a match is decided in `levels`.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::{Regex, RegexBuilder};

/// Memory for the states of a pattern. The pattern of errors has many.
const DFA_BYTES: usize = 8 << 20;

/// A line without any of these is not important.
pub const KEYWORD_LIST: &[&str] = &[
    // HTTP status codes of errors.
    "get 4",
    "get 5",
    "head 4",
    "head 5",
    "post 4",
    "post 5",
    "put 4",
    "put 5",
    "patch 4",
    "patch 5",
    "delete 4",
    "delete 5",
    "\" 4",
    "\" 5",
    "http/1.1 4",
    "http/1.1 5",
    "http/2 4",
    "http/2 5",
    "err",
    "fail",
    "fatal",
    "panic",
    "exception",
    "warn",
    "critical",
    "severe",
    "killed",
    "terminat",
    "abort",
    "assert",
    "traceback",
    "segmentation",
    "segfault",
    "fault",
    "illegal instruction",
    "core dumped",
    "undefined",
    "unresolved",
    "multiple definition",
    "not found",
    "no such",
    "denied",
    "refused",
    "reset by",
    "timed out",
    "timeout",
    "cannot",
    "can't",
    "could not",
    "couldn't",
    "unable",
    "invalid",
    "unexpected",
    "unknown",
    "missing",
    "corrupt",
    "crash",
    "conflict",
    "rejected",
    "unhandled",
    "uncaught",
    "deprecated",
    "out of memory",
    "oom",
    "no space",
    "not ok",
    "overflow",
    "deadlock",
    "sanitizer",
    "data race",
    "double free",
    "exit",
    "code=",
    "status",
    "lost",
    "unreachable",
    "broken pipe",
    "violat",
    "mismatch",
    "expected",
    "caused by",
    "*** ",
    "e: ",
    "w: ",
    "e  ",
    "✗",
    "✘",
    "✕",
    "❌",
    "×",
    "●",
    "passed",
    "passing",
    "test result",
    "build ",
    "ran ",
    "finished",
    "successfully",
    "generated",
    "vulnerabilit",
    "summary",
    "upgraded",
    "packages in",
    "total",
    "alert",
    "emerg",
    "crit",
    "problem",
    "stopped",
    "unsupported",
    "rollback",
    "dropped",
    "bad ",
    "incompatible",
    "ko ",
    "no matching",
    "stack trace",
    "dead",
    "unbound",
    ".pl line",
    ".pm line",
    "not recognized",
    "not defined",
    "exceeded",
    "file busy",
    "too many",
    "stdout ----",
    "^-- sc",
    // Other languages.
    "fehler",
    "fehlgeschlagen",
    "warnung",
    "nicht gefunden",
    "kann nicht",
    "konnte nicht",
    "verweigert",
    "keine berechtigung",
    "erreur",
    "échec",
    "échou",
    "avertissement",
    "impossible",
    "introuvable",
    "refusé",
    "non accord",
    "erro ",
    "erro:",
    "errore",
    "falha",
    "falló",
    "aviso",
    "avviso",
    "advertencia",
    "no se pudo",
    "no se puede",
    "não foi possível",
    "impossibile",
    "fout:",
    "błąd",
    "ostrzeżenie",
    "hata:",
    "ошибк",
    "предупрежд",
    "не удалось",
    "エラー",
    "警告",
    "失敗",
    "できません",
    "错误",
    "錯誤",
    "失败",
    "오류",
    "경고",
    "실패",
    // Numeric levels, states, and planned changes.
    "level\":4",
    "level\":5",
    "level\":6",
    "level\": 4",
    "level\": 5",
    "level\": 6",
    "✖",
    "⨯",
    "☒",
    "⚠",
    "backoff",
    "evicted",
    "notready",
    "unhealthy",
    "degraded",
    "unavailable",
    "forbidden",
    "unauthorized",
    "expired",
    "exhausted",
    "throttl",
    "destroyed",
    "replaced",
    "deleted",
    "forces replacement",
    "overfull",
    "leak",
    "uninitiali",
    "errno",
    " = -1 e",
    "stale",
    "not exist",
    "already exists",
    "not allowed",
    "not permitted",
    "skipping",
    "giving up",
    // Locations in source files, for tools that do not write a level. Lines that are read whole are searched for `LOCATION`
    // instead, which knows any extension.
    ".c:",
    ".cc:",
    ".cpp:",
    ".cs:",
    ".css:",
    ".dart:",
    ".ex:",
    ".go:",
    ".h:",
    ".hpp:",
    ".hs:",
    ".java:",
    ".js:",
    ".jsx:",
    ".json:",
    ".kt:",
    ".lua:",
    ".md:",
    ".mjs:",
    ".php:",
    ".proto:",
    ".py:",
    ".rb:",
    ".rs:",
    ".scss:",
    ".sh:",
    ".sql:",
    ".swift:",
    ".tf:",
    ".toml:",
    ".ts:",
    ".tsx:",
    ".vue:",
    ".yaml:",
    ".yml:",
    ".zig:",
];

pub static KEYWORDS: LazyLock<AhoCorasick> = LazyLock::new(|| case_insensitive(KEYWORD_LIST));

/// Forms of errors of many tools, as they are written, with a newline before those that begin a line. Output is searched for
/// them even if it has so many keywords that it is not searched for these any longer.
pub const STRONG_FORMS: [&str; 18] = [
    "\nerror",
    "\nError",
    "\nERROR",
    "\nfatal",
    "\nFatal",
    "\npanic",
    "\nKilled",
    "\nFAIL",
    "FAILED",
    "FATAL",
    "panicked at",
    "egmentation fault",
    "Caused by",
    "Traceback (",
    "ut of memory",
    "OutOfMemory",
    "ssertion",
    "command not found",
];

#[expect(
    clippy::expect_used,
    reason = "the forms are constants, and a test builds them"
)]
pub static STRONG: LazyLock<AhoCorasick> = LazyLock::new(|| {
    AhoCorasick::builder()
        .match_kind(aho_corasick::MatchKind::LeftmostFirst)
        .build(STRONG_FORMS)
        .expect("forms build")
});

/// Words of any tool for something that is not as it should be. Not among the keywords, because much text has them.
pub static NEGATION: LazyLock<AhoCorasick> = LazyLock::new(|| {
    case_insensitive(&[
        " is not ",
        " are not ",
        " was not ",
        "does not ",
        "did not ",
        "do not ",
        "has not ",
        "have not ",
        "should not ",
        "must not ",
        "can not ",
        "n't ",
        " must be ",
        " must have ",
        " differ",
    ])
});

pub static OUTCOME: LazyLock<AhoCorasick> = LazyLock::new(|| {
    case_insensitive(&[
        "err",
        "fail",
        "warn",
        "exit",
        "code",
        "status",
        "http/",
        "get ",
        "post ",
        "rc=",
        "panic",
        "exception",
        "lost",
        "dropped",
        "skipped",
        "missing",
        "retries",
        "killed",
        "signal",
    ])
});

#[expect(
    clippy::expect_used,
    reason = "the keywords are constants, and a test builds them"
)]
pub fn case_insensitive(words: &[&str]) -> AhoCorasick {
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(aho_corasick::AhoCorasickKind::DFA))
        .build(words)
        .expect("keywords build")
}

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        pub static $name: LazyLock<Regex> = LazyLock::new(|| compiled($pattern));
    };
}

#[expect(
    clippy::expect_used,
    reason = "the patterns are constants, and a test builds them"
)]
pub fn compiled(pattern: &str) -> Regex {
    // All keywords are ASCII, and ASCII word boundaries are found many times faster.
    RegexBuilder::new(&pattern.replace(r"\b", r"(?-u:\b)"))
        .dfa_size_limit(DFA_BYTES)
        .build()
        .expect("pattern compiles")
}

// A success.
pattern!(
    SUCCESS,
    r"(?x) ^\s*PASS(?:ED)?: | ^(?:===\ (?:RUN|PAUSE|CONT|NAME)|\s*---\ (?:PASS|SKIP)|\[\s*(?:OK|PASSED|RUN)\s*\]|ok\s) | \|\ PASS\ \| | (?:\.\.\.\s*ok | \bPASSED(?:\s*\[.*\])? | \bSKIPPED(?:\s*\[.*\])? )\s*$ | ^\s*(?:✓|✔|√|ok\s+\d+\s) | ^\s*PASS\s"
);

// `0 errors`, `no failures`, `failed=0`.
pattern!(
    ZERO_COUNT,
    r"(?ix)
    \b(?:0|no|zero|without(?:\ any)?)\s+(?:new\ |known\ )?(?:fatal\ )?(?:errors?|failures?|failed|failing|warnings?|exceptions?|problems?|issues?|vulnerabilit\w+|conflicts?)\b
  | \b\w*(?:err(?:or)?s?|failures?|failed|unreachable|warnings?|exit(?:\ |_)?(?:code|status)|code|status|_count)[\x22']?\s*[=:]\s*[\x22']?(?:0\b|null\b|nil\b|<nil>|none\b|false\b|ok\b|[\x22']{1,2}(?:[,\s}]|$))
  | \b0\s(?:(?:are|were|is|was)\s)?(?:dead|lost|dropped|missing|unreachable|rejected|killed|corrupt(?:ed)?|overruns?|timeouts?)\b
  | \bexit(?:ed)?\s(?:with\s)?(?:code|status)\s0\b
  | \bif\ any\b"
);

pattern!(
    SUMMARY,
    r"(?x)
    ^test\ result: | ^=+\s.*\b(?:passed|failed|errors?|skipped|no\ tests\ ran)\b.*\s=+$
  | ^\s*(?:Test\ Suites|Tests|Test\ Files|Snapshots):?\s+.*\b\d+
  | ^Tests\ run: | ^Ran\ \d+\ tests? | ^FAILED\ \((?:failures|errors)= | ^\s*\d+\ (?:passing|failing)\b
  | ^BUILD\ (?:SUCCESS|FAIL) | ^\s*Finished\ \S+ | ^added\ \d+\ packages | \bvulnerabilit
  | ^\d+\ upgraded, | ^Successfully\ (?:installed|built) | \bgenerated\ \d+\ warnings?
  | ^\s*\d+\ (?:passed|failed|warnings?|errors?)\b | ✖\ \d+\ problems?
  | ^\[INFO\]\ BUILD | ^Found\ \d+\ errors?
  | ^\d+\ (?:errors?|warnings?)\ generated | \b\d+\ (?:passed|failed),\ \d+\ 
  | ^(?:Plan|Summary|Result|Results|Totals?|Found|Ran|Files|Tests)\b[:=]?\s.*\d | \b\d+\ (?:tests?|examples?|specs?|scenarios?|assertions?)\b.*\b\d+\ (?:passed|failed|failures?|errors?|pending|skipped)\b
  | \b\d+\ errors?,\ \d+\ warnings?\b | \brated\ at\b | ^\s*\d+\ (?:errors?|warnings?|problems?|issues?|offenses?)\b"
);

/// All forms of errors. One expression, because a line is read once for it and not once for each form.
pub static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    let forms = [
        // `error:`, `error[E0308]:`, `(err):`, `[ERROR]`, `error TS2322:`, `npm ERR!`, `fatal:`, `panic:`
        r"(?ix)(?:^|[^\w.\-/$])(?:error|err|fatal|panic|critical|severe|failure|failed)(?:\[\w+\])?(?:\s+[a-z]{1,6}\d+)?(?:\(\d+\))?(?:\)?\s?:|\s?[!\]|])",
        // A level in capitals.
        r"(?:^|[^\w.])(?:ERROR|ERR|FATAL|PANIC|CRITICAL|CRIT|SEVERE|EMERG|ALERT|FAIL|FAILED|FAILURE|ERRORS|FAILURES|NOT\ OK)(?:[^\w./=]|$|\.\s)",
        // `ValueError: x`, `java.lang.NullPointerException`
        r"[A-Za-z0-9](?:Error|Exception|Failure|Fault|Interrupt|Panic)(?:\[\w+\])?(?::|\s*\(|\s*$|\sin\s|\sat\s)",
        r"^\s*(?:Error|Exception|Fatal|Failed|Failure|Panic|Abort(?:ed|ing)?)\b",
        // Prefixes of errors of shells and tools.
        r"(?x)^\s*(?:npm\ (?:ERR!|error\b)|E:\ |[✗✘✕❌×●]\ |!\ [A-Z]|e:\ (?:file:|/)|----\ .+\ stdout\ ----$|not\ ok\b|---\ FAIL|fatal\b|Killed\b|Terminated\b|Hangup$|Alarm\ clock
            |Illegal\ instruction|Floating\ point\ exception|Trace/breakpoint\ trap|Bus\ error|g?make(?:\[\d+\])?:\ \*\*\*|ninja:\ (?:build\ stopped|error)|ERROR)",
        // A level as a column, a symbol, a number of a failed test.
        r"(?:^\s*|\d:\d+\s+|\s{2,}|\s-\s|\|\s*)(?i:error|fatal|critical|failed|failure)(?:\s{2,}|\s-\s|\s*\|)",
        r"(?:^|\s)[✗✘✕✖❌⨯☒]\s",
        r"^\s{2,}\d+\)\s\S",
        r"^\s{1,4}x\s[A-Za-z@]\S*[a-z)]",
        // Numeric levels of JSON logs.
        r#""level":\s?(?:50|60)\b"#,
        // Counts that are not zero.
        r#"(?i)\b(?:failed|failures?|errors?|unreachable)["']?\s?[=:]\s?["']?[1-9]"#,
        r"(?x)\b(?:CrashLoopBackOff|ImagePullBackOff|ErrImage\w+|OOMKilled|Evicted|NotReady|Unhealthy|BackOff|FailedMount|FailedScheduling)\b",
        // Other languages, with the punctuation of a message.
        r"(?ix)\bfehler(?:status)?\b[\s:!] | \berreur\b | \b(?:fehlgeschlagen|gescheitert|verweigert|introuvable|impossibile|impossible\ d|errore|falha)\b | échec | échoué | ошибк | falló | błąd
            | kann\ nicht\b | konnte\ nicht\b | nicht\ (?:gefunden|möglich|gelesen|geöffnet)\b | keine\ berechtigung | permission\ non\ accordée | \bno\ se\ (?:pudo|puede)\b | não\ foi\ possível
            | не\ удалось | (?:\berro|\bfout|\bhata):\s | エラー | 失敗 | できません | 错误 | 錯誤 | 失败 | 오류 | 실패",
        r"(?ix)\b(?:invalid|illegal)\ (?:read|write|free)\b | uninitiali[sz]ed\ value | definitely\ lost | \bdoes\ not\ exist\b | already\ exists\b",
        r"^(?:>?\s?)E\s{2,}\S", // an assertion, as pytest shows it
        r"^[EF]\d{4} \d\d:\d\d",
        r"(?ix) undefined\ (?:reference|symbol) | unresolved\ (?:external|import|symbol) | multiple\ definition\ of | segmentation\ fault | segfault
          | core\ dumped | out\ of\ memory | \boom[-_ ]?kill | cannot\ allocate | stack\ overflow | no\ space\ left | traceback\ \(most\ recent
          | panicked\ at | \bunhandled\b | \buncaught\b | build\ fail(?:ed|ure) | command\ not\ found | assert(?:ion)?\b.{0,200}\bfail(?:s|ed|ure)\b
          | assertion: | deadlock\ detected | (?:address|leak|thread|memory|undefinedbehavior)sanitizer | runtime\ error | data\ race | double\ free
          | heap\ corruption | ^\s*caused\ by: | connection\ (?:refused|reset|lost|closed|timed\ out|aborted) | permission\ denied | access\ denied | no\ such\ file
          | module\ not\ found | cannot\ find | no\ matching | could\ not\ | couldn't\ | unable\ to | \bcan(?:not|'t)\ (?:open|read|write|load|connect|import|resolve|stat|access|create)
          | \bconflict\ \( | \[(?:remote\ )?rejected\] | \bfailed\b | \bfailure\b | \bfails\b | \bcrash(?:ed|es)?\b | \baborted\b | \bcorrupt(?:ed|ion)?\b
          | timed\ out | \bbroken\ pipe\b | \bkilled\b | \bsig(?:segv|kill|abrt|bus|ill|fpe|term)\b | \bfatal\b | internal\ error | syntax\ error | \bpanic\b | \bgot\ signal\b
          | \bis\ not\ (?:defined|recognized|a\ function) | address\ already\ in\ use | unbound\ variable | deadline\ exceeded | quota\ exceeded | text\ file\ busy | too\ many\ (?:open\ files|connections|redirects|requests)
          | \^--\ SC\d{4} | \bexceptions?\.[a-z]\w+: | \bat\ \S+\.p[lm]\ line\ \d+\b | invalid\ (?:argument|syntax|operation|token) | (?-i:\bE[A-Z]{4,}\b:)",
        r"(?i)\b(?:exit(?:ed|s|ing)?(?: with)?(?: (?:code|status|value))?|exit_?(?:code|status)|return(?:ed|s)?(?: code| status)|rc)[ =:]+-?[1-9]\d*\b",
        r#"(?i)\b(?:level|lvl|severity|status)["']?\s*[=:]\s*["']?(?:error|err|eror|fatal|crit|critical|panic|emerg|alert|failed|failure)"#,
        r#"HTTP/\d(?:\.\d)?"? 5\d\d\b"#,
        r"\b[1-9]\d* (?:failed|failures?|failing|errors?)\b",
    ]
    .map(|form| format!("(?:{form})"));
    compiled(&forms.join("|"))
});

pattern!(
    WARNING,
    r"(?x)
    (?i:\bwarn(?:ing)?s?(?:\[[\w-]+\]|-[a-z]\w*)?\s?[:!\]]) | (?:^|[^\w.])(?:WARN|WARNING|WARNINGS)\b | \b[A-Z]\w*Warning\b
  | ^\s*W:\  | ^npm\ (?:warn|WARN)\b | (?i:\b(?:level|lvl|severity)[\x22']?\s*[=:]\s*[\x22']?warn) | ^W\d{4}\ \d\d:
  | (?i:\bdeprecated\b | ^\s*warning\b) | (?:^\s*|\d:\d+\s+|\s{2,}|\s-\s|\|\s*)(?i:warning|warn)(?:\s{2,}|\s-\s|\s*\|) | \x22level\x22:\s?40\b | (?:^|\s)⚠
  | (?i:\bwarnung\b|\bavertissement\b|\badvertencia\b|\bostrzeżenie|предупрежд)|(?:\b(?:aviso|avviso):)|警告|경고 | ^(?:Over|Under)full\b
  | \b(?:will|must|would)\ be\ (?:destroyed|deleted|removed|replaced|recreated)\b | forces\ replacement"
);

// Name of a file with a number of a line behind it.
pattern!(
    LOCATION,
    r"\.[A-Za-z]\w{0,7}(?:[:(|]\d|\x22?,\s?line[\x20=]\d)"
);

// Location with line and column, perhaps as ranges, before a message. Many tools write no more than that.
pattern!(
    DIAGNOSTIC,
    r"(?x)^\s*(?:
    (?:[%;*]\s?)?(?:[A-Z][\w-]*:\s)?(?:[A-Za-z]:)?[\w.@+/\\-]*\w\.[A-Za-z]\w{0,7}
        (?: :\d+:\d+(?:-\d+)? | [(]\d+[,:]\s?\d+(?:,\d+)*[)] | \|\d+\ col\ \d+ )
  | ::\w+\ file=[^,]+(?:,\w+=\d+)+
  | File\ \x22[^\x22]+\x22,\ line\ \d+,\ char[a-z]+\ \d+-\d+ )"
);

// Location with a line only, before a message. Many programs put one before each line of their log.
pattern!(
    PLACE,
    r"^\s*(?:[A-Za-z]:)?[\w.@+/\\-]*\w\.[A-Za-z]\w{0,7}(?::\d+|[(]\d+[)]):?"
);

// Message that only accompanies a diagnostic.
pattern!(SIDE_NOTE, r"^(?i:note|info|hint|help|remark|required|in)\b");

// A log level below a warning before the match.
pattern!(
    LOW_LEVEL,
    r"(?x) (?:^|[\s\[<(=\x22])(?:INFO|DEBUG|TRACE|NOTICE|VERBOSE|info|debug|trace|notice)(?:[\s\]>):,|\x22]|$)"
);

pattern!(
    MENTION,
    r"(?ix)
    (?:^|[^\w.\-/$])(?:errors?|exceptions?|fault|abort(?:ing)?|refused|denied|timeout|invalid|unexpected|missing|lost|unreachable|overflow|degraded|unavailable|forbidden|unauthorized|expired|exhausted|throttl\w*|not\ (?:allowed|permitted)|giving\ up
        |not\ found|rejected|violat\w*|mismatch\w*|cannot|can't|unable|unknown\ \w+|rollback|dropped|unsupported|incompatible|dead|killed|terminated|problem)
    (?:[^\w.\-/=]|$) | (?-i:Error\b | Exception\b) | \*\*\*\ 
    | \b(?:GET|HEAD|POST|PUT|PATCH|DELETE)\ [45]\d\d\b | HTTP/[\d.]+\x22?\ [45]\d\d\b | =\ -1\ E[A-Z]+\b
    | \bexpected\b.{1,200}\b(?:but\ )?(?:got|was|found|received|actual)\b"
);

// Code of a rule, as linters write it: before the message, in brackets, or in a column of its own.
pattern!(
    RULE_CODE,
    r"^[A-Z]{1,6}[0-9]{3,5}:? +(?:\[[^\]]*\] )?[A-Za-z`'‘\x22]|\[[A-Z]{1,6}[0-9]{3,5}[\]:]|\| +[A-Z]{1,6}[0-9]{2,5} +\|"
);

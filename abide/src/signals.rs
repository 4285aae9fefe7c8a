//! Signals, as people and models name them.

use abide_api::arguments::whole;
use serde_json::Value;

const SIGNALS: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// Number of a signal that was given by name or by number.
pub fn number(given: Option<&Value>) -> Option<i32> {
    match given? {
        number @ Value::Number(_) => in_range(i32::try_from(whole(number)?).ok()?),
        Value::String(name) => {
            let name = name.trim().to_ascii_uppercase();
            // Some callers send every value as text, also numbers.
            if let Ok(number) = name.parse() {
                return in_range(number);
            }
            let name = name.strip_prefix("SIG").unwrap_or(&name);
            let known = SIGNALS.iter().find(|(known, _)| *known == name);
            known.map(|(_, number)| *number)
        }
        _ => None,
    }
}

fn in_range(number: i32) -> Option<i32> {
    (1..=64).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_parse_from_name_or_number() {
        for (given, expected) in [
            (json!("INT"), Some(2)),
            (json!("sigint"), Some(2)),
            (json!("SEGV"), Some(11)),
            (json!(9), Some(9)),
            (json!(9.0), Some(9)),
            (json!(9.5), None),
            (json!("9"), Some(9)),
            (json!("0"), None),
            (json!("65"), None),
            (json!(0), None),
            (json!(-9), None),
            (json!(65), None),
            (json!("NOPE"), None),
            (json!(true), None),
        ] {
            assert_eq!(number(Some(&given)), expected, "{given}");
        }
        assert_eq!(number(None), None);
    }
}

//! Signals, as people and models name them.

use serde_json::Value;

const SIGNALS: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("WINCH", libc::SIGWINCH),
];

/// The number of a signal that was given by name or by number.
pub fn number(given: Option<&Value>) -> Option<i32> {
    match given? {
        Value::Number(number) => {
            let number = i32::try_from(number.as_i64()?).ok()?;
            (1..=64).contains(&number).then_some(number)
        }
        Value::String(name) => {
            let name = name.trim().to_ascii_uppercase();
            let name = name.strip_prefix("SIG").unwrap_or(&name);
            let known = SIGNALS.iter().find(|(known, _)| *known == name);
            known.map(|(_, number)| *number)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_are_known_by_name_and_by_number() {
        for (given, wanted) in [
            (json!("INT"), Some(2)),
            (json!("sigint"), Some(2)),
            (json!(9), Some(9)),
            (json!(0), None),
            (json!(-9), None),
            (json!(65), None),
            (json!("NOPE"), None),
            (json!(true), None),
        ] {
            assert_eq!(number(Some(&given)), wanted, "{given}");
        }
        assert_eq!(number(None), None);
    }
}

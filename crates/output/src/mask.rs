//! Masking of secrets in a text for a model.
//!
//! Two kinds are masked: values of variables whose names suggest a secret, and tokens of known formats.
//! A format must be unambiguous, so that hashes, UUIDs and encoded data stay, which a model needs.
//! Masking is no security boundary: a secret that a command encodes is not found.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use aho_corasick::AhoCorasick;
use regex::Regex;

use crate::secret_fingerprints::{Salt, SecretFingerprints};

/// Parts of names of variables that hold secrets.
const SECRET_NAMES: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "KEY",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "DSN",
    "_PWD",
    "_PASS",
    "WEBHOOK",
];
/// Names with such a part that do not hold secrets.
const PUBLIC_NAMES: &[&str] = &[
    "SSH_AUTH_SOCK",
    "PUBLIC_KEY",
    "KEYBOARD",
    "KEYMAP",
    "XAUTHORITY",
];

/// Replaces secrets in texts with `[masked:NAME]`. The default masks tokens of known formats only.
///
/// ```
/// use std::sync::Arc;
/// use abide_output::mask::{Mask, fingerprint_secrets};
///
/// let salt = || [7; 16]; // random bytes in practice
/// let secrets = fingerprint_secrets([("DB_PASSWORD", "correct-horse")], salt);
/// let mask = Mask::of(Arc::new(secrets));
/// let text = "psql -W correct-horse".to_owned();
/// assert_eq!(mask.apply(text), "psql -W [masked:DB_PASSWORD]");
/// ```
#[derive(Clone, Default)]
pub struct Mask {
    secrets: Arc<SecretFingerprints>,
}

/// Fingerprints of the secrets among environment variables, given as name and value. `salt` returns random
/// bytes; it is called only if there is a secret.
pub fn fingerprint_secrets<'a>(
    variables: impl IntoIterator<Item = (&'a str, &'a str)>,
    salt: impl FnOnce() -> Salt,
) -> SecretFingerprints {
    let secret = |(name, _): &(&str, &str)| is_secret_name(name);
    let variables = variables.into_iter().filter(secret);
    // Each line of a value is a secret of its own, because output is masked in parts.
    let lines =
        variables.flat_map(|(name, value)| value.lines().map(move |line| (name, line.trim())));
    SecretFingerprints::of(lines, salt)
}

impl Mask {
    /// Mask for tokens of known formats and for these secrets.
    pub fn of(secrets: Arc<SecretFingerprints>) -> Self {
        Mask { secrets }
    }

    /// Text with its secrets replaced.
    pub fn apply(&self, text: String) -> String {
        let secrets = self.secrets_in(&text);
        match secrets.is_empty() {
            true => text,
            false => hidden(&text, 0..text.len(), secrets),
        }
    }

    /// Returns whether there are secrets besides tokens of known formats.
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// Byte ranges of the secrets in output, in order, with their names; without tokens of known formats.
    pub fn find_secrets(&self, output: &[u8]) -> Vec<(Range<usize>, &str)> {
        self.secrets.find(&text_of(output))
    }

    /// Offset of bytes at the end of output that must not be shown before more of it is known: they may be the beginning
    /// of a secret, tokens of known formats not counted.
    pub fn find_unfinished(&self, output: &[u8]) -> Option<usize> {
        let unfinished = self.secrets.find_unfinished(output)?;
        let secrets = self.find_secrets(output);
        let mut around = secrets.iter().map(|(place, _)| place);
        let around = around.find(|place| place.start < unfinished && unfinished < place.end);
        Some(around.map_or(unfinished, |place| place.start))
    }

    /// Overwrites the secrets in output with asterisks, so that its length stays.
    pub fn overwrite(&self, output: &mut [u8]) {
        let places: Vec<Range<usize>> = {
            let secrets = self.secrets_in(&text_of(output));
            secrets.into_iter().map(|(place, _)| place).collect()
        };
        for place in places {
            output[place].fill(b'*');
        }
    }

    /// Part of a text with its secrets replaced. A secret that lies over an end of the part is replaced too, so that
    /// no piece of it is shown. The ends of the part are character boundaries.
    pub fn apply_to_part(&self, text: &str, part: Range<usize>) -> String {
        hidden(text, part, self.secrets_in(text))
    }

    /// Byte ranges of all secrets in a text, by their starts, with their names. Of several at a place the first one has the
    /// name to show: a known secret, or the most specific format.
    fn secrets_in(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut secrets = self.secrets.find(text);
        if HINTS.is_match(text) {
            for (format, name) in FORMATS.iter() {
                secrets.extend(format.captures_iter(text).map(|found| {
                    let whole = found.get_match().range();
                    let start = found.name("lead").map_or(whole.start, |lead| lead.end());
                    let end = found.name("trail").map_or(whole.end, |trail| trail.start());
                    (start..end, *name)
                }));
            }
        }
        secrets.sort_by_key(|(place, _)| place.start);
        secrets
    }
}

/// Output as text, with one character for each invalid byte, so that the offsets stay. No variable contains it.
fn text_of(output: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(output) {
        return text.into();
    }
    let mut text = String::with_capacity(output.len());
    for chunk in output.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('\0', chunk.invalid().len()));
    }
    text.into()
}

/// Part of a text with these secrets replaced.
fn hidden(text: &str, part: Range<usize>, secrets: Vec<(Range<usize>, &str)>) -> String {
    let mut hidden = String::with_capacity(part.len());
    let mut shown = part.start;
    for (place, name) in secrets {
        if place.end <= shown || place.start >= part.end {
            continue;
        }
        // One that overlaps the one before has no name of its own.
        if place.start >= shown || hidden.is_empty() {
            hidden.push_str(&text[shown..place.start.max(shown)]);
            hidden.push_str(&format!("[masked:{name}]"));
        }
        shown = place.end;
    }
    if shown < part.end {
        hidden.push_str(&text[shown..part.end]);
    }
    hidden
}

/// Returns whether a text has a token of a known format.
pub fn has_token(text: &str) -> bool {
    !Mask::default().secrets_in(text).is_empty()
}

/// Returns whether a variable of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    !PUBLIC_NAMES.iter().any(|open| name.contains(open))
        && (name.ends_with("_PAT") || SECRET_NAMES.iter().any(|part| name.contains(part)))
}

/// Substrings, in upper or lower case, of which every token of a known format has at least one. Most texts have none.
static HINTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    build(&[
        "AKIA",
        "ASIA",
        "aws",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "sk-",
        "xoxb-",
        "xoxp-",
        "xoxa-",
        "xoxr-",
        "xoxs-",
        "xapp-",
        "eyJ",
        "PRIVATE KEY",
        "bearer",
        "authorization",
        "npm_",
        "glpat-",
        "AIza",
        "sk_live_",
        "rk_live_",
        "sk_test_",
        "pypi-",
        "hf_",
        "dckr_pat_",
        "SG.",
        "://",
    ])
});

/// Formats of tokens with their names, the most specific first.
static FORMATS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s]*)", "private_key"),
        (r"\bgithub_pat_[A-Za-z0-9_]{22,255}\b|\bgh[pousr]_[A-Za-z0-9]{36,255}\b", "github_token"),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b", "aws_key_id"),
        (r"(?i)(?P<lead>aws_?(?:secret_?)?(?:access_?)?key[\x22']?\s*[=:]\s*[\x22']?)[A-Za-z0-9/+]{40}(?P<trail>[^A-Za-z0-9/+=]|$)", "aws_secret"),
        (r"\bsk-ant-[A-Za-z0-9_-]{20,}", "anthropic_key"),
        (r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]*[A-Z0-9][A-Za-z0-9_-]{18,}", "openai_key"),
        (r"\bxox[abprs]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}", "slack_token"),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}", "jwt"),
        (r"\bnpm_[A-Za-z0-9]{36}\b", "npm_token"),
        (r"\bglpat-[A-Za-z0-9_-]{20,}", "gitlab_token"),
        (r"\bAIza[A-Za-z0-9_-]{35}", "google_key"),
        (r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}", "stripe_key"),
        (r"\bpypi-[A-Za-z0-9_-]{50,}", "pypi_token"),
        (r"\bhf_[A-Za-z0-9]{30,}\b", "hugging_face_token"),
        (r"\bdckr_pat_[A-Za-z0-9_-]{20,}", "docker_token"),
        (r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", "sendgrid_key"),
        (r"(?i)(?P<lead>\bbearer\s+)[A-Za-z0-9._~+/=-]{16,}", "bearer"),
        (r"(?i)(?P<lead>\bauthorization:\s*basic\s+)[A-Za-z0-9+/=]{8,}", "basic_auth"),
        (r"(?P<lead>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s:/@]{3,}(?P<trail>@)", "password"),
    ]
    .into_iter()
    .map(|(format, name)| (compiled(format), name))
    .collect()
});

#[expect(
    clippy::expect_used,
    reason = "the substrings are constants, and a test builds them"
)]
fn build(words: &[&str]) -> AhoCorasick {
    let mut builder = AhoCorasick::builder();
    let builder = builder.ascii_case_insensitive(true);
    builder.build(words).expect("words build")
}

#[expect(
    clippy::expect_used,
    reason = "the formats are constants, and a test compiles them"
)]
fn compiled(format: &str) -> Regex {
    Regex::new(format).expect("format compiles")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        Mask::default().apply(text.to_owned())
    }

    fn knowing(variables: &[(&str, &str)]) -> Mask {
        Mask::of(Arc::new(fingerprint_secrets(
            variables.iter().copied(),
            || [7; 16],
        )))
    }

    #[test]
    fn values_of_secret_variables_are_masked() {
        let mask = knowing(&[
            ("DB_PASSWORD", "correct-horse"),
            ("HOME", "/home/dev/project"),
            ("API_KEY", "short"),
            ("SSH_AUTH_SOCK", "/run/agent.sock"),
        ]);
        let text = "login correct-horse in /home/dev/project, short, /run/agent.sock";
        assert_eq!(
            mask.apply(text.to_owned()),
            "login [masked:DB_PASSWORD] in /home/dev/project, short, /run/agent.sock"
        );
    }

    #[test]
    fn overwritten_output_keeps_its_length() {
        let mask = knowing(&[("DB_PASSWORD", "correct-horse")]);
        let mut output =
            b"\xff correct-horse, Authorization: Bearer abcdefghijklmnop1234\n".to_vec();
        let length = output.len();
        mask.overwrite(&mut output);
        assert_eq!(output.len(), length);
        let text = String::from_utf8_lossy(&output).into_owned();
        assert!(
            text.starts_with("\u{fffd} *************, Authorization: Bearer ****"),
            "{text}"
        );
        assert!(text.ends_with("*\n"), "{text}");
    }

    #[test]
    fn longest_of_two_secrets_wins() {
        let mask = knowing(&[("A_TOKEN", "abcdefgh"), ("B_TOKEN", "abcdefgh-ijkl")]);
        assert_eq!(
            mask.apply("x abcdefgh-ijkl".to_owned()),
            "x [masked:B_TOKEN]"
        );
    }

    #[test]
    fn tokens_of_known_formats_are_masked() {
        let r = |part: &str, times: usize| part.repeat(times);
        for (token, name) in [
            (format!("ghp_{}", r("aB3d", 9)), "github_token"),
            (format!("github_pat_{}", r("aB3_", 8)), "github_token"),
            (format!("AKIA{}", r("Q7RS", 4)), "aws_key_id"),
            (format!("sk-ant-api03-{}", r("aB3-", 8)), "anthropic_key"),
            (format!("sk-proj-{}", r("aB3d", 10)), "openai_key"),
            (format!("xoxb-{}", r("1234-", 5) + "ab"), "slack_token"),
            (format!("npm_{}", r("aB3d", 9)), "npm_token"),
            (format!("glpat-{}", r("aB3d", 5)), "gitlab_token"),
            (format!("AIza{}", r("aB3d5", 7)), "google_key"),
            (format!("sk_live_{}", r("aB3d", 6)), "stripe_key"),
            (format!("eyJ{0}.eyJ{0}.{0}", r("aB3d", 5)), "jwt"),
        ] {
            assert_eq!(
                masked(&format!("got {token} here")),
                format!("got [masked:{name}] here")
            );
        }
        assert_eq!(
            masked("Authorization: Bearer abcdef0123456789abcdef"),
            "Authorization: Bearer [masked:bearer]"
        );
        assert_eq!(
            masked("postgres://app:hunter22@db.example.invalid/x"),
            "postgres://app:[masked:password]@db.example.invalid/x"
        );
        for lead in ["Bearer\t", "bEARER ", "authorization:  BEARER  "] {
            let text = format!("{lead}abcdef0123456789abcdef");
            assert_eq!(masked(&text), format!("{lead}[masked:bearer]"));
        }
        for lead in ["Authorization: BASIC ", "authorization:basic\t"] {
            let text = format!("{lead}dXNlcjpwYXNz");
            assert_eq!(masked(&text), format!("{lead}[masked:basic_auth]"));
        }
        // Formats that need the name before the value.
        let secret = "aB3/".repeat(10);
        for lead in [
            "aws_secret_access_key = ",
            "AWS_SECRET_ACCESS_KEY=",
            "export awsSecretKey: '",
        ] {
            assert_eq!(
                masked(&format!("{lead}{secret}")),
                format!("{lead}[masked:aws_secret]")
            );
        }
        let key =
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----\nrest";
        assert_eq!(masked(key), "[masked:private_key]\nrest");
    }

    #[test]
    fn secrets_are_found_between_invalid_bytes() {
        let mask = knowing(&[("API_KEY", "supersecretvalue123")]);
        let found = mask.find_secrets(b"\xff\xe2\x82 supersecretvalue123\xff");
        assert_eq!(found, [(4..23, "API_KEY")]);
    }

    #[test]
    fn secrets_over_the_ends_of_a_part_are_masked_as_a_whole() {
        let mask = knowing(&[("API_KEY", "supersecretvalue123")]);
        let token = format!("ghp_{}", "aB3d".repeat(9));
        let text = format!("é supersecretvalue123 and {token} end");
        for (first, last, shown) in [
            (
                "é",
                "end",
                "é [masked:API_KEY] and [masked:github_token] end",
            ),
            (
                "secret",
                "ghp",
                "[masked:API_KEY] and [masked:github_token]",
            ),
            ("secret", "value", "[masked:API_KEY]"),
            (" and", "and ", " and "),
        ] {
            let start = text.find(first).expect("a place");
            let end = text.find(last).expect("a place") + last.len();
            assert_eq!(mask.apply_to_part(&text, start..end), shown);
        }
        let bearer = format!("Bearer {token}");
        let shown = mask.apply_to_part(&bearer, 0..12);
        assert_eq!(shown, "Bearer [masked:github_token]");
    }

    #[test]
    fn hashes_and_ids_are_not_masked() {
        for text in [
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            "id 123e4567-e89b-12d3-a456-426614174000",
            "sha512-qO5kZ3Vb1yVZ0b9mJrC1mP9iJ0aN4N6kTq2yQw6xk8m0z8Q1b2c3d4e5f6g7h8i9j0==",
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
            "npm_config_registry=https://registry.example.invalid:8080/",
            "git clone https://example.invalid/a/b.git",
            "task-runner sk-learn ask-for-something-longer-than-that",
            "the bearer of this letter",
            "-----BEGIN PUBLIC KEY-----",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}

//! The allowlist: host names as lists of labels, patterns, and the decision about a name and a port. Pure; knows
//! nothing about sockets, DNS messages or questions.
//!
//! A pattern is `example.org` (that name only), `*.example.org` (one or more labels before it, not the name itself),
//! either with `:port`, or `git@example.org` (port 22). Without a port, 443 and 80 are meant. Names are ASCII; the
//! ASCII form (`xn--`) of an international name is compared like any other, so that a look-alike never matches.

use std::fmt;

/// Ports of a pattern that names none.
pub const DEFAULT_PORTS: [u16; 2] = [443, 80];

const SSH_PORT: u16 = 22;
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host name: lower-case ASCII labels joined by dots, without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The name made of these labels, as a DNS message has them. `None` for anything that is not a host name: an empty
    /// label, a byte that is not a letter, digit, hyphen or underscore, a label or a name that is too long.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut name = String::new();
        for label in labels {
            if !is_label(label) {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(
                label
                    .iter()
                    .map(|byte| char::from(byte.to_ascii_lowercase())),
            );
        }
        (!name.is_empty() && name.len() <= MAX_NAME).then_some(Self(name))
    }

    /// The name written as text. One final dot is accepted and dropped.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        Self::from_labels(text.split('.').map(str::as_bytes))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Labels from the last to the first.
    fn labels_from_end(&self) -> impl Iterator<Item = &str> {
        self.0.rsplit('.')
    }

    /// True if a person can be asked about the name: it has at least two labels, and its last label is not reserved
    /// for a machine or a local network, and not a number (which would make it look like an address).
    pub fn can_be_asked_about(&self) -> bool {
        const RESERVED: [&str; 7] = [
            "alt",
            "arpa",
            "internal",
            "invalid",
            "local",
            "localhost",
            "onion",
        ];
        let last = self.labels_from_end().next().unwrap_or_default();
        self.0.contains('.') && !RESERVED.contains(&last) && !is_number(last)
    }

    /// True for `localhost` and every name below it.
    pub fn is_localhost(&self) -> bool {
        self.labels_from_end().next() == Some("localhost")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(label: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_LABEL).contains(&label.len())
        && label.iter().all(plain)
        && label.first() != Some(&b'-')
        && label.last() != Some(&b'-')
}

fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x");
    label.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// One entry of an allowlist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    name: HostName,
    /// The pattern began with `*.`: the name itself does not match, names below it do.
    below: bool,
    /// `None` stands for the default ports.
    port: Option<u16>,
}

/// A pattern that cannot be used. Its text is one sentence for the person who wrote the pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allow entry \"{pattern}\": {reason}")]
pub struct PatternError {
    pattern: String,
    reason: &'static str,
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Self::parts(text).map_err(|reason| PatternError {
            pattern: text.to_owned(),
            reason,
        })
    }

    fn parts(text: &str) -> Result<Self, &'static str> {
        if text.contains("://") || text.contains('/') {
            return Err("write the host name only, without a scheme or a path");
        }
        if text.starts_with('[') || text.parse::<std::net::IpAddr>().is_ok() {
            return Err("addresses cannot be allowed; write a host name");
        }
        let (text, ssh) = match text.strip_prefix("git@") {
            Some(rest) => (rest, Some(SSH_PORT)),
            None => (text, None),
        };
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(parse_port(port)?)),
            None => (text, ssh),
        };
        if host == "*" {
            return Err("\"*\" alone would allow every name; use network = \"on\" for that");
        }
        let (host, below) = match host.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (host, false),
        };
        if host.contains('*') {
            return Err(
                "\"*\" may only stand for whole labels at the start, as in \"*.example.org\"",
            );
        }
        if !host.is_ascii() {
            return Err("write the name in its ASCII form, which begins with \"xn--\"");
        }
        let name = HostName::parse(host).ok_or("this is not a host name")?;
        if name.labels_from_end().next().is_some_and(is_number) {
            return Err("addresses cannot be allowed; write a host name");
        }
        Ok(Self { name, below, port })
    }

    fn matches_name(&self, name: &HostName) -> bool {
        let mut labels = name.labels_from_end();
        let same = self
            .name
            .labels_from_end()
            .all(|own| labels.next() == Some(own));
        same && labels.next().is_some() == self.below
    }

    /// True if this pattern matches every name that the other one matches.
    fn covers_names_of(&self, other: &Pattern) -> bool {
        match other.below {
            false => self.matches_name(&other.name),
            true => self.below && (self.name == other.name || self.matches_name(&other.name)),
        }
    }

    fn ports(&self) -> &[u16] {
        self.port
            .as_ref()
            .map_or(&DEFAULT_PORTS, std::slice::from_ref)
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err("the port must be a number from 1 to 65535"),
    }
}

/// Patterns of one session.
#[derive(Clone, Debug, Default)]
pub struct Allowlist {
    patterns: Vec<Pattern>,
}

impl Allowlist {
    /// Reads all patterns, or reports the first that is wrong.
    pub fn parse<S: AsRef<str>>(patterns: &[S]) -> Result<Self, PatternError> {
        let patterns = patterns.iter().map(|text| Pattern::parse(text.as_ref()));
        Ok(Self {
            patterns: patterns.collect::<Result<_, _>>()?,
        })
    }

    /// True if a connection to this name and port is allowed.
    pub fn allows(&self, name: &HostName, port: u16) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| pattern.ports().contains(&port) && pattern.matches_name(name))
    }

    /// True if everything that a pattern allows is allowed already.
    pub fn covers(&self, wanted: &Pattern) -> bool {
        let covers = |port: &u16| {
            let mut patterns = self.patterns.iter();
            patterns.any(|own| own.ports().contains(port) && own.covers_names_of(wanted))
        };
        wanted.ports().iter().all(covers)
    }

    /// True if the name is allowed on some port, so that it gets an address.
    pub fn knows(&self, name: &HostName) -> bool {
        self.patterns
            .iter()
            .any(|pattern| pattern.matches_name(name))
    }

    /// Ports that need a listener inside the sandbox: those of the patterns, and 22, 80 and 443 because a person can
    /// be asked about them. Sorted, each once.
    pub fn ports(&self) -> Vec<u16> {
        let patterns = self.patterns.iter().flat_map(Pattern::ports);
        let mut ports: Vec<u16> = patterns
            .chain(&DEFAULT_PORTS)
            .chain([&SSH_PORT])
            .copied()
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Allowlist {
        Allowlist::parse(patterns).expect("patterns")
    }

    fn name(text: &str) -> HostName {
        HostName::parse(text).expect("a host name")
    }

    #[test]
    fn g112_only_the_same_labels_match() {
        let list = list(&["allowed.com"]);
        for other in [
            "allowed.com.evil.com",
            "evilallowed.com",
            "com",
            "sub.allowed.com",
            "xn--allwed-4ua.com",
            "allowed.co",
            "_allowed.com",
        ] {
            assert!(!list.allows(&name(other), 443), "{other}");
        }
        for same in ["allowed.com", "allowed.com.", "ALLOWED.com"] {
            assert!(list.allows(&name(same), 443), "{same}");
        }
    }

    #[test]
    fn g112_text_that_is_no_host_name_is_refused() {
        let long = format!("{}abcde", "a.".repeat(125));
        assert_eq!(long.len(), 255);
        let label = "a".repeat(64);
        for text in [
            "",
            ".",
            "allowed.com..",
            "a..b",
            ".a",
            "allowed.com\0",
            "allowed.com\0.evil",
            "allowed.com%00.evil",
            "a b.com",
            "-a.com",
            "a-.com",
            "bücher.example",
            &long,
            &label,
        ] {
            assert_eq!(HostName::parse(text), None, "{text:?}");
        }
        assert!(
            HostName::parse(&long[2..]).is_some(),
            "253 bytes are allowed"
        );
        assert!(
            HostName::parse(&label[1..]).is_some(),
            "63 bytes are allowed"
        );
    }

    #[test]
    fn g113_wildcard_matches_names_below_and_not_the_name_itself() {
        let list = list(&["*.x.com"]);
        assert!(!list.allows(&name("x.com"), 443));
        assert!(list.allows(&name("a.x.com"), 443));
        assert!(list.allows(&name("a.b.x.com"), 443));
        assert!(!list.allows(&name("ax.com"), 443));
        assert!(!list.allows(&name("x.com.evil.com"), 443));
    }

    #[test]
    fn ports_default_to_443_and_80() {
        let list = list(&["a.com", "b.com:8443", "git@c.com", "d.com:22"]);
        let allowed = |host: &str, port| list.allows(&name(host), port);
        assert!(allowed("a.com", 443) && allowed("a.com", 80) && !allowed("a.com", 22));
        assert!(allowed("b.com", 8443) && !allowed("b.com", 443));
        assert!(allowed("c.com", 22) && !allowed("c.com", 443));
        assert!(list.knows(&name("d.com")) && !list.knows(&name("e.com")));
        assert_eq!(list.ports(), [22, 80, 443, 8443]);
    }

    #[test]
    fn pattern_is_covered_by_the_same_names_and_ports() {
        let list = list(&["*.a.com", "b.com", "c.com:443", "c.com:80", "git@d.com"]);
        let covers = |text: &str| list.covers(&Pattern::parse(text).expect(text));
        for text in [
            "x.a.com",
            "*.a.com",
            "*.x.a.com",
            "x.a.com:443",
            "b.com:80",
            "c.com",
            "d.com:22",
        ] {
            assert!(covers(text), "{text}");
        }
        for text in [
            "a.com",
            "*.com",
            "x.a.com:22",
            "*.b.com",
            "x.b.com",
            "d.com",
            "e.com",
        ] {
            assert!(!covers(text), "{text}");
        }
    }

    #[test]
    fn wrong_patterns_are_answered_with_one_sentence() {
        let error = |text: &str| Pattern::parse(text).expect_err(text).to_string();
        for (text, part) in [
            ("*", "would allow every name"),
            ("*:443", "would allow every name"),
            ("*.*.com", "whole labels at the start"),
            ("a*.com", "whole labels at the start"),
            ("https://a.com", "without a scheme"),
            ("a.com/x", "without a scheme"),
            ("a.com:0", "from 1 to 65535"),
            ("a.com:70000", "from 1 to 65535"),
            ("a.com:+1", "from 1 to 65535"),
            ("a.com:", "from 1 to 65535"),
            ("1.2.3.4", "addresses cannot be allowed"),
            ("0x7f.1", "addresses cannot be allowed"),
            ("127.1", "addresses cannot be allowed"),
            ("::1", "addresses cannot be allowed"),
            ("[::1]:443", "addresses cannot be allowed"),
            ("bücher.example", "ASCII form"),
            ("", "not a host name"),
            ("a..b", "not a host name"),
        ] {
            let error = error(text);
            assert!(error.contains(part), "{text}: {error}");
            assert!(
                error.starts_with(&format!("allow entry \"{text}\": ")),
                "{error}"
            );
        }
    }

    #[test]
    fn local_and_single_names_are_not_asked_about() {
        for text in [
            "localhost",
            "printer",
            "printer.local",
            "1.0.0.127.in-addr.arpa",
            "1.2.3.4",
            "a.0x7f",
        ] {
            assert!(!name(text).can_be_asked_about(), "{text}");
        }
        assert!(name("example.org").can_be_asked_about());
        assert!(name("app.localhost").is_localhost() && !name("localhost.org").is_localhost());
    }
}

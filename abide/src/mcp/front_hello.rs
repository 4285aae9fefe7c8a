//! Hello: the first line that a front sends, before MCP. It contains the identity, working directory and
//! environment of the front and, after a reconnect, the numbers of the requests that the front replays.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use abide_engine::secret;

/// Longest hello in bytes.
pub const LINE_LIMIT: usize = 1 << 20;
/// Version of this line. Fields may be added under the same version; a reader ignores unknown ones.
const VERSION: u64 = 1;
/// Limit on unanswered requests, which a front may have to replay. The replayed `initialize` comes in addition.
pub const UNANSWERED_LIMIT: usize = 4_096;

/// Content of the hello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontHello {
    /// Id of this front; it stays the same as long as the front lives.
    pub front: String,
    /// Working directory of the front: the agent's root.
    pub cwd: PathBuf,
    /// Agent on whose behalf the front connects.
    pub agent: String,
    /// Environment of the front, which commands inherit.
    pub env: Vec<(OsString, OsString)>,
    /// Number of earlier connections of this front.
    pub connection: u32,
    /// Numbers of the replayed requests, in order.
    pub replayed: Vec<u64>,
    /// Milliseconds since each of these requests arrived, in the same order.
    pub ages: Vec<u64>,
    /// Number of the first request after the replayed ones.
    pub next: u64,
}

impl FrontHello {
    /// Encodes the line, with its newline. If the line exceeds [`LINE_LIMIT`], the largest variables are left out.
    pub fn line(&self) -> Vec<u8> {
        let mut hello = self.clone();
        loop {
            let mut line = serde_json::to_vec(&hello.to_json()).unwrap_or_default();
            line.push(b'\n');
            let size = |(name, value): &(OsString, OsString)| name.len() + value.len();
            let largest = (0..hello.env.len()).max_by_key(|&i| size(&hello.env[i]));
            match largest {
                Some(largest) if line.len() > LINE_LIMIT => drop(hello.env.swap_remove(largest)),
                _ => return line,
            }
        }
    }

    fn to_json(&self) -> HelloLine {
        let (mut env, mut env_raw) = (BTreeMap::new(), Vec::new());
        for (name, value) in &self.env {
            match (name.to_str(), value.to_str()) {
                (Some(name), Some(value)) => drop(env.insert(name.into(), value.into())),
                _ => env_raw.push((hex(name), hex(value))),
            }
        }
        HelloLine {
            abide: VERSION,
            front: self.front.clone(),
            cwd: self.cwd.to_string_lossy().into_owned(),
            cwd_raw: (self.cwd.to_str().is_none()).then(|| hex(self.cwd.as_os_str())),
            agent: self.agent.clone(),
            env,
            env_raw,
            connection: self.connection,
            resent: self.replayed.clone(),
            ages: self.ages.clone(),
            next: self.next,
        }
    }

    /// Decodes the line. `None`: no hello, or an unknown version.
    pub fn read(line: &[u8]) -> Option<Self> {
        let mut line: HelloLine = serde_json::from_slice(line).ok()?;
        if line.abide != VERSION || line.front.is_empty() {
            return None;
        }
        let cwd = line.cwd_raw.as_deref().and_then(unhex);
        let plain = line.env.into_iter();
        let mut env: Vec<(OsString, OsString)> = plain
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        for (name, value) in line.env_raw {
            env.push((unhex(&name)?, unhex(&value)?));
        }
        line.resent.truncate(UNANSWERED_LIMIT + 1);
        line.ages.truncate(UNANSWERED_LIMIT + 1);
        Some(FrontHello {
            front: line.front,
            cwd: cwd.unwrap_or_else(|| line.cwd.into()).into(),
            agent: match line.agent.as_str() {
                "" => "default".into(),
                _ => line.agent,
            },
            env,
            connection: line.connection,
            replayed: line.resent,
            ages: line.ages,
            next: line.next,
        })
    }
}

/// The hello as JSON. Text that is not Unicode is written as hexadecimal bytes.
#[derive(Serialize, Deserialize)]
struct HelloLine {
    abide: u64,
    front: String,
    cwd: String,
    cwd_raw: Option<String>,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    env_raw: Vec<(String, String)>,
    #[serde(default)]
    connection: u32,
    #[serde(default)]
    resent: Vec<u64>,
    #[serde(default)]
    ages: Vec<u64>,
    #[serde(default)]
    next: u64,
}

fn hex(text: &OsStr) -> String {
    secret::hex(text.as_bytes())
}

fn unhex(text: &str) -> Option<OsString> {
    secret::unhex(text).map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> FrontHello {
        FrontHello {
            front: "f1".into(),
            cwd: "/a b".into(),
            agent: "tester".into(),
            env: vec![("A".into(), "1\n\"2".into())],
            connection: 2,
            replayed: vec![3, 5],
            ages: vec![40_000, 0],
            next: 9,
        }
    }

    #[test]
    fn hello_round_trips() {
        let line = hello().line();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(FrontHello::read(&line), Some(hello()));
    }

    #[test]
    fn hello_holds_as_many_numbers_as_may_be_replayed() {
        let mut decoded = hello();
        decoded.replayed = (0..=UNANSWERED_LIMIT as u64).collect();
        decoded.ages = vec![u64::MAX; decoded.replayed.len()];
        assert_eq!(FrontHello::read(&decoded.line()), Some(decoded));
    }

    #[test]
    fn bytes_that_are_not_unicode_round_trip() {
        let odd = OsString::from_vec(vec![b'x', 0xff, 0x80]);
        let mut decoded = hello();
        decoded.cwd = PathBuf::from(&odd);
        decoded.env = vec![(odd.clone(), "v".into()), ("N".into(), odd)];
        assert_eq!(FrontHello::read(&decoded.line()), Some(decoded));
    }

    #[test]
    fn largest_variables_are_left_out_over_the_limit() {
        let mut decoded = hello();
        decoded
            .env
            .push(("HUGE".into(), "x".repeat(2 * LINE_LIMIT).into()));
        let line = decoded.line();
        assert!(line.len() <= LINE_LIMIT);
        assert_eq!(FrontHello::read(&line), Some(hello()));
    }

    #[test]
    fn unknown_fields_are_ignored_and_other_lines_refused() {
        let minimal = br#"{"abide":1,"front":"f","cwd":"/","new":{"a":[]}}"#;
        let read = FrontHello::read(minimal).expect("a minimal hello");
        assert_eq!((read.agent.as_str(), read.next), ("default", 0));
        for line in [
            &b"garbage"[..],
            b"{}",
            br#"{"abide":2,"front":"f","cwd":"/"}"#,
            br#"{"abide":1,"front":"","cwd":"/"}"#,
            br#"{"abide":1,"front":"f"}"#,
            br#"{"abide":1,"front":"f","cwd":"/","env":{"A":1}}"#,
            br#"{"abide":1,"front":"f","cwd":"/","env_raw":[["4","41"]]}"#,
            br#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
        ] {
            assert_eq!(
                FrontHello::read(line),
                None,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }
}

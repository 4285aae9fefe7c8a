//! Hello: the first line that a front sends, before MCP. It contains the identity, working directory and
//! environment of the front and, after a reconnect, the numbers of the requests that the front replays.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

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
    /// Number of the first request after the replayed ones.
    pub next: u64,
}

impl FrontHello {
    /// Encodes the line, with its newline. If the line exceeds [`LINE_LIMIT`], the largest variables are left out.
    pub fn line(&self) -> Vec<u8> {
        let mut hello = self.clone();
        loop {
            let mut line = hello.to_json().to_string().into_bytes();
            line.push(b'\n');
            let size = |(name, value): &(OsString, OsString)| name.len() + value.len();
            let largest = (0..hello.env.len()).max_by_key(|&i| size(&hello.env[i]));
            match largest {
                Some(largest) if line.len() > LINE_LIMIT => drop(hello.env.swap_remove(largest)),
                _ => return line,
            }
        }
    }

    fn to_json(&self) -> Value {
        let (mut env, mut env_raw) = (Map::new(), Vec::new());
        for (name, value) in &self.env {
            match (name.to_str(), value.to_str()) {
                (Some(name), Some(value)) => drop(env.insert(name.into(), value.into())),
                _ => env_raw.push(json!([hex(name), hex(value)])),
            }
        }
        json!({
            "abide": VERSION,
            "front": self.front,
            "cwd": self.cwd.to_string_lossy(),
            "cwd_raw": self.cwd.to_str().is_none().then(|| hex(self.cwd.as_os_str())),
            "agent": self.agent,
            "env": env,
            "env_raw": env_raw,
            "connection": self.connection,
            "resent": self.replayed,
            "next": self.next,
        })
    }

    /// Decodes the line. `None`: no hello, or an unknown version.
    pub fn read(line: &[u8]) -> Option<Self> {
        let decoded: Value = serde_json::from_slice(line).ok()?;
        if decoded.get("abide")?.as_u64()? != VERSION {
            return None;
        }
        let text = |field: &str| decoded.get(field).and_then(Value::as_str);
        let number = |field: &str| decoded.get(field).and_then(Value::as_u64);
        let cwd = match text("cwd_raw").and_then(unhex) {
            Some(raw) => raw,
            None => text("cwd")?.into(),
        };
        let replayed = decoded
            .get("resent")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        Some(FrontHello {
            front: text("front").filter(|id| !id.is_empty())?.into(),
            cwd: cwd.into(),
            agent: text("agent")
                .filter(|agent| !agent.is_empty())
                .unwrap_or("default")
                .into(),
            env: env(&decoded)?,
            connection: number("connection")
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            replayed: replayed
                .iter()
                .take(UNANSWERED_LIMIT + 1)
                .filter_map(Value::as_u64)
                .collect(),
            next: number("next").unwrap_or(0),
        })
    }
}

fn env(decoded: &Value) -> Option<Vec<(OsString, OsString)>> {
    let mut env = Vec::new();
    if let Some(plain) = decoded.get("env") {
        for (name, value) in plain.as_object()? {
            env.push((name.into(), value.as_str()?.into()));
        }
    }
    for pair in decoded
        .get("env_raw")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let part = |i: usize| pair.get(i).and_then(Value::as_str).and_then(unhex);
        env.push((part(0)?, part(1)?));
    }
    Some(env)
}

fn hex(text: &OsStr) -> String {
    text.as_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn unhex(text: &str) -> Option<OsString> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| u8::try_from(nibble(pair[0])? << 4 | nibble(pair[1])?).ok();
    digits
        .chunks(2)
        .map(byte)
        .collect::<Option<Vec<u8>>>()
        .map(OsString::from_vec)
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

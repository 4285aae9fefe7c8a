//! Hello: the first line that a front sends, before MCP. It contains the identity, working directory and
//! environment of the front.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::http::run_request::OsText;

/// Longest hello in bytes.
pub const LINE_LIMIT: usize = 1 << 20;
/// Version of this line. Fields may be added under the same version; a reader ignores unknown ones.
const VERSION: u64 = 2;
/// Limit on unanswered requests, which a front may have to replay. The replayed `initialize` comes in addition.
pub const UNANSWERED_LIMIT: usize = 4_096;

/// Content of the hello.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontHello {
    /// Id of this front; it stays the same as long as the front lives.
    pub front: String,
    /// Working directory of the front: the agent's root.
    #[serde(serialize_with = "write_path", deserialize_with = "read_path")]
    pub cwd: PathBuf,
    /// Agent on whose behalf the front connects.
    #[serde(default)]
    pub agent: String,
    /// Environment of the front, which commands inherit.
    #[serde(default, serialize_with = "write_env", deserialize_with = "read_env")]
    pub env: Vec<(OsString, OsString)>,
    /// Number of earlier connections of this front.
    #[serde(default)]
    pub connection: u32,
    /// Number of the first request that is not replayed.
    #[serde(default)]
    pub next: u64,
}

/// The line, with its version.
#[derive(Serialize, Deserialize)]
struct HelloLine<T> {
    abide: u64,
    #[serde(flatten)]
    hello: T,
}

impl FrontHello {
    /// Encodes the line, with its newline. If the line exceeds [`LINE_LIMIT`], the largest variables are left out.
    pub fn line(&self) -> Vec<u8> {
        let mut hello = self.clone();
        loop {
            let line = HelloLine {
                abide: VERSION,
                hello: &hello,
            };
            let mut line = serde_json::to_vec(&line).unwrap_or_default();
            line.push(b'\n');
            let size = |(name, value): &(OsString, OsString)| name.len() + value.len();
            let largest = (0..hello.env.len()).max_by_key(|&i| size(&hello.env[i]));
            match largest {
                Some(largest) if line.len() > LINE_LIMIT => drop(hello.env.swap_remove(largest)),
                _ => return line,
            }
        }
    }

    /// Decodes the line. `None`: no hello, or an unknown version.
    pub fn read(line: &[u8]) -> Option<Self> {
        let line: HelloLine<FrontHello> = serde_json::from_slice(line).ok()?;
        let mut hello = line.hello;
        if hello.agent.is_empty() {
            hello.agent = "default".into();
        }
        (line.abide == VERSION && !hello.front.is_empty()).then_some(hello)
    }
}

fn write_path<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    OsText::from(path.as_os_str()).serialize(to)
}

fn read_path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = OsText::deserialize(from)?.into_os();
    path.map(PathBuf::from).ok_or(D::Error::custom("no path"))
}

fn write_env<S: Serializer>(env: &[(OsString, OsString)], to: S) -> Result<S::Ok, S::Error> {
    let text = |text: &OsString| OsText::from(text.as_os_str());
    to.collect_seq(env.iter().map(|(name, value)| (text(name), text(value))))
}

fn read_env<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(OsString, OsString)>, D::Error> {
    let env = Vec::<(OsText, OsText)>::deserialize(from)?.into_iter();
    let env = env.map(|(name, value)| Some((name.into_os()?, value.into_os()?)));
    let env: Option<Vec<_>> = env.collect();
    env.ok_or(D::Error::custom("no variables"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn hello() -> FrontHello {
        FrontHello {
            front: "f1".into(),
            cwd: "/a b".into(),
            agent: "tester".into(),
            env: vec![("A".into(), "1\n\"2".into())],
            connection: 2,
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
        let minimal = br#"{"abide":2,"front":"f","cwd":"/","new":{"a":[]}}"#;
        let read = FrontHello::read(minimal).expect("a minimal hello");
        assert_eq!((read.agent.as_str(), read.next), ("default", 0));
        for line in [
            &b"garbage"[..],
            b"{}",
            br#"{"abide":3,"front":"f","cwd":"/"}"#,
            br#"{"abide":2,"front":"","cwd":"/"}"#,
            br#"{"abide":2,"front":"f"}"#,
            br#"{"abide":2,"front":"f","cwd":"/","env":[["A",1]]}"#,
            br#"{"abide":2,"front":"f","cwd":"/","env":[["A",{"base64":"-"}]]}"#,
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

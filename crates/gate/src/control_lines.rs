//! Lines of JSON between a gate and the daemon.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::agent_ports::PublishedBy;
use crate::questions::Answer;

/// Longest line of either side, in bytes.
pub const MAX_LINE: u64 = 16 << 10;

/// A line of the gate.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum GateLine<'a> {
    /// Connections to a name wait for an answer.
    Question {
        /// Number of the question at this gate.
        id: u64,
        /// Host name.
        name: Cow<'a, str>,
        /// Port.
        port: u16,
        /// Workspace of the sandbox.
        workspace: Cow<'a, str>,
    },
    /// A question needs no answer any more: it was answered, or nothing waits for it.
    Withdrawn {
        /// Number of the question.
        id: u64,
    },
    /// A port of the sandbox is reachable on this machine.
    Published {
        /// Port.
        port: u16,
    },
    /// A port of the sandbox could not be made reachable.
    NotPublished {
        /// Port.
        port: u16,
        /// Reason, for people.
        reason: Cow<'a, str>,
    },
    /// A port is not reachable any more.
    Unpublished {
        /// Port.
        port: u16,
    },
}

/// A line of the daemon.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonLine<'a> {
    /// The answer to a question.
    Answer {
        /// Number of the question.
        id: u64,
        /// Answer.
        answer: Answer,
        /// Words of the person, after a no.
        #[serde(default)]
        because: Option<Cow<'a, str>>,
    },
    /// Ports that other commands of the agent have published now.
    AgentPorts {
        /// Session of each port.
        ports: PublishedBy,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_as_they_were_written() {
        let question = GateLine::Question {
            id: 1,
            name: "example.org".into(),
            port: 443,
            workspace: "/src \"x\"".into(),
        };
        let text = serde_json::to_string(&question).expect("JSON");
        let expected = r#"{"event":"question","id":1,"name":"example.org","port":443,"workspace":"/src \"x\""}"#;
        assert_eq!(text, expected);
        assert_eq!(
            serde_json::from_str::<GateLine>(&text).expect("a line"),
            question
        );
        let answer: DaemonLine =
            serde_json::from_str(r#"{"answer":{"id":1,"answer":"yes"}}"#).expect("a line");
        let expected = DaemonLine::Answer {
            id: 1,
            answer: Answer::Yes,
            because: None,
        };
        assert_eq!(answer, expected);
        let ports = DaemonLine::AgentPorts {
            ports: [(3_000, "session_a".to_owned())].into(),
        };
        let text = serde_json::to_string(&ports).expect("JSON");
        assert_eq!(text, r#"{"agent_ports":{"ports":{"3000":"session_a"}}}"#);
        assert_eq!(
            serde_json::from_str::<DaemonLine>(&text).expect("a line"),
            ports
        );
    }
}

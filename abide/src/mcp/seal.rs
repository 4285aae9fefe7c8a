//! What a client carries between two rounds of one call. It is sealed: a call can only be taken up
//! again with the very arguments it was made with, by the agent that made it.

use abide_core::{QuestionId, SessionId};
use rmcp::model::{RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Seals and opens.
pub struct Seal(RequestStateCodec);

/// A call that returned to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The session it waits for.
    pub session: SessionId,
    /// What was asked.
    pub question: QuestionId,
    /// How many times it has returned.
    pub count: u32,
}

#[derive(Serialize, Deserialize)]
struct Written {
    session: String,
    question: String,
    count: u32,
}

/// Who calls what; part of the seal.
pub struct Subject<'a> {
    /// On whose behalf.
    pub agent: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// Its arguments.
    pub arguments: &'a Map<String, Value>,
}

impl Seal {
    /// A seal with the key of this installation.
    pub fn new(key: [u8; 32]) -> Self {
        Seal(RequestStateCodec::try_new(key).expect("the key is long enough"))
    }

    /// Seals a round.
    pub fn close(&self, round: Round, subject: &Subject<'_>) -> String {
        let written = Written {
            session: round.session.to_string(),
            question: round.question.to_string(),
            count: round.count,
        };
        let payload = serde_json::to_vec(&written).unwrap_or_default();
        let subject = subject.bytes();
        self.0
            .seal_with(&payload, &SealOptions::new().associated_data(&subject))
    }

    /// Opens what came back. `None`: it is not ours, or not of this call.
    pub fn open(&self, sealed: &str, subject: &Subject<'_>) -> Option<Round> {
        let written: Written = self.0.open_json_with(sealed, &subject.bytes()).ok()?;
        Some(Round {
            session: written.session.parse().ok()?,
            question: written.question.parse().ok()?,
            count: written.count,
        })
    }
}

impl Subject<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{}\0{}\0", self.agent, self.tool).into_bytes();
        write_sorted(&mut bytes, &Value::Object(self.arguments.clone()));
        bytes
    }
}

/// The same bytes for the same value, whatever the order of its fields.
fn write_sorted(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_unstable();
            bytes.push(b'{');
            for name in names {
                bytes.extend_from_slice(Value::String(name.clone()).to_string().as_bytes());
                bytes.push(b':');
                write_sorted(bytes, &fields[name]);
                bytes.push(b',');
            }
            bytes.push(b'}');
        }
        Value::Array(items) => {
            bytes.push(b'[');
            for item in items {
                write_sorted(bytes, item);
                bytes.push(b',');
            }
            bytes.push(b']');
        }
        plain => bytes.extend_from_slice(plain.to_string().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn opens_for_the_same_call_only() {
        let seal = Seal::new([7; 32]);
        let round = Round {
            session: SessionId::from_bits(11),
            question: QuestionId::from_bits(12),
            count: 3,
        };
        let given = arguments(json!({"command": "sleep 9", "env": {"B": "2", "A": "1"}}));
        let subject = |agent, tool, arguments| Subject {
            agent,
            tool,
            arguments,
        };
        let sealed = seal.close(round, &subject("me", "execute_command", &given));
        let open = |seal: &Seal, subject| seal.open(&sealed, &subject);

        assert_eq!(
            open(&seal, subject("me", "execute_command", &given)),
            Some(round)
        );
        assert_eq!(
            open(
                &Seal::new([7; 32]),
                subject("me", "execute_command", &given)
            ),
            Some(round),
            "the key outlives the daemon"
        );
        let turned = arguments(json!({"env": {"A": "1", "B": "2"}, "command": "sleep 9"}));
        assert_eq!(
            open(&seal, subject("me", "execute_command", &turned)),
            Some(round)
        );

        let other = arguments(json!({"command": "sleep 8", "env": {"B": "2", "A": "1"}}));
        assert_eq!(open(&seal, subject("me", "execute_command", &other)), None);
        assert_eq!(open(&seal, subject("me", "shell", &given)), None);
        assert_eq!(open(&seal, subject("you", "execute_command", &given)), None);
        assert_eq!(
            open(
                &Seal::new([8; 32]),
                subject("me", "execute_command", &given)
            ),
            None
        );
        assert_eq!(
            seal.open("nonsense", &subject("me", "execute_command", &given)),
            None
        );
    }
}

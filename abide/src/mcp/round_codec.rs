//! State that a client carries between two rounds of one call. It is sealed: a call can be resumed only with
//! the same arguments and by the same agent.

use abide_api::Id;
use abide_core::{QuestionId, SessionId};
use rmcp::model::{RequestStateCodec, SealOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Codec that seals and opens the state.
pub struct RoundCodec(RequestStateCodec);

/// State of a call that returned to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Session that the call waits for.
    pub session: Id<SessionId>,
    /// Question that was asked.
    pub question: Id<QuestionId>,
    /// Number of times that the call has returned.
    pub count: u32,
}

/// Caller, tool and arguments; authenticated together with the state.
pub struct Subject<'a> {
    /// Agent on whose behalf the call is made.
    pub agent: &'a str,
    /// Name of the tool.
    pub tool: &'a str,
    /// Arguments of the call.
    pub arguments: &'a Map<String, Value>,
}

impl RoundCodec {
    /// Codec with the key of this installation.
    pub fn new(key: [u8; 32]) -> Self {
        RoundCodec(RequestStateCodec::try_new(key).expect("the key is long enough"))
    }

    pub fn seal(&self, round: Round, subject: &Subject<'_>) -> String {
        let payload = serde_json::to_vec(&round).unwrap_or_default();
        let subject = subject.bytes();
        self.0
            .seal_with(&payload, &SealOptions::new().associated_data(&subject))
    }

    /// Opens a sealed state. `None`: the state was not sealed here, or belongs to another call.
    pub fn open(&self, sealed: &str, subject: &Subject<'_>) -> Option<Round> {
        self.0.open_json_with(sealed, &subject.bytes()).ok()
    }
}

impl Subject<'_> {
    fn bytes(&self) -> Vec<u8> {
        // The map is sorted, so the order in which a client writes its arguments makes no difference.
        let arguments = serde_json::to_string(self.arguments).unwrap_or_default();
        format!("{}\0{}\0{arguments}", self.agent, self.tool).into_bytes()
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
    fn state_opens_only_for_the_same_call() {
        let codec = RoundCodec::new([7; 32]);
        let round = Round {
            session: Id(SessionId::from_bits(11)),
            question: Id(QuestionId::from_bits(12)),
            count: 3,
        };
        let given = arguments(json!({"command": "sleep 9", "env": {"B": "2", "A": "1"}}));
        let subject = |agent, tool, arguments| Subject {
            agent,
            tool,
            arguments,
        };
        let sealed = codec.seal(round, &subject("me", "execute_command", &given));
        let reordered = arguments(json!({"env": {"A": "1", "B": "2"}, "command": "sleep 9"}));
        let other = arguments(json!({"command": "sleep 8", "env": {"B": "2", "A": "1"}}));
        let (same_key, other_key) = (RoundCodec::new([7; 32]), RoundCodec::new([8; 32]));
        for (codec, agent, tool, arguments, opened) in [
            (&codec, "me", "execute_command", &given, Some(round)),
            (&same_key, "me", "execute_command", &given, Some(round)),
            (&codec, "me", "execute_command", &reordered, Some(round)),
            (&codec, "me", "execute_command", &other, None),
            (&codec, "me", "shell", &given, None),
            (&codec, "you", "execute_command", &given, None),
            (&other_key, "me", "execute_command", &given, None),
        ] {
            let found = codec.open(&sealed, &subject(agent, tool, arguments));
            assert_eq!(found, opened, "{agent} {tool} {arguments:?}");
        }
        let own = subject("me", "execute_command", &given);
        assert_eq!(codec.open("nonsense", &own), None);
    }
}

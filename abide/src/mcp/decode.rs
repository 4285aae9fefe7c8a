//! Decoding of a client's line into a message of the MCP library.

use rmcp::model::ClientJsonRpcMessage;

use super::outline::{MessageKind, Outline};
use crate::strict_json::{self, StrictJson};

/// Decodes a line that has this outline. A tool call with a duplicate field is refused: the library would silently take
/// one of the two.
pub fn message(line: &[u8], outline: &Outline) -> Result<ClientJsonRpcMessage, DecodeError> {
    if calls_a_tool(outline)
        && let Err(fault) = serde_json::from_slice::<StrictJson>(line)
        && let Some(sentence) = strict_json::duplicate_field(&fault)
    {
        return Err(DecodeError::DuplicateField(sentence));
    }
    serde_json::from_slice(line).map_err(DecodeError::Invalid)
}

fn calls_a_tool(outline: &Outline) -> bool {
    outline.kind() == MessageKind::Request && outline.is("tools/call")
}

/// Reason why a line is no message.
#[derive(Debug)]
pub enum DecodeError {
    /// A field is given twice; the sentence says which.
    DuplicateField(String),
    /// The line is invalid JSON, or no message.
    Invalid(serde_json::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_field_is_refused() {
        for (line, field) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":{"command":"a","command":"b"}}}"#,
                "command",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","name":"timer"}}"#,
                "name",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"shell"}}"#,
                "id",
            ),
        ] {
            let sentence = format!("the field '{field}' is given twice");
            let outline = Outline::of(line.as_bytes());
            match message(line.as_bytes(), &outline) {
                Err(DecodeError::DuplicateField(message)) => assert_eq!(message, sentence),
                other => panic!("{other:?}"),
            }
        }
    }
}

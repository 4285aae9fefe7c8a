//! Decoding of a client's line into a message of the MCP library.
//!
//! The library tries one request type after another, and tool calls, which are by far the most frequent, are
//! among the last. This decoder recognises them by their method first.

use std::fmt;

use rmcp::model::{
    CallToolRequest, CallToolRequestMethod, CallToolRequestParams, ClientJsonRpcMessage,
    ClientRequest, JsonObject, JsonRpcMessage, JsonRpcVersion2_0, MetaObject, RequestId,
    RequestMetaObject,
};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

use super::outline::{MessageKind, Outline};
use crate::strict_json::{self, StrictJson};

/// Decodes a line that has this outline.
pub fn message(line: &[u8], outline: &Outline) -> Result<ClientJsonRpcMessage, DecodeError> {
    if calls_a_tool(outline)
        && let Some(call) = tool_call(line)?
    {
        return Ok(call);
    }
    // The library reports what is wrong with the line.
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

#[derive(Deserialize)]
struct ToolCallMessage {
    #[serde(rename = "jsonrpc")]
    _version: JsonRpcVersion2_0,
    #[serde(deserialize_with = "plain_id")]
    id: RequestId,
    #[serde(rename = "method")]
    _method: CallToolRequestMethod,
    params: Params,
}

/// Reads an id that is an integer or a string, and rejects everything that the library might convert into one.
fn plain_id<'de, D: Deserializer<'de>>(from: D) -> Result<RequestId, D::Error> {
    from.deserialize_any(IdVisitor)
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = RequestId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_i64<E>(self, id: i64) -> Result<RequestId, E> {
        Ok(RequestId::Number(id))
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<RequestId, E> {
        i64::try_from(id).map(RequestId::Number).map_err(E::custom)
    }

    fn visit_str<E>(self, id: &str) -> Result<RequestId, E> {
        Ok(RequestId::String(id.into()))
    }
}

/// Parameters of a tool call; the usual fields are separate from the others.
#[derive(Default)]
struct Params {
    name: Option<Value>,
    arguments: Option<Value>,
    meta: Option<Value>,
    others: JsonObject,
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ParamsVisitor)
    }
}

struct ParamsVisitor;

impl<'de> Visitor<'de> for ParamsVisitor {
    type Value = Params;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Params, A::Error> {
        let mut params = Params::default();
        while let Some((field, StrictJson(value))) = given.next_entry::<String, StrictJson>()? {
            let before = match field.as_str() {
                "name" => params.name.replace(value),
                "arguments" => params.arguments.replace(value),
                "_meta" => params.meta.replace(value),
                _ => params.others.insert(field.clone(), value),
            };
            if before.is_some() {
                return Err(A::Error::custom(strict_json::duplicate_field_message(
                    &field,
                )));
            }
        }
        Ok(params)
    }
}

/// Decodes a tool call. `None`: the library must decode the line.
fn tool_call(line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, DecodeError> {
    let ToolCallMessage { id, params, .. } = match serde_json::from_slice(line) {
        Ok(call) => call,
        Err(fault) => {
            return strict_json::duplicate_field(&fault).map_or(Ok(None), |message| {
                Err(DecodeError::DuplicateField(message))
            });
        }
    };
    Ok(call_message(id, params))
}

fn call_message(id: RequestId, mut params: Params) -> Option<ClientJsonRpcMessage> {
    let meta = match params.meta.take() {
        None | Some(Value::Null) => None,
        Some(Value::Object(meta)) => Some(RequestMetaObject(MetaObject(meta))),
        Some(_) => return None,
    };
    let mut request = CallToolRequest::new(call_params(params)?);
    if let Some(meta) = meta {
        request.extensions.insert(meta);
    }
    let request = ClientRequest::CallToolRequest(request);
    Some(JsonRpcMessage::request(request, id))
}

fn call_params(params: Params) -> Option<CallToolRequestParams> {
    match params {
        Params {
            name: Some(Value::String(name)),
            arguments: Some(Value::Object(arguments)),
            others,
            ..
        } if others.is_empty() => Some(CallToolRequestParams::new(name).with_arguments(arguments)),
        Params {
            name,
            arguments,
            mut others,
            ..
        } => {
            others.extend(name.map(|name| ("name".into(), name)));
            others.extend(arguments.map(|arguments| ("arguments".into(), arguments)));
            serde_json::from_value(Value::Object(others)).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways of decoding a line, in their `Debug` form.
    fn both(line: &str) -> (String, String) {
        let short = message(line.as_bytes(), &Outline::of(line.as_bytes()));
        let short = short.map_err(|unread| match unread {
            DecodeError::Invalid(fault) => fault,
            DecodeError::DuplicateField(message) => panic!("{message}: {line}"),
        });
        let long = serde_json::from_str::<ClientJsonRpcMessage>(line);
        (debug_form(&short), debug_form(&long))
    }

    fn debug_form(read: &serde_json::Result<ClientJsonRpcMessage>) -> String {
        let Ok(JsonRpcMessage::Request(asked)) = read else {
            return format!("{read:?}");
        };
        let ClientRequest::CallToolRequest(call) = &asked.request else {
            return format!("{read:?}");
        };
        let meta = call.extensions.get::<RequestMetaObject>();
        format!("{:?} {:?} {meta:?}", asked.id, call.params)
    }

    #[test]
    fn tool_call_decodes_as_the_library_decodes_it() {
        let calls = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":{"command":"true"}}}"#,
            r#"{"params":{"arguments":{},"name":"shell","_meta":{"progressToken":"p","x":[1,2.5]}},"method":"tools/call","id":"a","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":null,"_meta":null}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":{"a":18446744073709551615,"b":-1,"c":1e300}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","requestState":"s","inputResponses":{}}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","task":{"ttl":1},"more":1}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"name":"caf\u00e9 \ud83d\ude00","arguments":{"k":"v"}}}"#,
        ];
        for line in calls {
            let (short, long) = both(line);
            assert_eq!(short, long);
            assert!(
                tool_call(line.as_bytes()).is_ok_and(|call| call.is_some()),
                "the short way: {line}"
            );
        }
    }

    #[test]
    fn other_messages_are_left_to_the_library() {
        let others = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","arguments":[]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell","_meta":7}}"#,
            r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":9223372036854775808,"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":{"$serde_json::private::RawValue":"7"},"method":"tools/call","params":{"name":"shell"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shell"}"#,
        ];
        for line in others {
            let (short, long) = both(line);
            assert_eq!(short, long, "{line}");
            assert!(
                tool_call(line.as_bytes()).is_ok_and(|call| call.is_none()),
                "{line}"
            );
        }
    }

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

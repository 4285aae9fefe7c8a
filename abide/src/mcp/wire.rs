//! Messages as lines: their limit, and how answers and refusals are written.

use rmcp::model::ServerJsonRpcMessage;
use serde_json::{Value, json};

/// Longest message a client may send.
pub const MESSAGE_LIMIT: usize = 8 << 20;
/// Answer to a request whose id is in use.
pub const TWICE: &str =
    "a request under this id has not been answered yet; give each an id of its own";

/// Encodes a message, with its newline.
pub fn encode(message: &ServerJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    // Most lines are no longer, so that the buffer need not grow.
    let mut line = Vec::with_capacity(1 << 10);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// The line that answers a request with an error.
pub fn refusal(id: Option<&[u8]>, code: i32, sentence: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": sentence});
    answer(id.unwrap_or(b"null"), "error", &error)
}

/// The line that answers a request with this field.
pub fn answer(id: &[u8], field: &str, value: &Value) -> Vec<u8> {
    let mut line = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(format!(",\"{field}\":{value}}}\n").as_bytes());
    line
}

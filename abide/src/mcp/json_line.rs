//! Messages as lines of JSON: their size limit, and the encoding of answers and errors.

use rmcp::model::ServerJsonRpcMessage;
use serde_json::{Value, json};

/// Limit on the size of a client's message, in bytes.
pub const MESSAGE_LIMIT: usize = 8 << 20;
/// Error sentence for a request whose id is in use.
pub const ID_IN_USE: &str =
    "a request under this id has not been answered yet; give each an id of its own";

/// Encodes a message, with its newline.
pub fn encode(message: &ServerJsonRpcMessage) -> serde_json::Result<Vec<u8>> {
    // Most lines fit into this capacity, so that the buffer need not grow.
    let mut line = Vec::with_capacity(1 << 10);
    serde_json::to_writer(&mut line, message)?;
    line.push(b'\n');
    Ok(line)
}

/// Line that answers a request with an error.
pub fn error_line(id: Option<&[u8]>, code: i32, sentence: &str) -> Vec<u8> {
    let error = json!({"code": code, "message": sentence});
    answer_line(id.unwrap_or(b"null"), "error", &error)
}

/// Line that answers a request; `field` is "result" or "error".
pub fn answer_line(id: &[u8], field: &str, value: &Value) -> Vec<u8> {
    let mut line = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    line.extend_from_slice(id);
    line.extend_from_slice(format!(",\"{field}\":{value}}}\n").as_bytes());
    line
}

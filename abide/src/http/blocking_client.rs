//! Requests from one daemon to another. Blocking, without a runtime or an HTTP client, because a
//! starting daemon sends them before it has either.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use abide_engine::socket;

/// Read and write time-out. It is long, so that a slow machine or disk does not make a healthy daemon
/// look dead.
const PATIENCE: Duration = Duration::from_secs(30);
/// Largest response that is read, in bytes.
const ANSWER_LIMIT: u64 = 1 << 20;

/// Version of the daemon at this socket.
pub fn ask_version(path: &Path) -> io::Result<String> {
    let status = ask_status(path)?;
    let version = status["daemon"]["version"].as_str();
    version
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other("the version is missing"))
}

/// Status of the daemon at this socket.
pub fn ask_status(path: &Path) -> io::Result<Value> {
    let body = ask(path, "GET /v1/status")?;
    Ok(serde_json::from_slice(&body)?)
}

/// Asks the daemon at this socket to stop. Sessions continue.
pub fn ask_to_stop(path: &Path) -> io::Result<()> {
    ask(path, "POST /v1/stop").map(drop)
}

fn ask(path: &Path, what: &str) -> io::Result<Vec<u8>> {
    let mut stream = socket::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In HTTP/1.0 the end of the connection ends the response, so there is no body encoding to parse.
    // The request is sent in a single write: a peer that answers after the first of several writes may
    // close before it has read the others.
    let request = format!("{what} HTTP/1.0\r\nhost: abide\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_LIMIT).read_to_end(&mut answer)?;
    let head = b"\r\n\r\n";
    let end = answer
        .windows(head.len())
        .position(|window| window == head)
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let line = String::from_utf8_lossy(&answer[..end]);
    if line.split_ascii_whitespace().nth(1) != Some("200") {
        let said = serde_json::from_slice::<Value>(&answer[end + head.len()..]).ok();
        let said = said.as_ref().and_then(|problem| problem["detail"].as_str());
        let line = line.lines().next().unwrap_or_default();
        let why = said.map_or_else(|| format!("it answered {line}"), str::to_owned);
        return Err(io::Error::other(why));
    }
    Ok(answer.split_off(end + head.len()))
}

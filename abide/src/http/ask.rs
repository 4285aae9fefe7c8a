//! What one daemon asks another. Plain enough to need neither a runtime nor a client: a newer
//! daemon asks before it has either.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use abide_engine::socket;

/// A daemon that does not answer in this time is not well, however busy the machine and its disk are.
const PATIENCE: Duration = Duration::from_secs(30);
/// Its answers are short.
const ANSWER_LIMIT: u64 = 1 << 20;

/// The version of the daemon at this socket.
pub fn ask_version(path: &Path) -> io::Result<String> {
    let status = ask_status(path)?;
    let version = status["daemon"]["version"].as_str();
    version
        .map(str::to_owned)
        .ok_or_else(|| io::Error::other("the version is missing"))
}

/// How the daemon at this socket is.
pub fn ask_status(path: &Path) -> io::Result<Value> {
    let body = ask(path, "GET /v1/status")?;
    Ok(serde_json::from_slice(&body)?)
}

/// Has the daemon at this socket stop. No session is touched.
pub fn ask_to_stop(path: &Path) -> io::Result<()> {
    ask(path, "POST /v1/stop").map(drop)
}

fn ask(path: &Path, what: &str) -> io::Result<Vec<u8>> {
    let mut stream = socket::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // In HTTP/1.0 an answer ends with its connection, so there is nothing to take apart. Said in one piece:
    // whoever answers after the first of several goes before it was told the others.
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

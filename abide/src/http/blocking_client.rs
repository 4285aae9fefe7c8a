//! Requests from one daemon to another. Blocking, without a runtime or an HTTP client, because a
//! starting daemon sends them before it has either.

use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use abide_api::{FleetMachines, KnownIds, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use abide_engine::socket;

/// Read and write time-out. It is long, so that a slow machine or disk does not make a healthy daemon
/// look dead.
const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// Read and write time-out of a completion, for which a person waits.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest response that is read, in bytes.
const RESPONSE_LIMIT: u64 = 1 << 20;

/// Part of a [`Status`] that daemons of all versions have.
#[derive(Deserialize)]
struct AnyStatus {
    daemon: DaemonProcess,
}

/// Process of a daemon of any version.
#[derive(Deserialize)]
pub struct DaemonProcess {
    pub version: String,
    pub pid: Option<i32>,
}

/// Process of the daemon at this socket.
pub fn daemon_process(path: &Path) -> io::Result<DaemonProcess> {
    request(path, "GET /v1/status", IO_TIMEOUT).map(|status: AnyStatus| status.daemon)
}

/// Status of the daemon at this socket.
pub fn daemon_status(path: &Path) -> io::Result<Status> {
    request(path, "GET /v1/status", IO_TIMEOUT)
}

/// Machines of the fleet that the daemon at this socket sees.
pub fn daemon_machines(path: &Path) -> io::Result<FleetMachines> {
    request(path, "GET /v1/machines", IO_TIMEOUT)
}

/// Ids that the daemon at this socket knows. Meant for completions: a daemon that does not answer soon is not waited for.
pub fn known_ids(path: &Path, query: &str) -> io::Result<KnownIds> {
    request(path, &format!("GET /v1/ids?{query}"), COMPLETION_TIMEOUT)
}

/// Asks the daemon at this socket to stop. Sessions continue.
pub fn stop_daemon(path: &Path) -> io::Result<()> {
    answer(path, "POST /v1/stop", IO_TIMEOUT).map(drop)
}

fn request<T: DeserializeOwned>(path: &Path, what: &str, timeout: Duration) -> io::Result<T> {
    Ok(serde_json::from_slice(&answer(path, what, timeout)?)?)
}

/// Body of the answer to a request.
fn answer(path: &Path, what: &str, timeout: Duration) -> io::Result<Vec<u8>> {
    let mut stream = socket::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    // In HTTP/1.0 the end of the connection ends the response, so there is no body encoding to parse.
    // The request is sent in a single write: a peer that answers after the first of several writes may
    // close before it has read the others.
    let head = format!("{what} HTTP/1.0\r\nhost: abide\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut response = Vec::new();
    stream.take(RESPONSE_LIMIT).read_to_end(&mut response)?;
    let separator = b"\r\n\r\n";
    let end = response
        .windows(separator.len())
        .position(|window| window == separator)
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = &response[end + separator.len()..];
    let line = String::from_utf8_lossy(&response[..end]);
    if line.split_ascii_whitespace().nth(1) != Some("200") {
        let line = line.lines().next().unwrap_or_default();
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let why = problem["detail"].as_str().map(str::to_owned);
        return Err(io::Error::other(
            why.unwrap_or_else(|| format!("it answered {line}")),
        ));
    }
    Ok(body.to_vec())
}

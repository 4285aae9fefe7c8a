//! Links over ssh: the system's `ssh` runs `abide relay` on the other machine, which copies bytes to the socket of the
//! daemon there. ssh is a carrier, as the database is: both machines prove their keys in TLS, and the machine that is
//! called decides about rights. A login there that has no key of the fleet gets no further than the greeting.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::Millis;
use abide_core::fleet::MachineId;
use abide_core::time::Mono;
use abide_output::printable::one_line;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::UnixStream;
use tokio::process::{ChildStderr, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::CalledLink;
use crate::clock::{SystemClock, pause};
use crate::lock::lock;

/// Options of every `ssh`: it asks nobody, and notices a dead network within 15 seconds.
const OPTIONS: [&str; 14] = [
    "-T",
    "-a",
    "-x",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=5",
    "-o",
    "ServerAliveInterval=5",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "ClearAllForwardings=yes",
    "--",
];
/// Time until a link over ssh is open; after it the database carries the link.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// Time for which the database carries links after ssh has failed.
const RETRY: Millis = Millis(60_000);
/// Links over ssh that may be open at once, to all machines or from all. Further ones go through the database.
const MAX_LINKS: usize = 64;
/// Bytes that the user of a stream and `ssh` may be apart.
const BUFFER: usize = 64 << 10;
/// Time that the opener of a link has to say which machine it is.
const INTRODUCTION: Duration = Duration::from_secs(10);
/// First bytes of the machine that is called. They are text for a person who tries the command.
const GREETING: &[u8; 13] = b"abide-link 1\n";
/// Bytes that answer the greeting: the id of the opener in hexadecimal digits, and a line feed. TLS proves it.
const OPENER: usize = 17;
/// Longest part of the standard error of `ssh` that is read for a sentence.
const MAX_STDERR: u64 = 8 << 10;
/// Longest sentence of `ssh` that is shown, in characters.
const MAX_SENTENCE: usize = 200;

/// Links over ssh of this machine, and the reasons why some fail.
pub(super) struct SshLinks {
    failed: Mutex<BTreeMap<MachineId, Failed>>,
    slots: Arc<Semaphore>,
}

struct Failed {
    destination: String,
    at: Mono,
    why: String,
}

impl SshLinks {
    pub fn new() -> Self {
        SshLinks {
            failed: Mutex::default(),
            slots: Arc::new(Semaphore::new(MAX_LINKS)),
        }
    }

    /// Place for a link, unless ssh to this destination has just failed.
    pub fn slot(&self, machine: MachineId, destination: &str) -> Option<OwnedSemaphorePermit> {
        let failed = lock(&self.failed);
        let is_recent = failed.get(&machine).is_some_and(|failed| {
            failed.destination == destination && SystemClock.mono().since(failed.at) < RETRY
        });
        drop(failed);
        match is_recent {
            true => None,
            false => self.slots.clone().try_acquire_owned().ok(),
        }
    }

    /// Reason why ssh to this destination failed last.
    pub fn fault(&self, machine: MachineId, destination: &str) -> Option<String> {
        let failed = lock(&self.failed);
        let failed = failed.get(&machine)?;
        (failed.destination == destination).then(|| failed.why.clone())
    }

    /// Notes whether a link could be opened.
    pub fn note(&self, machine: MachineId, destination: &str, why: Option<&str>) {
        let mut failed = lock(&self.failed);
        let Some(why) = why else {
            failed.remove(&machine);
            return;
        };
        tracing::warn!("ssh to {destination} failed, the database carries calls: {why}");
        failed.insert(
            machine,
            Failed {
                destination: destination.to_owned(),
                at: SystemClock.mono(),
                why: why.to_owned(),
            },
        );
    }
}

/// Connects to the daemon at a destination of ssh. The stream ends when `ssh` does, and `ssh` when the stream is dropped.
/// A fault is a sentence for a person.
pub(super) async fn connect(
    destination: &str,
    own: MachineId,
    slot: OwnedSemaphorePermit,
) -> Result<DuplexStream, String> {
    let mut ssh = Command::new("ssh");
    ssh.args(OPTIONS)
        .args([destination, "abide", "relay"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let started = ssh.spawn();
    let mut child = started.map_err(|fault| format!("`ssh` cannot be started: {fault}"))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(mut stdout), Some(mut stderr)) = pipes else {
        return Err("`ssh` has no pipes".into());
    };
    let mut greeting = [0; GREETING.len()];
    match stdout.read_exact(&mut greeting).await {
        Ok(_) if greeting == *GREETING => {}
        Ok(_) => {
            return Err("something else than `abide relay` has written to the connection; a shell that is not \
                 interactive must print nothing there"
                .into());
        }
        Err(_) => return Err(last_line(&mut stderr).await),
    }
    let opener = format!("{:016x}\n", own.0);
    let introduced = stdin.write_all(opener.as_bytes()).await;
    introduced.map_err(|fault| format!("`ssh` has ended: {fault}"))?;
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    });
    Ok(joined(stdout, stdin, (child, slot)))
}

/// Last line that `ssh` or the remote shell has written about a fault.
async fn last_line(stderr: &mut ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _ = stderr.take(MAX_STDERR).read_to_end(&mut bytes).await;
    let text = String::from_utf8_lossy(&bytes);
    let line = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let line = line.unwrap_or("it ended without a reason");
    one_line(line).chars().take(MAX_SENTENCE).collect()
}

/// Places for links that `abide relay` brings.
pub fn relayed_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_LINKS))
}

/// Takes a link that `abide relay` brings, as soon as its opener has said who it is.
pub async fn answer(mut stream: UnixStream, slot: OwnedSemaphorePermit) -> Option<CalledLink> {
    let mut opener = [0; OPENER];
    let introduced = async {
        stream.write_all(GREETING).await.ok()?;
        stream.read_exact(&mut opener).await.ok()
    };
    tokio::select! {
        introduced = introduced => introduced?,
        () = pause(INTRODUCTION) => return None,
    };
    let digits = std::str::from_utf8(&opener).ok()?.strip_suffix('\n')?;
    let opener = MachineId(u64::from_str_radix(digits, 16).ok()?);
    let (reader, writer) = stream.into_split();
    let stream = joined(reader, writer, slot);
    Some(CalledLink { opener, stream })
}

/// Stream whose bytes are copied from `reader` and to `writer`, until one of them ends or the stream is dropped. `held` is
/// kept until then.
fn joined(
    reader: impl AsyncRead + Unpin + Send + 'static,
    mut writer: impl AsyncWrite + Unpin + Send + 'static,
    held: impl Send + 'static,
) -> DuplexStream {
    let (near, far) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        let (from_near, mut to_near) = tokio::io::split(far);
        let mut from_near = BufReader::with_capacity(BUFFER, from_near);
        let mut reader = BufReader::with_capacity(BUFFER, reader);
        tokio::select! {
            _ = tokio::io::copy_buf(&mut from_near, &mut writer) => {}
            _ = tokio::io::copy_buf(&mut reader, &mut to_near) => {}
        }
        drop(held);
    });
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(sent: &[u8]) -> Option<CalledLink> {
        let (mut relay, daemon) = UnixStream::pair().unwrap();
        let slot = relayed_slots().try_acquire_owned().unwrap();
        relay.write_all(sent).await.unwrap();
        relay.shutdown().await.unwrap();
        answer(daemon, slot).await
    }

    #[tokio::test]
    async fn link_is_taken_with_the_id_of_its_opener_and_the_bytes_behind_it() {
        let link = answered(b"00000000000000ff\nhello").await;
        let mut link = link.expect("a link");
        assert_eq!(link.opener, MachineId(255));
        let mut text = String::new();
        link.stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "hello");
    }

    #[tokio::test]
    async fn connection_that_names_no_machine_is_no_link() {
        for sent in [
            &b""[..],
            b"00ff\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"00000000000000ff ",
        ] {
            assert!(answered(sent).await.is_none(), "{sent:?}");
        }
    }

    #[test]
    fn failed_destination_is_left_alone_for_a_time_and_another_one_is_tried() {
        let (links, machine) = (SshLinks::new(), MachineId(1));
        assert!(links.slot(machine, "a").is_some());
        links.note(machine, "a", Some("refused"));
        assert!(links.slot(machine, "a").is_none());
        assert_eq!(links.fault(machine, "a").as_deref(), Some("refused"));
        assert!(links.slot(machine, "b").is_some());
        assert_eq!(links.fault(machine, "b"), None);
        links.note(machine, "a", None);
        assert!(links.slot(machine, "a").is_some());
        assert_eq!(links.fault(machine, "a"), None);
    }
}

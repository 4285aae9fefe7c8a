//! One connection to one keeper: frames out without a task in between, frames in as events.

use std::io;
use std::sync::{Arc, Mutex};

use abide_core::session::Ending;
use abide_core::{Event, Millis, Mono, SessionId};
use rustix::net::SendFlags;
use tokio::net::UnixStream;
use tokio::sync::{Notify, Semaphore, watch};

use super::{Keepers, found};
use crate::keeper::folder;
use crate::keeper::frame::{FromKeeper, INPUT_WINDOW, ToKeeper};

/// Bytes read from a keeper at once; its frames are small.
const READ: usize = 4 << 10;

pub(super) struct Link {
    stream: UnixStream,
    out: Mutex<Vec<u8>>,
    kick: Notify,
    /// Lengths that somebody wants to be told to be exceeded.
    watched: Mutex<Vec<u64>>,
    tide: watch::Sender<Tide>,
    credit: Semaphore,
}

/// How far a session's output has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tide {
    /// Bytes known of.
    pub bytes: u64,
    /// The leader has ended and all it wrote is among them.
    pub ended: bool,
    /// Nothing will ever be added.
    pub closed: bool,
}

impl Link {
    pub fn new(stream: UnixStream) -> Self {
        Link {
            stream,
            out: Mutex::default(),
            kick: Notify::new(),
            watched: Mutex::default(),
            tide: watch::channel(Tide::default()).0,
            credit: Semaphore::new(INPUT_WINDOW),
        }
    }

    /// Writes a frame at once where the socket takes it; the rest follows as soon as it can.
    pub fn send(&self, frame: &ToKeeper) {
        let mut out = self.out.lock().expect("no holder panics");
        let idle = out.is_empty();
        frame.encode(&mut out);
        if idle {
            // Past the runtime, which would first want to hear from the kernel that there is room.
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            if let Ok(written) = rustix::net::send(&self.stream, &out, flags) {
                out.drain(..written);
            }
            if !out.is_empty() {
                self.kick.notify_one();
            }
        }
    }

    /// Asks to be told once there are more bytes than `beyond`.
    pub fn watch(&self, beyond: u64) {
        let mut watched = self.watched.lock().expect("no holder panics");
        watched.push(beyond);
        let least = watched.iter().copied().min().unwrap_or(beyond);
        drop(watched);
        self.send(&ToKeeper::Watch { beyond: least });
    }

    pub async fn input(&self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(INPUT_WINDOW / 4) {
            let room = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let permit = self
                .credit
                .acquire_many(room)
                .await
                .map_err(|_| io::ErrorKind::BrokenPipe)?;
            permit.forget();
            self.send(&ToKeeper::Input {
                bytes: part.to_vec(),
            });
        }
        Ok(())
    }

    /// Sends input if all of it can be sent at once.
    pub fn answer(&self, bytes: &[u8]) {
        let room = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Ok(permit) = self.credit.try_acquire_many(room) {
            permit.forget();
            self.send(&ToKeeper::Input {
                bytes: bytes.to_vec(),
            });
        }
    }

    fn grew(&self, bytes: u64) {
        let mut watched = self.watched.lock().expect("no holder panics");
        watched.retain(|beyond| *beyond >= bytes);
        let next = watched.iter().copied().min();
        drop(watched);
        if let Some(beyond) = next {
            self.send(&ToKeeper::Watch { beyond });
        }
        self.tide
            .send_modify(|tide| tide.bytes = tide.bytes.max(bytes));
    }

    /// Writes what did not fit before.
    async fn flush(&self) -> io::Result<()> {
        loop {
            self.kick.notified().await;
            loop {
                self.stream.writable().await?;
                let mut out = self.out.lock().expect("no holder panics");
                match self.stream.try_write(&out) {
                    Ok(written) => drop(out.drain(..written)),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e),
                }
                if out.is_empty() {
                    break;
                }
            }
        }
    }
}

/// Follows the length of one session's log.
pub struct Follower {
    link: Arc<Link>,
    tide: watch::Receiver<Tide>,
}

impl Follower {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let tide = link.tide.subscribe();
        Follower { link, tide }
    }

    /// Waits until there are more bytes than `offset`, or the leader has ended, or nobody keeps the
    /// session any more.
    pub async fn beyond(&mut self, offset: u64) -> Tide {
        let now = *self.tide.borrow_and_update();
        if now.bytes > offset || now.ended {
            return now;
        }
        self.link.watch(offset);
        loop {
            if self.tide.changed().await.is_err() {
                let last = *self.tide.borrow();
                return Tide {
                    ended: true,
                    closed: true,
                    ..last
                };
            }
            let now = *self.tide.borrow_and_update();
            if now.bytes > offset || now.ended {
                return now;
            }
        }
    }
}

/// Reads a keeper's frames for as long as it lives, and makes events of them.
pub(super) async fn attend(keepers: Arc<Keepers>, id: SessionId, link: Arc<Link>) {
    let mut life = Life {
        started: false,
        ended: false,
    };
    let reading = read_frames(&keepers, id, &link, &mut life);
    tokio::select! {
        biased;
        () = keepers.leaving.cancelled() => return,
        _ = reading => {}
        _ = link.flush() => {}
    }
    link.credit.close();
    link.tide.send_modify(|tide| {
        tide.ended = true;
        tide.closed = true;
    });
    keepers.forget(id);
    let folder = keepers.folder(id);
    // A keeper that wrote down what it was to run may have run it, whatever it managed to say.
    let ran = life.started || matches!(folder::read_meta(&folder), Ok(Some(_)));
    if ran && !life.ended {
        let lost = tokio::task::spawn_blocking(move || found::lost(&folder)).await;
        if let Ok(ending) = lost {
            let _ = keepers
                .events
                .send(Event::Exited {
                    session: id,
                    ending,
                    empty: true,
                })
                .await;
        }
    } else if ran {
        // The keeper only goes when nothing of the tree is left.
        let _ = keepers.events.send(Event::Emptied { session: id }).await;
    } else {
        keepers.fail(id, "its keeper ended before the command was started");
        keepers
            .spares
            .lock()
            .expect("no holder panics")
            .retain(|spare| *spare != id);
    }
}

struct Life {
    started: bool,
    ended: bool,
}

async fn read_frames(
    keepers: &Arc<Keepers>,
    id: SessionId,
    link: &Link,
    life: &mut Life,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    let mut chunk = [0; READ];
    loop {
        link.stream.readable().await?;
        match link.stream.try_read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => buffer.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        }
        while let Some(frame) =
            FromKeeper::take_from(&mut buffer).map_err(|_| io::ErrorKind::InvalidData)?
        {
            if let Some(event) = translate(keepers, id, link, life, frame) {
                let _ = keepers.events.send(event).await;
            }
        }
    }
}

/// What a frame means to the core.
fn translate(
    keepers: &Keepers,
    session: SessionId,
    link: &Link,
    life: &mut Life,
    frame: FromKeeper,
) -> Option<Event> {
    match frame {
        FromKeeper::Ready { contained_by, .. } => {
            keepers.hold(session, contained_by);
            None
        }
        FromKeeper::Started { contained_by, .. } => {
            keepers.hold(session, contained_by);
            life.started = true;
            Some(Event::Started { session })
        }
        FromKeeper::StartFailed { sentence, .. } => {
            life.started = true;
            life.ended = true;
            Some(Event::StartFailed {
                session,
                fault: sentence.into(),
            })
        }
        FromKeeper::Grew {
            bytes,
            quiet_since_mono_ms,
        } => {
            link.grew(bytes);
            Some(Event::Grew {
                session,
                bytes,
                quiet_since: Mono(quiet_since_mono_ms),
            })
        }
        FromKeeper::Exited(exited) => {
            life.ended = true;
            link.send(&ToKeeper::Ack);
            link.tide.send_modify(|tide| {
                tide.bytes = tide.bytes.max(exited.bytes);
                tide.ended = true;
                tide.closed |= exited.closed;
            });
            let ending = Ending {
                exit: exited.exit,
                end: exited.end,
                duration: Millis(exited.duration_ms),
                bytes: exited.bytes,
                dropped: exited.dropped,
            };
            Some(Event::Exited {
                session,
                ending,
                empty: exited.empty,
            })
        }
        FromKeeper::Emptied => Some(Event::Emptied { session }),
        FromKeeper::Closed => {
            link.tide.send_modify(|tide| tide.closed = true);
            None
        }
        FromKeeper::InputTaken { bytes } => {
            link.credit.add_permits(usize::try_from(bytes).unwrap_or(0));
            None
        }
        FromKeeper::KillPending { left } => {
            tracing::warn!(
                "{left} processes of {session} outlive SIGKILL; its keeper goes on trying"
            );
            None
        }
    }
}

//! Carries frames between the links of this machine and the database.
//!
//! One task writes what links send and reads what other machines have sent, over one connection. While the database is
//! away nothing is lost: what was not written is written later, and links end only by the silence of the other machine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::Millis;
use abide_core::fleet::{Event, MachineId};
use abide_core::time::Mono;
use tokio::io::DuplexStream;
use tokio::sync::{Notify, mpsc, watch};

use super::frame::{Frame, Kind, RESET_NUMBER};
use super::stream::{self, Channels, INBOUND, InboundRow, LinkId, OutboundRow, Side};
use crate::clock::{SystemClock, pause};
use crate::fleet::{Fleet, FleetState};
use crate::lock::lock;
use crate::store::{FrameTable, MAX_FRAMES, PostgresAddress, StoreFault, StoredFrame};

/// Frames of all links that may wait to be written.
const OUTGOING: usize = 64;
/// Frames that are written at once.
const BATCH: usize = 16;
/// Links that other machines may have open here. Each keeps one or two for some time after a call.
const MAX_CALLED: usize = 256;
/// Links that may wait to be served.
const MAX_WAITING: usize = 16;
/// Time between looks for frames: while a link is open, and otherwise. Every heartbeat finds frames too, in case that a
/// notification was lost; the handshake of a link waits longer than that.
const LOOK_OPEN: Duration = Duration::from_millis(100);
const LOOK_IDLE: Duration = Duration::from_secs(1);
/// Time between two removals of frames that no machine takes, and between looks where the database notifies.
const SWEEP: Duration = Duration::from_secs(600);
/// Time that the membership has to note that a machine does not answer.
const UNANSWERED: Duration = Duration::from_secs(1);
/// Time until the next attempt to connect.
const RECONNECT: Duration = Duration::from_secs(1);

/// Link that another machine has opened.
pub struct CalledLink {
    /// Machine that has opened it, as it says.
    pub opener: MachineId,
    /// Bytes, of which nothing is proved yet.
    pub stream: DuplexStream,
}

/// Links of this machine.
pub struct Carrier {
    fleet: Fleet,
    outgoing: mpsc::Sender<OutboundRow>,
    links: Mutex<HashMap<LinkId, OpenLink>>,
    called: mpsc::Sender<CalledLink>,
    connection: watch::Sender<Connection>,
    /// Notified when a link is opened.
    changed: Notify,
    /// Time at which the last look that was answered was sent.
    looks: watch::Sender<Mono>,
}

/// Connection to the database.
#[derive(Clone)]
enum Connection {
    /// Being made for the first time, or again after it was lost.
    Pending,
    Made(Arc<FrameTable>),
    /// Could not be made. It is tried again and again.
    Failed,
}

impl Connection {
    fn table(&self) -> Option<Arc<FrameTable>> {
        match self {
            Connection::Made(table) => Some(table.clone()),
            Connection::Pending | Connection::Failed => None,
        }
    }
}

struct OpenLink {
    side: Side,
    incoming: mpsc::Sender<InboundRow>,
}

impl Carrier {
    /// Starts the task. Links that other machines open come out of the receiver.
    pub fn start(
        address: PostgresAddress,
        fleet: Fleet,
    ) -> (Arc<Self>, mpsc::Receiver<CalledLink>) {
        let (outgoing, queue) = mpsc::channel(OUTGOING);
        let (called, waiting) = mpsc::channel(MAX_WAITING);
        let carrier = Arc::new(Carrier {
            fleet,
            outgoing,
            links: Mutex::default(),
            called,
            connection: watch::Sender::new(Connection::Pending),
            changed: Notify::new(),
            looks: watch::Sender::new(SystemClock.mono()),
        });
        tokio::spawn(carrier.clone().run(address, queue));
        (carrier, waiting)
    }

    /// Queue of the links that other machines open.
    pub fn called_links(&self) -> mpsc::Sender<CalledLink> {
        self.called.clone()
    }

    fn own(&self) -> MachineId {
        self.fleet.state().own.unwrap_or(MachineId(0))
    }

    /// Connection to the database, if there is one now.
    pub fn connected(&self) -> Option<Arc<FrameTable>> {
        self.connection.borrow().table()
    }

    /// Connection to the database, if there is one within `patience`. One that could not be made is not waited for.
    pub async fn table(&self, patience: Duration) -> Option<Arc<FrameTable>> {
        let mut connection = self.connection.subscribe();
        let is_decided = |found: &Connection| !matches!(found, Connection::Pending);
        let found = tokio::select! {
            found = connection.wait_for(is_decided) => found.ok()?.table(),
            () = pause(patience) => None,
        };
        found
    }

    /// Opens a link to another machine. Whether that answers is found out by the user of the stream.
    pub fn open(self: &Arc<Self>, machine: MachineId) -> DuplexStream {
        self.begin(machine, LinkId::new(self.own()), Side::Opener).1
    }

    fn begin(
        self: &Arc<Self>,
        machine: MachineId,
        link: LinkId,
        side: Side,
    ) -> (mpsc::Sender<InboundRow>, DuplexStream) {
        let (sender, incoming) = mpsc::channel(INBOUND);
        let channels = Channels {
            outgoing: self.outgoing.clone(),
            incoming,
            looks: self.looks.subscribe(),
        };
        let (stream, work) = stream::open(machine, link, side, channels);
        let open = OpenLink {
            side,
            incoming: sender.clone(),
        };
        lock(&self.links).insert(link, open);
        self.changed.notify_one();
        let carrier = self.clone();
        tokio::spawn(async move {
            let ended = work.await;
            lock(&carrier.links).remove(&link);
            if ended.is_silent && side == Side::Opener {
                carrier.unanswered(machine).await;
            }
        });
        (sender, stream)
    }

    /// Tells the membership that a machine does not answer. The user of the link hears of it after the state of the fleet
    /// has it, so that a call is not sent to that machine once more.
    async fn unanswered(&self, machine: MachineId) {
        self.fleet.send(Event::Unanswered { machine }).await;
        let mut states = self.fleet.watch();
        let is_known = |state: &Arc<FleetState>| {
            let known = state.machines.get(&machine);
            known.is_none_or(|known| !known.is_alive())
        };
        tokio::select! {
            _ = states.wait_for(is_known) => {}
            () = pause(UNANSWERED) => {}
        }
    }

    async fn run(
        self: Arc<Self>,
        address: PostgresAddress,
        mut queue: mpsc::Receiver<OutboundRow>,
    ) {
        let mut unsent = Vec::new();
        loop {
            match FrameTable::connect(&address, self.own()).await {
                Ok(table) => {
                    let table = Arc::new(table);
                    self.connection
                        .send_replace(Connection::Made(table.clone()));
                    let fault = self.serve(&table, &mut queue, &mut unsent).await;
                    tracing::debug!("the connection for links has ended: {fault}");
                    self.connection.send_replace(Connection::Pending);
                }
                Err(fault) => {
                    tracing::debug!("no connection for links: {fault}");
                    self.connection.send_replace(Connection::Failed);
                }
            }
            pause(RECONNECT).await;
        }
    }

    /// Carries frames until the connection fails.
    async fn serve(
        self: &Arc<Self>,
        table: &FrameTable,
        queue: &mut mpsc::Receiver<OutboundRow>,
        unsent: &mut Vec<OutboundRow>,
    ) -> StoreFault {
        let mut taken = Vec::new();
        let mut look = true;
        let mut swept = SystemClock.mono();
        let mut looked = swept;
        loop {
            if let Err(fault) = self.send(table, unsent).await {
                return fault;
            }
            while look {
                looked = SystemClock.mono();
                match table.take(&taken).await {
                    Ok(frames) => {
                        taken.clear();
                        // Frames that were taken are removed by the next look. It need not be at once, because more
                        // frames are notified: an answer goes first.
                        look = frames.len() == MAX_FRAMES;
                        self.dispatch(table, frames, &mut taken).await;
                        self.looks.send_replace(looked);
                    }
                    Err(fault) => return fault,
                }
            }
            if SystemClock.mono().since(swept) >= Millis(SWEEP.as_millis() as u64) {
                swept = SystemClock.mono();
                if let Err(fault) = table.sweep().await {
                    return fault;
                }
            }
            let passed = Duration::from_millis(SystemClock.mono().since(looked).0);
            tokio::select! {
                biased;
                row = queue.recv() => {
                    unsent.extend(row);
                    while unsent.len() < BATCH && let Ok(row) = queue.try_recv() {
                        unsent.push(row);
                    }
                }
                () = table.rung() => look = true,
                () = self.fleet.frame_waits() => look = true,
                () = self.changed.notified() => {}
                () = table.closed() => return StoreFault::Unwritable("the connection is closed".into()),
                () = pause(self.interval(table, taken.is_empty()).saturating_sub(passed)) => look = true,
            }
        }
    }

    /// Time until the next look.
    fn interval(&self, table: &FrameTable, all_removed: bool) -> Duration {
        let open = !lock(&self.links).is_empty();
        match (table.notifies(), open) {
            (true, false) if all_removed => SWEEP,
            (true, true | false) | (false, false) => LOOK_IDLE,
            (false, true) => LOOK_OPEN,
        }
    }

    async fn send(
        &self,
        table: &FrameTable,
        unsent: &mut Vec<OutboundRow>,
    ) -> Result<(), StoreFault> {
        if unsent.is_empty() {
            return Ok(());
        }
        table.send(unsent).await?;
        unsent.clear();
        Ok(())
    }

    /// Passes frames to their links. `taken` are the frames that can be removed.
    async fn dispatch(
        self: &Arc<Self>,
        table: &FrameTable,
        frames: Vec<StoredFrame>,
        taken: &mut Vec<(String, u64)>,
    ) {
        debug_assert!(frames.len() <= MAX_FRAMES);
        let mut unknown = Vec::new();
        for frame in frames {
            let StoredFrame {
                link: column,
                number,
                bytes,
            } = frame;
            taken.push((column.clone(), number));
            let Some((link, sender)) = LinkId::of_column(&column) else {
                continue;
            };
            if let Some(incoming) = self.incoming(link, sender, number, &bytes) {
                // A machine that sends more than the window allows loses frames, which ends the link.
                let _ = incoming.try_send((number, bytes));
            } else if sender == Side::Opener && number != RESET_NUMBER && !unknown.contains(&link) {
                unknown.push(link);
            }
        }
        for link in unknown {
            let reset = OutboundRow {
                target: link.opener,
                link,
                sender: Side::Called,
                number: RESET_NUMBER,
                bytes: Frame::reset().encode(),
            };
            // If this is lost, the opener notices by silence.
            let _ = table.send(&[reset]).await;
        }
    }

    /// Queue of the link to which a frame belongs. A first frame of another machine makes a link.
    fn incoming(
        self: &Arc<Self>,
        link: LinkId,
        sender: Side,
        number: u64,
        bytes: &[u8],
    ) -> Option<mpsc::Sender<InboundRow>> {
        let links = lock(&self.links);
        if let Some(open) = links.get(&link) {
            return (open.side != sender).then(|| open.incoming.clone());
        }
        let called = links.values().filter(|open| open.side == Side::Called);
        let is_full = called.count() >= MAX_CALLED;
        drop(links);
        let is_first = number == 0
            && sender == Side::Opener
            && Frame::decode(bytes).is_ok_and(|frame| frame.kind == Kind::Open);
        if !is_first || is_full {
            return None;
        }
        let slot = self.called.try_reserve().ok()?;
        let (incoming, stream) = self.begin(link.opener, link, Side::Called);
        slot.send(CalledLink {
            opener: link.opener,
            stream,
        });
        Some(incoming)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Paths;
    use crate::fleet::{Introduction, MachineIdentity, Runner, RunnerParts};

    #[tokio::test]
    async fn database_that_could_not_be_reached_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = folder.path().display().to_string().replace('/', "%2F");
        let address = PostgresAddress::parse(&format!("postgres://abide@{host}/work"), None);
        let address = address.expect("an address");
        let paths = Paths::under(folder.path());
        let (_runner, fleet) = Runner::new(RunnerParts {
            address: address.clone(),
            identity: MachineIdentity::make(&paths, None).expect("an identity"),
            introduction: Introduction::default(),
            ownership: mpsc::channel(1).0,
            paths,
        });
        let (carrier, _called) = Carrier::start(address, fleet);
        let found = carrier.table(Duration::MAX).await;
        assert!(found.is_none());
    }
}

//! One end of a link as a stream of bytes: a task that turns bytes into rows of frames, and rows into bytes.

use abide_core::Millis;
use abide_core::fleet::MachineId;
use abide_core::time::Mono;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use super::frame::{Broken, End, Frame, Kind, MAX_PAYLOAD, RESET_NUMBER, WINDOW};
use crate::clock::{SystemClock, sleep_until};
use crate::entropy;

/// Bytes that the user of a stream and the task of the link may be apart.
const BUFFER: usize = 64 << 10;
/// Rows that may wait for the task of a link. The other end may have a window of frames under way, and
/// acknowledgements besides.
pub const INBOUND: usize = 2 * WINDOW as usize;
/// Silence after which the other end is asked to answer, if this one waits for nothing.
const PING_QUIET: Millis = Millis(10_000);
/// The same for a call that is not answered, and the time after which the other end is asked again.
const PING_WAITING: Millis = Millis(1_000);
/// Silence after which the other end does not answer. Ends of a link that answer do so within milliseconds; a machine
/// that looks without notifications, within a second.
const SILENT: Millis = Millis(4_000);
/// Longest time between two looks that counts as silence: the other machine may have lost the database too.
const LOOK_GAP: Millis = Millis(1_500);
/// Bytes that a link sends in a second, and at once after a pause: all of them go through the database.
const BYTES_PER_SECOND: u64 = 256 << 10;

/// Id of a link, chosen by the machine that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    /// Machine that opens it, as it says: TLS proves it.
    pub opener: MachineId,
    pub random: u64,
}

impl LinkId {
    /// New id of a link that this machine opens.
    pub fn new(opener: MachineId) -> Self {
        LinkId {
            opener,
            random: entropy::bits(),
        }
    }

    /// Text in the rows of the frames that one side sends.
    pub fn column(self, sender: Side) -> String {
        let sender = match sender {
            Side::Opener => '>',
            Side::Called => '<',
        };
        format!("{:016x}{:016x}{sender}", self.opener.0, self.random)
    }

    /// Reads the text of a row: the link and the side that has sent the frame.
    pub fn of_column(text: &str) -> Option<(Self, Side)> {
        let (numbers, sender) = text.split_at_checked(32)?;
        let sender = match sender {
            ">" => Side::Opener,
            "<" => Side::Called,
            _ => return None,
        };
        let (opener, random) = numbers.split_at_checked(16)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let link = LinkId {
            opener: MachineId(number(opener)?),
            random: number(random)?,
        };
        Some((link, sender))
    }
}

/// Frame on its way to another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRow {
    /// Machine that takes it.
    pub target: MachineId,
    pub link: LinkId,
    /// Side that sends it.
    pub sender: Side,
    /// Number in its direction.
    pub number: u64,
    /// Encoded frame.
    pub bytes: Vec<u8>,
}

/// Row that was taken from the database: its number and the encoded frame.
pub type InboundRow = (u64, Vec<u8>);

/// Channels of one link.
pub struct Channels {
    /// Rows to the other machine.
    pub outgoing: mpsc::Sender<OutboundRow>,
    /// Rows from the other machine. The link ends when the sender is dropped.
    pub incoming: mpsc::Receiver<InboundRow>,
    /// Time of the last look at the database that was answered.
    pub looks: watch::Receiver<Mono>,
}

/// Link that has ended.
#[derive(Debug)]
pub struct EndedLink {
    /// True if the other machine did not answer, though the database did.
    pub is_silent: bool,
    /// Other half of the stream: its user sees the end when this is dropped.
    _stream: (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
}

/// Side of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens the link.
    Opener,
    Called,
}

/// Makes the stream of a link, and the future that carries its bytes until it ends.
pub fn open(
    target: MachineId,
    link: LinkId,
    side: Side,
    channels: Channels,
) -> (
    DuplexStream,
    impl Future<Output = EndedLink> + Send + 'static,
) {
    let (near, far) = tokio::io::duplex(BUFFER);
    let now = SystemClock.mono();
    let pump = Pump {
        target,
        link,
        side,
        end: End::default(),
        rate: Rate::default(),
        silence: Silence::new(side, now),
        outgoing: channels.outgoing,
        first: match side {
            Side::Opener => Kind::Open,
            Side::Called => Kind::Data,
        },
    };
    let inbound = (channels.incoming, channels.looks);
    (near, carry(pump, far, inbound))
}

/// Silence of the other end.
struct Silence {
    side: Side,
    heard: Mono,
    /// Time since which a frame waits for an answer.
    waits_since: Option<Mono>,
    /// Time of the last ping since then.
    pinged: Option<Mono>,
    /// Silence since then during which the database answered.
    counted: Millis,
    /// Last look that was counted.
    looked: Mono,
}

impl Silence {
    fn new(side: Side, now: Mono) -> Self {
        Silence {
            side,
            heard: now,
            waits_since: None,
            pinged: None,
            counted: Millis(0),
            looked: now,
        }
    }

    fn heard(&mut self, now: Mono) {
        *self = Silence {
            looked: self.looked,
            ..Silence::new(self.side, now)
        };
    }

    /// A frame with bytes was sent. What answers a call is not answered itself.
    fn sent(&mut self, now: Mono) {
        if self.side == Side::Opener {
            self.waits_since.get_or_insert(now);
        }
    }

    fn pinged(&mut self, now: Mono) {
        self.waits_since.get_or_insert(now);
        self.pinged = Some(now);
    }

    /// Counts a look that was answered at this time and showed nothing of the other end.
    fn looked(&mut self, at: Mono) {
        if let Some(since) = self.waits_since {
            let gap = at.since(self.looked.max(since)).min(LOOK_GAP);
            self.counted = Millis(self.counted.0 + gap.0);
        }
        self.looked = self.looked.max(at);
    }

    /// Time at which the other end is asked to answer. While the database does not answer, it is not asked again.
    fn ping_at(&self) -> Option<Mono> {
        match (self.waits_since, self.pinged) {
            (None, _) => Some(Mono(self.heard.0 + PING_QUIET.0)),
            (Some(since), None) => Some(Mono(since.0 + PING_WAITING.0)),
            (Some(_), Some(pinged)) => {
                (self.looked > pinged).then_some(Mono(pinged.0 + PING_WAITING.0))
            }
        }
    }

    /// True if the other end does not answer.
    fn is_over(&self) -> bool {
        self.counted >= SILENT
    }
}

/// Rate of a link.
#[derive(Default)]
struct Rate {
    /// Time at which the bytes that were sent are within the rate.
    spent_until: Mono,
}

impl Rate {
    fn spend(&mut self, now: Mono, bytes: usize) {
        let takes = bytes as u64 * 1_000 / BYTES_PER_SECOND;
        self.spent_until = Mono(self.spent_until.0.max(now.0) + takes);
    }

    /// Time from which more may be sent.
    fn free_at(&self) -> Mono {
        Mono(self.spent_until.0.saturating_sub(1_000))
    }
}

/// Sending half of a link.
struct Pump {
    target: MachineId,
    link: LinkId,
    side: Side,
    end: End,
    rate: Rate,
    silence: Silence,
    outgoing: mpsc::Sender<OutboundRow>,
    /// Kind of the first frame with bytes.
    first: Kind,
}

impl Pump {
    async fn send(&mut self, kind: Kind, payload: Bytes) -> Result<(), Ended> {
        let (number, frame) = self.end.send(kind, payload);
        self.send_row(number, &frame).await
    }

    async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let now = SystemClock.mono();
        self.rate.spend(now, bytes.len());
        self.silence.sent(now);
        let kind = std::mem::replace(&mut self.first, Kind::Data);
        self.send(kind, Bytes::copy_from_slice(bytes)).await
    }

    /// Takes a row from the other end; without one the daemon stops.
    fn take(&mut self, row: Option<InboundRow>) -> Result<(), Ended> {
        let (number, bytes) = row.ok_or(Ended::Stopping)?;
        self.silence.heard(SystemClock.mono());
        self.end.arrived(number, Frame::decode(&bytes)?)?;
        Ok(())
    }

    /// Takes a look at the database that showed nothing of the other end.
    fn looked(&mut self, at: Mono) -> Result<(), Ended> {
        self.silence.looked(at);
        match self.silence.is_over() {
            true => Err(Ended::Silent),
            false => Ok(()),
        }
    }

    /// Asks the other end to answer, if it is time.
    async fn ping_if_due(&mut self) -> Result<(), Ended> {
        let now = SystemClock.mono();
        if self.silence.ping_at().is_none_or(|at| now < at) {
            return Ok(());
        }
        self.silence.pinged(now);
        self.send(Kind::Ping, Bytes::new()).await
    }

    async fn send_row(&self, number: u64, frame: &Frame) -> Result<(), Ended> {
        let row = OutboundRow {
            target: self.target,
            link: self.link,
            sender: self.side,
            number,
            bytes: frame.encode(),
        };
        self.outgoing.send(row).await.map_err(|_| Ended::Stopping)
    }
}

/// Reason why a link ends.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("the daemon stops")]
    Stopping,
    #[error("the user of the stream has closed it")]
    Closed,
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("the other machine does not answer")]
    Silent,
}

/// Rows from the other machine, and the looks at the database.
type Inbound = (mpsc::Receiver<InboundRow>, watch::Receiver<Mono>);

/// Carries bytes until both sides have ended, or the link breaks.
async fn carry(mut pump: Pump, far: DuplexStream, inbound: Inbound) -> EndedLink {
    let mut stream = tokio::io::split(far);
    let ended = carry_until(&mut pump, &mut stream, inbound).await;
    tracing::debug!(link = pump.link.random, "a link has ended: {ended}");
    match ended {
        Ended::Broken(Broken::Reset) | Ended::Stopping => {}
        Ended::Closed | Ended::Broken(_) | Ended::Silent => {
            let _ = pump.send_row(RESET_NUMBER, &Frame::reset()).await;
        }
    }
    if let Ended::Broken(_) = ended {
        deliver(&mut pump.end, &mut stream.1).await;
    }
    EndedLink {
        is_silent: matches!(ended, Ended::Silent),
        _stream: stream,
    }
}

/// Gives the user of the stream the bytes that arrived before the link broke, unless it closes the stream.
async fn deliver(end: &mut End, writer: &mut WriteHalf<DuplexStream>) {
    while let Some(bytes) = end.unread() {
        match writer.write(&bytes).await {
            Ok(length) => end.read(length),
            Err(_) => return,
        }
    }
}

async fn carry_until(
    pump: &mut Pump,
    (reader, writer): &mut (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
    (mut incoming, mut looks): Inbound,
) -> Ended {
    let mut buffer = vec![0; MAX_PAYLOAD];
    let (mut ours_ended, mut theirs_ended) = (false, false);
    loop {
        if pump.end.must_acknowledge()
            && let Err(ended) = pump.send(Kind::Ack, Bytes::new()).await
        {
            return ended;
        }
        if pump.end.is_complete() && !theirs_ended {
            theirs_ended = true;
            if writer.shutdown().await.is_err() {
                return Ended::Closed;
            }
        }
        let unread = pump.end.unread();
        let gives_up = theirs_ended || pump.silence.pinged.is_some();
        if ours_ended && unread.is_none() && gives_up {
            return Ended::Closed;
        }
        let free_at = pump.rate.free_at();
        let may_send = SystemClock.mono() >= free_at;
        let free_at = (!may_send).then_some(free_at);
        let wake_at = pump.silence.ping_at().into_iter().chain(free_at).min();
        // Rows are taken whether or not the user of the stream reads: a user that has stopped is no silence of this end.
        let step = tokio::select! {
            biased;
            row = incoming.recv() => pump.take(row),
            written = writer.write(unread.as_deref().unwrap_or_default()), if unread.is_some() => match written {
                Ok(length) => {
                    pump.end.read(length);
                    Ok(())
                }
                Err(_) => Err(Ended::Closed),
            },
            read = reader.read(&mut buffer), if !ours_ended && may_send && pump.end.may_send() => match read {
                Ok(0) | Err(_) => {
                    ours_ended = true;
                    pump.send(Kind::End, Bytes::new()).await
                }
                Ok(length) => pump.send_bytes(&buffer[..length]).await,
            },
            () = sleep_until(&SystemClock, wake_at) => pump.ping_if_due().await,
            // Rows that a look found are taken before it counts.
            Ok(()) = looks.changed() => {
                let at = *looks.borrow_and_update();
                pump.looked(at)
            }
        };
        if let Err(ended) = step {
            return ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks of a database that is never away.
    fn no_looks() -> watch::Receiver<Mono> {
        watch::Sender::new(Mono(0)).subscribe()
    }

    /// Two ends whose rows pass through `change`, which returns the row that arrives.
    fn pair(
        mut change: impl FnMut(OutboundRow) -> Vec<OutboundRow> + Send + 'static,
    ) -> (DuplexStream, DuplexStream) {
        let (near_out, mut from_near) = mpsc::channel::<OutboundRow>(4);
        let (far_out, mut from_far) = mpsc::channel::<OutboundRow>(4);
        let (to_near, near_in) = mpsc::channel(INBOUND);
        let (to_far, far_in) = mpsc::channel(INBOUND);
        let link = LinkId::new(MachineId(1));
        let near = Channels {
            outgoing: near_out,
            incoming: near_in,
            looks: no_looks(),
        };
        let far = Channels {
            outgoing: far_out,
            incoming: far_in,
            looks: no_looks(),
        };
        let (near, near_work) = open(MachineId(2), link, Side::Opener, near);
        let (far, far_work) = open(MachineId(1), link, Side::Called, far);
        tokio::spawn(near_work);
        tokio::spawn(far_work);
        tokio::spawn(async move {
            while let Some(row) = from_near.recv().await {
                for row in change(row) {
                    let _ = to_far.send((row.number, row.bytes)).await;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(row) = from_far.recv().await {
                let _ = to_near.send((row.number, row.bytes)).await;
            }
        });
        (near, far)
    }

    /// Sends `bytes` from one end and returns what the other end reads.
    async fn sent(near: DuplexStream, mut far: DuplexStream, bytes: Vec<u8>) -> Vec<u8> {
        let send = async move {
            let mut near = near;
            let _ = near.write_all(&bytes).await;
            let _ = near.shutdown().await;
            near
        };
        let receive = async move {
            let mut read = Vec::new();
            let _ = far.read_to_end(&mut read).await;
            read
        };
        let (_near, read) = tokio::join!(send, receive);
        read
    }

    #[test]
    fn id_of_a_link_is_read_from_its_column_and_other_text_is_not() {
        let link = LinkId::new(MachineId(u64::MAX));
        for side in [Side::Opener, Side::Called] {
            assert_eq!(LinkId::of_column(&link.column(side)), Some((link, side)));
        }
        let text = link.column(Side::Opener);
        for wrong in [
            "",
            ">",
            "\u{e9}",
            &text[1..],
            &text[..32],
            &text.replace('>', "?"),
        ] {
            assert_eq!(LinkId::of_column(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn more_bytes_than_a_window_and_a_second_hold_arrive_as_they_were_sent() {
        let bytes: Vec<u8> = (0..1_200_000u32).map(|n| n as u8).collect();
        let (near, far) = pair(|row| vec![row]);
        assert!(sent(near, far, bytes.clone()).await == bytes);
    }

    #[test]
    fn rate_allows_one_second_at_once_and_then_waits() {
        let (mut rate, now) = (Rate::default(), Mono(50_000));
        assert!(rate.free_at() <= now);
        rate.spend(now, BYTES_PER_SECOND as usize);
        assert!(rate.free_at() <= now);
        rate.spend(now, BYTES_PER_SECOND as usize / 2);
        assert_eq!(rate.free_at(), Mono(50_500));
    }

    #[tokio::test]
    async fn rows_that_come_twice_change_nothing() {
        let bytes = vec![7; 300_000];
        let (near, far) = pair(|row| vec![row.clone(), row]);
        assert!(sent(near, far, bytes.clone()).await == bytes);
    }

    #[tokio::test]
    async fn lost_row_ends_the_link_without_inventing_bytes() {
        let bytes: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let (near, far) = pair(|row| match row.number {
            1 => Vec::new(),
            _ => vec![row],
        });
        let read = sent(near, far, bytes.clone()).await;
        assert!(read.len() < bytes.len() && bytes.starts_with(&read));
    }

    #[test]
    fn silence_counts_from_a_call_that_waits_and_only_while_the_database_answers() {
        let second = |n: u64| Mono(n * 1_000);
        let mut silence = Silence::new(Side::Opener, second(100));
        for at in 101..110 {
            silence.looked(second(at));
        }
        assert!(!silence.is_over(), "nothing waits for an answer");
        assert_eq!(silence.ping_at(), Some(second(110)));
        silence.sent(second(110));
        assert_eq!(silence.ping_at(), Some(second(111)));
        silence.pinged(second(111));
        assert_eq!(
            silence.ping_at(),
            None,
            "the database has not answered since"
        );
        // The database was away for a minute, perhaps for the other machine too.
        silence.looked(second(170));
        assert_eq!(silence.ping_at(), Some(second(112)));
        assert!(!silence.is_over());
        for at in 171..=173 {
            assert!(!silence.is_over());
            silence.looked(second(at));
        }
        assert!(silence.is_over());
        silence.heard(second(174));
        assert!(!silence.is_over());
        assert_eq!(silence.ping_at(), Some(second(184)));
    }

    #[test]
    fn answer_of_a_call_waits_for_no_answer_itself() {
        let mut silence = Silence::new(Side::Called, Mono(0));
        silence.sent(Mono(1_000));
        assert_eq!(silence.ping_at(), Some(Mono(PING_QUIET.0)));
    }

    /// Called end of a link whose rows are in the hands of the test.
    struct Called {
        stream: DuplexStream,
        work: tokio::task::JoinHandle<EndedLink>,
        opener: End,
        rows_in: mpsc::Sender<InboundRow>,
        rows_out: mpsc::Receiver<OutboundRow>,
    }

    impl Called {
        fn new() -> Self {
            let (outgoing, rows_out) = mpsc::channel(INBOUND);
            let (rows_in, incoming) = mpsc::channel(INBOUND);
            let channels = Channels {
                outgoing,
                incoming,
                looks: no_looks(),
            };
            let link = LinkId::new(MachineId(1));
            let (stream, work) = open(MachineId(1), link, Side::Called, channels);
            Called {
                stream,
                work: tokio::spawn(work),
                opener: End::default(),
                rows_in,
                rows_out,
            }
        }

        async fn arrives(&mut self, kind: Kind, bytes: Bytes) {
            let (number, frame) = self.opener.send(kind, bytes);
            self.rows_in.send((number, frame.encode())).await.unwrap();
        }

        /// A window of frames arrives, more than the stream holds. Returns their length.
        async fn fill(&mut self) -> usize {
            let payload = Bytes::from(vec![7; MAX_PAYLOAD]);
            for _ in 0..WINDOW {
                self.arrives(Kind::Data, payload.clone()).await;
            }
            WINDOW as usize * MAX_PAYLOAD
        }
    }

    #[tokio::test]
    async fn ping_is_answered_while_the_user_of_the_stream_does_not_read() {
        let mut called = Called::new();
        let length = called.fill().await;
        called.arrives(Kind::Ping, Bytes::new()).await;
        let mut answer = None;
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            answer = answer.or_else(|| called.rows_out.try_recv().ok());
        }
        let answer = Frame::decode(&answer.expect("an answer").bytes).unwrap();
        assert_eq!(answer.kind, Kind::Ack);
        assert!(answer.taken < WINDOW, "bytes that nobody has read count");
        let mut read = vec![0; length];
        called.stream.read_exact(&mut read).await.unwrap();
        let row = called.rows_out.recv().await.expect("a row");
        assert!(Frame::decode(&row.bytes).unwrap().taken > answer.taken);
    }

    #[tokio::test]
    async fn bytes_that_arrived_before_a_reset_are_read() {
        let mut called = Called::new();
        let length = called.fill().await;
        let reset = (RESET_NUMBER, Frame::reset().encode());
        called.rows_in.send(reset).await.unwrap();
        let mut read = Vec::new();
        tokio::join!(
            async { called.stream.read_to_end(&mut read).await.unwrap() },
            async { drop(called.work.await.unwrap()) },
        );
        assert_eq!(read.len(), length);
    }

    #[tokio::test]
    async fn link_ends_when_looks_show_no_answer_of_the_other_machine() {
        let (outgoing, _rows) = mpsc::channel(INBOUND);
        let (_frames, incoming) = mpsc::channel(INBOUND);
        let looks = watch::Sender::new(SystemClock.mono());
        let channels = Channels {
            outgoing,
            incoming,
            looks: looks.subscribe(),
        };
        let link = LinkId::new(MachineId(1));
        let (mut near, work) = open(MachineId(2), link, Side::Opener, channels);
        let work = tokio::spawn(work);
        near.write_all(b"call").await.unwrap();
        let mut at = SystemClock.mono();
        while !work.is_finished() {
            at = Mono(at.0 + LOOK_GAP.0);
            looks.send_replace(at);
            tokio::task::yield_now().await;
        }
        assert!(work.await.unwrap().is_silent);
        assert_eq!(near.read(&mut [0; 1]).await.unwrap(), 0);
    }
}

//! Frames between machines, and the directory of sessions. They have a connection of their own: no commit and no
//! heartbeat waits for them.
//!
//! A machine is woken by NOTIFY where that works. It is never sent inside a transaction that writes, because such
//! transactions commit one after the other in the whole server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_core::fleet::MachineId;
use futures_util::future::join_all;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio_postgres::types::{ToSql, Type};

use super::batch::Statement;
use super::link::{Address, Link};
use crate::clock::pause;
use crate::fleet::bell;
use crate::machine_link::frame::MAX_FRAME;
use crate::machine_link::machines::PersonsWord;
use crate::machine_link::stream::OutboundRow;
use crate::store::StoreFault;

/// Time after which a notification to oneself counts as lost: a pooler accepts LISTEN and delivers nothing.
const DOORBELL_TEST: Duration = Duration::from_secs(2);
/// Frames that are read at once.
pub(crate) const MAX_FRAMES: usize = 32;
/// Age of frames that no machine has taken, after which they are removed.
const STALE_MS: i64 = 10 * 60_000;

/// Frame in its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFrame {
    /// Link and sender.
    pub link: String,
    /// Number in its direction.
    pub number: u64,
    /// Encoded frame.
    pub bytes: Vec<u8>,
}

/// Connection for frames.
pub(crate) struct FrameTable {
    link: Link,
    /// Closed with the connection.
    closed: Mutex<oneshot::Receiver<()>>,
    own: MachineId,
    /// Notified if another machine has sent something. `None`: the database does not notify.
    rung: Option<Arc<Notify>>,
}

impl FrameTable {
    /// Connects, finds out whether the database notifies, and removes frames that are too old to be taken.
    pub async fn connect(address: &Address, own: MachineId) -> Result<Self, StoreFault> {
        let rung = Arc::new(Notify::new());
        let mut link = address.connect_notified(Some(rung.clone())).await?;
        let mut table = FrameTable {
            closed: Mutex::new(link.take_closed()),
            link,
            own,
            rung: None,
        };
        table.sweep().await?;
        if notified(address, &table.link, own, &rung).await {
            table.rung = Some(rung);
        }
        Ok(table)
    }

    /// True if the database notifies.
    pub fn notifies(&self) -> bool {
        self.rung.is_some()
    }

    /// Waits until another machine has sent something; for ever if the database does not notify.
    pub async fn rung(&self) {
        match &self.rung {
            Some(rung) => rung.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the connection is closed. To be called until it returns, by one task.
    pub async fn closed(&self) {
        let _ = (&mut *self.closed.lock().await).await;
    }

    /// Writes frames and wakes their recipients. A frame that is there already is left as it is.
    pub async fn send(&self, rows: &[OutboundRow]) -> Result<(), StoreFault> {
        let links: Vec<String> = rows.iter().map(|row| row.link.column(row.sender)).collect();
        let numbers: Vec<i64> = rows.iter().map(|row| row.number.cast_signed()).collect();
        let recipients: Vec<i64> = rows.iter().map(|row| row.target.0.cast_signed()).collect();
        let bytes: Vec<&[u8]> = rows.iter().map(|row| row.bytes.as_slice()).collect();
        let sql = format!(
            "INSERT INTO {}.frame (link, seq, recipient, sent_ms, bytes) SELECT u.link, u.seq, u.recipient, {NOW_MS}, \
             u.bytes FROM unnest($1, $2, $3, $4) AS u(link, seq, recipient, bytes) ON CONFLICT DO NOTHING",
            self.link.schema()
        );
        let statement = Statement {
            sql,
            params: vec![
                (&links as &(dyn ToSql + Sync), Type::TEXT_ARRAY),
                (&numbers, Type::INT8_ARRAY),
                (&recipients, Type::INT8_ARRAY),
                (&bytes, Type::BYTEA_ARRAY),
            ],
        };
        let written = self.link.query_alone(&statement);
        let targets: BTreeSet<MachineId> = rows.iter().map(|row| row.target).collect();
        let rings = targets.iter().map(|target| channel(*target));
        let rings: Vec<String> = rings.collect();
        // Sent behind the commit without waiting for it. A ring that is lost is made up for by the next look.
        let rung = join_all(rings.iter().map(|channel| self.link.notify(channel)));
        let (written, _) = tokio::join!(biased; written, rung);
        written?;
        Ok(())
    }

    /// Removes the frames that were taken and reads the next ones, each link in order.
    pub async fn take(&self, taken: &[(String, u64)]) -> Result<Vec<StoredFrame>, StoreFault> {
        let own = self.own.0.cast_signed();
        let links: Vec<&str> = taken.iter().map(|(link, _)| link.as_str()).collect();
        let numbers: Vec<i64> = taken.iter().map(|(_, n)| n.cast_signed()).collect();
        let schema = self.link.schema();
        let sql = format!(
            "WITH taken AS (SELECT * FROM unnest($2, $3) AS t(link, seq)), \
             gone AS (DELETE FROM {schema}.frame AS frame USING taken WHERE frame.link = taken.link AND frame.seq = taken.seq) \
             SELECT link, seq, bytes FROM {schema}.frame AS frame WHERE recipient = $1 AND length(bytes) <= {MAX_FRAME} \
             AND NOT EXISTS (SELECT 1 FROM taken WHERE taken.link = frame.link AND taken.seq = frame.seq) \
             ORDER BY link, seq LIMIT {MAX_FRAMES}"
        );
        let statement = Statement {
            sql,
            params: vec![
                (&own as &(dyn ToSql + Sync), Type::INT8),
                (&links, Type::TEXT_ARRAY),
                (&numbers, Type::INT8_ARRAY),
            ],
        };
        let rows = self.link.query_alone(&statement).await?;
        let frames = rows.iter().map(|row| {
            Ok(StoredFrame {
                link: row.try_get(0)?,
                number: row.try_get::<_, i64>(1)?.cast_unsigned(),
                bytes: row.try_get(2)?,
            })
        });
        let frames: Result<_, tokio_postgres::Error> = frames.collect();
        frames.map_err(|fault| StoreFault::Damaged(super::link::described(&fault)))
    }

    /// Removes frames that are too old to be taken, of all machines.
    pub async fn sweep(&self) -> Result<(), StoreFault> {
        let sql = format!("DELETE FROM frame WHERE sent_ms < {NOW_MS} - {STALE_MS}");
        self.link.transact(&sql, &[]).await?;
        Ok(())
    }

    /// Writes the name and the key of this machine into its row.
    pub async fn introduce(
        &self,
        name: &str,
        key: &[u8; 32],
        mac: &[u8; 32],
    ) -> Result<(), StoreFault> {
        let (own, key, mac) = (self.own.0.cast_signed(), key.as_slice(), mac.as_slice());
        let statement = Statement {
            sql: "UPDATE machine SET name = $2, public_key = $3, mac = $4, declared_lost = 0 WHERE id = $1"
                .into(),
            params: vec![
                (&own as &(dyn ToSql + Sync), Type::INT8),
                (&name, Type::TEXT),
                (&key, Type::BYTEA),
                (&mac, Type::BYTEA),
            ],
        };
        self.link.transact("SELECT 1", &[statement]).await?;
        Ok(())
    }

    /// Records the word of a person about another machine.
    pub async fn say(&self, machine: MachineId, word: PersonsWord) -> Result<(), StoreFault> {
        let set = match word {
            PersonsWord::Lost => "declared_lost = 1",
            PersonsWord::Forgotten => "standing = 'forgotten', declared_lost = 1",
            PersonsWord::Revoked => "standing = 'revoked'",
        };
        let id = machine.0.cast_signed();
        // All machines look at all rows when the number of members changes.
        let sql = format!(
            "UPDATE machine SET {set} WHERE id = {id}; UPDATE fleet SET members = members + 1"
        );
        self.link.transact(&sql, &[]).await?;
        Ok(())
    }

    /// Has machines look at the rows of the fleet soon. A fault is ignored, because they look later by themselves.
    pub async fn ring(&self, machines: impl Iterator<Item = MachineId>) {
        let bells: Vec<String> = machines.map(bell).collect();
        join_all(bells.iter().map(|bell| self.link.notify(bell))).await;
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn own(&self) -> i64 {
        self.own.0.cast_signed()
    }
}

/// Asks for the notifications of a machine, and finds out whether they come. The test is sent by another connection: a
/// pooler passes on what a transaction notifies itself of, and nothing else.
pub(super) async fn notified(
    address: &Address,
    link: &Link,
    machine: MachineId,
    rung: &Notify,
) -> bool {
    let channel = channel(machine);
    let Ok(sender) = address.connect().await else {
        return false;
    };
    if link.listen(&channel).await.is_err() || sender.notify(&channel).await.is_err() {
        return false;
    }
    tokio::select! {
        () = rung.notified() => true,
        () = pause(DOORBELL_TEST) => false,
    }
}

/// Clock of the server in milliseconds.
pub(crate) const NOW_MS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Channel by which a machine is woken. Ids are random, so that fleets in one database do not meet.
fn channel(machine: MachineId) -> String {
    format!("abide_{:016x}", machine.0)
}

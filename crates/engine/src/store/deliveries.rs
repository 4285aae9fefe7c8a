//! Deliveries: what came of each try to bring a message to its agent, by each waker. And what the
//! wakers need to know after a restart: which web servers want no more, and through which clients the
//! agents last spoke.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::StoreFault;
use super::read::StoreReader;

/// Where the delivery of one message by one waker stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The waker, as the database names it.
    pub waker: String,
    /// And as people do.
    pub name: String,
    /// How often it was tried in all.
    pub attempts: u64,
    /// How often it has failed since it was posted, or sent again.
    pub failures: u64,
    /// Where it stands.
    pub state: DeliveryState,
    /// When it was tried last.
    pub at_ms: Option<u64>,
    /// What went wrong then, or what holds it back.
    pub fault: Option<String>,
    /// When it is tried again.
    pub next_ms: Option<u64>,
    /// The other side wants no try before then.
    pub hold_ms: Option<u64>,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is yet to be made.
    Waiting,
    /// It was made.
    Done,
    /// The agent read the message by itself.
    Seen,
    /// It was tried often enough, or is wanted no more.
    GivenUp,
}

impl DeliveryState {
    /// As it is kept and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Waiting => "waiting",
            DeliveryState::Done => "done",
            DeliveryState::Seen => "seen",
            DeliveryState::GivenUp => "given_up",
        }
    }

    fn read(word: &str) -> Self {
        [Self::Waiting, Self::Done, Self::Seen]
            .into_iter()
            .find(|state| state.as_str() == word)
            .unwrap_or(Self::GivenUp)
    }
}

/// The client through which an agent last spoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// Whose it is.
    pub agent: String,
    /// What kind of client.
    pub kind: String,
    /// All that is known of it, as it was written.
    pub facts: String,
}

/// Something about wakers that is to be kept.
#[derive(Clone, Debug)]
pub enum WakerRecord {
    /// How the deliveries of these messages stand.
    Deliveries(Vec<(u64, Delivery)>),
    /// A waker is wanted no more, because of this.
    Disabled {
        /// Which.
        waker: String,
        /// Since when.
        at_ms: u64,
        /// Why.
        fault: String,
    },
    /// It is wanted again.
    Enabled(String),
    /// An agent speaks through this client.
    Client(ClientRow, u64),
}

pub(super) fn write_waker_record(
    db: &mut Connection,
    note: &WakerRecord,
) -> Result<(), StoreFault> {
    let turn = db.transaction()?;
    match note {
        WakerRecord::Deliveries(all) => {
            for (message, delivery) in all {
                put(&turn, *message, delivery)?;
            }
        }
        WakerRecord::Disabled {
            waker,
            at_ms,
            fault,
        } => {
            turn.execute(
                "INSERT OR REPLACE INTO waker (id, ended_ms, fault) VALUES (?, ?, ?)",
                params![waker, at_ms, fault],
            )?;
        }
        WakerRecord::Enabled(waker) => {
            turn.execute("DELETE FROM waker WHERE id = ?", [waker])?;
        }
        WakerRecord::Client(client, at_ms) => {
            turn.execute(
                "INSERT OR REPLACE INTO client (agent, kind, facts, at_ms) VALUES (?, ?, ?, ?)",
                params![client.agent, client.kind, client.facts, at_ms],
            )?;
        }
    }
    turn.commit()?;
    Ok(())
}

fn put(turn: &Connection, message: u64, delivery: &Delivery) -> Result<(), StoreFault> {
    turn.prepare_cached(
        "INSERT OR REPLACE INTO delivery (message, waker, name, attempts, failures, state, at_ms, \
         fault, next_ms, hold_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        message,
        delivery.waker,
        delivery.name,
        delivery.attempts,
        delivery.failures,
        delivery.state.as_str(),
        delivery.at_ms,
        delivery.fault,
        delivery.next_ms,
        delivery.hold_ms,
    ])?;
    Ok(())
}

const DELIVERY: &str = "SELECT waker, name, attempts, failures, state, at_ms, fault, next_ms, \
    hold_ms FROM delivery WHERE message = ?1";

pub(super) fn of_message(db: &Connection, message: u64) -> rusqlite::Result<Vec<Delivery>> {
    let mut select = db.prepare_cached(&format!("{DELIVERY} ORDER BY name, waker"))?;
    select.query_map([message], delivery)?.collect()
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        waker: row.get(0)?,
        name: row.get(1)?,
        attempts: row.get(2)?,
        failures: row.get(3)?,
        state: DeliveryState::read(&row.get::<_, String>(4)?),
        at_ms: row.get(5)?,
        fault: row.get(6)?,
        next_ms: row.get(7)?,
        hold_ms: row.get(8)?,
    })
}

impl StoreReader {
    /// The delivery of one message by one waker.
    pub fn delivery(&self, message: u64, waker: &str) -> Result<Option<Delivery>, StoreFault> {
        let db = self.db();
        let mut select = db.prepare_cached(&format!("{DELIVERY} AND waker = ?2"))?;
        Ok(select
            .query_row(params![message, waker], delivery)
            .optional()?)
    }

    /// The wakers that are wanted no more, and why.
    pub fn disabled_wakers(&self) -> Result<Vec<(String, String)>, StoreFault> {
        let db = self.db();
        let mut select = db.prepare_cached("SELECT id, fault FROM waker")?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The clients through which agents last spoke.
    pub fn clients(&self) -> Result<Vec<ClientRow>, StoreFault> {
        let db = self.db();
        let mut select = db.prepare_cached("SELECT agent, kind, facts FROM client")?;
        let rows = select.query_map([], |row| {
            Ok(ClientRow {
                agent: row.get(0)?,
                kind: row.get(1)?,
                facts: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

//! Deliveries: the result of each attempt of each waker to deliver a message. Also what wakers need after a restart:
//! disabled wakers, and the clients of agents.

use super::query::{Columns, Query};
use super::read::{MessageRow, StoreReader};
use super::records::Value;
use super::seal::{RowSeal, SealedRow};
use super::{RowScope, StoreFault};

/// Delivery of one message by one waker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub waker: String,
    /// Name of the waker for people.
    pub name: String,
    pub attempts: u64,
    /// Number of failures since the message was posted or sent again.
    pub failures: u64,
    pub state: DeliveryState,
    /// Time of the last attempt.
    pub at_ms: Option<u64>,
    /// Fault of the last attempt, or what holds the next one back.
    pub fault: Option<String>,
    /// Time of the next attempt.
    pub next_ms: Option<u64>,
    /// Time before which the receiver wants no attempt.
    pub hold_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Not delivered yet.
    Waiting,
    Done,
    /// The agent has read the message by itself.
    Seen,
    /// Too many failures, or the waker is disabled.
    GivenUp,
}

impl DeliveryState {
    /// Name in the database and in results.
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

/// Row of the clients of one agent and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRow {
    pub agent: String,
    pub kind: String,
    /// Clients as JSON.
    pub facts: String,
}

/// Record about wakers.
#[derive(Clone, Debug)]
pub enum WakerRecord {
    /// Deliveries of these messages.
    Deliveries(Vec<(u64, Delivery)>),
    Disabled {
        waker: String,
        at_ms: u64,
        fault: String,
    },
    /// The waker with this id is enabled again.
    Enabled(String),
    /// Clients of an agent, and the time.
    Client(ClientRow, u64),
}

const DELIVERY: &str = "SELECT waker, name, attempts, failures, state, at_ms, fault, next_ms, \
    hold_ms, message FROM delivery";

pub(super) fn add_to(db: &dyn Query, messages: &mut [MessageRow]) -> Result<(), StoreFault> {
    if messages.is_empty() {
        return Ok(());
    }
    let numbers = messages
        .iter()
        .map(|row| row.number.cast_signed())
        .collect();
    let among = db.dialect().is_among("message");
    let sql = format!("{DELIVERY} WHERE {among} ORDER BY name, waker");
    let found = db.rows(&sql, &[Value::Ints(numbers)], |row| {
        Ok((row.u64(9)?, delivery(row)?))
    })?;
    for (number, delivery) in found {
        if let Some(message) = messages.iter_mut().find(|row| row.number == number) {
            message.deliveries.push(delivery);
        }
    }
    Ok(())
}

fn delivery(row: &dyn Columns) -> Result<Delivery, StoreFault> {
    Ok(Delivery {
        waker: row.string(0)?,
        name: row.string(1)?,
        attempts: row.u64(2)?,
        failures: row.u64(3)?,
        state: DeliveryState::read(row.str(4)?),
        at_ms: row.opt_u64(5)?,
        fault: row.opt_string(6)?,
        next_ms: row.opt_u64(7)?,
        hold_ms: row.opt_u64(8)?,
    })
}

/// Clients of all agents.
pub(super) fn clients(
    db: &dyn Query,
    scope: RowScope,
    seal: &RowSeal,
) -> Result<Vec<ClientRow>, StoreFault> {
    let sql = format!("SELECT agent, kind, facts, seal FROM client WHERE true{scope}");
    let found = db.rows(&sql, &[], |row| {
        let client = ClientRow {
            agent: row.string(0)?,
            kind: row.string(1)?,
            facts: row.string(2)?,
        };
        let is_ours = seal.is_valid(&client.sealed(), row.bytes(3)?);
        Ok(is_ours.then_some(client))
    })?;
    Ok(found.into_iter().flatten().collect())
}

impl ClientRow {
    pub(super) fn sealed(&self) -> SealedRow<'_> {
        SealedRow::Clients(&self.agent, &self.kind, &self.facts)
    }
}

impl StoreReader {
    /// Delivery of one message by one waker.
    pub async fn delivery(
        &self,
        message: u64,
        waker: &str,
    ) -> Result<Option<Delivery>, StoreFault> {
        let sql = format!("{DELIVERY} WHERE message = ?1 AND waker = ?2");
        let waker = waker.to_owned();
        let read = move |db: &dyn Query| {
            db.first(&sql, &[message.into(), waker.as_str().into()], delivery)
        };
        self.read(read).await
    }

    /// Disabled wakers, with the reason.
    pub async fn disabled_wakers(&self) -> Result<Vec<(String, String)>, StoreFault> {
        let scope = self.scope();
        let read = move |db: &dyn Query| {
            let sql = format!("SELECT id, fault FROM waker WHERE true{scope}");
            db.rows(&sql, &[], |row| Ok((row.string(0)?, row.string(1)?)))
        };
        self.read(read).await
    }
}

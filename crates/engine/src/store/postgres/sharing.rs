//! Work of the writer that exists only because machines share the database: messages that move to the machine where
//! their agent is connected, the comparison of clocks, and numbers that no other machine uses.

use std::fmt::Display;

use abide_core::fleet::{DUE_SOON, Event as FleetEvent, Pace, STATEMENT_DEADLINE};
use abide_core::limit::CLOCK_DISAGREEMENT;
use abide_core::time::Steady;
use abide_core::{Record, message, timer};
use tokio::sync::oneshot;

use super::schema;
use super::shard_rows::{self, ShardChange};
use super::transaction::Transaction;
use super::writer::Writer;
use crate::clients::ConnectedReaders;
use crate::clock::{Clock, SystemClock};
use crate::store::StoreFault;
use crate::store::load::{self, RowScope};
use crate::store::records::TOLD_IN_ANSWER;

/// Time at which the transaction began, in milliseconds.
pub(super) const NOW: &str = "(extract(epoch FROM now()) * 1000)::bigint";

/// Statements of a transaction that makes timers, before its rows.
pub(super) struct TimeCheck {
    /// Fleet time minus boot time.
    boot_offset: i64,
    /// Id and claim of this machine, if it begins to beat fast.
    fast: Option<[i64; 2]>,
}

impl TimeCheck {
    /// SQL of the statements.
    pub fn sql(&self) -> String {
        let compared = compare_time("fleet", self.decided());
        match self.fast {
            Some([id, claim]) => format!("{compared}; {}", beat_fast(id, claim)),
            None => compared,
        }
    }

    /// Fleet time, as this machine has it, if the comparison is all that is to be done.
    pub fn only_time(&self) -> Option<i64> {
        self.fast.is_none().then(|| self.decided())
    }

    /// Fleet time, as this machine has it.
    fn decided(&self) -> i64 {
        let boot = SystemClock.now().boot.0;
        boot.saturating_add_signed(self.boot_offset).cast_signed()
    }
}

/// Query of the fleet time, as the database has it, which fails if this machine has decided by another time.
pub(super) fn compare_time(fleet: impl Display, decided: impl Display) -> String {
    let (ahead, behind) = (
        CLOCK_DISAGREEMENT.0,
        CLOCK_DISAGREEMENT.0 + STATEMENT_DEADLINE.0,
    );
    format!(
        "SELECT CASE WHEN fleet_ms - {decided} BETWEEN -{ahead} AND {behind} THEN fleet_ms \
         ELSE sqrt(-1.0 - abs(fleet_ms - {decided}))::bigint END AS fleet_ms \
         FROM (SELECT {NOW} - clock_ahead_ms AS fleet_ms FROM {fleet} WHERE one = 1) AS clocks"
    )
}

/// Says that this machine beats fast. The next heartbeat follows at once.
fn beat_fast(id: impl Display, claim: impl Display) -> String {
    format!("UPDATE machine SET pace = 'fast' WHERE id = {id} AND claim = {claim}")
}

/// Text as a literal, whatever `standard_conforming_strings` is.
fn quoted(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn text_array<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| quoted(text)).collect();
    format!("ARRAY[{}]::text[]", quoted.join(", "))
}

/// True if a conflict is about the number of a timer or message.
pub(super) fn is_about_numbers(conflict: &str) -> bool {
    ["timer_pkey", "message_pkey"]
        .iter()
        .any(|key| conflict.contains(key))
}

impl Writer {
    /// Reserves more numbers when half of them are used.
    pub(super) async fn reserve_numbers(&mut self, records: &[Record]) {
        let used = records.iter().filter_map(|record| match record {
            Record::Timer(timer::Record::Created(timer::Created { number, .. }))
            | Record::Message(message::Record::Posted { number, .. }) => Some(*number),
            _ => None,
        });
        let block = &self.numbers;
        let half = u64::midpoint(block.start, block.end);
        let Some(link) = &self.link else { return };
        if !used
            .into_iter()
            .any(|number| (half..block.end).contains(&number))
        {
            return;
        }
        match schema::reserve_numbers(link).await {
            Ok(block) => {
                self.numbers = block.clone();
                self.tell(ShardChange::Numbers(block)).await;
            }
            Err(fault) => tracing::warn!("cannot reserve numbers for timers: {fault}"),
        }
    }

    /// Reserves other numbers, because another machine uses those that this one has.
    pub(super) async fn replace_numbers(&mut self) {
        let Some(link) = &self.link else { return };
        match schema::reserve_numbers(link).await {
            Ok(block) => {
                self.numbers = block.clone();
                self.tell(ShardChange::NumbersReplaced(block)).await;
            }
            Err(fault) => tracing::warn!("cannot reserve numbers for timers: {fault}"),
        }
    }

    /// Statements beside the rows of a transaction, if it makes timers.
    pub(super) fn time_check(&self, transaction: &Transaction) -> Option<TimeCheck> {
        let soonest = transaction.soonest()?;
        Some(TimeCheck {
            boot_offset: self.boot_offset.unwrap_or_default(),
            fast: self.becomes_fast(soonest),
        })
    }

    /// Id and claim of this machine, if a timer is due so soon that the loss of this machine must be noticed sooner.
    fn becomes_fast(&self, soonest: Steady) -> Option<[i64; 2]> {
        let state = self.parts.fleet.state();
        let row = &state.machines.get(&state.own?)?.row;
        let is_soon = soonest.since(state.now()?) <= DUE_SOON;
        let is_needed = is_soon && row.pace == Pace::Slow && state.has_others();
        let facts = [row.id.0.cast_signed(), row.claim.0.cast_signed()];
        (is_needed && state.may_beat_fast).then_some(facts)
    }

    /// Fault of a transaction that was refused because the time of the database is not that of this machine.
    pub(super) async fn refused_by_time(&self) -> StoreFault {
        self.parts.fleet.send(FleetEvent::TimeRefused).await;
        let why = "the clock of the database differs from that of this machine; try again in some seconds";
        StoreFault::Unwritable(why.into())
    }

    /// Finds out which of these messages another machine has taken, and has the event loop forget them.
    pub(super) async fn find_gone(&mut self, told: &[u64]) {
        let shards: Vec<i64> = self.owned.usable().collect();
        let numbers = told.to_vec();
        let reads = &self.parts.reads.few;
        let read = reads.read(move |db| shard_rows::gone(db, &shards, &numbers));
        match read.await {
            Ok(gone) => self.tell(ShardChange::MessagesGone(gone)).await,
            Err(fault) => tracing::warn!("cannot read messages: {fault}"),
        }
    }

    /// Takes the unread messages of other machines for agents that are connected here. One whose agent is connected to
    /// the machine that has it stays there, unless a call waits here: else it would move with every heartbeat. One that
    /// belongs to a conversation is left to it, unless that is connected here, is gone from its machine, or its machine
    /// is away. With `done` a call has found messages; it is told when the event loop has them.
    pub(super) async fn take_messages(
        &mut self,
        readers: &ConnectedReaders,
        done: Option<oneshot::Sender<()>>,
    ) {
        let are_elsewhere = done.is_some() || self.parts.fleet.state().has_messages_elsewhere;
        if !self.has_unread_moves && !are_elsewhere {
            return;
        }
        let home = self.owned.home();
        let (Some(epoch), Some(link)) = (self.owned.epoch(home), &self.link) else {
            return;
        };
        let agents = text_array(readers.agents.union(&readers.waiting));
        let waiting = text_array(&readers.waiting);
        let here: Vec<String> = (readers.conversations.iter())
            .map(|(agent, conversation)| {
                let (agent, conversation) = (quoted(agent), quoted(&conversation.0));
                format!(" OR m.agent = {agent} AND m.conversation = {conversation}")
            })
            .collect();
        let in_answer = TOLD_IN_ANSWER;
        let sql = format!(
            "{}; UPDATE message AS m SET shard = {home}, epoch = {epoch}, batch = 0 \
             FROM shard AS s LEFT JOIN machine AS holder ON holder.id = s.owner \
             WHERE s.id = m.shard AND s.owner IS DISTINCT FROM {home} AND m.agent = ANY({agents}) AND m.seen_ms IS NULL \
             AND m.told_by IS NULL AND m.told_ms IS DISTINCT FROM {in_answer} \
             AND ((m.conversation IS NULL OR m.released = 1 OR s.owner <> s.id) \
             AND (m.agent = ANY({waiting}) OR m.agent <> ALL(coalesce(holder.agents, '{{}}'))){}) \
             RETURNING m.number",
            self.owned.fence(&[home]),
            here.concat()
        );
        let Ok(answer) = link.transact(&sql, &[]).await else {
            // The next heartbeat tries again. Messages may have moved though the answer was lost.
            self.has_unread_moves = true;
            return;
        };
        let moved = shard_rows::numbers(&answer);
        let read_all = std::mem::take(&mut self.has_unread_moves);
        if moved.is_empty() && !read_all {
            return;
        }
        let read = self.parts.reads.few.read(move |db| match read_all {
            true => load::messages(db, RowScope::Shard(home)),
            false => load::messages_among(db, &moved),
        });
        match read.await {
            Ok(messages) => {
                let numbers = messages.iter().map(|message| message.number);
                self.owned.moved_home(numbers);
                self.tell(ShardChange::MessagesTaken(messages, done)).await;
            }
            Err(fault) => {
                self.has_unread_moves = true;
                tracing::warn!("cannot read messages of other machines: {fault}");
            }
        }
    }

    /// Reads the deadlines of the own shard: those that were made while the clock of this machine was behind are later
    /// than in memory.
    pub(super) async fn read_deadlines(&mut self) {
        let home = self.owned.home();
        let read = self
            .parts
            .reads
            .few
            .read(move |db| shard_rows::deadlines(db, home));
        match read.await {
            Ok(all) => {
                let all = all.into_iter().map(|(number, due)| (number, Steady(due)));
                self.tell(ShardChange::Deadlines(all.collect())).await;
            }
            Err(fault) => tracing::warn!("cannot read deadlines: {fault}"),
        }
    }
}

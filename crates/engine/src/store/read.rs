//! Reads rows that are asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use abide_api::{CompletedBy, QuestionAbout, TimerStats, TimerStatus};
use abide_core::id::IdPermutation;
use abide_core::message::About;
use abide_core::question::Closing;
use abide_core::time::{Millis, Steady, Wall};
use abide_core::timer::{Create, Kind, Timer};
use abide_core::{Agent, Conversation, MessageId, QuestionId, SessionId, TimerId};
use rusqlite::Connection;

use super::StoreFault;
use super::deliveries::{self, Delivery};
use super::held::{self, CommandAnswer};
use super::known_timers::KnownTimers;
use super::load::{RowScope, kind, subject};
use super::postgres::Reads;
use super::query::{Columns, Query};
use super::records::{TOLD_IN_ANSWER, Value};
use super::timer_list::seconds;
use crate::lock::lock;
use crate::text::safe_words;

/// Reader of stored timers, messages and questions. With SQLite, a read of few rows is done when it is called; one of
/// many rows is done by another thread.
pub struct StoreReader {
    source: Source,
    id_permutation: IdPermutation,
    /// Timers of a server, as they were read last.
    known: KnownTimers,
}

/// Question that was closed, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedQuestion {
    pub session: String,
    pub about: QuestionAbout,
    pub closing: Closing,
    /// Idempotency key of the answer.
    pub key: Option<String>,
}

/// Database that is read.
enum Source {
    Sqlite {
        db: Mutex<Connection>,
        /// Connection for queries that read many rows, so that they do not block the others.
        scan_db: Arc<Mutex<Connection>>,
    },
    /// Thread that reads, and the shard of this machine.
    Postgres(Reads, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerRow {
    pub id: TimerId,
    pub agent: String,
    pub kind: Kind,
    /// Reason or mission.
    pub purpose: String,
    /// Condition that completes it early, as given.
    pub condition: Option<String>,
    pub created: Wall,
    /// Time at which it was last asked for.
    pub checked: Wall,
    pub total: Millis,
    /// Standby of the last call.
    pub standby: Option<Millis>,
    /// Status when the row was written.
    pub status: TimerStatus,
    /// Remaining time when it was paused or ended.
    pub remaining: Option<Millis>,
    /// Time at which it is due, while it runs.
    pub due: Option<Steady>,
    /// Reason given with stop, cancel or pause.
    pub stop_reason: Option<String>,
    /// Last observation of its condition, or the reason why it can no longer hold.
    pub seen: Option<String>,
    /// Sessions whose end decided its condition.
    pub ended_sessions: Vec<SessionId>,
    /// Cause of its completion.
    pub completed_by: Option<CompletedBy>,
    /// Delay after its due time.
    pub late: Option<Millis>,
    pub ended: Option<Wall>,
    /// Idempotency key of the last call that changed it.
    pub acted: Option<String>,
}

impl TimerRow {
    /// Row of a timer that was created just now. The answer to its creation needs no read.
    pub fn of_new(new: &Create, timer: &Timer) -> Self {
        TimerRow {
            id: timer.id,
            agent: timer.agent.0.to_string(),
            kind: timer.kind,
            purpose: new.purpose.to_string(),
            condition: new.until.as_deref().map(str::to_owned),
            created: timer.checked,
            checked: timer.checked,
            total: timer.total,
            standby: new.standby,
            status: timer.status.into(),
            remaining: None,
            due: None,
            stop_reason: None,
            seen: None,
            ended_sessions: Vec::new(),
            completed_by: None,
            late: None,
            ended: None,
            acted: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub number: u64,
    pub id: MessageId,
    pub agent: String,
    pub about: About,
    pub conversation: Option<Conversation>,
    /// True if its agent asked to be woken for it.
    pub wakes: bool,
    pub made: Wall,
    pub seen: Option<Wall>,
    /// True if the answer of a waiting call carries it, so that no other needs to.
    pub in_answer: bool,
    pub deliveries: Vec<Delivery>,
}

/// Filter of a list of messages, newest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageQuery<'a> {
    /// Agent; `None`: all.
    pub agent: Option<&'a str>,
    /// Only messages that were not seen.
    pub unseen: bool,
    /// Only messages of this machine.
    pub own: bool,
    /// Only messages before this number.
    pub before: Option<u64>,
    /// Only messages after this number.
    pub since: Option<u64>,
    pub limit: usize,
}

/// Filter of a list of ended timers.
#[derive(Clone, Copy, Debug)]
pub struct EndedQuery<'a> {
    /// Agent; `None`: all.
    pub agent: Option<&'a str>,
    pub limit: usize,
}

pub(super) const TIMER: &str = "SELECT number, agent, kind, purpose, condition, created_ms, checked_ms, \
    total_ms, standby_ms, status, remaining_ms, stop_reason, seen, completed_by, late_ms, ended_ms, \
    acted, due_ms, ended_sessions FROM timer";
const MESSAGE: &str = "SELECT number, id, agent, about, made_ms, seen_ms, told_ms, conversation, wakes \
     FROM message";

impl StoreReader {
    pub(crate) fn new(db: Connection, scan_db: Connection, id_permutation: IdPermutation) -> Self {
        StoreReader {
            source: Source::Sqlite {
                db: Mutex::new(db),
                scan_db: Arc::new(Mutex::new(scan_db)),
            },
            id_permutation,
            known: KnownTimers::default(),
        }
    }

    /// Reader of PostgreSQL for the machine that made this shard.
    pub(super) fn of_postgres(reads: Reads, id_permutation: IdPermutation, shard: i64) -> Self {
        StoreReader {
            source: Source::Postgres(reads, shard),
            id_permutation,
            known: KnownTimers::default(),
        }
    }

    /// Rows that belong to this machine.
    pub(super) fn scope(&self) -> RowScope {
        match &self.source {
            Source::Sqlite { .. } => RowScope::Database,
            Source::Postgres(_, shard) => RowScope::Shard(*shard),
        }
    }

    /// Reads few rows.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Query) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        match &self.source {
            Source::Sqlite { db, .. } => work(&*lock(db)),
            Source::Postgres(reads, _) => reads.few.read(work).await,
        }
    }

    /// Reads any number of rows.
    pub(super) async fn scan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Query) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let db = match &self.source {
            Source::Sqlite { scan_db, .. } => scan_db.clone(),
            Source::Postgres(reads, _) => return reads.many.read(work).await,
        };
        let scan = move || work(&*lock(&db));
        let done = tokio::task::spawn_blocking(scan).await;
        done.unwrap_or_else(|fault| Err(StoreFault::Refused(fault.to_string())))
    }

    #[cfg(test)]
    fn db(&self) -> std::sync::MutexGuard<'_, Connection> {
        match &self.source {
            Source::Sqlite { db, .. } => lock(db),
            Source::Postgres(..) => panic!("no SQLite"),
        }
    }

    /// Takes note of timers that were read from a server, which may be away later.
    pub(super) fn note<'a>(&self, rows: impl Iterator<Item = &'a TimerRow>) {
        if let Source::Postgres(..) = &self.source {
            self.known.note(rows);
        }
    }

    /// Timers of an agent, or of all, that had not ended when they were read last, and the time of the last read. For
    /// lists while the server is away.
    pub fn known_timers(&self, agent: Option<&str>) -> (Vec<TimerRow>, Option<Wall>) {
        self.known.active(agent)
    }

    /// One timer, ended or not; while the server is away, as it was read last.
    pub async fn timer(&self, id: TimerId) -> Result<Option<TimerRow>, StoreFault> {
        let ids = self.id_permutation;
        let number = self.timer_number(id);
        let read = move |db: &dyn Query| {
            let sql = &format!("{TIMER} WHERE number = ?1");
            db.first(sql, &[number.into()], |row| timer_row(ids, row))
        };
        match self.read(read).await {
            Ok(row) => {
                self.note(row.iter());
                Ok(row)
            }
            Err(fault) => self.known.find(id).map(Some).ok_or(fault),
        }
    }

    /// Several timers, ended or not; while the server is away, as they were read last.
    pub async fn timers_by_id(&self, ids: &[TimerId]) -> Result<Vec<Option<TimerRow>>, StoreFault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let permutation = self.id_permutation;
        let numbers = ids.iter().map(|id| self.timer_number(*id).cast_signed());
        let numbers: Vec<i64> = numbers.collect();
        let read = move |db: &dyn Query| {
            let sql = format!("{TIMER} WHERE {}", db.dialect().is_among("number"));
            db.rows(&sql, &[Value::Ints(numbers)], |row| {
                timer_row(permutation, row)
            })
        };
        let read = match self.read(read).await {
            Ok(rows) => {
                self.note(rows.iter());
                rows
            }
            Err(fault @ StoreFault::Unreadable(_)) => {
                let known: Vec<_> = ids.iter().filter_map(|id| self.known.find(*id)).collect();
                if known.is_empty() {
                    return Err(fault);
                }
                known
            }
            Err(fault) => return Err(fault),
        };
        let found: HashMap<TimerId, TimerRow> = read.into_iter().map(|row| (row.id, row)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    /// True if a machine other than this one has unread messages of an agent.
    pub async fn has_messages_elsewhere(&self, agent: &Agent) -> Result<bool, StoreFault> {
        let Source::Postgres(reads, home) = &self.source else {
            return Ok(false);
        };
        let sql = format!(
            "SELECT m.number FROM message AS m JOIN shard AS s ON s.id = m.shard WHERE m.agent = ?1 \
             AND m.seen_ms IS NULL AND m.told_by IS NULL AND s.owner <> {home} LIMIT 1"
        );
        let agent = agent.0.clone();
        let read = move |db: &dyn Query| db.first(&sql, &[(&*agent).into()], |row| row.u64(0));
        Ok(reads.few.read(read).await?.is_some())
    }

    /// Creation times of these messages.
    pub async fn messages_created(&self, numbers: &[u64]) -> Result<Vec<Option<Wall>>, StoreFault> {
        let list = numbers.iter().map(|number| number.cast_signed()).collect();
        let read = move |db: &dyn Query| {
            let among = db.dialect().is_among("number");
            let sql = format!("SELECT number, made_ms FROM message WHERE {among}");
            db.rows(&sql, &[Value::Ints(list)], |row| {
                Ok((row.u64(0)?, Wall(row.u64(1)?)))
            })
        };
        let made: HashMap<u64, Wall> = self.read(read).await?.into_iter().collect();
        Ok(numbers
            .iter()
            .map(|number| made.get(number).copied())
            .collect())
    }

    /// Ended timers, the newest first.
    pub async fn ended_timers(&self, which: EndedQuery<'_>) -> Result<Vec<TimerRow>, StoreFault> {
        let ids = self.id_permutation;
        let (agent, limit) = (which.agent.map(str::to_owned), which.limit);
        let read = move |db: &dyn Query| {
            // Two queries, because each has an index of its own.
            let (whose, limited) = match agent {
                Some(_) => ("agent = ?2", [limit.into(), agent.as_deref().into()]),
                None => ("?2 IS NULL", [limit.into(), None::<&str>.into()]),
            };
            let sql = format!(
                "{TIMER} WHERE ended_ms IS NOT NULL AND {whose} \
                 ORDER BY ended_ms DESC, number DESC LIMIT ?1"
            );
            db.rows(&sql, &limited, |row| timer_row(ids, row))
        };
        self.read(read).await
    }

    /// Statistics of all timers. Days count from `since`, and calls that were not needed with this interval of polls.
    pub async fn timer_stats(
        &self,
        agent: Option<&str>,
        since: Wall,
        poll_interval: Millis,
    ) -> Result<TimerStats, StoreFault> {
        let days = self.timer_days(agent, since).await?;
        let calls_saved = self.calls_saved(agent, poll_interval).await?;
        let agent = agent.map(str::to_owned);
        let sql = "SELECT count(*), count(*) FILTER (WHERE ended_ms IS NULL), \
             count(*) FILTER (WHERE completed_by = 'time'), \
             count(*) FILTER (WHERE completed_by = 'condition'), \
             count(*) FILTER (WHERE completed_by = 'impossible'), \
             count(*) FILTER (WHERE status = 'stopped'), \
             CAST(coalesce(sum(total_ms - remaining_ms) FILTER (WHERE status = 'completed'), 0) AS BIGINT), \
             coalesce(max(late_ms), 0) FROM timer WHERE ?1 IS NULL OR agent = ?1";
        let read = move |db: &dyn Query| {
            db.one(sql, &[agent.as_deref().into()], |row| {
                Ok(TimerStats {
                    made: row.u64(0)?,
                    running: row.u64(1)?,
                    completed_by_time: row.u64(2)?,
                    completed_by_condition: row.u64(3)?,
                    completed_by_impossible: row.u64(4)?,
                    stopped: row.u64(5)?,
                    elapsed_total: seconds(row.u64(6)?),
                    max_late: seconds(row.u64(7)?),
                    days: Vec::new(),
                    calls_saved,
                })
            })
        };
        let stats = self.scan(read).await?;
        Ok(TimerStats { days, ..stats })
    }

    pub async fn message(&self, number: u64) -> Result<Option<MessageRow>, StoreFault> {
        let sql = format!("{MESSAGE} WHERE number = ?1");
        let read = move |db: &dyn Query| message_rows(db, &sql, &[number.into()]);
        Ok(self.read(read).await?.into_iter().next())
    }

    /// Messages, the newest first, without those that the answer of a call carries.
    pub async fn messages(&self, page: MessageQuery<'_>) -> Result<Vec<MessageRow>, StoreFault> {
        // A separate condition can use the index of unseen messages.
        let unseen = if page.unseen {
            "seen_ms IS NULL AND"
        } else {
            ""
        };
        let scope = match page.own {
            true => self.scope(),
            false => RowScope::Database,
        };
        let sql = format!(
            "{MESSAGE} WHERE {unseen} (?1 IS NULL OR agent = ?1){scope} \
             AND (?3 IS NULL OR number < ?3) AND number > coalesce(?5, -1) \
             AND told_ms IS DISTINCT FROM ?4 ORDER BY number DESC LIMIT ?2"
        );
        let agent = page.agent.map(str::to_owned);
        let (limit, before, since) = (page.limit, page.before, page.since);
        let read = move |db: &dyn Query| {
            let chosen = [
                agent.as_deref().into(),
                limit.into(),
                before.into(),
                TOLD_IN_ANSWER.into(),
                since.into(),
            ];
            message_rows(db, &sql, &chosen)
        };
        self.read(read).await
    }

    /// Question that is closed.
    pub async fn closed_question(
        &self,
        id: QuestionId,
    ) -> Result<Option<ClosedQuestion>, StoreFault> {
        let sql = "SELECT session, closing, answer_key, about FROM question \
             WHERE id = ?1 AND closing IS NOT NULL";
        let read = move |db: &dyn Query| {
            let id = id.to_string();
            db.first(sql, &[id.as_str().into()], |row| {
                let closing = Closing::of_word(row.str(1)?);
                let about = QuestionAbout::of(row.str(3)?);
                let (Some(closing), Some(about)) = (closing, about) else {
                    return Ok(None);
                };
                Ok(Some(ClosedQuestion {
                    session: row.string(0)?,
                    about,
                    closing,
                    key: row.opt_string(2)?,
                }))
            })
        };
        Ok(self.read(read).await?.flatten())
    }

    /// Closing of a question about a command.
    pub async fn command_answer(
        &self,
        id: QuestionId,
    ) -> Result<Option<CommandAnswer>, StoreFault> {
        self.read(move |db| held::answer(db, id)).await
    }

    pub fn message_number(&self, id: MessageId) -> u64 {
        self.id_permutation.for_messages().to_number(id.0.bits())
    }

    pub fn timer_number(&self, id: TimerId) -> u64 {
        self.id_permutation.to_number(id.0.bits())
    }

    pub(super) fn id_permutation(&self) -> IdPermutation {
        self.id_permutation
    }
}

pub(super) fn timer_row(ids: IdPermutation, row: &dyn Columns) -> Result<TimerRow, StoreFault> {
    Ok(TimerRow {
        id: TimerId::from_bits(ids.to_bits(row.u64(0)?)),
        agent: row.string(1)?,
        kind: kind(row.str(2)?),
        purpose: safe_words(&row.string(3)?),
        condition: row.opt_string(4)?,
        created: Wall(row.u64(5)?),
        checked: Wall(row.u64(6)?),
        total: Millis(row.u64(7)?),
        standby: row.opt_u64(8)?.map(Millis),
        status: TimerStatus::of(row.str(9)?).unwrap_or(TimerStatus::Stopped),
        remaining: row.opt_u64(10)?.map(Millis),
        stop_reason: row.opt_string(11)?.as_deref().map(safe_words),
        seen: row.opt_string(12)?.as_deref().map(safe_words),
        ended_sessions: (row.text(18)?.unwrap_or_default().split_whitespace())
            .filter_map(|id| id.parse().ok())
            .collect(),
        completed_by: row.text(13)?.and_then(CompletedBy::of),
        late: row.opt_u64(14)?.map(Millis),
        ended: row.opt_u64(15)?.map(Wall),
        acted: row.opt_string(16)?,
        due: row.opt_u64(17)?.map(Steady),
    })
}

/// Messages that a query selects, with their deliveries.
fn message_rows(
    db: &dyn Query,
    sql: &str,
    params: &[Value],
) -> Result<Vec<MessageRow>, StoreFault> {
    let rows = db.rows(sql, params, |row| {
        let (Ok(id), Some(about)) = (row.str(1)?.parse(), subject(row.str(3)?)) else {
            return Ok(None);
        };
        Ok(Some(MessageRow {
            number: row.u64(0)?,
            id,
            agent: row.string(2)?,
            about,
            conversation: row.text(7)?.map(|of| Conversation(of.into())),
            wakes: row.flag(8)?,
            made: Wall(row.u64(4)?),
            seen: row.opt_u64(5)?.map(Wall),
            in_answer: row.opt_u64(6)? == Some(TOLD_IN_ANSWER),
            deliveries: Vec::new(),
        }))
    })?;
    let mut rows: Vec<MessageRow> = rows.into_iter().flatten().collect();
    deliveries::add_to(db, &mut rows)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::{connect, schema};

    fn reader(folder: &tempfile::TempDir) -> StoreReader {
        let path = folder.path().join("abide.db");
        let mut db = connect(&path).expect("a database");
        schema::migrate(&mut db).expect("tables");
        let scan_db = connect(&path).expect("a database");
        StoreReader::new(db, scan_db, IdPermutation { key: 1 })
    }

    #[tokio::test]
    #[expect(
        clippy::await_holding_lock,
        reason = "the query must not need this connection"
    )]
    async fn query_over_all_timers_does_not_block_reading_one() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(&folder);
        let _reads_one = reader.db();
        let stats = reader.timer_stats(None, Wall(0), Millis(1)).await;
        assert_eq!(stats.expect("figures").made, 0);
    }

    /// Counts the steps of the database, in tens.
    fn counted(reader: &StoreReader) -> Arc<AtomicUsize> {
        let steps = Arc::new(AtomicUsize::new(0));
        let taken = steps.clone();
        let each = move || {
            taken.fetch_add(1, Ordering::Relaxed);
            false
        };
        let counted = reader.db().progress_handler(10, Some(each));
        counted.expect("a counter");
        steps
    }

    #[tokio::test]
    async fn ended_timers_of_one_agent_are_found_by_index() {
        const ENDED: usize = 5_000;
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(&folder);
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {ENDED})
             INSERT INTO timer (number, id, agent, kind, purpose, created_ms, checked_ms, total_ms,
             status, background, ended_ms) SELECT n, 'timer_k3v9x2bc',
             CASE WHEN n < 3 THEN 'few' ELSE 'many' END, 'waiting', 'x', 1, 1, 1, 'completed', 0, n
             FROM n;"
        );
        reader.db().execute_batch(&fill).expect("rows");
        let steps = counted(&reader);
        let ended = async |agent, limit| {
            let rows = reader.ended_timers(EndedQuery { agent, limit }).await;
            let rows = rows.expect("rows");
            let ended = rows.iter().map(|row| row.ended.expect("a time").0);
            ended.collect::<Vec<_>>()
        };
        assert_eq!(ended(Some("few"), 10).await, [2, 1, 0]);
        assert_eq!(ended(Some("many"), 2).await, [5_000, 4_999]);
        assert_eq!(ended(None, 2).await, [5_000, 4_999]);
        let steps = steps.load(Ordering::Relaxed) * 10;
        assert!(steps < ENDED, "{steps} steps for a few of {ENDED}");
    }

    #[tokio::test]
    async fn unseen_messages_are_found_by_index() {
        const SEEN: usize = 5_000;
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(&folder);
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {SEEN})
             INSERT INTO message SELECT n, 'message_k3v9x2bc', 'a', 'timer_k3v9x2bc', 1, 1,
             CASE WHEN n = 0 THEN NULL ELSE 1 END, NULL, 0 FROM n;"
        );
        reader.db().execute_batch(&fill).expect("rows");
        let steps = counted(&reader);
        let page = |unseen, since| MessageQuery {
            agent: None,
            unseen,
            own: false,
            before: None,
            since,
            limit: 10,
        };
        let numbers = async |page| {
            let found = reader.messages(page).await.expect("messages");
            found.iter().map(|row| row.number).collect::<Vec<_>>()
        };
        assert_eq!(numbers(page(true, None)).await, [0]);
        let last = SEEN as u64;
        assert_eq!(numbers(page(false, Some(last - 2))).await, [last, last - 1]);
        let steps = steps.load(Ordering::Relaxed) * 10;
        assert!(steps < SEEN, "{steps} steps for three of {SEEN}");
        assert_eq!(numbers(page(false, None)).await.len(), 10);
    }
}

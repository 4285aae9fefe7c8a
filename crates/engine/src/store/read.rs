//! Reads rows: at start everything that is not over, later what is asked for.

use std::sync::{Arc, Mutex, MutexGuard};

use abide_core::id::IdPermutation;
use abide_core::limit;
use abide_core::message::{self, About};
use abide_core::record::StoredState;
use abide_core::time::{Millis, Steady, Wall};
use abide_core::timer::{
    self, Anchor, CompletedBy, Countdown, Kind, State, Status, Timer, Until, WaitMode,
};
use abide_core::{
    Agent, Conversation, Key, MessageId, Question, QuestionId, SessionId, Subject, TimerId,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::deliveries::{self, Delivery};
use super::held::{self, CommandAnswer};
use super::write::TOLD_BY_CALL;
use super::{StoreFault, in_transaction};

/// Questions that are not closed.
pub(super) fn open_questions(db: &Connection) -> Result<Vec<(QuestionId, Question)>, StoreFault> {
    let mut rows = db.prepare(
        "SELECT id, session, idle_ms, asked_ms, command, launch FROM question WHERE closing IS NULL",
    )?;
    let found = rows.query_map([], |row| {
        let (id, session): (String, String) = (row.get(0)?, row.get(1)?);
        let (idle, asked): (u64, u64) = (row.get(2)?, row.get(3)?);
        let (command, launch): (Option<String>, Option<Vec<u8>>) = (row.get(4)?, row.get(5)?);
        Ok((id, session, idle, asked, command, launch))
    })?;
    let mut open = Vec::new();
    for row in found {
        let (id, session, idle, asked, command, launch) = row?;
        let (Ok(id), Ok(session)) = (id.parse(), session.parse::<SessionId>()) else {
            continue;
        };
        let subject = match command {
            None => Subject::Idle {
                session,
                idle: Millis(idle),
            },
            Some(text) => match held::command(&text, launch.unwrap_or_default()) {
                Some(command) => Subject::Command {
                    session,
                    held: Arc::new(command),
                },
                None => continue,
            },
        };
        let asked = Wall(asked);
        open.push((id, Question { subject, asked }));
    }
    Ok(open)
}

/// Timers that have not ended and messages that have not been seen.
pub(super) fn stored_state(
    db: &Connection,
    id_permutation: IdPermutation,
    boot_id: u128,
) -> Result<(StoredState, Conditions), StoreFault> {
    let next = |table: &str| -> Result<u64, StoreFault> {
        let sql = format!("SELECT coalesce(max(number) + 1, 0) FROM {table}");
        Ok(db.query_row(&sql, [], |row| row.get(0))?)
    };
    let (timers, conditions) = timers(db, id_permutation)?;
    let state = StoredState {
        id_permutation,
        boot_id,
        anchor: anchor(db)?,
        next_timer: next("timer")?,
        next_message: next("message")?,
        timers,
        ended: ended(db, id_permutation)?,
        messages: messages(db)?,
    };
    Ok((state, conditions))
}

/// Conditions of timers, as stored.
pub(super) type Conditions = Vec<(TimerId, Until)>;

fn anchor(db: &Connection) -> Result<Option<Anchor>, StoreFault> {
    let sql = "SELECT boot_id, ahead_of_boot_ms, wall_ahead_ms, reached_ms FROM clock";
    let found = db.query_row(sql, [], |row| {
        let boot_id: String = row.get(0)?;
        Ok(Anchor {
            boot_id: u128::from_str_radix(&boot_id, 16).unwrap_or(0),
            ahead_of_boot: row.get(1)?,
            wall_ahead: row.get(2)?,
            reached: Steady(row.get(3)?),
        })
    });
    Ok(found.optional()?)
}

/// Cache of the last name: neighbouring rows mostly have the same agent and conversation, and share one allocation.
#[derive(Default)]
struct NameCache(Option<Arc<str>>);

impl NameCache {
    fn of(&mut self, name: &str) -> Arc<str> {
        match &self.0 {
            Some(last) if **last == *name => last.clone(),
            _ => self.0.insert(name.into()).clone(),
        }
    }

    fn conversation(&mut self, name: Option<String>) -> Option<Conversation> {
        name.map(|name| Conversation(self.of(&name)))
    }
}

fn timers(
    db: &Connection,
    id_permutation: IdPermutation,
) -> Result<(Vec<timer::StoredTimer>, Conditions), StoreFault> {
    let (mut names, mut conversations) = (NameCache::default(), NameCache::default());
    let mut found = Vec::new();
    let mut conditions = Conditions::new();
    let mut select = db.prepare(
        "SELECT number, agent, kind, total_ms, background, due_ms, pause_until_ms, remaining_ms, \
         checked_ms, key, condition, created_ms, conversation FROM timer WHERE ended_ms IS NULL \
         ORDER BY number",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let countdown = match row.get::<_, Option<u64>>(5)? {
            Some(due) => Countdown::Running { due: Steady(due) },
            None => Countdown::Paused {
                remaining: Millis(row.get::<_, Option<u64>>(7)?.unwrap_or(0)),
                until: Steady(row.get::<_, Option<u64>>(6)?.unwrap_or(0)),
            },
        };
        let text = |at| -> Result<&str, StoreFault> {
            let cell = row.get_ref(at)?;
            cell.as_str()
                .map_err(|e| StoreFault::Damaged(e.to_string()))
        };
        let number: u64 = row.get(0)?;
        let condition: Option<String> = row.get(10)?;
        let conditional = condition.is_some();
        let agent = Agent(names.of(text(1)?));
        if let Some(condition) = condition {
            let until = Until {
                condition: condition.into(),
                agent: agent.clone(),
                since: Wall(row.get(11)?),
            };
            conditions.push((TimerId::from_bits(id_permutation.to_bits(number)), until));
        }
        found.push(timer::StoredTimer {
            number,
            agent,
            conversation: conversations.conversation(row.get(12)?),
            kind: kind(text(2)?),
            state: State {
                total: Millis(row.get(3)?),
                countdown,
                wait_mode: if row.get(4)? {
                    WaitMode::Background
                } else {
                    WaitMode::Foreground
                },
            },
            checked: Wall(row.get(8)?),
            key: row.get::<_, Option<String>>(9)?.map(|key| Key(key.into())),
            conditional,
        });
    }
    Ok((found, conditions))
}

/// Timers that ended last, oldest first.
fn ended(
    db: &Connection,
    id_permutation: IdPermutation,
) -> Result<Vec<(Timer, Option<Key>)>, StoreFault> {
    let (mut names, mut conversations) = (NameCache::default(), NameCache::default());
    let mut select = db.prepare(
        "SELECT number, agent, kind, total_ms, remaining_ms, checked_ms, condition IS NOT NULL, \
         completed_by, late_ms, key, conversation, background FROM timer \
         WHERE ended_ms IS NOT NULL \
         ORDER BY ended_ms DESC, number DESC LIMIT ?",
    )?;
    let rows = select.query_map([limit::ENDED_TIMERS], |row| {
        let number: u64 = row.get(0)?;
        let (agent, word): (String, String) = (row.get(1)?, row.get(2)?);
        let late = Millis(row.get::<_, Option<u64>>(8)?.unwrap_or(0));
        let status = match row.get::<_, Option<String>>(7)?.as_deref() {
            None => Status::Stopped,
            Some("condition") => Status::Completed {
                by: CompletedBy::Condition,
                late,
            },
            Some("impossible") => Status::Completed {
                by: CompletedBy::Impossible,
                late,
            },
            Some(_) => Status::Completed {
                by: CompletedBy::Time,
                late,
            },
        };
        let timer = Timer {
            id: TimerId::from_bits(id_permutation.to_bits(number)),
            number,
            agent: Agent(names.of(&agent)),
            conversation: conversations.conversation(row.get(10)?),
            wakes: kind(&word) == Kind::Mission || row.get(11)?,
            kind: kind(&word),
            status,
            total: Millis(row.get(3)?),
            remaining: Millis(row.get::<_, Option<u64>>(4)?.unwrap_or(0)),
            checked: Wall(row.get(5)?),
            pause_until: None,
            conditional: row.get(6)?,
        };
        Ok((
            timer,
            row.get::<_, Option<String>>(9)?.map(|key| Key(key.into())),
        ))
    })?;
    let mut ended: Vec<_> = rows.collect::<Result<_, _>>()?;
    ended.reverse();
    Ok(ended)
}

fn kind(word: &str) -> Kind {
    if word == Kind::Mission.as_str() {
        Kind::Mission
    } else {
        Kind::Waiting
    }
}

fn messages(db: &Connection) -> Result<Vec<message::StoredMessage>, StoreFault> {
    // The calls whose answers were to carry these messages are gone. If a full disk prevents this update, the call
    // that reads them next makes it.
    let lost = "UPDATE message SET told_ms = made_ms WHERE told_ms = ? AND seen_ms IS NULL";
    db.execute(lost, [TOLD_BY_CALL]).unwrap_or_default();
    let (mut names, mut conversations) = (NameCache::default(), NameCache::default());
    let mut found = Vec::new();
    let mut select = db.prepare(
        "SELECT number, agent, about, told_ms IS NOT NULL, conversation, made_ms FROM message \
         WHERE seen_ms IS NULL ORDER BY number",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (agent, about): (String, String) = (row.get(1)?, row.get(2)?);
        let Some(about) = subject(&about) else {
            continue;
        };
        found.push(message::StoredMessage {
            number: row.get(0)?,
            agent: Agent(names.of(&agent)),
            about,
            conversation: conversations.conversation(row.get(4)?),
            made: Wall(row.get(5)?),
            delivery_begun: row.get(3)?,
        });
    }
    Ok(found)
}

fn subject(about: &str) -> Option<About> {
    let session = about.parse().map(About::Session);
    let question = about.parse().map(About::Question);
    about
        .parse()
        .map(About::Timer)
        .or(session)
        .or(question)
        .ok()
}

/// Reader of stored timers, messages and questions.
pub struct StoreReader {
    db: Mutex<Connection>,
    /// Connection for queries that read many rows, so that they do not block the others.
    pub(super) scan_db: Mutex<Connection>,
    pub(super) id_permutation: IdPermutation,
}

/// Row of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerRow {
    /// Timer id.
    pub id: TimerId,
    /// Agent.
    pub agent: String,
    /// Kind.
    pub kind: Kind,
    /// Reason or mission.
    pub purpose: String,
    /// Condition that completes it early, as given.
    pub condition: Option<String>,
    /// Time of creation.
    pub created: Wall,
    /// Time at which it was last asked for.
    pub checked: Wall,
    /// Total duration.
    pub total: Millis,
    /// Standby of the last call.
    pub standby: Option<Millis>,
    /// Status when the row was written.
    pub status: String,
    /// Remaining time when it was paused or ended.
    pub remaining: Option<Millis>,
    /// Reason given with stop, cancel or pause.
    pub stop_reason: Option<String>,
    /// Last observation of its condition, or the reason why it can no longer hold.
    pub seen: Option<String>,
    /// Cause of its completion.
    pub completed_by: Option<String>,
    /// Delay after its due time.
    pub late: Option<Millis>,
    /// Time at which it ended.
    pub ended: Option<Wall>,
    /// Idempotency key of the last call that changed it.
    pub acted: Option<String>,
}

/// Row of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    /// Number of the message.
    pub number: u64,
    /// Message id.
    pub id: MessageId,
    /// Agent.
    pub agent: String,
    /// Subject.
    pub about: About,
    /// Conversation that it belongs to.
    pub conversation: Option<Conversation>,
    /// True if its agent asked to be woken for it.
    pub wakes: bool,
    /// Time of creation.
    pub made: Wall,
    /// Time at which it was seen.
    pub seen: Option<Wall>,
    /// True if the answer of a waiting call carries it, so that no other needs to.
    pub in_answer: bool,
    /// Time at which its agent was woken, in rows from before deliveries were recorded.
    pub woken: Option<Wall>,
    /// Deliveries by wakers.
    pub deliveries: Vec<Delivery>,
}

/// Filter of a list of messages, newest first.
#[derive(Clone, Copy, Debug)]
pub struct MessageQuery<'a> {
    /// Agent; `None`: all.
    pub agent: Option<&'a str>,
    /// Only messages that were not seen.
    pub unseen: bool,
    /// Only messages before this number.
    pub before: Option<u64>,
    /// Only messages after this number.
    pub since: Option<u64>,
    /// Maximum of rows.
    pub limit: usize,
}

/// Filter of a list of ended timers.
#[derive(Clone, Copy, Debug)]
pub struct EndedQuery<'a> {
    /// Agent; `None`: all.
    pub agent: Option<&'a str>,
    /// Maximum of rows.
    pub limit: usize,
}

/// Statistics of all timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of timers in the database.
    pub made: u64,
    /// Timers that have not ended.
    pub running: u64,
    /// Timers completed by time.
    pub by_time: u64,
    /// Timers completed because a condition held.
    pub by_condition: u64,
    /// Timers completed because a condition could no longer hold.
    pub by_impossible: u64,
    /// Stopped timers.
    pub stopped: u64,
    /// Total time that completed timers ran.
    pub elapsed: Millis,
    /// Longest delay of a completion.
    pub latest: Millis,
}

pub(super) const TIMER: &str = "SELECT number, agent, kind, purpose, condition, created_ms, checked_ms, \
    total_ms, standby_ms, status, remaining_ms, stop_reason, seen, completed_by, late_ms, ended_ms, \
    acted FROM timer";
const MESSAGE: &str = "SELECT number, id, agent, about, made_ms, seen_ms, woken_ms, told_ms, conversation, wakes \
     FROM message";

impl StoreReader {
    pub(crate) fn new(db: Connection, scan_db: Connection, id_permutation: IdPermutation) -> Self {
        StoreReader {
            db: Mutex::new(db),
            scan_db: Mutex::new(scan_db),
            id_permutation,
        }
    }

    /// One timer, ended or not.
    pub fn timer(&self, id: TimerId) -> Result<Option<TimerRow>, StoreFault> {
        let number = self.id_permutation.to_number(id.0.bits());
        let db = self.db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(&format!("{TIMER} WHERE number = ?"))?;
        Ok(select
            .query_row([number], |row| self.timer_row(row))
            .optional()?)
    }

    /// Several timers, ended or not, in one transaction: one per row would cost more than the queries.
    pub fn timers_by_id(&self, ids: &[TimerId]) -> Result<Vec<Option<TimerRow>>, StoreFault> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        in_transaction(&self.db(), |db| {
            let mut select = db.prepare_cached(&format!("{TIMER} WHERE number = ?"))?;
            let rows = ids.iter().map(|id| {
                let number = self.id_permutation.to_number(id.0.bits());
                let row = select.query_row([number], |row| self.timer_row(row));
                Ok(row.optional()?)
            });
            rows.collect()
        })
    }

    /// Creation times of these messages, in one transaction.
    pub fn messages_created(&self, numbers: &[u64]) -> Result<Vec<Option<Wall>>, StoreFault> {
        in_transaction(&self.db(), |db| {
            let mut select = db.prepare_cached("SELECT made_ms FROM message WHERE number = ?")?;
            let rows = numbers.iter().map(|number| {
                let made = select.query_row([number], |row| Ok(Wall(row.get(0)?)));
                Ok(made.optional()?)
            });
            rows.collect()
        })
    }

    /// Ended timers, the newest first.
    pub fn ended_timers(&self, which: EndedQuery<'_>) -> Result<Vec<TimerRow>, StoreFault> {
        let db = self.db.lock().expect("no holder panics");
        // Two queries, because each has an index of its own.
        let whose = match which.agent {
            Some(_) => "agent = ?1",
            None => "?1 IS NULL",
        };
        let mut select = db.prepare_cached(&format!(
            "{TIMER} WHERE ended_ms IS NOT NULL AND {whose} \
             ORDER BY ended_ms DESC, number DESC LIMIT ?2"
        ))?;
        let rows =
            select.query_map(params![which.agent, which.limit], |row| self.timer_row(row))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Statistics of all timers.
    pub fn stats(&self, agent: Option<&str>) -> Result<Stats, StoreFault> {
        let db = self.scan_db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE ended_ms IS NULL), \
             count(*) FILTER (WHERE completed_by = 'time'), \
             count(*) FILTER (WHERE completed_by = 'condition'), \
             count(*) FILTER (WHERE completed_by = 'impossible'), \
             count(*) FILTER (WHERE status = 'stopped'), \
             coalesce(sum(total_ms - remaining_ms) FILTER (WHERE status = 'completed'), 0), \
             coalesce(max(late_ms), 0) FROM timer WHERE ?1 IS NULL OR agent = ?1",
        )?;
        Ok(select.query_row([agent], |row| {
            Ok(Stats {
                made: row.get(0)?,
                running: row.get(1)?,
                by_time: row.get(2)?,
                by_condition: row.get(3)?,
                by_impossible: row.get(4)?,
                stopped: row.get(5)?,
                elapsed: Millis(row.get(6)?),
                latest: Millis(row.get(7)?),
            })
        })?)
    }

    /// One message.
    pub fn message(&self, number: u64) -> Result<Option<MessageRow>, StoreFault> {
        let db = self.db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(&format!("{MESSAGE} WHERE number = ?"))?;
        Ok(select
            .query_row([number], |row| message_row(&db, row))
            .optional()?
            .flatten())
    }

    /// Messages, the newest first, without those that the answer of a call carries.
    pub fn messages(&self, page: MessageQuery<'_>) -> Result<Vec<MessageRow>, StoreFault> {
        let db = self.db.lock().expect("no holder panics");
        // A separate condition can use the index of unseen messages.
        let unseen = if page.unseen {
            "seen_ms IS NULL AND"
        } else {
            ""
        };
        let mut select = db.prepare_cached(&format!(
            "{MESSAGE} WHERE {unseen} (?1 IS NULL OR agent = ?1) \
             AND (?3 IS NULL OR number < ?3) AND number > COALESCE(?5, -1) \
             AND told_ms IS NOT ?4 ORDER BY number DESC LIMIT ?2"
        ))?;
        let chosen = params![
            page.agent,
            page.limit,
            page.before,
            TOLD_BY_CALL,
            page.since
        ];
        let rows = select.query_map(chosen, |row| message_row(&db, row))?;
        Ok(rows
            .filter_map(Result::transpose)
            .collect::<Result<Vec<_>, _>>()?)
    }

    /// Session and result of a closed question.
    pub fn question_closing(&self, id: QuestionId) -> Result<Option<(String, String)>, StoreFault> {
        let db = self.db();
        let mut select = db.prepare_cached(
            "SELECT session, closing FROM question WHERE id = ? AND closing IS NOT NULL",
        )?;
        let found = select.query_row([id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(found.optional()?)
    }

    /// Closing of a question about a command.
    pub fn command_answer(&self, id: QuestionId) -> Result<Option<CommandAnswer>, StoreFault> {
        held::answer(&self.db(), id)
    }

    pub(super) fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().expect("no holder panics")
    }

    /// Number of a message with this id.
    pub fn message_number(&self, id: MessageId) -> u64 {
        self.id_permutation.for_messages().to_number(id.0.bits())
    }

    pub(super) fn timer_row(&self, row: &Row<'_>) -> rusqlite::Result<TimerRow> {
        let number: u64 = row.get(0)?;
        let word: String = row.get(2)?;
        Ok(TimerRow {
            id: TimerId::from_bits(self.id_permutation.to_bits(number)),
            agent: row.get(1)?,
            kind: kind(&word),
            purpose: row.get(3)?,
            condition: row.get(4)?,
            created: Wall(row.get(5)?),
            checked: Wall(row.get(6)?),
            total: Millis(row.get(7)?),
            standby: row.get::<_, Option<u64>>(8)?.map(Millis),
            status: row.get(9)?,
            remaining: row.get::<_, Option<u64>>(10)?.map(Millis),
            stop_reason: row.get(11)?,
            seen: row.get(12)?,
            completed_by: row.get(13)?,
            late: row.get::<_, Option<u64>>(14)?.map(Millis),
            ended: row.get::<_, Option<u64>>(15)?.map(Wall),
            acted: row.get(16)?,
        })
    }
}

fn message_row(db: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<MessageRow>> {
    let (id, about): (String, String) = (row.get(1)?, row.get(3)?);
    let (Ok(id), Some(about)) = (id.parse(), subject(&about)) else {
        return Ok(None);
    };
    let number = row.get(0)?;
    Ok(Some(MessageRow {
        number,
        id,
        agent: row.get(2)?,
        about,
        conversation: (row.get::<_, Option<String>>(8)?).map(|of| Conversation(of.into())),
        wakes: row.get(9)?,
        made: Wall(row.get(4)?),
        seen: row.get::<_, Option<u64>>(5)?.map(Wall),
        woken: row.get::<_, Option<u64>>(6)?.map(Wall),
        in_answer: row.get::<_, Option<u64>>(7)? == Some(TOLD_BY_CALL),
        deliveries: deliveries::of_message(db, number)?,
    }))
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

    #[test]
    fn query_over_all_timers_does_not_block_reading_one() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(&folder);
        let _reads_one = reader.db();
        assert_eq!(reader.stats(None).expect("figures"), Stats::default());
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

    #[test]
    fn ended_timers_of_one_agent_are_found_by_index() {
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
        let ended = |agent, most| {
            let rows = reader
                .ended_timers(EndedQuery { agent, limit: most })
                .expect("rows");
            let ended = rows.iter().map(|row| row.ended.expect("a time").0);
            ended.collect::<Vec<_>>()
        };
        assert_eq!(ended(Some("few"), 10), [2, 1, 0]);
        assert_eq!(ended(Some("many"), 2), [5_000, 4_999]);
        assert_eq!(ended(None, 2), [5_000, 4_999]);
        let steps = steps.load(Ordering::Relaxed) * 10;
        assert!(steps < ENDED, "{steps} steps for a few of {ENDED}");
    }

    #[test]
    fn unseen_messages_are_found_by_index() {
        const SEEN: usize = 5_000;
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(&folder);
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {SEEN})
             INSERT INTO message SELECT n, 'message_k3v9x2bc', 'a', 'timer_k3v9x2bc', 1, 1,
             CASE WHEN n = 0 THEN NULL ELSE 1 END, NULL, 0, NULL, NULL, 0 FROM n;"
        );
        reader.db().execute_batch(&fill).expect("rows");
        let steps = counted(&reader);
        let page = |unseen, since| MessageQuery {
            agent: None,
            unseen,
            before: None,
            since,
            limit: 10,
        };
        let numbers = |page| -> Vec<u64> {
            let found = reader.messages(page).expect("messages");
            found.iter().map(|row| row.number).collect()
        };
        assert_eq!(numbers(page(true, None)), [0]);
        let last = SEEN as u64;
        assert_eq!(numbers(page(false, Some(last - 2))), [last, last - 1]);
        let steps = steps.load(Ordering::Relaxed) * 10;
        assert!(steps < SEEN, "{steps} steps for three of {SEEN}");
        assert_eq!(numbers(page(false, None)).len(), 10);
    }
}

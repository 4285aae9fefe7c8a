//! Reads everything that is not over, at the start of a daemon.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use abide_api::QuestionAbout;
use abide_core::id::{IdPermutation, NUMBER_BITS};
use abide_core::limit;
use abide_core::message::{self, About};
use abide_core::record::{StoredRows, StoredState};
use abide_core::time::{Millis, Steady, Wall};
use abide_core::timer::{
    self, Anchor, CompletedBy, Countdown, Kind, State, Status, Timer, Until, WaitMode,
};
use abide_core::{
    Agent, Conversation, HeldConnection, Key, Question, QuestionId, SessionId, Subject, TimerId,
};

use super::query::{Columns, Query};
use super::records::Value;
use super::seal::{RowSeal, SealedRow};
use super::{OpenRows, StoreFault, deliveries, held};

/// Rows that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowScope {
    /// All: the database has those of one machine.
    Database,
    Shard(i64),
}

/// Prints as a condition that follows others.
impl fmt::Display for RowScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowScope::Database => Ok(()),
            RowScope::Shard(shard) => write!(f, " AND shard = {shard}"),
        }
    }
}

/// Questions that are not closed.
pub(super) fn open_questions(
    db: &dyn Query,
    scope: RowScope,
    seal: &RowSeal,
) -> Result<Vec<(QuestionId, Question)>, StoreFault> {
    let sql = format!(
        "SELECT id, session, idle_ms, asked_ms, command, launch, seal, about FROM question \
         WHERE closing IS NULL{scope}"
    );
    let rows = db.rows(&sql, &[], |row| {
        let (Ok(id), Ok(session)) = (row.str(0)?.parse(), row.str(1)?.parse::<SessionId>()) else {
            return Ok(None);
        };
        let subject = match QuestionAbout::of(row.str(7)?) {
            Some(QuestionAbout::Idle) => Subject::Idle {
                session,
                idle: Millis(row.u64(2)?),
            },
            Some(QuestionAbout::Connection) => Subject::Connection {
                session,
                connection: Arc::new(forgotten_connection()),
            },
            Some(QuestionAbout::Command) => {
                let text = row.str(4)?;
                let launch = row.bytes(5)?.unwrap_or_default();
                let is_ours = seal.is_valid(&SealedRow::Held(id, text, launch), row.bytes(6)?);
                let command = held::command(text, launch.to_vec()).filter(|_| is_ours);
                let Some(command) = command else {
                    return Ok(None);
                };
                Subject::Command {
                    session,
                    held: Arc::new(command),
                }
            }
            None => return Ok(None),
        };
        let asked = Wall(row.u64(3)?);
        Ok(Some((id, Question { subject, asked })))
    })?;
    Ok(rows.into_iter().flatten().collect())
}

/// Connections of a question from before the start, which are not stored: their gate asks again, and the question is
/// withdrawn.
fn forgotten_connection() -> HeldConnection {
    HeldConnection {
        number: 0,
        name: "".into(),
        port: 0,
        folder: "".into(),
        offers: Vec::new(),
    }
}

/// Ids, clocks and numbers.
pub(super) fn stored_state(
    db: &dyn Query,
    id_permutation: IdPermutation,
    boot_id: u128,
) -> Result<StoredState, StoreFault> {
    let next = |table: &str| {
        let sql = format!("SELECT coalesce(max(number) + 1, 0) FROM {table}");
        db.one(&sql, &[], |row| row.u64(0))
    };
    Ok(StoredState {
        id_permutation,
        boot_id,
        anchor: anchor(db)?,
        timer_numbers: next("timer")?..1 << NUMBER_BITS,
        message_numbers: next("message")?..1 << NUMBER_BITS,
    })
}

/// All rows that are not over.
pub(super) fn open_rows(
    db: &dyn Query,
    id_permutation: IdPermutation,
    scope: RowScope,
    seal: &RowSeal,
) -> Result<OpenRows, StoreFault> {
    let (timers, conditions) = timers(db, id_permutation, scope, seal)?;
    let stored = StoredRows {
        timers,
        ended: ended(db, id_permutation, scope)?,
        messages: messages(db, scope)?,
        went_back: Steady(0),
    };
    Ok(OpenRows {
        stored,
        conditions,
        questions: open_questions(db, scope, seal)?,
        approved: held::approved(db, scope, seal)?,
        clients: deliveries::clients(db, scope, seal)?,
        reported_endings: reported_endings(db, scope)?,
    })
}

/// Messages that are searched for reported endings. The folder of a session is marked right after the commit of its message,
/// so that a daemon which was killed in between has left marks out for the newest messages only.
const ENDINGS_SEARCHED: usize = limit::RUNNING_SESSIONS;

fn reported_endings(db: &dyn Query, scope: RowScope) -> Result<HashSet<SessionId>, StoreFault> {
    let sql = format!(
        "SELECT about FROM message WHERE about LIKE 'session_%'{scope} ORDER BY number DESC LIMIT ?1"
    );
    let sessions = db.rows(&sql, &[ENDINGS_SEARCHED.into()], |row| {
        Ok(row.str(0)?.parse().ok())
    })?;
    Ok(sessions.into_iter().flatten().collect())
}

/// Conditions of timers, as stored. `None`: the row has no valid seal, so its condition is not used.
pub(super) type Conditions = Vec<(TimerId, Option<Until>)>;

fn anchor(db: &dyn Query) -> Result<Option<Anchor>, StoreFault> {
    let sql = "SELECT boot_id, boot_offset_ms, wall_offset_ms, reached_ms FROM clock";
    db.first(sql, &[], |row| {
        Ok(Anchor {
            boot_id: u128::from_str_radix(row.str(0)?, 16).unwrap_or(0),
            boot_offset: row.i64(1)?,
            wall_offset: row.i64(2)?,
            reached: Steady(row.u64(3)?),
        })
    })
}

fn conversation(row: &dyn Columns, at: usize) -> Result<Option<Conversation>, StoreFault> {
    Ok(row.text(at)?.map(|name| Conversation(name.into())))
}

fn key(row: &dyn Columns, at: usize) -> Result<Option<Key>, StoreFault> {
    Ok(row.text(at)?.map(|key| Key(key.into())))
}

/// Timers that one query reads: the database ends a query that takes too long.
const TIMERS_READ: usize = 50_000;

pub(super) fn timers(
    db: &dyn Query,
    id_permutation: IdPermutation,
    scope: RowScope,
    seal: &RowSeal,
) -> Result<(Vec<timer::StoredTimer>, Conditions), StoreFault> {
    timers_by(db, id_permutation, scope, seal, TIMERS_READ)
}

/// Timers that have not ended, by queries of at most this many.
fn timers_by(
    db: &dyn Query,
    id_permutation: IdPermutation,
    scope: RowScope,
    seal: &RowSeal,
    most: usize,
) -> Result<(Vec<timer::StoredTimer>, Conditions), StoreFault> {
    let mut timers: Vec<timer::StoredTimer> = Vec::new();
    let mut conditions = Conditions::new();
    let sql = format!(
        "SELECT number, agent, kind, total_ms, background, due_ms, pause_until_ms, remaining_ms, \
         checked_ms, key, condition, created_ms, conversation, seal FROM timer WHERE ended_ms IS NULL{scope} \
         AND number > ?1 ORDER BY number LIMIT ?2"
    );
    let mut read = |row: &dyn Columns| {
        let timer = stored_timer(row)?;
        let (agent, conversation) = (&timer.agent, timer.conversation.as_ref());
        if let Some(condition) = row.text(10)? {
            let sealed = SealedRow::Condition(timer.number, agent, conversation, condition);
            let is_ours = seal.is_valid(&sealed, row.bytes(13)?);
            let until = Until {
                condition: condition.into(),
                agent: agent.clone(),
                conversation: conversation.cloned(),
                since: Wall(row.u64(11)?),
            };
            let id = TimerId::from_bits(id_permutation.to_bits(timer.number));
            conditions.push((id, is_ours.then_some(until)));
        }
        Ok(timer)
    };
    loop {
        let last = timers.last().map_or(-1, |timer| timer.number.cast_signed());
        let page = db.rows(&sql, &[last.into(), most.into()], &mut read)?;
        let is_last = page.len() < most;
        timers.extend(page);
        if is_last {
            break;
        }
    }
    Ok((timers, conditions))
}

fn stored_timer(row: &dyn Columns) -> Result<timer::StoredTimer, StoreFault> {
    let countdown = match row.opt_u64(5)? {
        Some(due) => Countdown::Running { due: Steady(due) },
        None => Countdown::Paused {
            remaining: Millis(row.opt_u64(7)?.unwrap_or(0)),
            until: Steady(row.opt_u64(6)?.unwrap_or(0)),
        },
    };
    Ok(timer::StoredTimer {
        number: row.u64(0)?,
        agent: Agent(row.str(1)?.into()),
        conversation: conversation(row, 12)?,
        kind: kind(row.str(2)?),
        state: State {
            total: Millis(row.u64(3)?),
            countdown,
            wait_mode: match row.flag(4)? {
                true => WaitMode::Background,
                false => WaitMode::Foreground,
            },
        },
        checked: Wall(row.u64(8)?),
        key: key(row, 9)?,
        conditional: row.text(10)?.is_some(),
    })
}

/// Timers that ended last, oldest first.
pub(super) fn ended(
    db: &dyn Query,
    id_permutation: IdPermutation,
    scope: RowScope,
) -> Result<Vec<(Timer, Option<Key>)>, StoreFault> {
    let sql = format!(
        "SELECT number, agent, kind, total_ms, remaining_ms, checked_ms, condition, \
         completed_by, late_ms, key, conversation, background FROM timer \
         WHERE ended_ms IS NOT NULL{scope} \
         ORDER BY ended_ms DESC, number DESC LIMIT ?1"
    );
    let mut ended = db.rows(&sql, &[limit::ENDED_TIMERS.into()], |row| {
        let number = row.u64(0)?;
        let kind = kind(row.str(2)?);
        let late = Millis(row.opt_u64(8)?.unwrap_or(0));
        let by = row.text(7)?;
        let by = by.map(|word| CompletedBy::of_word(word).unwrap_or(CompletedBy::Time));
        let timer = Timer {
            id: TimerId::from_bits(id_permutation.to_bits(number)),
            number,
            agent: Agent(row.str(1)?.into()),
            conversation: conversation(row, 10)?,
            wakes: kind == Kind::Mission || row.flag(11)?,
            kind,
            status: by.map_or(Status::Stopped, |by| Status::Completed { by, late }),
            total: Millis(row.u64(3)?),
            remaining: Millis(row.opt_u64(4)?.unwrap_or(0)),
            checked: Wall(row.u64(5)?),
            pause_until: None,
            conditional: row.text(6)?.is_some(),
        };
        Ok((timer, key(row, 9)?))
    })?;
    ended.reverse();
    Ok(ended)
}

pub(super) fn kind(word: &str) -> Kind {
    Kind::of_word(word).unwrap_or(Kind::Waiting)
}

/// Messages that have not been seen.
pub(super) fn messages(
    db: &dyn Query,
    scope: RowScope,
) -> Result<Vec<message::StoredMessage>, StoreFault> {
    let sql = format!("{MESSAGE} WHERE seen_ms IS NULL{scope} ORDER BY number");
    read_messages(db, &sql, &[])
}

/// Messages with these numbers that have not been seen.
pub(super) fn messages_among(
    db: &dyn Query,
    numbers: &[u64],
) -> Result<Vec<message::StoredMessage>, StoreFault> {
    let among = db.dialect().is_among("number");
    let sql = format!("{MESSAGE} WHERE seen_ms IS NULL AND {among} ORDER BY number");
    let numbers = numbers.iter().map(|number| number.cast_signed()).collect();
    read_messages(db, &sql, &[Value::Ints(numbers)])
}

const MESSAGE: &str = "SELECT number, agent, about, told_ms, conversation, made_ms FROM message";

fn read_messages(
    db: &dyn Query,
    sql: &str,
    params: &[Value],
) -> Result<Vec<message::StoredMessage>, StoreFault> {
    let rows = db.rows(sql, params, |row| {
        let Some(about) = subject(row.str(2)?) else {
            return Ok(None);
        };
        Ok(Some(message::StoredMessage {
            number: row.u64(0)?,
            agent: Agent(row.str(1)?.into()),
            about,
            conversation: conversation(row, 4)?,
            made: Wall(row.u64(5)?),
            delivery_begun: row.opt_u64(3)?.is_some(),
        }))
    })?;
    Ok(rows.into_iter().flatten().collect())
}

pub(super) fn subject(about: &str) -> Option<About> {
    let session = about.parse().map(About::Session);
    let question = about.parse().map(About::Question);
    about
        .parse()
        .map(About::Timer)
        .or(session)
        .or(question)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::seal::UNSEALED;
    use crate::store::{connect, schema};

    #[test]
    fn reported_endings_are_the_sessions_of_seen_and_unseen_messages() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut db = connect(&folder.path().join("abide.db")).expect("a database");
        schema::migrate(&mut db).expect("tables");
        let (one, two) = (SessionId::from_bits(1), SessionId::from_bits(2));
        let about = [
            one.to_string(),
            two.to_string(),
            TimerId::from_bits(3).to_string(),
        ];
        for (number, about) in about.iter().enumerate() {
            let seen = (number == 0).then_some(5);
            db.execute(
                "INSERT INTO message (number, id, agent, about, made_ms, seen_ms, wakes) VALUES (?1, ?1, 'a', ?2, 1, ?3, 0)",
                (number, about, seen),
            )
            .expect("a message");
        }
        let reported = reported_endings(&db, RowScope::Database).expect("sessions");
        assert_eq!(reported, HashSet::from([one, two]));
    }

    #[test]
    fn timers_of_several_queries_are_all_there_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut db = connect(&folder.path().join("abide.db")).expect("a database");
        schema::migrate(&mut db).expect("tables");
        for number in [0, 1, 4, 5, 9] {
            db.execute(
                "INSERT INTO timer (number, id, agent, kind, purpose, created_ms, checked_ms, total_ms, status, \
                 background, due_ms, condition) VALUES (?1, ?1, 'a', 'waiting', '', 1, 1, 1, 'running', 0, 5, '{}')",
                [number],
            )
            .expect("a timer");
        }
        for most in [1, 2, 5, 6] {
            let ids = IdPermutation { key: 1 };
            let read = timers_by(&db, ids, RowScope::Database, &UNSEALED, most);
            let (timers, conditions) = read.expect("timers");
            let numbers: Vec<u64> = timers.iter().map(|timer| timer.number).collect();
            assert_eq!((numbers, conditions.len()), (vec![0, 1, 4, 5, 9], 5));
        }
    }
}

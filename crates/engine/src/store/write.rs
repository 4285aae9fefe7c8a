//! Writes records as rows.

use abide_core::Record;
use abide_core::message::{self, About};
use abide_core::question::{Answer, Closing};
use abide_core::time::{Millis, Wall};
use abide_core::timer::{self, Change, Countdown, Status, WaitMode};
use rusqlite::{Connection, params};

use super::{StoreFault, held, in_transaction, timer_history};
use abide_session::crash_point;

/// Maximum of rows that one prune removes, so that it never blocks a turn for long.
pub(super) const PRUNE_BATCH: usize = 2_000;

/// Writes all records in one transaction.
pub(crate) fn commit(db: &Connection, records: &[Record]) -> Result<(), StoreFault> {
    in_transaction(db, |db| {
        rows(db, records)?;
        crash_points(records, |[before, _]| before);
        Ok(())
    })?;
    crash_points(records, |[_, after]| after);
    Ok(())
}

fn rows(transaction: &Connection, records: &[Record]) -> Result<(), StoreFault> {
    for record in records {
        match record {
            Record::Asked { question, state } => {
                let held = state.held();
                transaction.execute(
                    "INSERT OR REPLACE INTO question (id, session, idle_ms, asked_ms, command, launch) \
                     VALUES (?, ?, ?, ?, ?, ?)",
                    params![
                        question.to_string(),
                        state.session().to_string(),
                        state.idle().unwrap_or_default().0,
                        state.asked.0,
                        held.map(|held| held::text(held)),
                        held.map(|held| held.approval.launch.as_ref()),
                    ],
                )?;
            }
            Record::Closed {
                question,
                closing,
                at,
            } => {
                transaction.execute(
                    "UPDATE question SET closing = ?, closed_ms = ? WHERE id = ? AND closing IS NULL",
                    params![closing_word(*closing), at.0, question.to_string()],
                )?;
                if *closing != Closing::Answered(Answer::Yes) {
                    let started = abide_core::held::Record::Started;
                    held::write(transaction, *question, &started)?;
                }
            }
            Record::Held { question, record } => held::write(transaction, *question, record)?,
            Record::Timer(record) => timer(transaction, record)?,
            Record::Message(record) => message(transaction, record)?,
        }
    }
    Ok(())
}

/// Crash points around a commit, for tests.
pub(super) fn crash_points(records: &[Record], when: fn([&'static str; 2]) -> &'static str) {
    for record in records {
        let what = match record {
            Record::Timer(timer::Record::Created { .. }) => {
                ["timer.create.pre", "timer.create.post"]
            }
            Record::Timer(timer::Record::Changed { .. }) => {
                ["timer.change.pre", "timer.change.post"]
            }
            Record::Timer(timer::Record::Ended {
                status: Status::Stopped,
                ..
            }) => ["timer.stop.pre", "timer.stop.post"],
            Record::Timer(timer::Record::Ended { .. }) => ["timer.due.pre", "timer.due.post"],
            Record::Message(message::Record::DeliveryBegun { .. }) => {
                ["message.told.pre", "message.told.post"]
            }
            Record::Message(message::Record::Seen { .. }) => {
                ["message.seen.pre", "message.seen.post"]
            }
            Record::Closed { .. } => ["question.close.pre", "question.close.post"],
            Record::Held { record, .. } => match record {
                abide_core::held::Record::Approved { .. } => {
                    ["held.approve.pre", "held.approve.post"]
                }
                abide_core::held::Record::Started => ["held.start.pre", "held.start.post"],
                abide_core::held::Record::Declined { .. } => continue,
            },
            Record::Message(message::Record::Posted { .. })
            | Record::Timer(timer::Record::Acted { .. } | timer::Record::Anchored(_))
            | Record::Asked { .. } => continue,
        };
        crash_point(when(what));
    }
}

fn timer(transaction: &Connection, record: &timer::Record) -> Result<(), StoreFault> {
    match record {
        timer::Record::Created {
            number,
            id,
            agent,
            conversation,
            kind,
            purpose,
            until,
            key,
            total,
            due,
            standby,
            at,
        } => {
            transaction
                .prepare_cached(
                    "INSERT INTO timer (number, id, agent, kind, purpose, condition, key, created_ms, \
                 checked_ms, total_ms, standby_ms, status, background, due_ms, conversation) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 0, ?, ?)",
                )?
                .execute(params![
                    number,
                    id.to_string(),
                    agent.0.as_ref(),
                    kind.as_str(),
                    purpose.as_ref(),
                    until.as_deref(),
                    key.as_ref().map(|key| key.0.as_ref()),
                    at.0,
                    at.0,
                    total.0,
                    standby.map(|time| time.0),
                    due.0,
                    conversation.as_ref().map(|of| of.0.as_ref()),
                ])?;
        }
        timer::Record::Changed {
            number,
            state,
            standby,
            change,
            reason,
            checked,
            at,
        } => {
            // A reason that was given with `resume_timer` is not the reason of a stop.
            let stop_reason = reason.as_deref().filter(|_| *change != Change::Resumed);
            changed(
                transaction,
                *number,
                *state,
                *standby,
                stop_reason,
                *checked,
            )?;
            // Calls that stand by again and again change nothing that a person would look for.
            if *change != Change::Continued {
                timer_history::add(transaction, *number, *change, reason.as_deref(), *at)?;
            }
        }
        timer::Record::Ended {
            number,
            status,
            total,
            remaining,
            stop_reason,
            seen,
            checked,
            at,
            ..
        } => {
            let (by, late) = match status {
                Status::Completed { by, late } => (Some(by.as_str()), Some(late.0)),
                Status::Stopped | Status::Running(_) | Status::Paused { .. } => (None, None),
            };
            transaction
                .prepare_cached(
                    "UPDATE timer SET status = ?, total_ms = ?, remaining_ms = ?, stop_reason = ?, seen = ?, \
                 completed_by = ?, late_ms = ?, checked_ms = ?, ended_ms = ?, due_ms = NULL, \
                 pause_until_ms = NULL WHERE number = ? AND ended_ms IS NULL",
                )?
                .execute(params![
                    status.as_str(),
                    total.0,
                    remaining.0,
                    stop_reason.as_deref(),
                    seen.as_deref(),
                    by,
                    late,
                    checked.0,
                    at.0,
                    number,
                ])?;
        }
        timer::Record::Acted { number, key } => {
            transaction
                .prepare_cached("UPDATE timer SET acted = ? WHERE number = ?")?
                .execute(params![key.0.as_ref(), number])?;
        }
        timer::Record::Anchored(anchor) => {
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO clock (one, boot_id, ahead_of_boot_ms, wall_ahead_ms, \
                 reached_ms) VALUES (1, ?, ?, ?, ?)",
                )?
                .execute(params![
                    format!("{:032x}", anchor.boot_id),
                    anchor.ahead_of_boot,
                    anchor.wall_ahead,
                    anchor.reached.0,
                ])?;
        }
    }
    Ok(())
}

fn changed(
    transaction: &Connection,
    number: u64,
    state: timer::State,
    standby: Option<Millis>,
    stop_reason: Option<&str>,
    checked: Wall,
) -> Result<(), StoreFault> {
    let background = state.wait_mode == WaitMode::Background;
    let status = match (state.countdown, state.wait_mode) {
        (Countdown::Paused { .. }, _) => "paused",
        (Countdown::Running { .. }, mode) => Status::Running(mode).as_str(),
    };
    let (due, pause_until, remaining) = match state.countdown {
        Countdown::Running { due } => (Some(due.0), None, None),
        Countdown::Paused { remaining, until } => (None, Some(until.0), Some(remaining.0)),
    };
    transaction
        .prepare_cached(
            "UPDATE timer SET status = ?, background = ?, total_ms = ?, due_ms = ?, \
         pause_until_ms = ?, remaining_ms = ?, standby_ms = coalesce(?, standby_ms), stop_reason = ?, \
         checked_ms = ? WHERE number = ?",
        )?
        .execute(params![
            status,
            background,
            state.total.0,
            due,
            pause_until,
            remaining,
            standby.map(|time| time.0),
            stop_reason,
            checked.0,
            number,
        ])?;
    Ok(())
}

/// Value of `told_ms` for a message that the answer of a waiting call carries. If that answer arrives, no other call
/// needs the message; if it does not, the message is told again and gets the time.
pub(super) const TOLD_BY_CALL: u64 = 0;

fn message(transaction: &Connection, record: &message::Record) -> Result<(), StoreFault> {
    match record {
        message::Record::Posted {
            number,
            id,
            agent,
            content,
            reported_by_call,
            at,
        } => {
            let about = match content.about {
                About::Timer(timer) => timer.to_string(),
                About::Session(session) => session.to_string(),
                About::Question(question) => question.to_string(),
            };
            transaction.prepare_cached(
                "INSERT INTO message (number, id, agent, about, made_ms, told_ms, conversation, \
                 wakes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                number,
                id.to_string(),
                agent.0.as_ref(),
                about,
                at.0,
                reported_by_call.then_some(TOLD_BY_CALL),
                content.conversation.as_ref().map(|of| of.0.as_ref()),
                content.wakes,
            ])?;
        }
        message::Record::DeliveryBegun { numbers, at, .. } => {
            let mut told =
                transaction.prepare_cached("UPDATE message SET told_ms = ? WHERE number = ?")?;
            for number in numbers {
                told.execute(params![at.0, number])?;
            }
        }
        message::Record::Seen { numbers, at } => {
            let mut seen =
                transaction.prepare_cached("UPDATE message SET seen_ms = ? WHERE number = ?")?;
            for number in numbers {
                seen.execute(params![at.0, number])?;
            }
        }
    }
    Ok(())
}

/// Removes old rows. The newest row of each table stays, so that no number is used twice; a timer stays while a
/// message about it has not been seen.
pub(super) fn prune(db: &mut Connection, before_ms: u64) -> Result<usize, StoreFault> {
    let round = db.transaction()?;
    let old = "(SELECT number FROM message \
         WHERE seen_ms < ?1 AND number < (SELECT max(number) FROM message) LIMIT ?2)";
    round.execute(
        &format!("DELETE FROM delivery WHERE message IN {old}"),
        params![before_ms, PRUNE_BATCH],
    )?;
    let messages = round.execute(
        &format!("DELETE FROM message WHERE number IN {old}"),
        params![before_ms, PRUNE_BATCH],
    )?;
    crash_point("gc.mid");
    let timers = round.execute(
        "DELETE FROM timer WHERE number IN (SELECT number FROM timer t \
         WHERE ended_ms < ?1 AND number < (SELECT max(number) FROM timer) AND t.id NOT IN \
         (SELECT about FROM message WHERE seen_ms IS NULL) LIMIT ?2)",
        params![before_ms, PRUNE_BATCH],
    )?;
    let questions = round.execute(
        "DELETE FROM question WHERE id IN \
         (SELECT id FROM question WHERE closed_ms < ?1 LIMIT ?2)",
        params![before_ms, PRUNE_BATCH],
    )?;
    round.commit()?;
    Ok(messages + timers + questions)
}

/// Result of a question, in one word.
pub fn closing_word(closing: Closing) -> &'static str {
    match closing {
        Closing::Answered(Answer::Yes) => "yes",
        Closing::Answered(Answer::No) => "no",
        Closing::Withdrawn => "withdrawn",
        Closing::Expired => "expired",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::{connect, schema};

    fn database(folder: &tempfile::TempDir) -> Connection {
        let mut db = connect(&folder.path().join("abide.db")).expect("a database");
        schema::migrate(&mut db).expect("tables");
        db
    }

    fn count(db: &Connection, table: &str) -> usize {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get(0)).expect("a count")
    }

    #[test]
    fn unread_messages_do_not_make_prune_slow() {
        const MANY: usize = 3_000;
        let folder = tempfile::tempdir().unwrap();
        let mut db = database(&folder);
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY})
             INSERT INTO timer SELECT n, 't' || n, 'a', 'mission', 'm', NULL, NULL, 0, 0, 1, NULL,
             'completed', 0, NULL, NULL, 0, NULL, 'time', 0, 1, NULL, NULL, NULL FROM n;
             INSERT INTO message SELECT number, 'm' || number, 'a', id, 1, NULL, NULL, NULL, 0, NULL, NULL, 0
             FROM timer;"
        );
        db.execute_batch(&fill).expect("rows");
        let steps = Arc::new(AtomicUsize::new(0));
        let taken = steps.clone();
        let each = move || {
            taken.fetch_add(1, Ordering::Relaxed);
            false
        };
        db.progress_handler(100, Some(each)).expect("a counter");
        assert_eq!(prune(&mut db, 2).expect("tidied"), 0);
        assert_eq!(count(&db, "timer"), MANY + 1, "what was not told stays");
        let for_each = steps.load(Ordering::Relaxed) * 100 / MANY;
        assert!(for_each < 200, "{for_each} steps for each of them");
    }

    #[test]
    fn prune_removes_old_closed_questions_and_keeps_open_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut db = database(&folder);
        db.execute_batch(
            "INSERT INTO question (id, session, idle_ms, asked_ms, closing, closed_ms)
             VALUES ('old', 's', 1, 1, 'yes', 1), ('young', 's', 1, 1, 'yes', 5), ('open', 's', 1, 1, NULL, NULL);",
        )
        .expect("rows");
        assert_eq!(prune(&mut db, 2).expect("tidied"), 1);
        assert_eq!(count(&db, "question"), 2);
        assert_eq!(prune(&mut db, 2).expect("tidied"), 0);
    }
}

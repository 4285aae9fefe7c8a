//! Lists of all timers, ended or not: filtered, sorted, in pages. They may read every row, so they use a connection
//! of their own.

use abide_core::time::Wall;
use abide_core::{Millis, TimerId};
use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};

use super::read::{StoreReader, TIMER, TimerRow};
use super::{DeliveryState, StoreFault};

/// Filter, order and page of a list of timers.
#[derive(Clone, Debug, Default)]
pub struct TimerQuery {
    /// Agent; `None`: all.
    pub agent: Option<String>,
    /// Statuses; empty: any.
    pub statuses: Vec<String>,
    /// Filter for ended timers, if no statuses are given.
    pub ended: EndedFilter,
    /// Text that the timer's text or id contains, ignoring case.
    pub text: Option<String>,
    /// Order of the list.
    pub order: TimerOrder,
    /// Timer after which the page begins.
    pub after: Option<TimerId>,
    /// Maximum of rows.
    pub limit: usize,
}

/// Filter for ended timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedFilter {
    /// Timers that have not ended.
    #[default]
    Exclude,
    /// All timers.
    Include,
    /// Ended timers.
    Only,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerOrder {
    /// Newest first.
    #[default]
    Created,
    /// Due soonest first, then paused, then ended, the last first.
    Remaining,
    /// CompletedBy status, running first.
    Status,
    /// Ended last first.
    Ended,
}

impl TimerOrder {
    /// Two SQL expressions to sort by; equal rows are sorted by age.
    fn keys(self) -> (&'static str, &'static str) {
        match self {
            TimerOrder::Created => ("0", "-number"),
            TimerOrder::Remaining => (
                "CASE WHEN ended_ms IS NOT NULL THEN 2 WHEN due_ms IS NULL THEN 1 ELSE 0 END",
                "CASE WHEN ended_ms IS NOT NULL THEN -ended_ms \
                 ELSE coalesce(due_ms, remaining_ms, 0) END",
            ),
            TimerOrder::Status => (
                "CASE status WHEN 'running' THEN 0 WHEN 'running_background' THEN 1 \
                 WHEN 'paused' THEN 2 WHEN 'completed' THEN 3 ELSE 4 END",
                "-number",
            ),
            TimerOrder::Ended => ("ended_ms IS NULL", "-coalesce(ended_ms, 0)"),
        }
    }
}

/// Page of a list.
#[derive(Clone, Debug, Default)]
pub struct TimerPage {
    /// Rows in order.
    pub rows: Vec<TimerRow>,
    /// True if there are more after these.
    pub more: bool,
    /// Number of timers that match.
    pub total: u64,
}

/// Ended timers of one day (UTC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerDay {
    /// Date such as `2026-11-15`.
    pub day: String,
    /// Number of completed timers.
    pub completed: u64,
    /// Number of stopped timers.
    pub stopped: u64,
    /// Total time that the completed ones ran.
    pub waited: Millis,
}

/// Counts of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages that their agents have not seen.
    pub unseen: u64,
    /// Deliveries by wakers.
    pub woken: u64,
    /// Deliveries that wakers gave up.
    pub not_woken: u64,
}

/// SQL condition with its values.
#[derive(Default)]
struct Filter {
    sql: String,
    values: Vec<Value>,
}

impl Filter {
    fn new(query: &TimerQuery) -> Self {
        let mut filter = Filter::default();
        if let Some(agent) = &query.agent {
            filter.and("agent = ?", [Value::from(agent.clone())]);
        }
        if query.statuses.is_empty() {
            match query.ended {
                EndedFilter::Exclude => filter.and("ended_ms IS NULL", []),
                EndedFilter::Only => filter.and("ended_ms IS NOT NULL", []),
                EndedFilter::Include => {}
            }
        } else {
            let marks = vec!["?"; query.statuses.len()].join(", ");
            let words = query.statuses.iter().cloned().map(Value::from);
            filter.and(&format!("status IN ({marks})"), words);
        }
        if let Some(text) = &query.text {
            let like = Value::from(format!("%{}%", escaped(text)));
            filter.and(
                "(purpose LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\')",
                [like.clone(), like],
            );
        }
        filter
    }

    fn and(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(if self.sql.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        self.sql.push_str(sql);
        self.values.extend(values);
    }
}

/// Text with the wildcards of LIKE escaped.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        if matches!(c, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    })
}

impl StoreReader {
    /// Page of timers; `None`: the timer in `after` does not exist.
    pub fn timers(&self, query: &TimerQuery) -> Result<Option<TimerPage>, StoreFault> {
        let db = self.scan_db.lock().expect("no holder panics");
        let mut filter = Filter::new(query);
        let count = format!("SELECT count(*) FROM timer{}", filter.sql);
        let total = db
            .prepare_cached(&count)?
            .query_row(params_from_iter(&filter.values), |row| row.get(0))?;
        let (first, second) = query.order.keys();
        if let Some(after) = query.after {
            let number = self.id_permutation.to_number(after.0.bits());
            let find = format!("SELECT {first}, {second} FROM timer WHERE number = ?");
            let place = db
                .prepare_cached(&find)?
                .query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((group, rank)): Option<(i64, i64)> = place else {
                return Ok(None);
            };
            let number = Value::from(number.cast_signed());
            match query.order {
                TimerOrder::Created => filter.and("number < ?", [number]),
                TimerOrder::Remaining | TimerOrder::Status | TimerOrder::Ended => filter.and(
                    &format!("({first}, {second}, -number) > (?, ?, -?)"),
                    [group.into(), rank.into(), number],
                ),
            }
        }
        let order = match query.order {
            TimerOrder::Created => "number DESC".to_owned(),
            TimerOrder::Remaining | TimerOrder::Status | TimerOrder::Ended => {
                format!("{first}, {second}, number DESC")
            }
        };
        let select = format!("{TIMER}{} ORDER BY {order} LIMIT ?", filter.sql);
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX - 1) + 1;
        filter.values.push(limit.into());
        let mut select = db.prepare_cached(&select)?;
        let rows = select.query_map(params_from_iter(&filter.values), |row| self.timer_row(row))?;
        let mut rows: Vec<TimerRow> = rows.collect::<Result<_, _>>()?;
        let more = rows.len() > query.limit;
        rows.truncate(query.limit);
        Ok(Some(TimerPage { rows, more, total }))
    }

    /// Number of unseen messages, and of deliveries by state.
    pub fn message_counts(&self) -> Result<MessageCounts, StoreFault> {
        let db = self.scan_db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(
            "SELECT (SELECT count(*) FROM message WHERE seen_ms IS NULL), \
             (SELECT count(*) FROM delivery WHERE state = ?1), \
             (SELECT count(*) FROM delivery WHERE state = ?2)",
        )?;
        let (done, failed) = (DeliveryState::Done, DeliveryState::GivenUp);
        Ok(select.query_row([done.as_str(), failed.as_str()], |row| {
            Ok(MessageCounts {
                unseen: row.get(0)?,
                woken: row.get(1)?,
                not_woken: row.get(2)?,
            })
        })?)
    }

    /// Calls that all ended timers have saved compared with polling every `every`: the polls while each ran, less the
    /// calls that were made. Those are not counted one by one; a wait is assumed to be called again after each
    /// standby of the last call's length.
    pub fn calls_saved(&self, agent: Option<&str>, every: Millis) -> Result<u64, StoreFault> {
        let db = self.scan_db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(
            "SELECT coalesce(sum(max(0, ran / ?1 - CASE WHEN standby_ms > 0 \
             THEN max(1, (ran + standby_ms - 1) / standby_ms) ELSE 1 END)), 0) FROM \
             (SELECT total_ms - coalesce(remaining_ms, 0) AS ran, standby_ms FROM timer \
             WHERE ended_ms IS NOT NULL AND (?2 IS NULL OR agent = ?2))",
        )?;
        Ok(select.query_row(rusqlite::params![every.0, agent], |row| row.get(0))?)
    }

    /// Ended timers per day since `from`; days without any are left out.
    pub fn timer_days(&self, agent: Option<&str>, from: Wall) -> Result<Vec<TimerDay>, StoreFault> {
        let db = self.scan_db.lock().expect("no holder panics");
        let mut select = db.prepare_cached(
            "SELECT date(ended_ms / 1000, 'unixepoch') AS day, \
             count(*) FILTER (WHERE status = 'completed'), \
             count(*) FILTER (WHERE status = 'stopped'), \
             coalesce(sum(total_ms - remaining_ms) FILTER (WHERE status = 'completed'), 0) \
             FROM timer WHERE ended_ms >= ?1 AND (?2 IS NULL OR agent = ?2) \
             GROUP BY day ORDER BY day",
        )?;
        let rows = select.query_map(rusqlite::params![from.0, agent], |row| {
            Ok(TimerDay {
                day: row.get(0)?,
                completed: row.get(1)?,
                stopped: row.get(2)?,
                waited: Millis(row.get(3)?),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

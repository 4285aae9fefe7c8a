//! Lists of all timers, ended or not: filtered, sorted, in pages. They may read every row, so they use a connection
//! of their own.

use abide_api::TimerDay;
use abide_core::id::IdPermutation;
use abide_core::time::Wall;
use abide_core::{Millis, TimerId};

use super::query::Query;
use super::read::{StoreReader, TIMER, TimerRow, timer_row};
use super::records::Value;
use super::{DeliveryState, StoreFault};
use crate::timestamp;

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
    pub order: TimerOrder,
    /// Timer after which the page begins.
    pub after: Option<TimerId>,
    pub limit: usize,
}

/// Filter for ended timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndedFilter {
    /// Timers that have not ended.
    #[default]
    Exclude,
    Include,
    Only,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerOrder {
    /// Newest first.
    #[default]
    Created,
    /// Due soonest first, then paused, then ended, the last first.
    Remaining,
    /// By status, running first.
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
            TimerOrder::Ended => (
                "CASE WHEN ended_ms IS NULL THEN 1 ELSE 0 END",
                "-coalesce(ended_ms, 0)",
            ),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TimerPage {
    pub rows: Vec<TimerRow>,
    /// True if there are more after these.
    pub more: bool,
    /// Number of timers that match.
    pub total: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages that their agents have not seen.
    pub unseen: u64,
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
    /// Condition of a query; `pattern` is what its text must match.
    fn new(query: &TimerQuery, pattern: Option<&str>, like: &str) -> Self {
        let mut filter = Filter::default();
        if let Some(agent) = &query.agent {
            filter.and("agent = ?", [agent.as_str().into()]);
        }
        if query.statuses.is_empty() {
            match query.ended {
                EndedFilter::Exclude => filter.and("ended_ms IS NULL", []),
                EndedFilter::Only => filter.and("ended_ms IS NOT NULL", []),
                EndedFilter::Include => {}
            }
        } else {
            let marks = vec!["?"; query.statuses.len()].join(", ");
            let words = query.statuses.iter().map(|word| word.as_str().into());
            filter.and(&format!("status IN ({marks})"), words);
        }
        if let Some(pattern) = pattern {
            let sql = format!("(purpose {like} ? ESCAPE '\\' OR id {like} ? ESCAPE '\\')");
            filter.and(&sql, [pattern.into(), pattern.into()]);
        }
        filter
    }

    /// Adds a condition, in which each `?` stands for the next value.
    fn and(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push_str(if self.sql.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        let mut number = self.values.len();
        for part in sql.split_inclusive('?') {
            self.sql.push_str(part);
            if part.ends_with('?') {
                number += 1;
                self.sql.push_str(&number.to_string());
            }
        }
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

/// Page of timers; `None`: the timer in `after` does not exist.
fn page(
    db: &dyn Query,
    query: &TimerQuery,
    ids: IdPermutation,
) -> Result<Option<TimerPage>, StoreFault> {
    let pattern = query.text.as_deref();
    let pattern = pattern.map(|text| format!("%{}%", escaped(text)));
    let mut filter = Filter::new(query, pattern.as_deref(), db.dialect().like());
    let count = format!("SELECT count(*) FROM timer{}", filter.sql);
    let total = db.one(&count, &filter.values, |row| row.u64(0))?;
    let (first, second) = query.order.keys();
    if let Some(after) = query.after {
        let number = ids.to_number(after.0.bits());
        let find = format!("SELECT CAST({first} AS BIGINT), {second} FROM timer WHERE number = ?1");
        let place = db.first(&find, &[number.into()], |row| {
            Ok((row.i64(0)?, row.i64(1)?))
        })?;
        let Some((group, rank)) = place else {
            return Ok(None);
        };
        match query.order {
            TimerOrder::Created => filter.and("number < ?", [number.into()]),
            TimerOrder::Remaining | TimerOrder::Status | TimerOrder::Ended => filter.and(
                &format!("({first}, {second}, -number) > (?, ?, -?)"),
                [group.into(), rank.into(), number.into()],
            ),
        }
    }
    let order = match query.order {
        TimerOrder::Created => "number DESC".to_owned(),
        TimerOrder::Remaining | TimerOrder::Status | TimerOrder::Ended => {
            format!("{first}, {second}, number DESC")
        }
    };
    filter.values.push(query.limit.saturating_add(1).into());
    let select = format!(
        "{TIMER}{} ORDER BY {order} LIMIT ?{}",
        filter.sql,
        filter.values.len()
    );
    let mut rows = db.rows(&select, &filter.values, |row| timer_row(ids, row))?;
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    Ok(Some(TimerPage { rows, more, total }))
}

pub(super) fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

impl StoreReader {
    /// Page of timers; `None`: the timer in `after` does not exist.
    pub async fn timers(&self, query: TimerQuery) -> Result<Option<TimerPage>, StoreFault> {
        let ids = self.id_permutation();
        let page = self.scan(move |db| page(db, &query, ids)).await?;
        self.note(page.iter().flat_map(|page| &page.rows));
        Ok(page)
    }

    /// Number of unseen messages, and of deliveries by state.
    pub async fn message_counts(&self) -> Result<MessageCounts, StoreFault> {
        let sql = "SELECT (SELECT count(*) FROM message WHERE seen_ms IS NULL), \
             (SELECT count(*) FROM delivery WHERE state = ?1), \
             (SELECT count(*) FROM delivery WHERE state = ?2)";
        let states = [DeliveryState::Done, DeliveryState::GivenUp];
        let read = move |db: &dyn Query| {
            db.one(sql, &states.map(|state| state.as_str().into()), |row| {
                Ok(MessageCounts {
                    unseen: row.u64(0)?,
                    woken: row.u64(1)?,
                    not_woken: row.u64(2)?,
                })
            })
        };
        self.scan(read).await
    }

    /// Calls that all ended timers have saved compared with polling every `every`: the polls while each ran, less the
    /// calls that were made. Those are not counted one by one; a wait is assumed to be called again after each
    /// standby of the last call's length.
    pub(super) async fn calls_saved(
        &self,
        agent: Option<&str>,
        every: Millis,
    ) -> Result<u64, StoreFault> {
        let agent = agent.map(str::to_owned);
        let sql = "SELECT CAST(coalesce(sum(CASE WHEN polls > calls THEN polls - calls ELSE 0 END), 0) AS BIGINT) \
             FROM (SELECT ran / ?1 AS polls, CASE WHEN standby_ms > 0 AND ran > standby_ms \
             THEN (ran + standby_ms - 1) / standby_ms ELSE 1 END AS calls FROM \
             (SELECT total_ms - coalesce(remaining_ms, 0) AS ran, standby_ms FROM timer \
             WHERE ended_ms IS NOT NULL AND (?2 IS NULL OR agent = ?2)) AS ended) AS counted";
        let read = move |db: &dyn Query| {
            db.one(sql, &[every.0.into(), agent.as_deref().into()], |row| {
                row.u64(0)
            })
        };
        self.scan(read).await
    }

    /// Ended timers per day since `from`; days without any are left out.
    pub(super) async fn timer_days(
        &self,
        agent: Option<&str>,
        from: Wall,
    ) -> Result<Vec<TimerDay>, StoreFault> {
        let agent = agent.map(str::to_owned);
        let sql = "SELECT ended_ms / 86400000 AS day, \
             count(*) FILTER (WHERE status = 'completed'), \
             count(*) FILTER (WHERE status = 'stopped'), \
             CAST(coalesce(sum(total_ms - remaining_ms) FILTER (WHERE status = 'completed'), 0) AS BIGINT) \
             FROM timer WHERE ended_ms >= ?1 AND (?2 IS NULL OR agent = ?2) \
             GROUP BY day ORDER BY day";
        let read = move |db: &dyn Query| {
            db.rows(sql, &[from.0.into(), agent.as_deref().into()], |row| {
                Ok(TimerDay {
                    day: timestamp::day(row.u64(0)?),
                    completed: row.u64(1)?,
                    stopped: row.u64(2)?,
                    waited: seconds(row.u64(3)?),
                })
            })
        };
        self.scan(read).await
    }
}

//! `timer`, `read_timer` and what can be done to a timer.

use std::sync::Arc;

use abide_core::timer::{self, Act, Create, Kind, Request, Status, Timer, Why};
use abide_core::{Agent, Millis, Outcome, Refusal, TimerId, limit};
use serde_json::{Map, Value, json};

use super::{Args, BadInput, Context, ToolResult, condition, key, messages, refusal_sentence};
use crate::daemon::Handle;
use crate::world::store::{TimerRow, Which};

/// Longest reason or mission, in bytes.
const TEXT_LIMIT: usize = 16 << 10;
/// Ended timers that `read_timer` lists.
const ENDED_LISTED: usize = 100;

/// What the result needs to know of the arguments.
pub(super) struct TimerTool {
    what: What,
    /// Whose timers; a person knows all.
    agent: Option<Agent>,
    /// The client's own limit, where it is shorter than what was asked for.
    fitted: Option<Millis>,
    /// What a new timer is made of.
    given: Option<Given>,
}

/// What the database keeps of a new timer, so that the answer need not read it there. Only of one
/// without a key: under a key there may be another one already.
struct Given {
    text: Arc<str>,
    until: Option<Arc<str>>,
    standby: Option<Millis>,
}

impl Given {
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Create(new) if new.key.is_none() => Some(Given {
                text: new.text.clone(),
                until: new.until.clone(),
                standby: new.standby.map(|time| time.min(new.total)),
            }),
            _ => None,
        }
    }

    /// The row of the timer that was made just now.
    fn row(&self, timer: &Timer) -> TimerRow {
        TimerRow {
            id: timer.id,
            agent: timer.agent.0.to_string(),
            kind: timer.kind,
            text: self.text.to_string(),
            condition: self.until.as_deref().map(str::to_owned),
            created: timer.checked,
            checked: timer.checked,
            total: timer.total,
            standby: self.standby,
            status: timer.status.as_str().to_owned(),
            remaining: None,
            reason: None,
            completed_by: None,
            late: None,
            ended: None,
        }
    }
}

enum What {
    Timer,
    Read,
    List {
        ended: bool,
    },
    Act,
    /// Something that is no id at all; those that there are get listed.
    NoSuch(String),
}

pub(super) fn read(
    name: &str,
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
    agent: Option<Agent>,
) -> Result<(Request, TimerTool), BadInput> {
    let mut args = Args::new(arguments);
    let read = match name {
        "timer" => wait(&mut args, context, handle),
        "read_timer" => look(&mut args),
        _ => act(name, &mut args),
    };
    let (request, what) = read?;
    args.finish(match name {
        "timer" => {
            "total_duration, timeout_duration, reason, mission, timer_id, until, idempotency_key"
        }
        "read_timer" => "timer_id, include_ended",
        "pause_timer" => "timer_id, pause_duration, reason",
        _ => "timer_id, reason",
    })?;
    let fitted = match &request {
        Request::Create(Create {
            total,
            standby,
            detach: false,
            kind: Kind::Waiting,
            ..
        }) => {
            let asked = standby.unwrap_or(*total);
            context.standby.filter(|limit| *limit < asked)
        }
        Request::Continue { standby, .. } => {
            let asked = standby.unwrap_or(Millis::MAX);
            context.standby.filter(|limit| *limit < asked)
        }
        _ => None,
    };
    let tool = TimerTool {
        what,
        agent,
        fitted,
        given: Given::of(&request),
    };
    Ok((request, tool))
}

type Read = Result<(Request, What), BadInput>;

fn wait(args: &mut Args, context: &Context, handle: &Handle) -> Read {
    let (reason, mission) = one_of(args.text("reason")?, args.text("mission")?);
    // A client that fills in every field leaves those empty that it has nothing for.
    let new = reason.is_some() || mission.is_some();
    let timer = args.text("timer_id")?;
    let timer = timer.filter(|given| !(new && given.trim().is_empty()));
    let total = args.seconds("total_duration")?;
    let standby = args.seconds("timeout_duration")?;
    let until = args.any("until");
    let key = key(args, context)?;
    if let Some(given) = timer {
        if until.is_some() {
            return Err(BadInput(
                "`until` belongs to a new timer; a timer that exists keeps the condition it has."
                    .into(),
            ));
        }
        return Ok(match given.trim().parse() {
            Err(_) => no_such(given),
            Ok(timer) => {
                let patience = context.standby;
                let request = Request::Continue {
                    timer,
                    remaining: total,
                    standby,
                    patience,
                };
                (request, What::Timer)
            }
        });
    }
    let (kind, text) = match (reason, mission) {
        (Some(reason), None) => (Kind::Waiting, ("reason", reason)),
        (None, Some(mission)) => (Kind::Mission, ("mission", mission)),
        (Some(_), Some(_)) => {
            return Err(BadInput(
                "`reason` and `mission` exclude each other; got both. Give `reason` to wait for \
                 something now, or `mission` to be woken later."
                    .into(),
            ));
        }
        (None, None) => {
            return Err(BadInput(
                "`reason` or `mission` is required for a new timer; got neither. Give `timer_id` to \
                 continue one that exists."
                    .into(),
            ));
        }
    };
    let text = checked(text.0, text.1)?;
    let total = total.ok_or_else(|| {
        BadInput("`total_duration` is required for a new timer and must be a number of seconds above 0; got nothing.".into())
    })?;
    // A mission returns at once, however long its caller would have stood by.
    let standby = standby.filter(|_| kind == Kind::Waiting);
    let until = match until {
        None => None,
        Some(given) => {
            let condition = condition::read(given, context, handle)?;
            let written = serde_json::to_string(&condition);
            Some(
                written
                    .map_err(|e| BadInput(format!("`until` cannot be kept: {e}.")))?
                    .into(),
            )
        }
    };
    let new = Create {
        kind,
        text: text.into(),
        until,
        total,
        standby,
        patience: context.standby,
        detach: false,
        key,
    };
    Ok((Request::Create(new), What::Timer))
}

/// Of two texts of which one is empty, the other.
fn one_of(left: Option<String>, right: Option<String>) -> (Option<String>, Option<String>) {
    let empty = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    match (empty(&left), empty(&right)) {
        (true, false) if right.is_some() => (None, right),
        (false, true) if left.is_some() => (left, None),
        _ => (left, right),
    }
}

fn checked(field: &str, text: String) -> Result<String, BadInput> {
    if text.trim().is_empty() {
        return Err(BadInput(format!(
            "`{field}` must not be empty, since it is what you are told later; got {text:?}."
        )));
    }
    if text.len() > TEXT_LIMIT {
        return Err(BadInput(format!(
            "`{field}` must be at most {TEXT_LIMIT} bytes long; got {}.",
            text.len()
        )));
    }
    Ok(text)
}

fn look(args: &mut Args) -> Read {
    let timer = args.text("timer_id")?;
    let ended = args.flag("include_ended")?;
    Ok(match timer {
        None => {
            let list = Request::List {
                asks: true,
                after: None,
                most: limit::TIMERS_LISTED,
            };
            (list, What::List { ended })
        }
        Some(given) => match given.trim().parse() {
            Ok(timer) => (Request::Read { asks: true, timer }, What::Read),
            Err(_) => no_such(given),
        },
    })
}

fn act(name: &str, args: &mut Args) -> Read {
    let given = args.required_text("timer_id")?;
    let reason = args.text("reason")?;
    let act = match name {
        "stop_timer" => Act::Stop,
        "cancel_timer" => Act::Cancel,
        "resume_timer" => Act::Resume,
        _ => Act::Pause(args.seconds("pause_duration")?.ok_or_else(|| {
            BadInput("`pause_duration` is required and must be a number of seconds above 0; got nothing.".into())
        })?),
    };
    let reason = reason.map(|reason| checked("reason", reason)).transpose()?;
    Ok(match given.trim().parse() {
        Err(_) => no_such(given),
        Ok(timer) => {
            let reason = reason.map(Into::into);
            (Request::Act { timer, act, reason }, What::Act)
        }
    })
}

fn no_such(given: String) -> (Request, What) {
    let list = Request::List {
        asks: false,
        after: None,
        most: limit::TIMERS_LISTED,
    };
    (list, What::NoSuch(given))
}

impl TimerTool {
    pub(super) fn result(&self, handle: &Handle, outcome: Outcome) -> ToolResult {
        match outcome {
            Outcome::Timer(timer, why) => self.told(handle, &timer, why),
            Outcome::Timers(timers) => self.list(handle, &timers),
            Outcome::Refused(Refusal::Timer(refusal)) => self.refused(handle, refusal),
            Outcome::Refused(refusal) => ToolResult::error(refusal_sentence(&refusal)),
            _ => ToolResult::error("the timer was removed meanwhile".into()),
        }
    }

    fn told(&self, handle: &Handle, timer: &Timer, why: Why) -> ToolResult {
        let row = match (&self.given, why) {
            (Some(given), Why::Made) => Some(given.row(timer)),
            _ => handle.past().timer(timer.id).ok().flatten(),
        };
        let mut facts = facts(timer, row.as_ref());
        let reason = row
            .as_ref()
            .map(|row| format!("\n{}: {}", row.label(), row.text));
        let reason = reason.unwrap_or_default();
        let id = timer.id;
        let saw = handle.prober().saw(id).filter(|saw| !saw.is_empty());
        let counted = format!(
            "{} of {} elapsed, {} remain",
            number(timer.elapsed()),
            seconds(timer.total),
            number(timer.remaining)
        );
        let last_look = saw
            .as_ref()
            .map(|saw| format!("\nLast look: {saw}"))
            .unwrap_or_default();
        if let Some(saw) = saw {
            facts.insert("last_look".into(), json!(saw));
        }
        if matches!(self.what, What::Timer) {
            facts.insert("timeout".into(), json!(why == Why::StandbyOver));
            // One that ended before was not waited for.
            if let Some(fitted) = self.fitted.filter(|_| why != Why::Ended) {
                facts.insert("effective_timeout".into(), secs(fitted));
            }
        }
        let text = match why {
            Why::Completed | Why::Ended if timer.status != Status::Stopped => {
                row.as_ref().map_or_else(
                    || format!("Timer '{id}' has completed."),
                    messages::completion,
                )
            }
            Why::Made if timer.kind == Kind::Mission => format!(
                "Timer '{id}' is set for {}.{reason}\nEnd your turn now: you will be woken by a message \
                 when it completes. Polling is not needed.",
                seconds(timer.remaining)
            ),
            Why::StandbyOver => format!(
                "Timer '{id}' is still {}: {counted}.{reason}{last_look}\nTo go on waiting call timer with \
                 timer_id '{id}'; polling is not needed. cancel_timer lets it run on and tell you by a \
                 message.",
                timer.status.as_str()
            ),
            Why::Interrupted(act) | Why::Done(act) => {
                let note = row.as_ref().and_then(|row| row.reason.as_deref());
                let note = note
                    .map(|note| format!("\nWhy: {note}"))
                    .unwrap_or_default();
                format!(
                    "Timer '{id}' was {}: {counted}.{reason}{note}\n{}",
                    past_of(act),
                    what_next(act, timer)
                )
            }
            Why::Made | Why::Looked | Why::Completed | Why::Ended => {
                format!(
                    "Timer '{id}' is {}: {counted}.{reason}{last_look}",
                    timer.status.as_str()
                )
            }
        };
        ToolResult {
            text,
            facts,
            is_error: false,
        }
        .sealed()
    }

    fn list(&self, handle: &Handle, timers: &[Timer]) -> ToolResult {
        if let What::NoSuch(given) = &self.what {
            let known: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
            let (known, more) = known.split_at(known.len().min(limit::IDS_LISTED));
            return self.not_found(handle, &super::args::shown_text(given), known, more.len());
        }
        let past = handle.past();
        let ids: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
        let mut rows = past.timers_of(&ids).unwrap_or_default().into_iter();
        let mut lines = Vec::new();
        let mut list = Vec::new();
        let mut left_out = Vec::new();
        if timers.len() >= limit::TIMERS_LISTED {
            left_out.push(format!(
                "Only the {} oldest are listed.",
                limit::TIMERS_LISTED
            ));
        }
        for timer in timers {
            let row = rows.next().flatten();
            let text = row
                .as_ref()
                .map(|row| row.text.as_str())
                .unwrap_or_default();
            lines.push(format!(
                "{} {} {}: {} of {} elapsed, {} remain: {}",
                timer.id,
                timer.kind.as_str(),
                timer.status.as_str(),
                number(timer.elapsed()),
                seconds(timer.total),
                number(timer.remaining),
                super::report::safe(text)
            ));
            list.push(Value::Object(facts(timer, row.as_ref())));
        }
        if let What::List { ended: true } = self.what {
            let which = Which {
                agent: self.agent.as_ref().map(|agent| agent.0.as_ref()),
                most: ENDED_LISTED,
            };
            let ended = past.ended(which).unwrap_or_default();
            if ended.len() >= ENDED_LISTED {
                left_out.push(format!(
                    "Of those that have ended only the last {ENDED_LISTED} are listed."
                ));
            }
            for row in ended {
                lines.push(format!(
                    "{} {} {}: {}",
                    row.id,
                    row.kind.as_str(),
                    row.status,
                    super::report::safe(&row.text)
                ));
                list.push(Value::Object(row_facts(&row)));
            }
        }
        let truncated = !left_out.is_empty();
        lines.extend(left_out);
        let text = match lines.is_empty() {
            true => "No timers.".into(),
            false => lines.join("\n"),
        };
        let facts = Map::from_iter([
            ("timers".to_owned(), Value::Array(list)),
            ("truncated".to_owned(), json!(truncated)),
        ]);
        ToolResult {
            text,
            facts,
            is_error: false,
        }
        .sealed()
    }

    /// A timer that is no longer kept in memory may still be remembered.
    fn refused(&self, handle: &Handle, refusal: timer::Refusal) -> ToolResult {
        if let timer::Refusal::NotFound { timer, .. } = &refusal
            && let Ok(Some(row)) = handle.past().timer(*timer)
            && self.agent.as_ref().is_none_or(|me| row.agent == *me.0)
            && row.ended.is_some()
        {
            if matches!(self.what, What::Act) {
                return ToolResult::error(format!(
                    "Timer '{}' is {}: nothing can be done to it any more",
                    row.id, row.status
                ));
            }
            let text = match row.completed_by {
                Some(_) => messages::completion(&row),
                None => format!(
                    "Timer '{}' is {}.\n{}: {}",
                    row.id,
                    row.status,
                    row.label(),
                    row.text
                ),
            };
            let mut facts = row_facts(&row);
            if matches!(self.what, What::Timer) {
                facts.insert("timeout".into(), json!(false));
            }
            return ToolResult {
                text,
                facts,
                is_error: false,
            }
            .sealed();
        }
        match refusal {
            timer::Refusal::NotFound { timer, known, more } => {
                self.not_found(handle, &timer.to_string(), &known, more)
            }
            other => ToolResult::error(sentence(&other)),
        }
    }

    /// The ids that exist: those that have not ended, and the last that have.
    fn not_found(
        &self,
        handle: &Handle,
        given: &str,
        known: &[TimerId],
        more: usize,
    ) -> ToolResult {
        let which = Which {
            agent: self.agent.as_ref().map(|agent| agent.0.as_ref()),
            most: limit::IDS_LISTED,
        };
        let ended = handle.past().ended(which).unwrap_or_default();
        let ended: Vec<TimerId> = ended.iter().map(|row| row.id).collect();
        ToolResult::error(not_found(given, known, more, &ended))
    }
}

/// Many timers for one call that stands by on none.
pub(super) fn many(
    all: Vec<Value>,
    context: &Context,
    handle: &Handle,
) -> Result<Request, BadInput> {
    if all.len() > limit::TIMERS_AT_ONCE {
        return Err(BadInput(format!(
            "`timers` must hold at most {} timers; got {}.",
            limit::TIMERS_AT_ONCE,
            all.len()
        )));
    }
    let mut new = Vec::with_capacity(all.len());
    for (n, given) in all.into_iter().enumerate() {
        let at = |bad: BadInput| BadInput(format!("`timers[{n}]`: {}", bad.0));
        let Value::Object(fields) = given else {
            return Err(at(BadInput("it must be an object.".into())));
        };
        let mut args = Args::new(fields);
        let (request, _) = wait(&mut args, context, handle).map_err(at)?;
        args.finish("total_duration, reason, mission, until, idempotency_key")
            .map_err(at)?;
        match request {
            Request::Create(create) => new.push(Create {
                detach: true,
                ..create
            }),
            _ => return Err(at(BadInput("`timer_id` has no meaning here.".into()))),
        }
    }
    Ok(Request::CreateMany(new))
}

/// One sentence for a person or a model.
pub(super) fn sentence(refusal: &timer::Refusal) -> String {
    match refusal {
        timer::Refusal::NotFound { timer, known, more } => {
            not_found(&timer.to_string(), known, *more, &[])
        }
        timer::Refusal::NotAllowed {
            timer,
            attempt,
            status,
        } => {
            let next = match status {
                Status::Paused { .. } if *attempt != "resume" => "; resume_timer lets it go on",
                _ => "",
            };
            format!(
                "Timer '{timer}' is {}: cannot {attempt} it{next}",
                status.as_str()
            )
        }
        timer::Refusal::KeyReused(key) => format!(
            "`idempotency_key` '{}' was used for another timer already; use a new one",
            key.0.strip_prefix("given:").unwrap_or(&key.0)
        ),
    }
}

fn not_found(given: &str, known: &[TimerId], more: usize, ended: &[TimerId]) -> String {
    let list = |ids: &[TimerId]| {
        let ids: Vec<String> = ids.iter().map(TimerId::to_string).collect();
        ids.join(", ")
    };
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let there = match (known.is_empty(), ended.is_empty()) {
        (true, true) => "there are no timers".into(),
        (true, false) => format!("the timers that exist have ended: {}", list(ended)),
        (false, true) => format!("the timers that exist are {}{more}", list(known)),
        (false, false) => format!(
            "the timers that exist are {}{more}, and of those that have ended {}",
            list(known),
            list(ended)
        ),
    };
    format!("Timer '{given}' not found; {there}")
}

fn past_of(act: Act) -> &'static str {
    match act {
        Act::Stop => "stopped",
        Act::Cancel => "cancelled",
        Act::Pause(_) => "paused",
        Act::Resume => "resumed",
    }
}

fn what_next(act: Act, timer: &Timer) -> String {
    match act {
        Act::Stop => "It is over and tells nobody.".into(),
        Act::Cancel => {
            "It runs on in the background; a message comes when it completes. Polling is not needed."
                .into()
        }
        Act::Pause(time) => format!(
            "Nothing elapses; it goes on by itself after {}, or at once with resume_timer.",
            seconds(time)
        ),
        Act::Resume => format!("It goes on, {}.", timer.status.as_str()),
    }
}

/// A timer as fields.
pub(crate) fn facts(timer: &Timer, row: Option<&TimerRow>) -> Map<String, Value> {
    let mut facts = row.map(row_facts).unwrap_or_default();
    facts.insert("timer_id".into(), json!(timer.id.to_string()));
    facts.insert("timer_type".into(), json!(timer.kind.as_str()));
    facts.insert("status".into(), json!(timer.status.as_str()));
    facts.insert("total_duration".into(), secs(timer.total));
    facts.insert("elapsed_time".into(), secs(timer.elapsed()));
    facts.insert("remaining_time".into(), secs(timer.remaining));
    facts.insert("last_check_at".into(), json!(timer.checked.0));
    if let Status::Completed { by, .. } = timer.status {
        facts.insert("completed_by".into(), json!(by.as_str()));
    }
    if let Some(until) = timer.pause_until {
        facts.insert("pause_until".into(), json!(until.0));
    }
    facts
}

/// A timer's row as fields; what has elapsed is known only where it has ended.
pub(crate) fn row_facts(row: &TimerRow) -> Map<String, Value> {
    let mut facts = Map::new();
    let remaining = row.remaining.unwrap_or_default();
    facts.insert("timer_id".into(), json!(row.id.to_string()));
    facts.insert("timer_type".into(), json!(row.kind.as_str()));
    facts.insert("agent".into(), json!(row.agent));
    facts.insert("status".into(), json!(row.status));
    facts.insert("total_duration".into(), secs(row.total));
    facts.insert(
        "timeout_duration".into(),
        secs(row.standby.unwrap_or(row.total)),
    );
    facts.insert("elapsed_time".into(), secs(row.total.less(remaining)));
    facts.insert("remaining_time".into(), secs(remaining));
    facts.insert(row.label().to_lowercase(), json!(row.text));
    facts.insert("created_at".into(), json!(row.created.0));
    facts.insert("last_check_at".into(), json!(row.checked.0));
    if let Some(by) = &row.completed_by {
        facts.insert("completed_by".into(), json!(by));
    }
    if let Some(reason) = &row.reason {
        let name = match (&row.completed_by, row.status.as_str()) {
            (Some(_), _) => Some("seen"),
            // Why it went on is no reason to have stopped.
            (None, "running") => None,
            (None, _) => Some("stop_reason"),
        };
        facts.extend(name.map(|name| (name.to_owned(), json!(reason))));
    }
    if let Some(late) = row.late {
        facts.insert("late".into(), secs(late));
    }
    if let Some(ended) = row.ended {
        facts.insert("ended_at".into(), json!(ended.0));
    }
    facts
}

/// Seconds as a number; whole ones without a fraction.
pub(crate) fn secs(time: Millis) -> Value {
    match time.0 % 1_000 {
        0 => json!(time.0 / 1_000),
        _ => json!(time.0 as f64 / 1_000.0),
    }
}

fn number(time: Millis) -> String {
    secs(time).to_string()
}

/// `600 seconds`.
pub(super) fn seconds(time: Millis) -> String {
    format!("{} seconds", number(time))
}

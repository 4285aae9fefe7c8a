//! `timer`, `read_timer`, and the tools that stop, cancel, pause and resume a timer.

mod elsewhere;
mod presentation;
mod refused;
mod reused_key;

use abide_api::arguments::{
    FilledText, PauseTimerArgs, ReadTimerArgs, Text, TimerActionArgs, TimerArgs,
};
use abide_api::{
    ErrorCode, ReadTimerResult, TimerList, TimerResult, TimerStatus, TimerTool, ToolOutput,
    ToolResult,
};
use abide_core::message::About;
use abide_core::request::Caller;
use abide_core::timer::{Act, Create, Kind, Request, Status, Timer, Why};
use abide_core::{Agent, Key, Millis, Outcome, Refusal, TimerId, limit};
use abide_output::printable::one_line;
use serde_json::{Map, Value, json};

use super::{BadInput, Context, condition, key, refused};
use abide_engine::Handle;
use abide_engine::probe::StoredCondition;
use abide_engine::store::{EndedQuery, TimerRow};
use abide_engine::text::{seconds, timer_completion};
use presentation::{
    after_standby, changes, done, on_mission, progress, purpose, until_resumed, why_stopped,
};
pub(crate) use presentation::{fields, row_fields, row_fields_now};

/// Limit on a reason or mission, in bytes.
const TEXT_LIMIT: usize = 16 << 10;
/// Limit on ended timers that `read_timer` lists.
const ENDED_LISTED: usize = 100;
/// Name of the whole arguments in an error.
const PART: &str = "this tool";

/// Arguments that the result depends on.
pub(super) struct TimerCall {
    kind: CallKind,
    /// Agent whose timers are visible. `None`: a person, who sees all.
    agent: Option<Agent>,
    /// The client's own limit, if it is shorter than the requested standby.
    client_limit: Option<Millis>,
    /// Channel by which the caller learns of a completion after the call.
    channel: CompletionChannel,
}

/// Channel by which a caller learns of a timer that completes while no call waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionChannel {
    /// A waker starts a turn in the caller's conversation.
    Waker,
    /// The caller's next call contains the message.
    NextCall,
    /// The caller is not the agent that receives the message.
    Message,
}

impl CompletionChannel {
    /// Channel for a calling agent: depends on whether a configured waker wakes its conversation.
    pub fn to(handle: &Handle, context: &Context) -> Self {
        let conversation = context.conversation.as_ref();
        let config = handle.config();
        let mut wakers = config.wakers.iter();
        match wakers.any(|waker| waker.wakes(&context.agent.0, conversation)) {
            true => CompletionChannel::Waker,
            false => CompletionChannel::NextCall,
        }
    }
}

enum CallKind {
    Timer,
    Read,
    List {
        ended: bool,
    },
    Act,
    /// Action that an earlier attempt of this same call has already performed.
    Done(Act),
    /// Text that is no valid id; the error lists the existing timers.
    NoSuch(String),
}

pub(super) async fn read(
    tool: TimerTool,
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
    agent: Option<Agent>,
    channel: CompletionChannel,
) -> Result<(Request, TimerCall), BadInput> {
    let (mut request, kind) = match tool {
        TimerTool::Timer => {
            let (mut request, kind) =
                wait(TimerArgs::read(arguments, PART)?, context, handle).await?;
            if let Request::Create(new) = &request {
                reused_key::refuse(new, agent.as_ref(), handle).await?;
            }
            if let Request::Continue {
                timer,
                remaining: remaining @ Some(_),
                ..
            } = &mut request
                && was_done(handle, *timer, context).await
            {
                // The daemon that set the remaining time died before it could answer.
                *remaining = None;
            }
            (request, kind)
        }
        TimerTool::Read => look(ReadTimerArgs::read(arguments, PART)?),
        TimerTool::Pause => {
            let args = PauseTimerArgs::read(arguments, PART)?;
            let time = args.pause_duration.ok_or_else(|| {
                BadInput::about(
                    "pause_duration",
                    "is required and must be a number of seconds above 0; got nothing.",
                )
            });
            let pause = time.map(|time| Act::Pause(time.0));
            act(pause, args.timer_id, args.reason, context, handle).await?
        }
        TimerTool::Stop => simple_act(Act::Stop, arguments, context, handle).await?,
        TimerTool::Cancel => simple_act(Act::Cancel, arguments, context, handle).await?,
        TimerTool::Resume => simple_act(Act::Resume, arguments, context, handle).await?,
    };
    let client_limit = match &request {
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
    let call = TimerCall {
        kind,
        agent,
        client_limit,
        channel,
    };
    if let Request::Create(Create {
        standby,
        client_limit,
        ..
    })
    | Request::Continue {
        standby,
        client_limit,
        ..
    } = &mut request
    {
        *standby = standby.map(|standby| context.left_of(standby));
        *client_limit = client_limit.map(|limit| context.left_of(limit));
    }
    Ok((request, call))
}

type Read = Result<(Request, CallKind), BadInput>;

async fn wait(args: TimerArgs, context: &Context, handle: &Handle) -> Read {
    let text = |given: Option<Text>| given.map(|text| text.0);
    // Some clients fill in every field and leave unused ones empty.
    let new = args.reason.is_some() || args.mission.is_some();
    let (reason, mission) = one_of(text(args.reason), text(args.mission));
    let timer = text(args.timer_id).filter(|given| !(new && given.trim().is_empty()));
    let total = args.total_duration.map(|time| time.0);
    let standby = args.timeout_duration.map(|time| time.0);
    let until = args.until.map(|until| until.0);
    let key = key(args.idempotency_key, context);
    if let Some(given) = timer {
        if until.is_some_and(|until| until != json!({})) {
            return Err(BadInput::about(
                "until",
                "belongs to a new timer; a timer that exists keeps the condition it has.",
            ));
        }
        return Ok(match given.trim().parse() {
            Err(_) => no_such(given),
            Ok(timer) => {
                let request = Request::Continue {
                    timer,
                    remaining: total,
                    standby,
                    client_limit: context.standby,
                    key: request_key(context),
                };
                (request, CallKind::Timer)
            }
        });
    }
    let (kind, purpose) = match (reason, mission) {
        (Some(reason), None) => (Kind::Waiting, ("reason", reason)),
        (None, Some(mission)) => (Kind::Mission, ("mission", mission)),
        (Some(_), Some(_)) => {
            return Err(BadInput::new(
                "`reason` and `mission` exclude each other; got both. Give `reason` to wait for \
                 something now, or `mission` to be woken later."
                    .into(),
            ));
        }
        (None, None) => {
            return Err(BadInput::new(
                "`reason` or `mission` is required for a new timer; got neither. Give `timer_id` to \
                 continue one that exists."
                    .into(),
            ));
        }
    };
    let purpose = checked(purpose.0, purpose.1)?;
    let total = total.ok_or_else(|| {
        BadInput::about(
            "total_duration",
            "is required for a new timer and must be a number of seconds above 0; got nothing.",
        )
    })?;
    // A mission returns at once, so its standby is ignored.
    let standby = standby.filter(|_| kind == Kind::Waiting);
    let until = match until {
        None => None,
        Some(given) => {
            let condition = condition::read(given, context, handle).await?;
            let root = condition::limiting_root(context);
            let written = serde_json::to_string(&StoredCondition { condition, root });
            Some(
                written
                    .map_err(|e| BadInput::about("until", format!("cannot be kept: {e}.")))?
                    .into(),
            )
        }
    };
    let new = Create {
        kind,
        purpose: purpose.into(),
        until,
        total,
        standby,
        client_limit: context.standby,
        detach: false,
        key,
    };
    Ok((Request::Create(new), CallKind::Timer))
}

/// Two texts without those that are empty. If the only one is empty, it stays, so that it can be named.
fn one_of(left: Option<String>, right: Option<String>) -> (Option<String>, Option<String>) {
    let empty = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    match (empty(&left), empty(&right)) {
        (true, true) => (None, None),
        (true, false) if right.is_some() => (None, right),
        (false, true) if left.is_some() => (left, None),
        _ => (left, right),
    }
}

fn checked(field: &str, text: String) -> Result<String, BadInput> {
    if text.trim().is_empty() {
        return Err(BadInput::about(
            field,
            format!("must not be empty, since it is what you are told later; got {text:?}."),
        ));
    }
    if text.len() > TEXT_LIMIT {
        return Err(BadInput::about(
            field,
            format!(
                "must be at most {TEXT_LIMIT} bytes long; got {}.",
                text.len()
            ),
        ));
    }
    Ok(text)
}

fn look(args: ReadTimerArgs) -> (Request, CallKind) {
    let ended = args.include_ended.unwrap_or_default();
    match args.timer_id.map(|text| text.0) {
        None => {
            let list = Request::List {
                asks: true,
                after: None,
                most: limit::TIMERS_LISTED,
            };
            (list, CallKind::List { ended })
        }
        Some(given) => match given.trim().parse() {
            Ok(timer) => (Request::Read { asks: true, timer }, CallKind::Read),
            Err(_) => no_such(given),
        },
    }
}

/// Act that has no arguments but the timer and the reason.
async fn simple_act(
    action: Act,
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
) -> Read {
    let args = TimerActionArgs::read(arguments, PART)?;
    act(Ok(action), args.timer_id, args.reason, context, handle).await
}

/// Act on a timer. Of several errors, that of the timer's id is reported.
async fn act(
    act: Result<Act, BadInput>,
    timer: Option<Text>,
    reason: Option<FilledText>,
    context: &Context,
    handle: &Handle,
) -> Read {
    let Text(given) = timer
        .ok_or_else(|| BadInput::about("timer_id", "is required and must be text; got nothing."))?;
    let act = act?;
    let reason = reason.map(|reason| checked("reason", reason.0));
    let reason = reason.transpose()?;
    Ok(match given.trim().parse() {
        Err(_) => no_such(given),
        Ok(timer) => {
            if was_done(handle, timer, context).await {
                // The daemon that performed the action died before it could answer.
                return Ok((Request::Read { asks: false, timer }, CallKind::Done(act)));
            }
            let request = Request::Act {
                timer,
                act,
                stop_reason: reason.map(Into::into),
                key: request_key(context),
            };
            (request, CallKind::Act)
        }
    })
}

fn request_key(context: &Context) -> Option<Key> {
    context.request_key.as_deref().map(|key| Key(key.into()))
}

/// True if an earlier attempt of this same call was the last to change the timer.
async fn was_done(handle: &Handle, timer: TimerId, context: &Context) -> bool {
    let Some(key) = &context.request_key else {
        return false;
    };
    let row = handle.store_reader().timer(timer).await;
    let acted = row.ok().flatten().and_then(|row| row.acted);
    acted.as_ref() == Some(key)
}

fn no_such(given: String) -> (Request, CallKind) {
    let list = Request::List {
        asks: false,
        after: None,
        most: limit::TIMERS_LISTED,
    };
    (list, CallKind::NoSuch(given))
}

impl TimerCall {
    pub(super) async fn result(&self, handle: &Handle, outcome: Outcome) -> ToolResult {
        match outcome {
            Outcome::Timer(timer, why) => self.timer_result(handle, &timer, why).await,
            Outcome::Timers(timers) => self.list(handle, &timers).await,
            Outcome::Refused(Refusal::Timer(refusal)) => self.refusal_result(handle, refusal).await,
            Outcome::Refused(refusal) => refused(&refusal),
            _ => ToolResult::error(
                ErrorCode::Conflict,
                "the timer was removed meanwhile".into(),
            ),
        }
    }

    async fn timer_result(&self, handle: &Handle, timer: &Timer, why: Why) -> ToolResult {
        let row = handle.store_reader().timer(timer.id).await.ok().flatten();
        // A wait also ends when another machine has taken the timer over, and that one may have ended it.
        if let (Why::StandbyOver, Some(row)) = (why, &row)
            && row.ended.is_some()
        {
            return self.ended_result(handle, row).await;
        }
        let reason = purpose(row.as_ref());
        let id = timer.id;
        // The action was performed before; the answer is the same as it would have been then.
        let why = match self.kind {
            CallKind::Done(act) => Why::Done(act),
            _ => why,
        };
        let progress = progress(timer);
        let fields = fields(timer, row.as_ref());
        let output = self.result_fields(handle, fields, Some(why)).await;
        let last_look = (output.timer.last_look.as_ref())
            .map(|saw| format!("\nLast check: {saw}"))
            .unwrap_or_default();
        let pause = match self.kind {
            CallKind::Read => until_resumed(&output.timer, self.channel),
            _ => String::new(),
        };
        let cut = self.client_limit.map(super::report::cut_at);
        let cut = cut.map_or_else(String::new, |cut| format!("\nThis call waited {cut}."));
        let text = match why {
            Why::Completed | Why::Ended | Why::Looked
                if matches!(timer.status, Status::Completed { .. }) =>
            {
                row.as_ref()
                    .map_or_else(|| format!("Timer '{id}' has completed."), timer_completion)
            }
            Why::Made if timer.kind == Kind::Mission => format!(
                "Timer '{id}' is set for {}.{reason}\n{}",
                seconds(timer.remaining),
                on_mission(self.channel)
            ),
            Why::StandbyOver => format!(
                "Timer '{id}' is still {}: {progress}.{reason}{last_look}{cut}{}",
                timer.status.as_str(),
                after_standby(id, self.channel)
            ),
            Why::Interrupted(act) | Why::Done(act) => {
                done(handle, act, timer, row.as_ref(), self.channel).await
            }
            Why::Made | Why::Looked | Why::Completed | Why::Ended => {
                let why = row.as_ref().map_or_else(String::new, why_stopped);
                format!(
                    "Timer '{id}' is {}: {progress}.{reason}{why}{last_look}{pause}",
                    timer.status.as_str()
                )
            }
        };
        self.one(text, output)
    }

    /// Result about one timer.
    fn one(&self, text: String, output: TimerResult) -> ToolResult {
        let output = match self.kind {
            CallKind::Read => ToolOutput::ReadTimer(ReadTimerResult::One(Box::new(output))),
            _ => ToolOutput::Timer(Box::new(output)),
        };
        ToolResult::new(text, output)
    }

    async fn list(&self, handle: &Handle, timers: &[Timer]) -> ToolResult {
        if let CallKind::NoSuch(given) = &self.kind {
            let known: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
            let (known, more) = known.split_at(known.len().min(limit::IDS_LISTED));
            let given = super::args::shown_text(given);
            return self.not_found(handle, &given, known, more.len()).await;
        }
        let past = handle.store_reader();
        let ids: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
        let mut rows = past
            .timers_by_id(&ids)
            .await
            .unwrap_or_default()
            .into_iter();
        let mut lines = Vec::new();
        let mut list = Vec::new();
        let mut left_out = Vec::new();
        if self.has_more(handle, timers.len()).await {
            left_out.push(format!(
                "Only the {} oldest are listed.",
                limit::TIMERS_LISTED
            ));
        }
        for timer in timers {
            let row = rows.next().flatten();
            let text = row
                .as_ref()
                .map(|row| row.purpose.as_str())
                .unwrap_or_default();
            lines.push(format!(
                "{} {} {}: {}: {}",
                timer.id,
                timer.kind.as_str(),
                timer.status.as_str(),
                progress(timer),
                one_line(text)
            ));
            list.push(fields(timer, row.as_ref()));
        }
        let (elsewhere, trouble) = elsewhere::timers(handle, self.agent.as_ref(), &ids).await;
        for row in elsewhere {
            lines.push(row_line(&row));
            list.push(row_fields_now(handle, &row));
        }
        if let CallKind::List { ended: true } = self.kind {
            let which = EndedQuery {
                agent: self.agent.as_ref().map(|agent| agent.0.as_ref()),
                limit: ENDED_LISTED + 1,
            };
            let mut ended = past.ended_timers(which).await.unwrap_or_default();
            if ended.len() > ENDED_LISTED {
                ended.truncate(ENDED_LISTED);
                left_out.push(format!(
                    "Of those that have ended only the last {ENDED_LISTED} are listed."
                ));
            }
            for row in ended {
                lines.push(row_line(&row));
                list.push(row_fields(&row));
            }
        }
        let truncated = !left_out.is_empty();
        lines.extend(left_out);
        lines.extend(trouble);
        let text = match lines.is_empty() {
            true => "No timers.".into(),
            false => lines.join("\n"),
        };
        let list = ReadTimerResult::List(TimerList {
            timers: list,
            truncated,
        });
        ToolResult::new(text, ToolOutput::ReadTimer(list))
    }

    /// True if the agent has more timers than were listed.
    async fn has_more(&self, handle: &Handle, listed: usize) -> bool {
        if listed < limit::TIMERS_LISTED {
            return false;
        }
        let caller = Caller {
            agent: self.agent.clone(),
            conversation: None,
        };
        let count = abide_core::Request::Timer(Request::Count);
        let counted = handle.call(caller, count, None).await.done().await;
        !matches!(counted, Some(Outcome::TimersCounted(count)) if count <= listed)
    }

    /// Fields of the answer about one timer. `why`: cause of the answer, unless the request was refused.
    async fn result_fields(
        &self,
        handle: &Handle,
        mut timer: abide_api::Timer,
        why: Option<Why>,
    ) -> TimerResult {
        let id = timer.timer_id.0;
        timer.last_look = handle.prober().last_seen(id).filter(|saw| !saw.is_empty());
        if matches!(self.kind, CallKind::Read) {
            timer.changes = changes(handle, id).await;
        }
        let why = why.filter(|_| matches!(self.kind, CallKind::Timer));
        let standby = timer.timeout_duration.0;
        TimerResult {
            timer,
            timeout: why.map(|why| why == Why::StandbyOver),
            // The call did not wait for a timer that had already ended, and a wait that is shorter than the limit was
            // not cut.
            effective_timeout: (self.client_limit)
                .filter(|limit| *limit < standby && why.is_some_and(|why| why != Why::Ended))
                .map(Into::into),
        }
    }

    /// Subjects that a result reports: a completed timer, and the sessions whose end decided that.
    pub(super) async fn reported_subjects(
        &self,
        handle: &Handle,
        result: &ToolResult,
    ) -> Vec<About> {
        let timer = match (&self.kind, &result.output) {
            (CallKind::Timer, ToolOutput::Timer(result))
            | (CallKind::Read, ToolOutput::ReadTimer(ReadTimerResult::One(result))) => {
                &result.timer
            }
            _ => return Vec::new(),
        };
        if timer.status != TimerStatus::Completed {
            return Vec::new();
        }
        let id = timer.timer_id.0;
        let row = handle.store_reader().timer(id).await.ok().flatten();
        let ended = row.map(|row| row.ended_sessions).unwrap_or_default();
        let ended = ended.into_iter().map(About::Session);
        ended.chain([About::Timer(id)]).collect()
    }
}

/// Reads several timers for one request; the call waits for none of them.
pub(crate) async fn many(
    all: Vec<Value>,
    context: &Context,
    handle: &Handle,
) -> Result<Request, BadInput> {
    if all.len() > limit::TIMERS_AT_ONCE {
        return Err(BadInput::about(
            "timers",
            format!(
                "must hold at most {} timers; got {}.",
                limit::TIMERS_AT_ONCE,
                all.len()
            ),
        ));
    }
    let mut new = Vec::with_capacity(all.len());
    for (n, given) in all.into_iter().enumerate() {
        let at = |bad: BadInput| BadInput::about(format_args!("timers[{n}]"), format!(": {bad}"));
        let Value::Object(fields) = given else {
            return Err(at(BadInput::new("it must be an object.".into())));
        };
        let args = TimerArgs::read(fields, "this tool").map_err(at)?;
        let (request, _) = wait(args, context, handle).await.map_err(at)?;
        match request {
            Request::Create(create) => new.push(Create {
                detach: true,
                ..create
            }),
            _ => {
                return Err(at(BadInput::about("timer_id", "has no meaning here.")));
            }
        }
    }
    Ok(Request::CreateMany(new))
}

/// Line of a list about a timer that only the database knows.
fn row_line(row: &TimerRow) -> String {
    let (kind, status) = (row.kind.as_str(), &row.status);
    format!("{} {kind} {status}: {}", row.id, one_line(&row.purpose))
}

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
    /// Timer that the request creates, unless a call with its key has done so before.
    new: Option<Create>,
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
            let args = TimerArgs::read(arguments, PART)?;
            timer(args, context, handle, agent.as_ref()).await?
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
    let cut_at = client_limit(&request, context);
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
    let new = match &request {
        Request::Create(new) => Some(new.clone()),
        _ => None,
    };
    let call = TimerCall {
        kind,
        new,
        client_limit: cut_at,
        agent,
        channel,
    };
    Ok((request, call))
}

/// Limit of the client, if the call wants to stand by for longer.
fn client_limit(request: &Request, context: &Context) -> Option<Millis> {
    let wanted = match request {
        Request::Create(new) if !new.detach && new.kind == Kind::Waiting => {
            new.standby.unwrap_or(new.total)
        }
        Request::Continue { standby, .. } => standby.unwrap_or(Millis::MAX),
        _ => return None,
    };
    context.standby.filter(|limit| *limit < wanted)
}

type Read = Result<(Request, CallKind), BadInput>;

/// Request of `timer`: for another wait with a timer that exists, or for a new timer.
async fn timer(
    mut args: TimerArgs,
    context: &Context,
    handle: &Handle,
    agent: Option<&Agent>,
) -> Read {
    if let Some(timer) = take_timer_id(&mut args) {
        return continue_timer(timer, args, context, handle).await;
    }
    let new = new_timer(args, context, handle).await?;
    reused_key::refuse(&new, agent, handle).await?;
    Ok((Request::Create(new), CallKind::Timer))
}

/// Timer that exists, if the arguments name one. Some clients fill in every field and leave unused ones empty.
fn take_timer_id(args: &mut TimerArgs) -> Option<String> {
    let is_new = args.reason.is_some() || args.mission.is_some();
    let Text(timer) = args.timer_id.take()?;
    (!is_new || !timer.trim().is_empty()).then_some(timer)
}

async fn continue_timer(
    timer: String,
    args: TimerArgs,
    context: &Context,
    handle: &Handle,
) -> Read {
    if args.until.is_some_and(|until| until.0 != json!({})) {
        return Err(BadInput::about(
            "until",
            "belongs to a new timer; a timer that exists keeps the condition it has.",
        ));
    }
    let Ok(id) = timer.trim().parse() else {
        return Ok(no_such(timer));
    };
    let is_mission = args
        .mission
        .is_some_and(|mission| !mission.0.trim().is_empty());
    if is_mission && is_waiting(handle, id, context).await {
        return Err(BadInput::about(
            "mission",
            format!(
                "belongs to a new timer; '{id}' is a waiting one, and this call would stand by on it. Leave out `mission` to \
                 do that, or `timer_id` to create a mission."
            ),
        ));
    }
    let mut remaining = args.total_duration.map(|time| time.0);
    if remaining.is_some() && was_done(handle, id, context).await {
        // The daemon that set the remaining time died before it could answer.
        remaining = None;
    }
    let request = Request::Continue {
        timer: id,
        remaining,
        standby: args.timeout_duration.map(|time| time.0),
        client_limit: context.standby,
        key: request_key(context),
    };
    Ok((request, CallKind::Timer))
}

/// True for a timer of the caller that is not a mission.
async fn is_waiting(handle: &Handle, timer: TimerId, context: &Context) -> bool {
    let row = handle.store_reader().timer(timer).await.ok().flatten();
    row.is_some_and(|row| row.agent == *context.agent.0 && row.kind == Kind::Waiting)
}

async fn new_timer(
    args: TimerArgs,
    context: &Context,
    handle: &Handle,
) -> Result<Create, BadInput> {
    let (kind, purpose) = kind_and_purpose(args.reason, args.mission)?;
    let total = args.total_duration.ok_or_else(|| {
        BadInput::about(
            "total_duration",
            "is required for a new timer and must be a number of seconds above 0; got nothing.",
        )
    })?;
    let until = match args.until {
        Some(until) => Some(stored_condition(until.0, context, handle).await?.into()),
        None => None,
    };
    // A mission returns at once, so its standby is ignored.
    let standby = args.timeout_duration.filter(|_| kind == Kind::Waiting);
    Ok(Create {
        kind,
        purpose: purpose.into(),
        until,
        total: total.0,
        standby: standby.map(|time| time.0),
        client_limit: context.standby,
        detach: false,
        key: key(args.idempotency_key, context),
    })
}

fn kind_and_purpose(
    reason: Option<Text>,
    mission: Option<Text>,
) -> Result<(Kind, String), BadInput> {
    match one_of(reason.map(|text| text.0), mission.map(|text| text.0)) {
        (Some(reason), None) => Ok((Kind::Waiting, checked("reason", reason)?)),
        (None, Some(mission)) => Ok((Kind::Mission, checked("mission", mission)?)),
        (Some(_), Some(_)) => Err(BadInput::new(
            "`reason` and `mission` exclude each other; got both. Give `reason` to wait for \
             something now, or `mission` to be woken later."
                .into(),
        )),
        (None, None) => Err(BadInput::new(
            "`reason` or `mission` is required for a new timer; got neither. Give `timer_id` to \
             continue one that exists."
                .into(),
        )),
    }
}

/// Condition of a new timer, as it is stored.
async fn stored_condition(
    given: Value,
    context: &Context,
    handle: &Handle,
) -> Result<String, BadInput> {
    let condition = condition::read(given, context, handle).await?;
    let root = condition::limiting_root(context);
    serde_json::to_string(&StoredCondition { condition, root })
        .map_err(|fault| BadInput::about("until", format!("cannot be kept: {fault}.")))
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

/// List of timers, as text and as fields.
#[derive(Default)]
struct Listing {
    lines: Vec<String>,
    timers: Vec<abide_api::Timer>,
    /// Sentences that say which timers are not listed.
    left_out: Vec<String>,
}

impl Listing {
    fn add(&mut self, line: String, timer: abide_api::Timer) {
        self.lines.push(line);
        self.timers.push(timer);
    }

    fn add_running(&mut self, timer: &Timer, row: Option<&TimerRow>) {
        let line = format!(
            "{} {} {}: {}: {}",
            timer.id,
            timer.kind.as_str(),
            timer.status.as_str(),
            progress(timer),
            one_line(row.map_or("", |row| &row.purpose))
        );
        self.add(line, fields(timer, row));
    }

    async fn add_ended(&mut self, handle: &Handle, agent: Option<&Agent>) {
        let which = EndedQuery {
            agent: agent.map(|agent| agent.0.as_ref()),
            limit: ENDED_LISTED + 1,
        };
        let ended = handle.store_reader().ended_timers(which).await;
        let mut ended = ended.unwrap_or_default();
        if ended.len() > ENDED_LISTED {
            ended.truncate(ENDED_LISTED);
            self.left_out.push(format!(
                "Of those that have ended only the last {ENDED_LISTED} are listed."
            ));
        }
        for row in ended {
            self.add(row_line(&row), row_fields(&row));
        }
    }

    /// Result with these timers. `trouble`: a sentence about machines whose timers are unknown.
    fn result(mut self, trouble: Option<String>) -> ToolResult {
        let list = ReadTimerResult::List(TimerList {
            timers: self.timers,
            truncated: !self.left_out.is_empty(),
        });
        self.lines.extend(self.left_out);
        self.lines.extend(trouble);
        let text = match self.lines.is_empty() {
            true => "No timers.".into(),
            false => self.lines.join("\n"),
        };
        ToolResult::new(text, ToolOutput::ReadTimer(list))
    }
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
        let row = match (&self.new, why) {
            (Some(new), Why::Made) => Some(TimerRow::of_new(new, timer)),
            _ => handle.store_reader().timer(timer.id).await.ok().flatten(),
        };
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
        let output = self
            .result_fields(handle, fields, row.as_ref(), Some(why))
            .await;
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
            Why::Made | Why::Joined if timer.kind == Kind::Mission => format!(
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
            Why::Made | Why::Joined | Why::Looked | Why::Completed | Why::Ended => {
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
        let mut listing = Listing::default();
        if self.has_more(handle, timers.len()).await {
            let most = limit::TIMERS_LISTED;
            listing
                .left_out
                .push(format!("Only the {most} oldest are listed."));
        }
        let ids: Vec<TimerId> = timers.iter().map(|timer| timer.id).collect();
        let rows = handle.store_reader().timers_by_id(&ids).await;
        let mut rows = rows.unwrap_or_default().into_iter();
        for timer in timers {
            listing.add_running(timer, rows.next().flatten().as_ref());
        }
        let (elsewhere, trouble) = elsewhere::timers(handle, self.agent.as_ref(), &ids).await;
        for row in elsewhere {
            listing.add(row_line(&row), row_fields_now(handle, &row));
        }
        if let CallKind::List { ended: true } = self.kind {
            listing.add_ended(handle, self.agent.as_ref()).await;
        }
        listing.result(trouble)
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
        row: Option<&TimerRow>,
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
            condition: row.and_then(|row| row.condition.clone()),
            is_new: why == Some(Why::Made),
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
        let mut args = TimerArgs::read(fields, "this tool").map_err(at)?;
        if take_timer_id(&mut args).is_some() {
            return Err(at(BadInput::about("timer_id", "has no meaning here.")));
        }
        let create = new_timer(args, context, handle).await.map_err(at)?;
        new.push(Create {
            detach: true,
            ..create
        });
    }
    Ok(Request::CreateMany(new))
}

/// Line of a list about a timer that only the database knows.
fn row_line(row: &TimerRow) -> String {
    let (kind, status) = (row.kind.as_str(), row.status.as_str());
    format!("{} {kind} {status}: {}", row.id, one_line(&row.purpose))
}

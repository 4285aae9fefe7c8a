//! The tools, once for every interface: their descriptions, the check of their arguments, and their results
//! (`abide_api::ToolResult`).

mod answer;
mod approved;
mod args;
mod call_metrics;
mod command;
mod command_result;
mod condition;
mod describe;
mod elsewhere;
mod equal_connections;
mod messages;
mod not_started;
mod output;
mod policy;
mod position;
mod question;
pub(crate) mod refusals;
mod refused_text;
mod report;
pub(crate) mod rules;
mod sandbox;
mod terminal;
mod timer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::Pin;

use abide_api::{ErrorCode, TimerTool, ToolName, ToolResult};
use abide_core::held::NotStarted;
use abide_core::message::{About, ReturnedMessage};
use abide_core::request::Caller;
use abide_core::wait::Asking;
use abide_core::{Agent, Conversation, Millis, Outcome, Refusal, Request, SessionId, SessionName};
use serde_json::{Map, Value};

pub use abide_api::arguments::BadInput;
pub(crate) use answer::{AnswerFault, GivenAnswer, answer};
pub use approved::refusal as approved_refusal;
pub(crate) use args::{escape_invisible, shown_text as shown};
use args::{key, start_key, started_before};
pub(crate) use call_metrics::{BOUNDS, tool_stats};
pub(crate) use condition::{limiting_root, read as read_condition, written as written_condition};
pub use describe::{ToolDescription, ToolEffect, add_machine_argument, all, name_shell, of};
pub(crate) use elsewhere::{cannot_call_code, timer_with_key};
pub(crate) use messages::subject as message_subject;
pub(crate) use not_started::not_started;
pub(crate) use policy::{CommandCaller, StartDecision};
pub use question::{FormButtons, form_text, question_fields, question_text, rules_added};
pub(crate) use report::{
    leftovers, recount_output, refused_to_person, status as session_status,
    summary as session_summary,
};
pub(crate) use terminal::{
    ActionError, OWN_LIMITS, SessionControl, is_process_of, read_extend, read_signal,
    session_of_limit_change, survives_kill, withdraw,
};
pub(crate) use timer::{
    fields as timer_fields, many as many_timers, row_fields as timer_row_fields,
    row_fields_now as timer_row_fields_now,
};

use abide_engine::probe::Fingerprint;
use abide_engine::text::refusal_sentence;
use abide_engine::{CallStep, CallUpdate, Handle, PendingCall};
use abide_session::daemon_record::OpenRecord;
use abide_session::frame::InheritedLimits;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// Facts about the caller that a tool call depends on besides its arguments.
#[derive(Clone, Debug)]
pub struct Context {
    /// Agent on whose behalf the call is made.
    pub agent: Agent,
    /// Working directory of commands that name none.
    pub root: PathBuf,
    /// Environment that commands inherit.
    pub env: Arc<[(OsString, OsString)]>,
    /// Mechanism by which this interface can ask a person when a command is idle.
    pub asking: Asking,
    /// The client's own call timeout less a margin: the answer must be sent before it. `None`: no limit.
    pub standby: Option<Millis>,
    /// Time for which the call has waited already: it is replayed because a daemon went away.
    pub waited: Millis,
    /// Idempotency key of this request: replaying the request never runs a command twice.
    pub request_key: Option<String>,
    /// Conversation that the agent calls from, if it is known.
    pub conversation: Option<Conversation>,
    /// Connection of the calling client, as long as it is open. `None`: the caller has no connection.
    pub client: Option<String>,
    /// The caller is a person, who may see the sessions of all agents.
    pub is_person: bool,
    /// umask and resource limits that commands inherit from the caller. `None`: those of the daemon.
    pub inherited_limits: Option<InheritedLimits>,
    /// Name of the session that the call starts.
    pub session_name: Option<SessionName>,
    /// Fingerprints of watched files, taken when the caller began to wait. Files that are not listed are
    /// fingerprinted now.
    pub files_before: BTreeMap<PathBuf, Option<Fingerprint>>,
}

impl Context {
    /// Agent that calls, with its conversation.
    pub fn caller(&self) -> Caller {
        Caller {
            agent: Some(self.agent.clone()),
            conversation: self.conversation.clone(),
        }
    }

    /// Time that is left until the answer must be sent. `None`: no limit.
    fn standby_left(&self) -> Option<Millis> {
        self.standby.map(|standby| self.left_of(standby))
    }

    /// Part of a wait that is left.
    fn left_of(&self, wait: Millis) -> Millis {
        wait.saturating_sub(self.waited)
    }

    /// Caller of a request. A person may wait for a session of any agent.
    fn caller_of(&self, request: &Request) -> Caller {
        match request {
            Request::Join { .. } if self.is_person => Caller::PERSON,
            _ => self.caller(),
        }
    }
}

/// Tool call in progress.
pub struct ToolCall {
    handle: Handle,
    execution: Execution,
    /// Reader whose unread messages are appended to the result. `None`: no messages are appended.
    reader: Option<Caller>,
    /// Subjects that the result itself reports; messages about them are not appended.
    reports: Vec<About>,
    /// Finished result, while messages are being appended to it.
    ready: Option<ToolResult>,
    /// Messages that are appended to the result, with the pending read that delivers them.
    appended: Option<(PendingCall, Vec<ReturnedMessage>)>,
    after_send: AfterSend,
    stopwatch: Option<call_metrics::CallStopwatch>,
}

/// Execution of a call.
enum Execution {
    /// The engine decides when the call is answered, and may ask a person before.
    Engine(Box<EngineCall>),
    /// A future does the work step by step.
    Future(Work),
}

/// Work of a call that runs as a future.
struct Work {
    future: Pin<Box<dyn Future<Output = Option<FinishedCall>> + Send>>,
    /// Questions that the work puts on the way.
    steps: Option<mpsc::Receiver<CallUpdate>>,
    /// Notified if the interface cannot reach a person.
    person_unreachable: Arc<Notify>,
    /// Notified if a person interrupts the call. `None`: it is not about the end of a command.
    interrupted: Option<Arc<Notify>>,
}

impl Work {
    /// Work that asks no person.
    fn new(future: impl Future<Output = Option<FinishedCall>> + Send + 'static) -> Self {
        Work {
            future: Box::pin(future),
            steps: None,
            person_unreachable: Arc::default(),
            interrupted: None,
        }
    }

    async fn next(&mut self) -> Option<WorkStep> {
        let steps = &mut self.steps;
        let asked = async {
            match steps {
                Some(steps) => steps.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(update) = asked => Some(WorkStep::Step(ToolStep::Update(update))),
            finished = &mut self.future => finished.map(WorkStep::Finished),
        }
    }
}

enum WorkStep {
    Step(ToolStep),
    Finished(FinishedCall),
}

/// Steps that may be queued for a slow interface.
const STEP_QUEUE: usize = 8;

/// Result, with the resources that are held until it has been sent.
struct FinishedCall {
    result: ToolResult,
    /// Subjects that the result reports, so that messages about them need not be appended.
    reports: Vec<About>,
    after_send: AfterSend,
}

impl From<ToolResult> for FinishedCall {
    fn from(result: ToolResult) -> Self {
        FinishedCall {
            result,
            reports: Vec::new(),
            after_send: None,
        }
    }
}

/// Resources that are released after the result has been sent: closing files and writing read cursors takes
/// time that the caller must not wait for.
type AfterSend = Option<Box<dyn Send>>;

impl FinishedCall {
    /// Marks that the text reports how this session ended, if it has ended.
    fn reporting_end_of(self, session: Option<SessionId>) -> Self {
        FinishedCall {
            reports: session.map(About::Session).into_iter().collect(),
            ..self
        }
    }

    /// Holds one more value, which is dropped last.
    fn with(self, more: impl Send + 'static) -> Self {
        FinishedCall {
            after_send: Some(Box::new((self.after_send, more))),
            ..self
        }
    }
}

/// Call that waits for an outcome of the engine.
struct EngineCall {
    handle: Handle,
    pending: PendingCall,
    tool: EngineTool,
    standby: Option<Millis>,
    /// Outcome from the engine, until the result has been rendered from it.
    outcome: Option<Outcome>,
}

/// Confirmation that a result was sent. If it is dropped, the messages in the result are delivered again.
pub struct Receipt(ToolCall);

impl Receipt {
    /// Confirms that the result has been sent.
    pub fn delivered(self) {
        let call = self.0;
        if let Execution::Engine(call) = call.execution {
            call.pending.delivered();
        }
        if let Some((appended, _)) = call.appended {
            appended.delivered();
        }
        drop(call.after_send);
    }
}

/// Tool of a call that the engine answers, with the arguments that its result depends on.
enum EngineTool {
    Command(command::Command),
    Timer(timer::TimerCall),
    ReadMessages(messages::ReadMessages),
}

/// Progress of a tool call.
pub enum ToolStep {
    /// The call works on a session, or a question was put to a person or closed.
    Update(CallUpdate),
    /// The outcome is known, and the next step renders the result from it. A caller that has no room for a
    /// result takes that step later. Calls that run as a future skip this step.
    Ended,
    Done(ToolResult),
}

/// Checks the arguments and starts the call. If this returns an error, nothing has been started.
pub async fn begin(
    handle: &Handle,
    name: ToolName,
    arguments: Map<String, Value>,
    context: Context,
) -> Result<ToolCall, BadInput> {
    let stopwatch = call_metrics::CallStopwatch::begin(name);
    let call = begin_call(handle, name, arguments, context).await;
    let mut call = call.map_err(printable)?;
    call.stopwatch = Some(stopwatch);
    Ok(call)
}

/// Error without the invisible characters of what was given.
fn printable(bad: BadInput) -> BadInput {
    BadInput {
        sentence: escape_invisible(&bad.sentence),
        ..bad
    }
}

async fn begin_call(
    handle: &Handle,
    name: ToolName,
    arguments: Map<String, Value>,
    context: Context,
) -> Result<ToolCall, BadInput> {
    let arguments = match elsewhere::begin(handle, name, arguments, &context).await? {
        elsewhere::Place::Here(arguments) => arguments,
        elsewhere::Place::Elsewhere(call) => return Ok(*call),
    };
    sandbox::probe_before(handle, &context, &arguments).await;
    let standby = context.standby;
    let (mut request, launch, tool) = match name {
        ToolName::Command(tool) => {
            let (begin, command) = command::read(tool, arguments, &context, handle)?;
            match begin.into_request(&command, handle, &context) {
                Ok((request, launch)) => (request, launch, EngineTool::Command(command)),
                Err(refused) => {
                    return Ok(ToolCall::answered(handle, context.caller(), refused));
                }
            }
        }
        ToolName::Timer(tool) => {
            let agent = Some(context.agent.clone());
            let channel = timer::CompletionChannel::to(handle, &context);
            let read = timer::read(tool, arguments, &context, handle, agent, channel);
            let (request, call) = read.await?;
            (Request::Timer(request), None, EngineTool::Timer(call))
        }
        ToolName::ReadMessages => {
            let (request, read) = messages::read(arguments, &context)?;
            handle.take_messages_of(&context.caller()).await;
            (request, None, EngineTool::ReadMessages(read))
        }
        ToolName::TerminalSession => {
            let action = terminal::read(arguments, &context, handle)?;
            return Ok(ToolCall::perform(handle, action, context));
        }
    };
    let caller = context.caller();
    policy::show_held_question(handle, &context, &mut request);
    let pending = handle
        .call(context.caller_of(&request), request, launch)
        .await;
    let call = EngineCall::new(handle, pending, tool, standby);
    Ok(ToolCall::new(handle, Execution::Engine(call), Some(caller)))
}

/// Starts a session like `terminal_session start`, without waiting for its first output and without reading it.
pub async fn begin_session(
    handle: &Handle,
    arguments: Map<String, Value>,
    context: Context,
) -> Result<ToolCall, BadInput> {
    sandbox::probe_before(handle, &context, &arguments).await;
    let start = terminal::read_start(arguments, &context, handle).map_err(printable)?;
    Ok(ToolCall::perform(handle, start, context))
}

/// Starts a timer call on behalf of a person or a program: no messages are appended to the result, and
/// reading a timer does not count as its agent's reading.
pub async fn begin_quietly(
    handle: &Handle,
    tool: TimerTool,
    arguments: Map<String, Value>,
    context: Context,
    caller: Caller,
) -> Result<ToolCall, BadInput> {
    let standby = context.standby;
    let (agent, channel) = (caller.agent.clone(), timer::CompletionChannel::Message);
    let read = timer::read(tool, arguments, &context, handle, agent, channel).await;
    let (mut request, call) = read.map_err(printable)?;
    if let abide_core::timer::Request::Read { asks, .. } = &mut request {
        *asks = false;
    }
    let pending = handle.call(caller, Request::Timer(request), None).await;
    let call = EngineCall::new(handle, pending, EngineTool::Timer(call), standby);
    Ok(ToolCall::new(handle, Execution::Engine(call), None))
}

/// Resumes a call that returned to ask a person: waits for the same session, and starts nothing.
pub async fn resume(
    handle: &Handle,
    name: ToolName,
    arguments: Map<String, Value>,
    context: Context,
    session: SessionId,
) -> Result<ToolCall, BadInput> {
    let standby = context.standby;
    let tool = match name {
        ToolName::Command(tool) => tool,
        ToolName::TerminalSession => {
            let action = terminal::read(arguments, &context, handle).map_err(printable)?;
            return Ok(ToolCall::perform(handle, action.joining(session), context));
        }
        ToolName::Timer(_) | ToolName::ReadMessages => {
            return Err(BadInput::new(format!("{name} never returns to ask")));
        }
    };
    let read = command::read(tool, arguments, &context, handle);
    let (_, command) = read.map_err(printable)?;
    let mut request = command.join(session, &context);
    policy::show_held_question(handle, &context, &mut request);
    let tool = EngineTool::Command(command);
    let caller = context.caller();
    let pending = handle.call(caller.clone(), request, None).await;
    let call = EngineCall::new(handle, pending, tool, standby);
    Ok(ToolCall::new(handle, Execution::Engine(call), Some(caller)))
}

impl ToolCall {
    fn new(handle: &Handle, execution: Execution, reader: Option<Caller>) -> Self {
        ToolCall {
            handle: handle.clone(),
            execution,
            reader,
            reports: Vec::new(),
            ready: None,
            appended: None,
            after_send: None,
            stopwatch: None,
        }
    }

    /// Call that starts nothing and has this result.
    pub fn answered(handle: &Handle, caller: Caller, result: ToolResult) -> Self {
        let work = Work::new(std::future::ready(Some(result.into())));
        ToolCall::new(handle, Execution::Future(work), Some(caller))
    }

    /// Call of `terminal_session`.
    fn perform(handle: &Handle, action: terminal::Action, context: Context) -> Self {
        let reader = Some(context.caller());
        let (steps, asked) = mpsc::channel(STEP_QUEUE);
        let person_unreachable = Arc::new(Notify::new());
        let runner = terminal::ActionRunner {
            handle: handle.clone(),
            context,
            steps,
            person_unreachable: person_unreachable.clone(),
        };
        let work = Work {
            future: Box::pin(terminal::perform(action, runner)),
            steps: Some(asked),
            person_unreachable,
            interrupted: None,
        };
        ToolCall::new(handle, Execution::Future(work), reader)
    }

    /// Turns off appending messages to the result.
    pub fn be_quiet(&mut self) {
        self.reader = None;
    }

    /// Waits for the next step; [`ToolStep::Done`] is the last. `None`: the daemon is stopping. Cancel-safe:
    /// a caller may drop this future and call again without losing a step or the outcome.
    pub async fn next(&mut self) -> Option<ToolStep> {
        if self.ready.is_none() {
            let step = match &mut self.execution {
                Execution::Engine(call) => call.next().await?,
                Execution::Future(work) => work.next().await?,
            };
            match step {
                WorkStep::Step(step) => return Some(step),
                WorkStep::Finished(finished) => {
                    if let Some(stopwatch) = self.stopwatch.take() {
                        stopwatch.end();
                    }
                    self.after_send = finished.after_send;
                    self.reports = finished.reports;
                    self.ready = Some(finished.result);
                }
            }
        }
        self.take_messages().await;
        let appended = match &self.appended {
            Some((_, messages)) if messages.iter().any(|message| !message.known) => {
                Some(messages::text_and_fields(&self.handle, messages).await)
            }
            _ => None,
        };
        let mut result = self.ready.take()?;
        if let Some((text, list)) = appended {
            result.text.push_str("\n\n");
            result.text.push_str(&text);
            result.messages = Some(list);
        }
        Some(ToolStep::Done(result))
    }

    /// Waits for the result and ignores questions on the way. No messages are appended, because the result
    /// may not reach the agent.
    pub async fn result_only(mut self) -> Option<ToolResult> {
        self.be_quiet();
        self.to_result().await
    }

    /// Waits for the result and ignores questions on the way.
    pub async fn to_result(&mut self) -> Option<ToolResult> {
        loop {
            if let ToolStep::Done(result) = self.next().await? {
                return Some(result);
            }
        }
    }

    /// Reads the agent's unread messages, which are appended to the result of any tool except `read_messages`.
    async fn take_messages(&mut self) {
        let Some(caller) = self.reader.clone() else {
            return;
        };
        let reads = matches!(&self.execution, Execution::Engine(call) if matches!(call.tool, EngineTool::ReadMessages(_)));
        if reads || self.appended.is_some() {
            return;
        }
        let are_taken = self.handle.take_messages_of(&caller).await;
        if !are_taken && !self.handle.published().any_unread() {
            return;
        }
        let request = Request::ReadMessages {
            standby: Millis(0),
            most: messages::APPENDED,
            known: self.reports.clone(),
        };
        let mut pending = self.handle.call(caller, request, None).await;
        if let Some(CallStep::Done(Outcome::Messages(messages, _))) = pending.next().await {
            self.appended = Some((pending, messages));
        }
    }

    /// Turns the call into the receipt that confirms that the result has been sent.
    pub fn into_receipt(self) -> Receipt {
        Receipt(self)
    }

    /// Interrupts the command on behalf of a person; its end is the result. `false`: the call is not about the end of a
    /// command. It is to be dropped, since a result that nobody gets would count as read.
    pub fn interrupt(&self) -> bool {
        match &self.execution {
            Execution::Engine(call) if matches!(call.tool, EngineTool::Command(_)) => {
                call.pending.interrupt();
                true
            }
            Execution::Engine(_) => false,
            Execution::Future(work) => {
                work.interrupted.iter().for_each(|told| told.notify_one());
                work.interrupted.is_some()
            }
        }
    }

    /// Reports that this interface cannot reach a person.
    pub fn person_unreachable(&self) {
        match &self.execution {
            Execution::Engine(call) => call.pending.person_unreachable(),
            Execution::Future(work) => work.person_unreachable.notify_one(),
        }
    }
}

impl EngineCall {
    fn new(
        handle: &Handle,
        pending: PendingCall,
        tool: EngineTool,
        standby: Option<Millis>,
    ) -> Box<Self> {
        Box::new(EngineCall {
            handle: handle.clone(),
            pending,
            tool,
            standby,
            outcome: None,
        })
    }

    async fn next(&mut self) -> Option<WorkStep> {
        while self.outcome.is_none() {
            match self.pending.next().await? {
                CallStep::Update(update) => return Some(WorkStep::Step(ToolStep::Update(update))),
                CallStep::Done(outcome) => {
                    // Another machine has told a message of this answer: what is left is read.
                    if let Outcome::Refused(Refusal::ChangedElsewhere(_)) = &outcome
                        && let EngineTool::ReadMessages(read) = &mut self.tool
                        && let Some((caller, request)) = read.again()
                    {
                        self.pending = self.handle.call(caller, request, None).await;
                        continue;
                    }
                    self.outcome = Some(outcome);
                    return Some(WorkStep::Step(ToolStep::Ended));
                }
            }
        }
        let (result, record) = self.result(self.outcome.clone()?).await;
        let reports = self.reported_subjects(&result).await;
        self.outcome = None;
        Some(WorkStep::Finished(FinishedCall {
            result,
            reports,
            // Read cursors that the result moves are written after it has been sent.
            after_send: Some(Box::new(record)),
        }))
    }

    async fn result(&self, outcome: Outcome) -> (ToolResult, Option<OpenRecord>) {
        let result = match (&self.tool, outcome) {
            (EngineTool::Timer(timer), outcome) => timer.result(&self.handle, outcome).await,
            (_, Outcome::Refused(refusal)) => refused(&refusal),
            (EngineTool::Command(command), Outcome::NotStarted(session, question, why)) => {
                let tool = command.tool;
                not_started(&self.handle, tool, session, question, &why)
            }
            (EngineTool::Command(command), outcome) => {
                return command.result(&self.handle, outcome, self.standby).await;
            }
            (EngineTool::ReadMessages(read), Outcome::Messages(messages, more)) => {
                read.result(&self.handle, &messages, more).await
            }
            (EngineTool::ReadMessages(_), _) => {
                ToolResult::error(ErrorCode::Fault, "the messages cannot be read".into())
            }
        };
        (result, None)
    }

    /// Subjects that the result of the outcome reports.
    async fn reported_subjects(&self, result: &ToolResult) -> Vec<About> {
        if let EngineTool::Timer(tool) = &self.tool {
            return tool.reported_subjects(&self.handle, result).await;
        }
        match &self.outcome {
            Some(
                Outcome::Ended(id)
                | Outcome::Declined(id, _)
                | Outcome::Cancelled(id)
                | Outcome::Failed(id),
            ) => vec![About::Session(*id)],
            Some(Outcome::NotStarted(_, question, why)) if !matches!(why, NotStarted::Held(_)) => {
                vec![About::Question(*question)]
            }
            _ => Vec::new(),
        }
    }
}

fn refused(refusal: &Refusal) -> ToolResult {
    ToolResult::error(refusal_code(refusal), refusal_sentence(refusal))
}

/// Error code of a refusal; every interface decides by it.
pub fn refusal_code(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::SessionNotFound(_)
        | Refusal::QuestionNotFound(_)
        | Refusal::Timer(abide_core::timer::Refusal::NotFound { .. }) => ErrorCode::NotFound,
        Refusal::Timer(_)
        | Refusal::QuestionClosed(..)
        | Refusal::SessionEnded(_)
        | Refusal::KeyReused(_)
        | Refusal::ChangedElsewhere(_) => ErrorCode::Conflict,
        Refusal::NotRecorded => ErrorCode::StorageFull,
        Refusal::DatabaseAway(_) => ErrorCode::Fault,
        Refusal::OutcomeUnknown(_) => ErrorCode::OutcomeUnknown,
        Refusal::TooMany(_) => ErrorCode::TooMany,
    }
}

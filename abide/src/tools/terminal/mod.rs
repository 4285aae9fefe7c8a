//! `terminal_session`: start a process that outlives the call, and interact with it. One tool with an
//! `action` argument; each action reads its own fields and is implemented in a file of its own.

mod control;
mod list;
mod read;
mod reading;
mod screen;
mod search;
mod send;
mod start;
mod tail;

use std::sync::Arc;

use abide_api::arguments::{
    ACTIONS, AnyText, ExtendArgs, FromArgument, LimitArgs, ListArgs, ReadOutputArgs, ResizeArgs,
    SearchArgs, SendInputArgs, SessionArgs, SignalArgs, StartArgs, Text,
};
use abide_api::{
    ActionResult, Activity, ErrorCode, SessionSummary, TerminalSessionResult, TerminalState,
    ToolOutput, ToolResult,
};
use abide_core::request::Caller;
use abide_core::{Agent, Refusal, SessionId, shorten};
use abide_output::mask::Mask;
use abide_output::printable::one_line;
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc};

use super::refused_text::{RefusalReader, refused_text};
use super::{BadInput, Context, FinishedCall, output, refusal_code, refusals, report};
use abide_engine::{CallUpdate, Handle, PendingCall, SessionView};
use abide_session::daemon_record::RequestName;

/// Characters of an unknown id that an error message repeats.
const SHOWN_ID: usize = 80;

/// Action with its checked fields.
pub(super) enum Action {
    Start(Box<start::Start>),
    Read(SessionRef, read::Read),
    Send(SessionRef, send::Send),
    Screen(SessionRef),
    Search(SessionRef, search::Search),
    Extend(SessionRef, control::Extend),
    Resize(SessionRef, control::Resize),
    Signal(SessionRef, i32),
    Kill(SessionRef),
    List(ListArgs),
}

impl Action {
    /// The same start, which waits for a session that was held.
    pub fn joining(mut self, session: SessionId) -> Self {
        if let Action::Start(start) = &mut self {
            start.begin = start::Begin::Join(session);
        }
        self
    }
}

/// Session as the caller named it; the text need not be a valid id.
pub(super) enum SessionRef {
    Id(SessionId),
    Unknown(String),
}

impl SessionRef {
    /// Text that is no valid id (a path, text with NUL bytes) names no session; it is answered with "not found".
    pub fn read(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| SessionRef::Unknown(shortened(text)), SessionRef::Id)
    }
}

/// Sentence about a name that no session has.
pub(super) fn not_found(name: &str) -> String {
    format!("Session '{name}' not found")
}

/// Reads an action and its fields.
pub(super) fn read(
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
) -> Result<Action, BadInput> {
    let name = match arguments.get("action") {
        None | Some(Value::Null) => return Err(unknown_action("nothing")),
        Some(given) => Text::read("action", given.clone())?.0,
    };
    let part = &format!("action `{name}`");
    Ok(match name.as_str() {
        "start" => {
            let args = StartArgs::read(arguments, part)?;
            Action::Start(Box::new(start::read(args, context, handle)?))
        }
        "list" => Action::List(ListArgs::read(arguments, part)?),
        "read_output" => {
            let mut args = ReadOutputArgs::read(arguments, part)?;
            Action::Read(session_ref(args.session_id.take())?, read::read(args)?)
        }
        "send_input" => {
            let mut args = SendInputArgs::read(arguments, part)?;
            Action::Send(session_ref(args.session_id.take())?, send::read(args)?)
        }
        "screen" => Action::Screen(session_ref(SessionArgs::read(arguments, part)?.session_id)?),
        "search" => {
            let mut args = SearchArgs::read(arguments, part)?;
            Action::Search(session_ref(args.session_id.take())?, search::read(args)?)
        }
        "extend" => {
            let args = ExtendArgs::read(arguments, part)?;
            let limits = LimitArgs {
                timeout: args.timeout,
                idle: args.idle,
                inactivity_timeout: args.inactivity_timeout,
            };
            Action::Extend(session_ref(args.session_id)?, control::read_extend(limits)?)
        }
        "resize" => {
            let mut args = ResizeArgs::read(arguments, part)?;
            Action::Resize(
                session_ref(args.session_id.take())?,
                control::read_resize(&args)?,
            )
        }
        "signal" => {
            let args = SignalArgs::read(arguments, part)?;
            Action::Signal(
                session_ref(args.session_id)?,
                control::read_signal(args.signal.as_ref())?,
            )
        }
        "kill" => Action::Kill(session_ref(SessionArgs::read(arguments, part)?.session_id)?),
        other => {
            return Err(unknown_action(&format!("\"{}\"", shortened(other))));
        }
    })
}

/// Reads the fields of a start that does not wait for output.
pub(super) fn read_start(
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
) -> Result<Action, BadInput> {
    let args = StartArgs::read(arguments, "a session")?;
    let mut start = start::read(args, context, handle)?;
    start.shows_output = false;
    Ok(Action::Start(Box::new(start)))
}

fn unknown_action(given: &str) -> BadInput {
    let allowed = ACTIONS.join(", ");
    BadInput::about("action", format!("must be one of {allowed}; got {given}."))
}

fn session_ref(given: Option<AnyText>) -> Result<SessionRef, BadInput> {
    let AnyText(text) = given.ok_or_else(|| {
        BadInput::about("session_id", "is required and must be text; got nothing.")
    })?;
    Ok(SessionRef::read(&text))
}

fn shortened(text: &str) -> String {
    shorten(&one_line(text), SHOWN_ID)
}

pub(crate) use control::{
    OWN_LIMITS, SessionControl, is_process_of, read_extend, read_signal, session_of_limit_change,
    survives_kill, withdraw,
};

/// Performs an action. `None`: the daemon is stopping.
pub(super) async fn perform(action: Action, runner: ActionRunner) -> Option<FinishedCall> {
    let plain = |done: ActionOutcome| done.map(FinishedCall::from);
    let done = match action {
        Action::Start(start) => runner.start(*start).await,
        Action::List(list) => plain(Ok(runner.list(&list).await)),
        Action::Read(session_ref, read) => runner.read(&session_ref, read).await,
        Action::Send(session_ref, send) => runner.send(&session_ref, send).await,
        Action::Screen(session_ref) => runner.screen(&session_ref).await,
        Action::Search(session_ref, search) => plain(runner.search(&session_ref, search).await),
        Action::Extend(session_ref, limits) => plain(runner.extend(&session_ref, limits).await),
        Action::Resize(session_ref, size) => plain(runner.resize(&session_ref, size).await),
        Action::Signal(session_ref, number) => plain(runner.signal(&session_ref, number).await),
        Action::Kill(session_ref) => runner.kill(&session_ref).await,
    };
    let done = match done {
        Ok(done) => done,
        Err(ActionError::Refused(code, sentence)) => ToolResult::error(code, sentence).into(),
        Err(ActionError::Stopping) => return None,
    };
    Some(done.with(runner))
}

/// Reason why an action has no result.
pub(crate) enum ActionError {
    /// The action is refused: its error code and one sentence.
    Refused(ErrorCode, String),
    /// The daemon is stopping.
    Stopping,
}

impl ActionError {
    /// Refusal because the state of the session does not allow the action.
    fn conflict(sentence: impl Into<String>) -> Self {
        ActionError::Refused(ErrorCode::Conflict, sentence.into())
    }
}

impl From<&Refusal> for ActionError {
    fn from(refusal: &Refusal) -> Self {
        ActionError::Refused(refusal_code(refusal), super::refusal_sentence(refusal))
    }
}

type ActionOutcome = Result<ToolResult, ActionError>;
/// Result of an action that holds resources until the result has been sent.
type FinishedAction = Result<FinishedCall, ActionError>;

/// Engine and caller, which every action needs.
pub(super) struct ActionRunner {
    pub handle: Handle,
    pub context: Context,
    /// Receiver of the questions about a command that is to be started.
    pub steps: mpsc::Sender<CallUpdate>,
    /// Notified if the interface cannot reach a person.
    pub person_unreachable: Arc<Notify>,
}

impl ActionRunner {
    fn caller(&self) -> Caller {
        match self.context.is_person {
            true => Caller::PERSON,
            false => self.context.caller(),
        }
    }

    /// Session of this name, if the caller may see it.
    fn session(&self, session_ref: &SessionRef) -> Result<Arc<SessionView>, ActionError> {
        let id = match session_ref {
            SessionRef::Id(id) => *id,
            SessionRef::Unknown(shown) => {
                return Err(ActionError::Refused(ErrorCode::NotFound, not_found(shown)));
            }
        };
        let agent: Option<Agent> = self.caller().agent;
        let view = self.handle.published().session(id);
        view.filter(|view| view.visible_to(agent.as_ref()))
            .ok_or_else(|| self.no_session(id, agent.as_ref()))
    }

    /// Error about a session that there is not, or not yet.
    fn no_session(&self, id: SessionId, agent: Option<&Agent>) -> ActionError {
        let questions = self.handle.published().questions();
        let held = questions.iter().find(|question| {
            question.state.held().is_some()
                && question.state.session() == id
                && agent.is_none_or(|agent| *agent == question.agent)
        });
        match held {
            None => ActionError::from(&Refusal::SessionNotFound(id)),
            Some(question) => ActionError::conflict(format!(
                "Session '{id}' has not started: its command is held until a person answers question '{}'",
                question.id
            )),
        }
    }

    /// Current view of the session; the given one if the session has been removed.
    fn newest(&self, view: &Arc<SessionView>) -> Arc<SessionView> {
        let newest = self.handle.published().session(view.id);
        newest.unwrap_or_else(|| view.clone())
    }

    /// Keeps the session active while the guard is held, so that its inactivity timeout does not run.
    async fn attend(&self, session: SessionId) -> PendingCall {
        self.handle.keep_active(self.caller(), session).await
    }

    /// Name of this request in the session's record: an earlier daemon may already have begun the request.
    fn request_name(&self, what: &str) -> RequestName {
        RequestName::new(what, self.context.request_key.as_deref().map(str::as_bytes))
    }

    fn control<'a>(&'a self, view: &'a SessionView) -> SessionControl<'a> {
        SessionControl {
            handle: &self.handle,
            caller: self.caller(),
            view,
        }
    }

    /// Masks the secrets that the session was given.
    fn mask(&self, view: &SessionView, text: String) -> String {
        self.mask_of(view).apply(text)
    }

    fn mask_of(&self, view: &SessionView) -> Mask {
        Mask::of(self.handle.secrets(view.id))
    }

    /// Refusals of the sandbox that the agent has not been told yet. A person does not take them from the agent.
    fn refused(&self, view: &SessionView) -> Option<String> {
        let record = refusals::record(view)?;
        let (record, reader) = match self.context.is_person {
            true => (record, RefusalReader::Person),
            false => {
                let untold = self.handle.take_untold_refusals(view.id, record);
                (untold, RefusalReader::Model)
            }
        };
        let text = refused_text(&record, reader)?;
        Some(self.mask(view, text))
    }

    /// Activity of a session, if it runs.
    fn activity(&self, view: &SessionView) -> Option<Activity> {
        let activity = || report::current_activity(&self.handle, view);
        view.is_running().then(activity).flatten()
    }

    /// Result about a session.
    fn result(&self, view: &SessionView, text: String, action: ActionResult) -> ToolResult {
        let summary = report::summary(view, view.is_running());
        self.result_of(view, summary, text, None, action)
    }

    /// Result for a caller that already has the summary of the session.
    fn result_of(
        &self,
        view: &SessionView,
        mut summary: SessionSummary,
        mut text: String,
        activity: Option<Activity>,
        action: ActionResult,
    ) -> ToolResult {
        let attached = self.handle.is_attached(view.id);
        if attached {
            text.push_str("\n[a person is at this terminal too]");
        }
        if let Some(damage) = &view.damage {
            text.push_str(&format!("\n[{damage}]"));
        }
        if let Some(refused) = self.refused(view) {
            text.push('\n');
            text.push_str(&refused);
        }
        for note in report::ports(view) {
            text.push_str(&format!("\n[{note}]"));
        }
        if !view.is_running() {
            if let Some(left) = report::leftovers(view, &mut summary) {
                text.push_str(&format!("\n[{}]", self.mask(view, left)));
            }
            report::recount_output(view, &mut summary);
        }
        report::mask_processes(&mut summary, |text| self.mask(view, text));
        let state = TerminalState {
            session: summary,
            status: report::status(view, view.is_running()),
            activity,
            person_attached: attached.then_some(true),
            action,
        };
        let output = TerminalSessionResult::Session(Box::new(state));
        ToolResult::new(text, ToolOutput::TerminalSession(output))
    }
}

/// Refusal for a log that cannot be read.
fn unreadable(fault: std::io::Error) -> ActionError {
    let sentence = format!("the log cannot be read: {}", output::because(&fault));
    ActionError::Refused(ErrorCode::Fault, sentence)
}

/// Refusal for an action that needs a running session.
fn ended(id: SessionId) -> ActionError {
    ActionError::from(&Refusal::SessionEnded(id))
}

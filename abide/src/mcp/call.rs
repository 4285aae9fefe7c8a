//! One `tools/call`, from the request to its answer. While the call waits, a person may be asked a question
//! (by elicitation within the call, or by returning the call, depending on the protocol version), and the
//! client may cancel the call or disconnect.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use abide_api::{ErrorCode, Id, ToolName, ToolResult};
use abide_core::policy::Choice;
use abide_core::request::Caller;
use abide_core::{Asking, Conversation, Millis, Mono, QuestionId, SessionId};
use futures_util::future::{BoxFuture, OptionFuture};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, InputRequest, InputRequiredResult,
    InputResponses, RequestId, RequestMetaObject,
};
use serde_json::{Map, Value};

use super::client_channel::ClientChannel;
use super::client_quirks::ClientQuirks;
use super::elicitation::{self, ElicitationReply};
use super::front_writer::RenderPermit;
use super::in_flight::InFlight;
use super::origin::{Origin, Transport};
use super::other_questions::{Claim, OtherQuestionEvent, OtherQuestions};
use super::presentation::Presentation;
use super::progress::Progress;
use super::round_codec::{Round, Subject};
use super::server::Server;
use super::{cancellation, client, client_timeouts};
use crate::tools::{self, Context, GivenAnswer, Receipt, ToolCall, ToolStep};
use abide_engine::clock::SystemClock;
use abide_engine::{CallUpdate, QuestionView};

/// Limit on how often one call returns to ask. Clients give up a call that returns for the tenth time, so the
/// server stops before that.
const ROUND_LIMIT: u32 = 8;

pub struct CallAnswer {
    /// Result of the tool, or a question that the client must put to a person before it repeats the call.
    pub response: CallToolResponse,
    /// Receipt to confirm after the answer has been sent. Messages in the answer count as read only then.
    pub receipt: Option<Receipt>,
    /// Permit under which the result was rendered; held until the result is queued for sending.
    pub permit: Option<RenderPermit>,
}

impl CallAnswer {
    /// Answer without anything to confirm.
    fn plain(response: impl Into<CallToolResponse>) -> Self {
        CallAnswer {
            response: response.into(),
            receipt: None,
            permit: None,
        }
    }
}

/// Facts of one `tools/call` besides its parameters.
pub struct CallContext {
    /// Client and connection that the call comes from.
    pub origin: Arc<Origin>,
    /// Destination of questions and notifications.
    pub client_channel: ClientChannel,
    pub client: CallClient,
    pub meta: RequestMetaObject,
    pub request: Arc<InFlight>,
}

impl CallContext {
    /// Facts about the caller that the tools need. `rounds`: times that the call has returned to ask.
    fn tool_context(&self, rounds: u32, conversation: Option<Conversation>) -> Context {
        let origin = &self.origin;
        Context {
            agent: origin.agent.clone(),
            root: origin.root.clone(),
            env: origin.env.clone(),
            asking: match self.client.ask_method {
                Some(AskMethod::Elicitation) => Asking::Here,
                Some(AskMethod::ReturnCall) if rounds < ROUND_LIMIT => Asking::ByReturning,
                Some(AskMethod::ReturnCall) | None => Asking::Elsewhere,
            },
            standby: client_timeouts::standby(
                &self.client.name,
                &origin.transport,
                self.meta.get_progress_token().is_some(),
                |name| origin.var(name),
            ),
            waited: (self.request.forwarded).map_or(Millis(0), |forwarded| forwarded.age),
            request_key: request_key(origin, &self.request),
            conversation,
            client: match &origin.transport {
                Transport::Front(front) => Some(front.clone()),
                Transport::Http => None,
            },
            is_person: false,
            inherited_limits: None,
            session_name: None,
            files_before: BTreeMap::new(),
        }
    }
}

/// Answers a `tools/call`.
pub async fn run(
    server: &Server,
    request: CallToolRequestParams,
    cx: CallContext,
) -> Result<CallAnswer, ErrorData> {
    let presentation = cx.client.presentation(&request);
    let origin = cx.origin.clone();
    let named = client::record_codex_thread(&server.handle, &origin, &cx.meta);
    let conversation = named.or_else(|| origin.conversation.clone());
    if let Some(conversation) = &conversation {
        server.join_conversation(&origin.agent, conversation).await;
    }
    let tool = ToolName::from_str(&request.name)
        .map_err(|unknown| ErrorData::invalid_params(unknown.to_string(), None))?;
    let arguments = request.arguments.unwrap_or_default();
    if changes_own_limits(server, &origin, tool, &arguments).await {
        let refused = ToolResult::error(ErrorCode::Forbidden, tools::OWN_LIMITS.into());
        return Ok(CallAnswer::plain(presentation.result(refused)));
    }
    let round = match &request.request_state {
        None => None,
        Some(sealed) => Some(open_state(server, &origin, sealed, tool, &arguments)?),
    };
    let rounds = round.map_or(0, |round| round.count);
    let context = cx.tool_context(rounds, conversation);
    let (waited, caller) = (context.waited, context.caller());
    // A call that can return to ask seals its arguments.
    let sealed_arguments = arguments.clone();
    let begun = match round {
        None => tools::begin(&server.handle, tool, arguments, context).await,
        Some(Round { session, .. }) => {
            tools::resume(&server.handle, tool, arguments, context, session.0).await
        }
    };
    let call = begun.unwrap_or_else(|bad| {
        let refused = ToolResult::error(ErrorCode::BadInput, bad.to_string());
        ToolCall::answered(&server.handle, caller, refused)
    });
    let others = cx.client.can_show_others().then(|| {
        let (handle, shown) = (server.handle.clone(), server.shown_questions.clone());
        OtherQuestions::of(handle, shown, origin.clone())
    });
    let mut wait = WaitingCall {
        server,
        origin,
        tool,
        arguments: sealed_arguments,
        rounds,
        call,
        began: Mono(SystemClock.mono().0.saturating_sub(waited.0)),
        elicitation: None,
        shown_time: Millis(0),
        answered_question: None,
        has_no_person: false,
        others,
        own: None,
        other: None,
        progress: (cx.meta.get_progress_token())
            .map(|token| Progress::new(cx.client_channel.clone(), token)),
        permit: None,
        cx,
    };
    if let Some(round) = round {
        wait.resume(round, request.input_responses.unwrap_or_default())
            .await;
    }
    match wait.run_to_end().await {
        WaitEnd::Done(result) => Ok(CallAnswer {
            response: presentation.result(result).into(),
            receipt: Some(wait.call.into_receipt()),
            permit: wait.permit,
        }),
        WaitEnd::Returned(question) => Ok(CallAnswer::plain(*question)),
        WaitEnd::Cancelled => Err(wait.end_cancelled().await),
        WaitEnd::Stopping => Err(wait.end_stopping().await),
    }
}

/// True if a process of a session wants to change the limits of that session.
async fn changes_own_limits(
    server: &Server,
    origin: &Origin,
    tool: ToolName,
    arguments: &Map<String, Value>,
) -> bool {
    let named = tools::session_of_limit_change(tool, arguments);
    let id = named.and_then(|id| id.parse().ok());
    let view = id.and_then(|id| server.handle.published().session(id));
    match view {
        Some(view) => tools::is_process_of(&view, origin.peer.clone()).await,
        None => false,
    }
}

/// Idempotency key under which a front may replay the request. Requests over HTTP have none: a client whose
/// event stream broke resumes the stream and does not repeat the request.
fn request_key(origin: &Origin, request: &InFlight) -> Option<String> {
    match (&origin.transport, request.forwarded) {
        (Transport::Front(front), Some(of)) => Some(client::request_key(front, of.ordinal)),
        (Transport::Front(_) | Transport::Http, _) => None,
    }
}

fn open_state(
    server: &Server,
    origin: &Origin,
    sealed: &str,
    tool: ToolName,
    arguments: &Map<String, Value>,
) -> Result<Round, ErrorData> {
    let subject = Subject {
        agent: &origin.agent.0,
        tool: tool.as_str(),
        arguments,
    };
    // A state that cannot be opened is refused: running the command instead could run it twice.
    server.codec.open(sealed, &subject).ok_or_else(|| {
        let sentence = "requestState is not of this call; send it back as it came, with the same \
            tool and arguments";
        ErrorData::invalid_params(sentence, None)
    })
}

/// Facts of the client that calls depend on.
pub struct CallClient {
    name: String,
    ask_method: Option<AskMethod>,
}

/// Protocol mechanism by which a client puts a question to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskMethod {
    /// Elicitation request within the call (protocol versions up to 2025-11-25).
    Elicitation,
    /// The call returns the question and the client repeats the call with the answer (from 2026-07-28 on).
    ReturnCall,
}

impl CallClient {
    /// Form in which the client gets the result of this call.
    fn presentation(&self, call: &CallToolRequestParams) -> Presentation {
        let arguments = call.arguments.as_ref();
        let names_session = arguments.is_some_and(|all| all.contains_key("session_id"));
        Presentation::of(&self.name, names_session)
    }

    /// Client of this name. It can be asked only if it supports elicitation forms; `modern` selects the mechanism.
    pub fn new(name: String, capabilities: Option<ClientCapabilities>, modern: bool) -> Self {
        let forms = capabilities
            .and_then(|capabilities| capabilities.elicitation)
            .is_some_and(|asks| asks.form.is_some() || asks.url.is_none());
        let ask_method = match (forms, modern) {
            (false, _) => None,
            (true, false) => Some(AskMethod::Elicitation),
            (true, true) => Some(AskMethod::ReturnCall),
        };
        CallClient { name, ask_method }
    }

    /// True if a call of this client can show a question about another session while the call waits. The
    /// client must remove the question when the call ends, however it ends.
    fn can_show_others(&self) -> bool {
        self.ask_method == Some(AskMethod::Elicitation)
            && !ClientQuirks::of(&self.name).shows_cancelled_requests
    }
}

/// State of a call that waits for its result.
struct WaitingCall<'a> {
    server: &'a Server,
    origin: Arc<Origin>,
    tool: ToolName,
    arguments: Map<String, Value>,
    rounds: u32,
    call: ToolCall,
    began: Mono,
    /// Question about the call's own session that the client shows now.
    elicitation: Option<ShownElicitation>,
    /// Total time for which the client has shown questions. Clients stop their call timeout meanwhile, so
    /// this time is subtracted when a cancellation is classified.
    shown_time: Millis,
    /// Question whose answer this call brought; it is not asked again.
    answered_question: Option<QuestionId>,
    /// The client cannot reach a person.
    has_no_person: bool,
    /// Source of open questions about other sessions of this client. `None`: the client cannot show them.
    others: Option<OtherQuestions>,
    /// Claim on the call's own session: while it is held, no other call shows a question about that session.
    own: Option<Claim>,
    /// Question about another session that the client shows now.
    other: Option<(ShownElicitation, Claim)>,
    progress: Option<Progress>,
    /// Permit to render the result.
    permit: Option<RenderPermit>,
    cx: CallContext,
}

enum WaitEnd {
    Done(ToolResult),
    /// The call returns to ask a person.
    Returned(Box<InputRequiredResult>),
    Cancelled,
    Stopping,
}

/// Event that a waiting call handles.
enum CallEvent {
    Step(Option<ToolStep>),
    Replied(ElicitationReply),
    Other(OtherQuestionEvent),
    RepliedToOther(ElicitationReply),
    Cancelled,
    ProgressSent,
}

impl WaitingCall<'_> {
    /// Gives the answer that a repeated call brings. The wait has begun again before this, so no event that
    /// the answer causes is missed.
    async fn resume(&mut self, round: Round, mut responses: InputResponses) {
        let question = round.question.0;
        let response = responses.remove(&question.to_string());
        match response.as_ref().and_then(elicitation::interpret_json) {
            Some(ElicitationReply::Answered(answer)) => {
                self.answered_question = Some(question);
                give_answer(self.server, &self.origin, question, answer).await;
            }
            Some(ElicitationReply::NoPerson) => self.no_person(),
            None => {}
        }
    }

    /// Handles events until the call has a result, returns to ask, is cancelled, or the daemon stops.
    async fn run_to_end(&mut self) -> WaitEnd {
        loop {
            match self.next_event().await {
                CallEvent::ProgressSent => {}
                CallEvent::Cancelled => return WaitEnd::Cancelled,
                CallEvent::Replied(reply) => self.replied(reply).await,
                CallEvent::Other(other) => self.other_question(other),
                CallEvent::RepliedToOther(reply) => self.replied_to_other(reply).await,
                CallEvent::Step(None) => return WaitEnd::Stopping,
                CallEvent::Step(Some(ToolStep::Update(update))) => match update {
                    CallUpdate::Accepted(session) => self.accepted(session),
                    CallUpdate::Closed(question) => self.closed(question),
                    CallUpdate::Asked(question) => {
                        if let Some(returned) = self.ask(question) {
                            return WaitEnd::Returned(Box::new(returned));
                        }
                    }
                },
                CallEvent::Step(Some(ToolStep::Ended)) if self.acquire_permit().await => {}
                CallEvent::Step(Some(ToolStep::Ended)) => return WaitEnd::Cancelled,
                CallEvent::Step(Some(ToolStep::Done(result))) => {
                    if self.elicitation.is_some() || self.other.is_some() {
                        self.withdraw_all();
                    }
                    return WaitEnd::Done(result);
                }
            }
        }
    }

    /// Waits until enough earlier answers have been sent for this one to be rendered. `false`: the client has
    /// cancelled the request or is gone.
    async fn acquire_permit(&mut self) -> bool {
        tokio::select! {
            biased;
            permit = self.cx.request.sink.render_permit() => {
                self.permit = permit;
                true
            }
            () = self.cx.request.unwanted() => false,
        }
    }

    async fn next_event(&mut self) -> CallEvent {
        tokio::select! {
            biased;
            step = self.call.next() => CallEvent::Step(step),
            () = self.cx.request.unwanted() => CallEvent::Cancelled,
            Some(reply) = OptionFuture::from(self.elicitation.as_mut().map(|elicitation| &mut elicitation.reply)) => {
                CallEvent::Replied(reply)
            }
            Some(reply) = OptionFuture::from(self.other.as_mut().map(|(elicitation, _)| &mut elicitation.reply)) => {
                CallEvent::RepliedToOther(reply)
            }
            Some(other) = OptionFuture::from(self.others.as_mut().map(OtherQuestions::next)) => {
                CallEvent::Other(other)
            }
            Some(()) = OptionFuture::from(self.progress.as_mut().map(Progress::send_when_due)) => {
                CallEvent::ProgressSent
            }
        }
    }

    fn accepted(&mut self, session: SessionId) {
        self.own = (self.others.as_ref()).map(|_| self.server.shown_questions.claim_own(session));
        if let Some(progress) = &mut self.progress {
            let view = self.server.handle.published().session(session);
            progress.begin(view.map(|view| view.state.created.0));
        }
    }

    /// Asks the client's person. Returns the question if asking means to return the call.
    fn ask(&mut self, question: Arc<QuestionView>) -> Option<InputRequiredResult> {
        if self.has_no_person || self.answered_question == Some(question.id) {
            return None;
        }
        match self.cx.client.ask_method? {
            AskMethod::Elicitation => {
                match &mut self.elicitation {
                    Some(elicitation) if elicitation.outlives => {
                        elicitation.current = Some(question)
                    }
                    _ => self.show(question),
                }
                None
            }
            AskMethod::ReturnCall if self.rounds >= ROUND_LIMIT => {
                self.no_person();
                None
            }
            AskMethod::ReturnCall => Some(self.return_to_ask(&question)),
        }
    }

    fn show(&mut self, question: Arc<QuestionView>) {
        self.withdraw_all();
        match ShownElicitation::send(&self.cx, question) {
            Some(elicitation) => self.elicitation = Some(elicitation),
            None => self.no_person(),
        }
    }

    /// Shows a question about another session, or withdraws the one that has been closed.
    fn other_question(&mut self, other: OtherQuestionEvent) {
        match other {
            OtherQuestionEvent::Open(question, claim) if self.elicitation.is_none() => {
                match ShownElicitation::send(&self.cx, question) {
                    Some(elicitation) => self.other = Some((elicitation, claim)),
                    None => self.others = None,
                }
            }
            OtherQuestionEvent::Open(..) => {}
            OtherQuestionEvent::Closed => self.withdraw_other(),
        }
    }

    async fn replied_to_other(&mut self, reply: ElicitationReply) {
        let Some((elicitation, _claim)) = self.other.take() else {
            return;
        };
        self.shown_time.0 += elicitation.shown_for().0;
        match reply {
            ElicitationReply::Answered(answer) => {
                give_answer(self.server, &self.origin, elicitation.shown.id, answer).await
            }
            ElicitationReply::NoPerson => {
                let server = self.server;
                server
                    .shown_questions
                    .mark_unanswered(&server.handle, elicitation.shown.id);
            }
        }
        self.search_others();
    }

    fn search_others(&mut self) {
        if let Some(others) = &mut self.others {
            others.search_again();
        }
    }

    fn return_to_ask(&self, question: &QuestionView) -> InputRequiredResult {
        let subject = Subject {
            agent: &self.origin.agent.0,
            tool: self.tool.as_str(),
            arguments: &self.arguments,
        };
        let round = Round {
            session: Id(question.state.session()),
            question: Id(question.id),
            count: self.rounds + 1,
        };
        let sealed = self.server.codec.seal(round, &subject);
        let request =
            InputRequest::Elicitation(elicitation::request(question, &self.cx.client.name));
        let requests = BTreeMap::from([(question.id.to_string(), request)]);
        InputRequiredResult::new(Some(requests), Some(sealed))
    }

    async fn replied(&mut self, reply: ElicitationReply) {
        let Some(elicitation) = self.elicitation.take() else {
            return;
        };
        self.shown_time.0 += elicitation.shown_for().0;
        match (reply, elicitation.current) {
            (ElicitationReply::NoPerson, _) => self.no_person(),
            // The question was closed before the person answered.
            (ElicitationReply::Answered(_), None) => {}
            (ElicitationReply::Answered(answer), Some(current))
                if answers(&elicitation.shown, &current, &answer) =>
            {
                give_answer(self.server, &self.origin, current.id, answer).await
            }
            (ElicitationReply::Answered(_), Some(current)) => self.show(current),
        }
        self.search_others();
    }

    fn no_person(&mut self) {
        self.has_no_person = true;
        self.others = None;
        self.call.person_unreachable();
    }

    fn closed(&mut self, question: QuestionId) {
        let Some(elicitation) = &mut self.elicitation else {
            return;
        };
        if elicitation
            .current
            .as_ref()
            .is_some_and(|current| current.id == question)
        {
            elicitation.current = None;
            if !elicitation.outlives {
                self.withdraw();
            }
        }
    }

    /// Withdraws all questions that the client shows.
    fn withdraw_all(&mut self) {
        self.withdraw();
        self.withdraw_other();
    }

    fn withdraw(&mut self) {
        if let Some(elicitation) = self.elicitation.take() {
            self.withdraw_request(elicitation);
        }
    }

    fn withdraw_other(&mut self) {
        if let Some((elicitation, _claim)) = self.other.take() {
            self.withdraw_request(elicitation);
        }
        self.search_others();
    }

    fn withdraw_request(&mut self, elicitation: ShownElicitation) {
        self.shown_time.0 += elicitation.shown_for().0;
        let reason = "the question can no longer be answered here";
        self.cx.client_channel.withdraw(elicitation.request, reason);
    }

    /// Ends a call whose answer the client no longer wants. A cancellation by a person also ends the command,
    /// and a task waits for that end; a cancellation by the client's timeout, or a lost connection, leaves
    /// the command running.
    async fn end_cancelled(mut self) -> ErrorData {
        let waited = SystemClock.mono().since(self.began);
        let waited = Millis(waited.0.saturating_sub(self.shown_time.0));
        if let Some(reason) = self.cx.request.clone().reason() {
            self.withdraw_all();
            if !cancellation::is_timeout(reason, waited) && self.call.interrupt() {
                tokio::spawn(self.call.result_only());
            }
        }
        ErrorData::internal_error("the client does not wait for this answer", None)
    }

    /// Ends a call while the daemon is stopping. The front repeats the call, and a cancellation of it, to the next
    /// daemon, so this one stays unanswered until the connection is closed.
    async fn end_stopping(self) -> ErrorData {
        self.cx.request.sink.lost().cancelled().await;
        ErrorData::internal_error("the daemon is stopping; the command goes on", None)
    }
}

/// Gives a person's answer to the engine. An answer to a closed question changes nothing.
async fn give_answer(server: &Server, origin: &Origin, question: QuestionId, given: GivenAnswer) {
    let caller = Caller {
        agent: Some(origin.agent.clone()),
        conversation: origin.conversation.clone(),
    };
    // An answer to a closed question changes nothing, and one that was not offered cannot come from this form.
    let _ = tools::answer(&server.handle, caller, question, given, "client").await;
}

/// True if the answer to the question that a person has read is an answer to the current one too. A "yes" to wait longer
/// for an idle session is; a "no" would end the command, so the person has to see the current question first.
fn answers(shown: &QuestionView, current: &QuestionView, given: &GivenAnswer) -> bool {
    let both_idle = shown.state.idle().is_some() && current.state.idle().is_some();
    let is_same_wait = both_idle && shown.state.session() == current.state.session();
    shown.id == current.id || (is_same_wait && given.choice != Choice::No)
}

/// Elicitation request that the client shows.
struct ShownElicitation {
    /// Question whose text the person reads.
    shown: Arc<QuestionView>,
    /// Question that a reply answers: the one that is open now. `None`: no question is open any more.
    current: Option<Arc<QuestionView>>,
    /// The client keeps showing the request until the call ends, even after it is withdrawn. One request then
    /// serves for all questions of the call: a second one would only queue behind it.
    outlives: bool,
    request: RequestId,
    at: Mono,
    reply: BoxFuture<'static, ElicitationReply>,
}

impl ShownElicitation {
    /// Sends the elicitation request. `None`: the client is gone.
    fn send(cx: &CallContext, question: Arc<QuestionView>) -> Option<Self> {
        let client = cx.client.name.clone();
        let request = elicitation::request(&question, &client);
        let sent = cx.client_channel.elicit(request)?;
        let at = SystemClock.mono();
        let outlives = ClientQuirks::of(&client).shows_cancelled_requests;
        let reply = Box::pin(async move {
            match sent.answer.await {
                Some(result) => {
                    elicitation::interpret(&result, &client, SystemClock.mono().since(at))
                }
                None => ElicitationReply::NoPerson,
            }
        });
        Some(ShownElicitation {
            shown: question.clone(),
            current: Some(question),
            outlives,
            request: sent.id,
            at,
            reply,
        })
    }

    fn shown_for(&self) -> Millis {
        SystemClock.mono().since(self.at)
    }
}

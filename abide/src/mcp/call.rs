//! One `tools/call`, from the request to its answer. While the call waits, a person may be asked a question
//! (by elicitation within the call, or by returning the call, depending on the protocol version), and the
//! client may cancel the call or disconnect.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_api::{ErrorCode, ToolResult};
use abide_core::request::Caller;
use abide_core::{Answer, Asking, Millis, Mono, QuestionId, Request, SessionId};
use futures_util::future::{BoxFuture, OptionFuture};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, InputRequest, InputRequiredResult,
    InputResponses, RequestId, RequestMetaObject,
};
use serde_json::{Map, Value};

use super::ask::{self, Reply};
use super::in_flight::InFlight;
use super::other_questions::{Claim, Other, OtherQuestions};
use super::out::Turn;
use super::peer::Peer;
use super::presentation::Presentation;
use super::progress::Progress;
use super::seal::{Round, Subject};
use super::server::{Origin, Server, Way};
use super::{cancel, client, limits};
use crate::tools::{self, Context, NotCalled, Receipt, ToolCall, ToolStep};
use abide_engine::QuestionView;
use abide_engine::clock::SystemClock;

/// Limit on how often one call returns to ask. Clients give up a call that returns for the tenth time, so the
/// server stops before that.
const MOST_ROUNDS: u32 = 8;

/// Answer to a call.
pub struct Answered {
    pub said: Said,
    /// Receipt to confirm after the answer has been sent. Messages in the answer count as read only then.
    pub receipt: Option<Receipt>,
    /// Permit under which the result was rendered; held until the result is queued for sending.
    pub turn: Option<Turn>,
}

/// Content of an answer.
pub enum Said {
    /// A tool's result.
    Result(ToolResult),
    /// Question that the client must put to a person before it repeats the call.
    Question(Box<InputRequiredResult>),
}

impl From<ToolResult> for Answered {
    fn from(result: ToolResult) -> Self {
        Answered {
            said: Said::Result(result),
            receipt: None,
            turn: None,
        }
    }
}

impl Said {
    /// Answer in the form that the client gets.
    pub fn response(self, presentation: Presentation) -> CallToolResponse {
        match self {
            Said::Result(result) => presentation.result(result).into(),
            Said::Question(question) => (*question).into(),
        }
    }
}

/// Facts of one `tools/call` besides its parameters.
pub struct CallContext {
    /// Client and connection that the call comes from.
    pub origin: Arc<Origin>,
    /// Destination of questions and notifications.
    pub peer: Peer,
    pub client: Client,
    pub meta: RequestMetaObject,
    pub request: Arc<InFlight>,
}

/// Answers a `tools/call`.
pub async fn run(
    server: &Server,
    request: CallToolRequestParams,
    cx: CallContext,
) -> Result<Answered, ErrorData> {
    let origin = cx.origin.clone();
    let named = client::note_call(&server.handle, &origin, &cx.meta);
    let conversation = named.or_else(|| origin.conversation.clone());
    if let Some(conversation) = &conversation {
        server.speaks_in(&origin.agent, conversation).await;
    }
    let tool = request.name;
    let arguments = request.arguments.unwrap_or_default();
    if let Some(id) = tools::moves_limits_of(&tool, &arguments)
        && let Some(view) = id
            .parse()
            .ok()
            .and_then(|id| server.handle.published().session(id))
        && tools::is_own(&view, origin.peer.clone()).await
    {
        let refused = ToolResult::error(ErrorCode::Forbidden, tools::OWN_LIMITS.into());
        return Ok(refused.into());
    }
    let round = match &request.request_state {
        None => None,
        Some(sealed) => Some(reopened(server, &origin, sealed, &tool, &arguments)?),
    };
    let rounds = round.map_or(0, |round| round.count);
    let context = Context {
        agent: origin.agent.clone(),
        root: origin.root.clone(),
        env: origin.env.clone(),
        asking: match cx.client.person {
            Some(Person::ByAsking) => Asking::Here,
            Some(Person::ByReturning) if rounds < MOST_ROUNDS => Asking::ByReturning,
            Some(Person::ByReturning) | None => Asking::Elsewhere,
        },
        standby: limits::standby(
            &cx.client.name,
            &origin.way,
            cx.meta.get_progress_token().is_some(),
            |name| origin.var(name),
        ),
        request_key: request_key(&origin, &cx.request),
        conversation,
        client: match &origin.way {
            Way::Front(front) => Some(front.clone()),
            Way::Http => None,
        },
        sees_all: false,
        inherited_limits: None,
        files_before: BTreeMap::new(),
    };
    // A call that can return to ask seals its arguments, so they are needed again after `begin` has consumed them.
    let kept = matches!(cx.client.person, Some(Person::ByReturning)).then(|| arguments.clone());
    let begun = match round {
        None => tools::begin(&server.handle, &tool, arguments, context).await,
        Some(Round { session, .. }) => {
            tools::resume(&server.handle, &tool, arguments, context, session).await
        }
    };
    let call = match begun {
        Ok(call) => call,
        Err(NotCalled::BadInput(bad)) => {
            return Ok(ToolResult::error(ErrorCode::BadInput, bad.to_string()).into());
        }
        Err(unknown @ NotCalled::UnknownTool(..)) => {
            return Err(ErrorData::invalid_params(unknown.to_string(), None));
        }
    };
    let others = cx.client.can_show_others().then(|| {
        let (handle, shown) = (server.handle.clone(), server.shown.clone());
        OtherQuestions::of(handle, shown, origin.clone())
    });
    let mut wait = Wait {
        server,
        origin,
        tool: &tool,
        arguments: kept.unwrap_or_default(),
        rounds,
        call,
        began: SystemClock.mono(),
        asked: None,
        asked_for: Millis(0),
        settled: None,
        nobody: false,
        others,
        own: None,
        other: None,
        progress: Progress::new(&cx),
        turn: None,
        cx,
    };
    if let Some(round) = round {
        wait.take_up(round, request.input_responses.unwrap_or_default())
            .await;
    }
    match wait.see_through().await {
        Through::Done(result) => Ok(Answered {
            said: Said::Result(result),
            receipt: Some(wait.call.into_receipt()),
            turn: wait.turn,
        }),
        Through::Returned(question) => Ok(Answered {
            said: Said::Question(question),
            receipt: None,
            turn: None,
        }),
        Through::Cancelled => Err(wait.let_go().await),
        Through::Stopping => Err(wait.stopping().await),
    }
}

/// Idempotency key under which a front may replay the request. Requests over HTTP have none: a client whose
/// event stream broke resumes the stream and does not repeat the request.
fn request_key(origin: &Origin, request: &InFlight) -> Option<String> {
    match (&origin.way, request.ordinal) {
        (Way::Front(front), Some(ordinal)) => Some(client::key(front, ordinal)),
        (Way::Front(_) | Way::Http, _) => None,
    }
}

fn reopened(
    server: &Server,
    origin: &Origin,
    sealed: &str,
    tool: &str,
    arguments: &Map<String, Value>,
) -> Result<Round, ErrorData> {
    let subject = Subject {
        agent: &origin.agent.0,
        tool,
        arguments,
    };
    // A state that cannot be opened is refused: running the command instead could run it twice.
    server.seal.open(sealed, &subject).ok_or_else(|| {
        let sentence = "requestState is not of this call; send it back as it came, with the same \
            tool and arguments";
        ErrorData::invalid_params(sentence, None)
    })
}

/// Facts of the client that calls depend on.
pub struct Client {
    name: String,
    person: Option<Person>,
}

/// Protocol mechanism by which a client puts a question to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Person {
    /// Elicitation request within the call (protocol versions up to 2025-11-25).
    ByAsking,
    /// The call returns the question and the client repeats the call with the answer (from 2026-07-28 on).
    ByReturning,
}

impl Client {
    /// Form in which the client gets the result of this call.
    pub fn presentation(&self, call: &CallToolRequestParams) -> Presentation {
        let arguments = call.arguments.as_ref();
        let names_session = arguments.is_some_and(|all| all.contains_key("session_id"));
        Presentation::of(&self.name, names_session)
    }

    /// Client of this name. It can be asked only if it supports elicitation forms; `modern` selects the mechanism.
    pub fn new(name: String, capabilities: Option<ClientCapabilities>, modern: bool) -> Self {
        let forms = capabilities
            .and_then(|capabilities| capabilities.elicitation)
            .is_some_and(|asks| asks.form.is_some() || asks.url.is_none());
        let person = match (forms, modern) {
            (false, _) => None,
            (true, false) => Some(Person::ByAsking),
            (true, true) => Some(Person::ByReturning),
        };
        Client { name, person }
    }

    /// True if a call of this client can show a question about another session while the call waits. The
    /// client must remove the question when the call ends, however it ends.
    fn can_show_others(&self) -> bool {
        self.person == Some(Person::ByAsking) && !ask::outlives(&self.name)
    }
}

/// State of a call that waits for its result.
struct Wait<'a> {
    server: &'a Server,
    origin: Arc<Origin>,
    tool: &'a str,
    arguments: Map<String, Value>,
    rounds: u32,
    call: ToolCall,
    began: Mono,
    /// Question about the call's own session that the client shows now.
    asked: Option<Asked>,
    /// Total time for which the client has shown questions. Clients stop their call timeout meanwhile, so
    /// this time is subtracted when a cancellation is classified.
    asked_for: Millis,
    /// Question whose answer this call brought; it is not asked again.
    settled: Option<QuestionId>,
    /// The client cannot reach a person.
    nobody: bool,
    /// Source of open questions about other sessions of this client. `None`: the client cannot show them.
    others: Option<OtherQuestions>,
    /// Claim on the call's own session: while it is held, no other call shows a question about that session.
    own: Option<Claim>,
    /// Question about another session that the client shows now.
    other: Option<(Asked, Claim)>,
    progress: Option<Progress>,
    /// Permit to render the result.
    turn: Option<Turn>,
    cx: CallContext,
}

/// End of a wait.
enum Through {
    Done(ToolResult),
    /// The call returns to ask a person.
    Returned(Box<InputRequiredResult>),
    Cancelled,
    Stopping,
}

/// Event that a waiting call handles.
enum Happened {
    Step(Option<ToolStep>),
    Replied(Reply),
    Other(Other),
    RepliedToOther(Reply),
    Cancelled,
    Told,
}

impl Wait<'_> {
    /// Gives the answer that a repeated call brings. The wait has begun again before this, so no event that
    /// the answer causes is missed.
    async fn take_up(&mut self, round: Round, mut responses: InputResponses) {
        let brought = responses.remove(&round.question.to_string());
        match brought.as_ref().and_then(ask::meaning_of_json) {
            Some(Reply::Said(said)) => {
                self.settled = Some(round.question);
                give(self.server, &self.origin, round.question, said).await;
            }
            Some(Reply::Nobody) => self.nobody_there(),
            None => {}
        }
    }

    /// Handles events until the call has a result, returns to ask, is cancelled, or the daemon stops.
    async fn see_through(&mut self) -> Through {
        loop {
            match self.what_happens().await {
                Happened::Told => {}
                Happened::Cancelled => return Through::Cancelled,
                Happened::Replied(reply) => self.replied(reply).await,
                Happened::Other(other) => self.other(other),
                Happened::RepliedToOther(reply) => self.replied_to_other(reply).await,
                Happened::Step(None) => return Through::Stopping,
                Happened::Step(Some(ToolStep::Accepted(session))) => self.accepted(session),
                Happened::Step(Some(ToolStep::Ended)) if self.takes_turn().await => {}
                Happened::Step(Some(ToolStep::Ended)) => return Through::Cancelled,
                Happened::Step(Some(ToolStep::Closed(question))) => {
                    self.closed(question);
                }
                Happened::Step(Some(ToolStep::Asked(question))) => {
                    if let Some(returned) = self.ask(question) {
                        return Through::Returned(Box::new(returned));
                    }
                }
                Happened::Step(Some(ToolStep::Done(result))) => {
                    if self.asked.is_some() || self.other.is_some() {
                        self.withdraw_all();
                    }
                    return Through::Done(result);
                }
            }
        }
    }

    /// Waits until enough earlier answers have been sent for this one to be rendered. `false`: the client has
    /// cancelled the request or is gone.
    async fn takes_turn(&mut self) -> bool {
        tokio::select! {
            biased;
            turn = self.cx.request.sink.turn() => {
                self.turn = turn;
                true
            }
            () = self.cx.request.unwanted() => false,
        }
    }

    async fn what_happens(&mut self) -> Happened {
        tokio::select! {
            biased;
            step = self.call.next() => Happened::Step(step),
            () = self.cx.request.unwanted() => Happened::Cancelled,
            Some(reply) = OptionFuture::from(self.asked.as_mut().map(|asked| &mut asked.reply)) => {
                Happened::Replied(reply)
            }
            Some(reply) = OptionFuture::from(self.other.as_mut().map(|(asked, _)| &mut asked.reply)) => {
                Happened::RepliedToOther(reply)
            }
            Some(other) = OptionFuture::from(self.others.as_mut().map(OtherQuestions::next)) => {
                Happened::Other(other)
            }
            Some(()) = OptionFuture::from(self.progress.as_mut().map(Progress::tell)) => {
                Happened::Told
            }
        }
    }

    fn accepted(&mut self, session: SessionId) {
        self.own = (self.others.as_ref()).map(|_| self.server.shown.hold(session));
        if let Some(progress) = &mut self.progress {
            let view = self.server.handle.published().session(session);
            progress.begin(view.map(|view| view.state.created.0));
        }
    }

    /// Asks the client's person. Returns the question if asking means to return the call.
    fn ask(&mut self, question: Arc<QuestionView>) -> Option<InputRequiredResult> {
        if self.nobody || self.settled == Some(question.id) {
            return None;
        }
        match self.cx.client.person? {
            Person::ByAsking => {
                match &mut self.asked {
                    Some(asked) if asked.outlives => asked.now = Some(question),
                    _ => self.put(question),
                }
                None
            }
            Person::ByReturning if self.rounds >= MOST_ROUNDS => {
                self.nobody_there();
                None
            }
            Person::ByReturning => Some(self.return_to_ask(&question)),
        }
    }

    fn put(&mut self, question: Arc<QuestionView>) {
        self.withdraw_all();
        match Asked::put(&self.cx.peer, question, &self.cx.client.name) {
            Some(asked) => self.asked = Some(asked),
            None => self.nobody_there(),
        }
    }

    /// Shows a question about another session, or withdraws the one that has been closed.
    fn other(&mut self, other: Other) {
        match other {
            Other::Open(question, claim) if self.asked.is_none() => {
                match Asked::put(&self.cx.peer, question, &self.cx.client.name) {
                    Some(asked) => self.other = Some((asked, claim)),
                    None => self.others = None,
                }
            }
            Other::Open(..) => {}
            Other::Closed => self.withdraw_other(),
        }
    }

    async fn replied_to_other(&mut self, reply: Reply) {
        let Some((asked, _claim)) = self.other.take() else {
            return;
        };
        self.asked_for.0 += asked.shown_for().0;
        match reply {
            Reply::Said(said) => give(self.server, &self.origin, asked.shown, said).await,
            Reply::Nobody => {
                let server = self.server;
                server.shown.unanswered(&server.handle, asked.shown);
            }
        }
        self.look_for_others();
    }

    fn look_for_others(&mut self) {
        if let Some(others) = &mut self.others {
            others.look_again();
        }
    }

    fn return_to_ask(&self, question: &QuestionView) -> InputRequiredResult {
        let subject = Subject {
            agent: &self.origin.agent.0,
            tool: self.tool,
            arguments: &self.arguments,
        };
        let round = Round {
            session: question.state.session,
            question: question.id,
            count: self.rounds + 1,
        };
        let sealed = self.server.seal.close(round, &subject);
        let request = InputRequest::Elicitation(ask::request(question));
        let requests = BTreeMap::from([(question.id.to_string(), request)]);
        InputRequiredResult::new(Some(requests), Some(sealed))
    }

    async fn replied(&mut self, reply: Reply) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        self.asked_for.0 += asked.shown_for().0;
        match (reply, asked.now) {
            (Reply::Nobody, _) => self.nobody_there(),
            // The question was closed before the person answered.
            (Reply::Said(_), None) => {}
            // A "no" to an outdated question must not end the command: ask the current question instead.
            (Reply::Said(Answer::No), Some(now)) if now.id != asked.shown => self.put(now),
            (Reply::Said(said), Some(now)) => give(self.server, &self.origin, now.id, said).await,
        }
        self.look_for_others();
    }

    fn nobody_there(&mut self) {
        self.nobody = true;
        self.others = None;
        self.call.nobody_there();
    }

    fn closed(&mut self, question: QuestionId) {
        let Some(asked) = &mut self.asked else {
            return;
        };
        if asked.now.as_ref().is_some_and(|now| now.id == question) {
            asked.now = None;
            if !asked.outlives {
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
        if let Some(asked) = self.asked.take() {
            self.take_back(asked);
        }
    }

    fn withdraw_other(&mut self) {
        if let Some((asked, _claim)) = self.other.take() {
            self.take_back(asked);
        }
        self.look_for_others();
    }

    fn take_back(&mut self, asked: Asked) {
        self.asked_for.0 += asked.shown_for().0;
        let reason = "the question can no longer be answered here";
        self.cx.peer.withdraw(asked.request, reason);
    }

    /// Ends a call whose answer the client no longer wants. A cancellation by a person also ends the command,
    /// and a task waits for that end; a cancellation by the client's timeout, or a lost connection, leaves
    /// the command running.
    async fn let_go(mut self) -> ErrorData {
        let waited = SystemClock.mono().since(self.began);
        let waited = Millis(waited.0.saturating_sub(self.asked_for.0));
        if let Some(reason) = self.cx.request.clone().reason() {
            let interrupted = !cancel::time_ran_out(reason, waited);
            self.withdraw_all();
            if interrupted {
                self.call.interrupt();
                tokio::spawn(self.call.result_only());
            }
        }
        ErrorData::internal_error("the client does not wait for this answer", None)
    }

    /// Ends a call while the daemon is stopping. The front repeats the call to the next daemon, so this one
    /// stays unanswered until the connection is closed.
    async fn stopping(self) -> ErrorData {
        self.cx.request.unwanted().await;
        ErrorData::internal_error("the daemon is stopping; the command goes on", None)
    }
}

/// Gives a person's answer to the engine. An answer to a closed question changes nothing.
async fn give(server: &Server, origin: &Origin, question: QuestionId, answer: Answer) {
    let caller = Caller {
        agent: Some(origin.agent.clone()),
        conversation: origin.conversation.clone(),
    };
    let request = Request::Answer {
        question,
        answer,
        quiet_for: None,
    };
    let given = server.handle.call(caller, request, None).await;
    given.done().await;
}

/// Elicitation request that the client shows.
struct Asked {
    /// Question whose text the person reads.
    shown: QuestionId,
    /// Question that a reply answers: the one that is open now. `None`: no question is open any more.
    now: Option<Arc<QuestionView>>,
    /// The client keeps showing the request until the call ends, even after it is withdrawn. One request then
    /// serves for all questions of the call: a second one would only queue behind it.
    outlives: bool,
    request: RequestId,
    at: Mono,
    reply: BoxFuture<'static, Reply>,
}

impl Asked {
    /// Sends the elicitation request. `None`: the client is gone.
    fn put(peer: &Peer, question: Arc<QuestionView>, client: &str) -> Option<Self> {
        let sent = peer.elicit(ask::request(&question))?;
        let at = SystemClock.mono();
        let outlives = ask::outlives(client);
        let client = client.to_owned();
        let reply = Box::pin(async move {
            match sent.answer.await {
                Some(result) => ask::meaning(&result, &client, SystemClock.mono().since(at)),
                None => Reply::Nobody,
            }
        });
        Some(Asked {
            shown: question.id,
            now: Some(question),
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

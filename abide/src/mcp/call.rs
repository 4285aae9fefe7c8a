//! One tool call, from the request to its answer. On the way a person may be asked, in whichever way
//! the client's generation of the protocol has for that, and the client may lose interest.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_api::{ErrorCode, ToolResult};
use abide_core::request::Caller;
use abide_core::{Answer, Asking, Millis, Mono, QuestionId, Request, SessionId};
use futures_util::future::{BoxFuture, OptionFuture};
use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    InputRequest, InputRequiredResult, InputResponses, RequestId, RequestMetaObject,
};
use serde_json::{Map, Value};

use super::ask::{self, Reply};
use super::in_flight::InFlight;
use super::other_questions::{Claim, Other, OtherQuestions};
use super::out::Turn;
use super::peer::Peer;
use super::progress::Progress;
use super::seal::{Round, Subject};
use super::server::{Origin, Server, Way};
use super::{cancel, client, limits};
use crate::tools::{self, Context, NotCalled, Receipt, ToolCall, ToolStep};
use abide_engine::QuestionView;
use abide_engine::clock::SystemClock;

/// Clients give up a call that returns to ask for the tenth time; ours asks less often than that.
const MOST_ROUNDS: u32 = 8;

/// What a call is answered with.
pub struct Answered {
    pub said: Said,
    /// To be signed when the answer has left.
    pub receipt: Option<Receipt>,
    /// The turn in which it was rendered, held until it is pushed.
    pub turn: Option<Turn>,
}

/// The two kinds of answers.
pub enum Said {
    /// A tool's result.
    Result(ToolResult),
    /// What somebody is to be asked before the call comes back.
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

impl From<Said> for CallToolResponse {
    fn from(said: Said) -> Self {
        match said {
            Said::Result(result) => {
                let fields = result.to_fields();
                let is_error = result.is_error();
                let mut answer = CallToolResult::success(vec![ContentBlock::text(result.text)]);
                answer.is_error = Some(is_error);
                answer.structured_content = Some(Value::Object(fields));
                answer.into()
            }
            Said::Question(question) => (*question).into(),
        }
    }
}

/// Facts of one `tools/call` besides its parameters.
pub struct CallContext {
    /// Where it comes from.
    pub origin: Arc<Origin>,
    /// Where questions and notifications go.
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
    // Sealing needs the arguments again, where the call can return to ask.
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

/// Under which a front may say the request again. Over HTTP nothing is said twice: a stream that
/// broke is taken up again.
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
    // What cannot be opened is refused: running the command instead could run it twice.
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

/// How a client reaches a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Person {
    /// By a request within the call (up to 2025-11-25).
    ByAsking,
    /// By returning the call, which then comes back (from 2026-07-28 on).
    ByReturning,
}

impl Client {
    /// Client of this name, which may be asked in the way of its generation if it has forms.
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

    /// Whether a call of this client can show a question about another session for as long as it waits. The
    /// question must go away with the call, whatever became of it.
    fn can_show_others(&self) -> bool {
        self.person == Some(Person::ByAsking) && !ask::outlives(&self.name)
    }
}

/// A call that waits.
struct Wait<'a> {
    server: &'a Server,
    origin: Arc<Origin>,
    tool: &'a str,
    arguments: Map<String, Value>,
    rounds: u32,
    call: ToolCall,
    began: Mono,
    /// The question that the client shows now.
    asked: Option<Asked>,
    /// For how long it has shown questions; clients stop their clocks meanwhile.
    asked_for: Millis,
    /// A question that this very call brought the answer to.
    settled: Option<QuestionId>,
    /// This client's way to a person leads nowhere.
    nobody: bool,
    /// Open questions about other sessions of this client.
    others: Option<OtherQuestions>,
    /// While this call waits for its session, no other call shows a question about that.
    own: Option<Claim>,
    /// The question about another session that the client shows now.
    other: Option<(Asked, Claim)>,
    progress: Option<Progress>,
    /// The turn to render the answer.
    turn: Option<Turn>,
    cx: CallContext,
}

/// How a wait has ended.
enum Through {
    Done(ToolResult),
    /// The call returns to ask.
    Returned(Box<InputRequiredResult>),
    Cancelled,
    Stopping,
}

/// What can happen while a call waits.
enum Happened {
    Step(Option<ToolStep>),
    Replied(Reply),
    Other(Other),
    RepliedToOther(Reply),
    Cancelled,
    Told,
}

impl Wait<'_> {
    /// The call came back. The answer it brings is given after the wait has begun again, so that
    /// nothing that follows from it is missed.
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

    /// Waits for the end of it. What seldom happens has a box of its own, so that every call takes less room.
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

    /// Waits until the client has read enough of its earlier answers for this one to be rendered. `false`: it
    /// does not want this one any more, or is gone.
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

    /// Puts a question to the client's person. Where that means to return the call: what it returns.
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

    /// A question about another session is open, or the one that is shown has been closed.
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
            // It no longer mattered.
            (Reply::Said(_), None) => {}
            // Nobody ends a command on the strength of what was so some time ago.
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

    /// Takes the open questions away from the client.
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

    /// Nobody wants the answer any more. Only a person's interruption ends the command as well; that
    /// is seen through even though nobody hears of it.
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

    /// The daemon makes way. The front takes the call up again with the next one, so this one stays
    /// unanswered until the connection ends.
    async fn stopping(self) -> ErrorData {
        self.cx.request.unwanted().await;
        ErrorData::internal_error("the daemon is stopping; the command goes on", None)
    }
}

/// Gives a person's answer. One that comes too late changes nothing.
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

/// A question that a client shows, asked within the call.
struct Asked {
    /// What the person reads.
    shown: QuestionId,
    /// What an answer is for: the question that is open now, where there is one.
    now: Option<Arc<QuestionView>>,
    /// The client goes on showing it until the call ends, whatever it is told, so it serves for all
    /// questions until then: another one would only wait behind it.
    outlives: bool,
    request: RequestId,
    at: Mono,
    reply: BoxFuture<'static, Reply>,
}

impl Asked {
    /// Asks the client's person. `None`: the client is gone.
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

//! Client of abide: HTTP on the daemon's unix socket, where a daemon is started if none runs, or the same
//! routes of an engine inside this process.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use abide_api::{Answered, QuestionEvent, QuestionPage};
use abide_core::{Conversation, QuestionId};
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::service::Service;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::net::UnixStream;

use crate::connect::{self, DaemonSocket};
use crate::http::ConnectedPeer;
use crate::http::frame::Frame;
use crate::http::headers::{
    AGENT_HEADER, CONVERSATION_HEADER, KEY_HEADER, QUIET_HEADER, ROOT_HEADER,
};
use abide_engine::config::Paths;
use abide_engine::peer::Peer;
use abide_engine::secret;

/// Limit on attempts to call a daemon that goes away during a request. A dying daemon closes its descriptors
/// one by one, so a client that reconnects at once may still find it listening and be disconnected again.
const ATTEMPTS: u32 = 5;

/// Entries of a list that are read with one request.
const PAGE: usize = 1_000;

/// Client on behalf of a person or of an agent.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    agent: Option<String>,
    /// Additional headers of every request.
    extra_headers: Vec<(&'static str, HeaderValue)>,
}

/// Location of the engine.
#[derive(Clone, Debug)]
enum Endpoint {
    /// Daemon, which is started from `program` if none runs.
    Daemon { paths: Paths, program: PathBuf },
    /// Engine inside this process.
    InProcess(Router),
}

/// Reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection broke before the answer was complete.
    #[error("the connection closed before the answer: {0}")]
    Broken(String),
    /// The request was refused, and changed nothing.
    #[error("{detail}")]
    Refused {
        /// HTTP status of the answer.
        status: StatusCode,
        /// Sentence with the reason.
        detail: String,
        /// Closing of the question, if that is the reason: `yes`, `no`, `refused`, `withdrawn` or `expired`.
        closing: Option<String>,
        /// Field of the request with the fault, if it is one field.
        field: Option<String>,
        /// Path of the request; empty if it was not sent.
        path: String,
    },
    /// No daemon runs, and none can be started.
    #[error("{0}")]
    NoDaemon(String),
}

impl ClientError {
    /// Refusal of a request that is not sent, because it cannot be valid.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        ClientError::Refused {
            status: StatusCode::BAD_REQUEST,
            detail: detail.into(),
            closing: None,
            field: None,
            path: String::new(),
        }
    }

    /// Error of a stream that ended before its last event or frame.
    pub fn ended_early() -> Self {
        ClientError::Broken("in the middle".into())
    }
}

impl Client {
    /// Client of a person, or of the named agent. If no daemon runs, this executable is started as one.
    pub fn new(paths: Paths, agent: Option<String>) -> Self {
        Client::with_program(paths, "/proc/self/exe".into(), agent)
    }

    /// Client in a program that is not abide itself; `program` is the abide executable.
    pub fn with_program(paths: Paths, program: PathBuf, agent: Option<String>) -> Self {
        Client::with_endpoint(Endpoint::Daemon { paths, program }, agent)
    }

    /// Client of an engine inside this process, called by its routes.
    pub fn in_process(routes: Router, agent: Option<String>) -> Self {
        Client::with_endpoint(Endpoint::InProcess(routes), agent)
    }

    fn with_endpoint(endpoint: Endpoint, agent: Option<String>) -> Self {
        Client {
            endpoint,
            agent,
            extra_headers: Vec::new(),
        }
    }

    /// Client that sends an additional header with every request. A value that no header can hold is left out.
    pub fn with_header(&self, header: &'static str, what: &impl Serialize) -> Self {
        let mut client = self.clone();
        let value = serde_json::to_vec(what).ok();
        let value = value.and_then(|value| HeaderValue::try_from(value).ok());
        client
            .extra_headers
            .extend(value.map(|value| (header, value)));
        client
    }

    /// Client in one conversation of its agent. A name that no header can hold is left out.
    pub fn in_conversation(&self, conversation: &Conversation) -> Self {
        let mut client = self.clone();
        let value = HeaderValue::from_str(&conversation.0).ok();
        let value = value.map(|value| (CONVERSATION_HEADER, value));
        client.extra_headers.extend(value);
        client
    }

    /// Client of the same engine on behalf of an agent.
    pub fn of_agent(&self, name: &str) -> Self {
        Client {
            agent: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// Client of the same engine on behalf of a person.
    pub fn of_person(&self) -> Self {
        Client {
            agent: None,
            ..self.clone()
        }
    }

    /// Sends a GET request and reads the whole answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        // Reading changes nothing, so the request is repeated if the daemon goes away meanwhile.
        let answer = self.request_retrying(Method::GET, path, Bytes::new(), None);
        public_type(answer.await?)
    }

    /// Reads a list page by page. `path` has a query; `split` returns the entries of a page and the start of the next one.
    pub async fn get_all<P: DeserializeOwned, E>(
        &self,
        path: &str,
        mut split: impl FnMut(P) -> (Vec<E>, Option<String>),
    ) -> Result<Vec<E>, ClientError> {
        let mut entries = Vec::new();
        let mut after = String::new();
        loop {
            let page = self.get(&format!("{path}&limit={PAGE}{after}")).await?;
            let (some, next) = split(page);
            entries.extend(some);
            match next {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(entries),
            }
        }
    }

    /// Sends a POST request, and reads the whole answer. The request is repeated if the daemon goes away meanwhile; an
    /// idempotency key tells the next daemon whether it was already performed.
    pub async fn post_retrying<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, ClientError> {
        self.post_bytes(path, body.to_string().into()).await
    }

    /// Like [`Client::post_retrying`], with these bytes as the body.
    pub async fn post_bytes<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let key = secret::random_hex::<16>();
        let answer = self.request_retrying(Method::POST, path, body, Some(&key));
        public_type(answer.await?)
    }

    async fn request_retrying(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Value, ClientError> {
        for _ in 1..ATTEMPTS {
            match self.request(method.clone(), path, body.clone(), key).await {
                Err(ClientError::Broken(_)) => {}
                answer => return answer,
            }
        }
        self.request(method, path, body, key).await
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Value, ClientError> {
        self.send(method, path, body, key).await?.json().await
    }

    /// Sends a POST request and reads the whole answer. The request is not repeated.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, ClientError> {
        let body = body.to_string().into();
        public_type(self.request(Method::POST, path, body, None).await?)
    }

    /// Answers a question, with `yes` or `no` or in the words that it offers. A daemon that goes away meanwhile may have
    /// taken the answer; the next one knows it again by its key.
    pub async fn answer(
        &self,
        question: impl std::fmt::Display,
        word: &str,
    ) -> Result<Answered, ClientError> {
        let path = format!("/v1/questions/{question}/answer");
        self.post_retrying(&path, &json!({"answer": word})).await
    }

    /// Sends a GET request and returns the answer as a stream.
    pub async fn get_stream(&self, path: &str) -> Result<ResponseStream, ClientError> {
        self.send(Method::GET, path, Bytes::new(), None).await
    }

    /// Sends a POST request with these bytes as the body and returns the answer as a stream.
    pub async fn post_stream(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<ResponseStream, ClientError> {
        self.send(Method::POST, path, body, None).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<ResponseStream, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "abide")
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(agent) = &self.agent {
            request = request.header(AGENT_HEADER, agent_header(agent)?);
        } else {
            request = request.header(QUIET_HEADER, "true");
        }
        if let Some(key) = key {
            request = request.header(KEY_HEADER, key);
        }
        for (header, value) in &self.extra_headers {
            request = request.header(*header, value);
        }
        // Root for relative paths, and working directory of commands.
        if let Ok(root) = std::env::current_dir()
            && let Some(root) = root
                .to_str()
                .filter(|root| root.bytes().all(|b| (32..127).contains(&b)))
        {
            request = request.header(ROOT_HEADER, root);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|fault| ClientError::Broken(fault.to_string()))?;
        let response = self.endpoint.send(request).await?;
        if response.status().is_success() {
            return Ok(ResponseStream {
                body: response.into_body(),
                buffer: BytesMut::new(),
            });
        }
        Err(refusal(response, path).await)
    }
}

impl Endpoint {
    async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Body>, ClientError> {
        match self {
            Endpoint::Daemon { paths, program } => {
                let stream = connect(paths, program).await;
                let stream = stream.map_err(|fault| ClientError::NoDaemon(fault.to_string()))?;
                let broken = |fault: hyper::Error| ClientError::Broken(fault.to_string());
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(broken)?;
                tokio::spawn(connection);
                let response = sender.send_request(request).await.map_err(broken)?;
                Ok(response.map(Body::new))
            }
            Endpoint::InProcess(routes) => {
                let peer = ConnectInfo(ConnectedPeer(Peer::own()));
                request.extensions_mut().insert(peer);
                let routes = TowerToHyperService::new(routes.clone());
                let answered = routes.call(request).await;
                answered.map_err(|never| match never {})
            }
        }
    }
}

/// Connects to the daemon. A running one is reached at once; starting one blocks, so a blocking thread does it.
async fn connect(paths: &Paths, program: &Path) -> std::io::Result<UnixStream> {
    if let Ok(stream) = connect::connect_current(paths, DaemonSocket::Http) {
        return from_std(stream);
    }
    let (paths, program) = (paths.clone(), program.to_owned());
    let connect = move || connect::connect_starting(&paths, DaemonSocket::Http, &program);
    let stream = tokio::task::spawn_blocking(connect).await;
    from_std(stream.map_err(std::io::Error::other)??)
}

/// Header value with an agent's name. Names may contain any letters, which are sent as UTF-8 bytes.
fn agent_header(agent: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_bytes(agent.as_bytes())
        .map_err(|_| ClientError::invalid("an agent name must not contain control characters"))
}

fn from_std(stream: std::os::unix::net::UnixStream) -> std::io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

async fn refusal(response: Response<Body>, path: &str) -> ClientError {
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(fault) => return ClientError::Broken(fault.to_string()),
    };
    let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
    let detail = (problem.detail).unwrap_or_else(|| format!("the daemon answered {status}"));
    // A daemon that is stopping has done nothing with the request, as if it had gone a moment earlier.
    match status {
        StatusCode::SERVICE_UNAVAILABLE => ClientError::Broken(detail),
        _ => ClientError::Refused {
            status,
            detail,
            closing: problem.closing,
            field: problem.field,
            path: path.to_owned(),
        },
    }
}

/// Parts of an [`abide_api::Problem`] that a client reads. A daemon of another version may send no others.
#[derive(Default, Deserialize)]
struct Problem {
    detail: Option<String>,
    closing: Option<String>,
    field: Option<String>,
}

/// Result of a tool call, as the daemon sent it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct ToolResult {
    /// The whole result as text.
    pub text: String,
    /// All fields by name, as the output schema of the tool says.
    pub facts: Map<String, Value>,
    /// True if the call itself failed (an exit code other than 0 is no failure).
    pub is_error: bool,
}

impl From<Map<String, Value>> for ToolResult {
    fn from(mut facts: Map<String, Value>) -> Self {
        let is_error = facts.remove("is_error") == Some(Value::Bool(true));
        let text = facts.get("text").and_then(Value::as_str);
        ToolResult {
            text: text.unwrap_or_default().to_owned(),
            facts,
            is_error,
        }
    }
}

impl From<ToolResult> for Map<String, Value> {
    fn from(result: ToolResult) -> Self {
        let mut facts = result.facts;
        facts.insert("is_error".to_owned(), result.is_error.into());
        facts
    }
}

impl ToolResult {
    /// Result of a call that was refused with this sentence.
    pub(crate) fn refused(sentence: String) -> Self {
        let facts = Map::from_iter([("text".to_owned(), json!(sentence))]);
        ToolResult {
            text: sentence,
            facts,
            is_error: true,
        }
    }

    /// Field of this name; `null` if there is none.
    pub fn fact(&self, name: &str) -> &Value {
        self.facts.get(name).unwrap_or(&Value::Null)
    }

    /// True if there is a field of this name and it is true.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.fact(name) == true
    }

    /// Status, such as `SUCCESS` or `running`.
    pub fn status(&self) -> Option<&str> {
        self.fact("status").as_str()
    }

    /// Id of the session that the result is about.
    pub fn session_id(&self) -> Option<&str> {
        self.fact("session_id").as_str()
    }

    /// Id of the timer that the result is about.
    pub fn timer_id(&self) -> Option<&str> {
        self.fact("timer_id").as_str()
    }

    /// Exit code, if it is known.
    pub fn exit_code(&self) -> Option<i64> {
        self.fact("exit_code").as_i64()
    }
}

/// Response whose body is still being received.
pub struct ResponseStream {
    body: Body,
    buffer: BytesMut,
}

impl ResponseStream {
    /// Reads the whole answer as JSON.
    async fn json(self) -> Result<Value, ClientError> {
        let broken = |fault: String| ClientError::Broken(fault);
        let body = self
            .body
            .collect()
            .await
            .map_err(|fault| broken(fault.to_string()))?;
        serde_json::from_slice(&body.to_bytes()).map_err(|fault| broken(fault.to_string()))
    }

    /// Reads the next frame. The last one is [`Frame::Ended`]. Cancel-safe.
    pub async fn frame(&mut self) -> Result<Frame, ClientError> {
        loop {
            let frame = Frame::take_from(&mut self.buffer);
            match frame.map_err(|fault| ClientError::Broken(fault.to_string()))? {
                Some(frame) => return Ok(frame),
                None if self.read_more().await? => {}
                None => return Err(ClientError::ended_early()),
            }
        }
    }

    /// Reads the next server-sent event: its name and data. `None`: the stream has ended.
    pub async fn event(&mut self) -> Result<Option<(String, Value)>, ClientError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event = self.buffer.split_to(end + 2);
                if let Some(event) = parse_event(&String::from_utf8_lossy(&event)) {
                    return Ok(Some(event));
                }
            } else if !self.read_more().await? {
                return Ok(None);
            }
        }
    }

    async fn read_more(&mut self) -> Result<bool, ClientError> {
        loop {
            match self.body.frame().await {
                None => return Ok(false),
                Some(Err(fault)) => return Err(ClientError::Broken(fault.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// Parses an event. `None`: a comment that only keeps the connection alive.
fn parse_event(text: &str) -> Option<(String, Value)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data:").map(str::trim_start);
    let name = field("event:").map_or("message", str::trim);
    let data = serde_json::from_str(data?).unwrap_or_default();
    Some((name.to_owned(), data))
}

/// Open questions, then each that is asked or closed. While it exists, a person counts as reachable.
pub struct QuestionFollower {
    client: Client,
    events: ResponseStream,
    /// Ids of the questions that were returned as open and not as closed.
    pub known: Vec<QuestionId>,
    ready: VecDeque<QuestionEvent>,
    /// The list has to be read, because events may have been missed.
    is_behind: bool,
}

impl QuestionFollower {
    /// Begins to follow. `known`: the open questions that an earlier follower has returned.
    pub async fn begin(client: &Client, known: Vec<QuestionId>) -> Result<Self, ClientError> {
        Ok(QuestionFollower {
            client: client.clone(),
            events: client.get_stream("/v1/events").await?,
            known,
            ready: VecDeque::new(),
            is_behind: false,
        })
    }

    /// Waits for the next change. `None`: the stream has ended. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<QuestionEvent>, ClientError> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                if self.is_new(&change) {
                    return Ok(Some(change));
                }
            } else if self.is_behind {
                self.read_list().await?;
                self.is_behind = false;
            } else {
                match self.events.event().await? {
                    None => return Ok(None),
                    Some((name, _)) if name == "hello" || name == "reset" => self.is_behind = true,
                    Some((name, change)) if name == "question" => {
                        self.ready.push_back(public_type(change)?);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    async fn read_list(&mut self) -> Result<(), ClientError> {
        let told: Vec<String> = self.known.iter().map(ToString::to_string).collect();
        let told = match told.is_empty() {
            true => String::new(),
            false => format!("&told={}", told.join(",")),
        };
        let path = format!("/v1/questions?limit={PAGE}{told}");
        let page: QuestionPage = self.client.get(&path).await?;
        let open = page.questions.into_iter().map(Box::new);
        let closed = page.closed.into_iter().map(QuestionEvent::Closed);
        self.ready
            .extend(closed.chain(open.map(QuestionEvent::Open)));
        Ok(())
    }

    /// A question can be in the list and in an event, and one that was never returned as open is not returned as closed.
    fn is_new(&mut self, change: &QuestionEvent) -> bool {
        let known = self.known.iter().position(|known| *known == change.id());
        match (change, known) {
            (QuestionEvent::Open(_), None) => self.known.push(change.id()),
            (QuestionEvent::Closed(_), Some(at)) => drop(self.known.swap_remove(at)),
            (QuestionEvent::Open(_), Some(_)) | (QuestionEvent::Closed(_), None) => return false,
        }
        true
    }
}

/// Value of a public type, as the daemon has sent it.
pub fn public_type<T: DeserializeOwned>(value: Value) -> Result<T, ClientError> {
    serde_json::from_value(value).map_err(|fault| ClientError::Broken(fault.to_string()))
}

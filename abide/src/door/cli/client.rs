//! The way to the daemon: HTTP on its unix socket. Where there is no daemon, one is started.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

use super::trouble::{OWN, Trouble};
use crate::config::Places;
use crate::daemon::life::{self, Door};
use crate::door::http::frame::Frame;
use crate::door::http::wire::{AGENT_HEADER, QUIET_HEADER, ROOT_HEADER};

/// Calls the daemon on behalf of a person or of an agent.
#[derive(Clone, Debug)]
pub struct Client {
    places: Places,
    agent: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The connection broke before the answer was there.
    Broken(String),
    /// The daemon said no.
    Refused {
        /// The status of its answer.
        status: StatusCode,
        /// Its sentence.
        detail: String,
    },
    /// There is no daemon, and none can be started.
    NoDaemon(String),
}

impl Client {
    /// A person's client, or with a name that agent's.
    pub fn new(places: Places, agent: Option<String>) -> Self {
        Client { places, agent }
    }

    /// The same, for a person.
    pub fn of_a_person(&self) -> Self {
        Client {
            agent: None,
            ..self.clone()
        }
    }

    /// Asks and reads the whole answer.
    pub async fn get(&self, path: &str) -> Result<Value, Unanswered> {
        // Looking changes nothing, so a daemon that went away in the middle is asked again.
        match self.stream(Method::GET, path, Bytes::new()).await {
            Err(Unanswered::Broken(_)) => self.stream(Method::GET, path, Bytes::new()).await,
            answer => answer,
        }?
        .json()
        .await
    }

    /// Has something done and reads the whole answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Unanswered> {
        let body = Bytes::from(body.to_string());
        self.stream(Method::POST, path, body).await?.json().await
    }

    /// Sends bytes as they are.
    pub async fn post_bytes(&self, path: &str, body: Bytes) -> Result<Value, Unanswered> {
        self.stream(Method::POST, path, body).await?.json().await
    }

    /// Asks and takes the answer as it comes.
    pub async fn stream(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer, Unanswered> {
        let stream = self.connect().await;
        let stream = stream.map_err(|fault| Unanswered::NoDaemon(fault.to_string()))?;
        let broken = |fault: hyper::Error| Unanswered::Broken(fault.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        tokio::spawn(connection);
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
        // Where relative paths and commands are meant to be.
        if let Ok(root) = std::env::current_dir()
            && let Some(root) = root
                .to_str()
                .filter(|root| root.bytes().all(|b| (32..127).contains(&b)))
        {
            request = request.header(ROOT_HEADER, root);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|fault| Unanswered::Broken(fault.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status().is_success() {
            return Ok(Answer {
                body: response.into_body(),
                arrived: BytesMut::new(),
            });
        }
        Err(refused(response).await)
    }

    /// A daemon that runs is reached at once; starting one takes a while, and a thread.
    async fn connect(&self) -> std::io::Result<UnixStream> {
        if let Ok(stream) = life::connect_running(&self.places, Door::Http) {
            return from_std(stream);
        }
        let places = self.places.clone();
        let connect = move || life::connect(&places, Door::Http);
        let stream = tokio::task::spawn_blocking(connect).await;
        from_std(stream.map_err(std::io::Error::other)??)
    }
}

/// Names may hold letters of any language; the header takes their bytes.
fn agent_header(agent: &str) -> Result<HeaderValue, Unanswered> {
    HeaderValue::from_bytes(agent.as_bytes()).map_err(|_| Unanswered::Refused {
        status: StatusCode::BAD_REQUEST,
        detail: "the name of an agent must not hold control characters".into(),
    })
}

fn from_std(stream: std::os::unix::net::UnixStream) -> std::io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

async fn refused(response: Response<Incoming>) -> Unanswered {
    let status = response.status();
    let body = match response.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(fault) => return Unanswered::Broken(fault.to_string()),
    };
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().map(str::to_owned);
    Unanswered::Refused {
        status,
        detail: detail.unwrap_or_else(|| format!("the daemon answered {status}")),
    }
}

/// An answer on its way.
pub struct Answer {
    body: Incoming,
    arrived: BytesMut,
}

impl Answer {
    /// All of it.
    async fn json(self) -> Result<Value, Unanswered> {
        let broken = |fault: String| Unanswered::Broken(fault);
        let body = self
            .body
            .collect()
            .await
            .map_err(|fault| broken(fault.to_string()))?;
        serde_json::from_slice(&body.to_bytes()).map_err(|fault| broken(fault.to_string()))
    }

    /// The next frame; `None`: the stream has ended. Nothing is lost where the call is given up.
    pub async fn frame(&mut self) -> Result<Option<Frame>, Unanswered> {
        loop {
            let frame = Frame::take_from(&mut self.arrived);
            match frame.map_err(|fault| Unanswered::Broken(fault.to_string()))? {
                Some(frame) => return Ok(Some(frame)),
                None if self.more().await? => {}
                None => return Ok(None),
            }
        }
    }

    /// The next line of JSON; `None`: the stream has ended.
    pub async fn line(&mut self) -> Result<Option<Value>, Unanswered> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == b'\n') {
                let line = self.arrived.split_to(end + 1);
                let line = serde_json::from_slice(&line);
                return line
                    .map(Some)
                    .map_err(|fault| Unanswered::Broken(fault.to_string()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    /// The next event of a stream of events: its name and what it tells. `None`: the stream has ended.
    pub async fn event(&mut self) -> Result<Option<(String, Value)>, Unanswered> {
        loop {
            if let Some(end) = self.arrived.windows(2).position(|pair| pair == b"\n\n") {
                let event = self.arrived.split_to(end + 2);
                if let Some(event) = parse_event(&String::from_utf8_lossy(&event)) {
                    return Ok(Some(event));
                }
            } else if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn more(&mut self) -> Result<bool, Unanswered> {
        loop {
            match self.body.frame().await {
                None => return Ok(false),
                Some(Err(fault)) => return Err(Unanswered::Broken(fault.to_string())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.arrived.extend_from_slice(&data);
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// `None`: a sign of life and no more.
fn parse_event(text: &str) -> Option<(String, Value)> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let data = field("data:").map(str::trim_start);
    let name = field("event:").map_or("message", str::trim);
    let data = serde_json::from_str(data?).unwrap_or_default();
    Some((name.to_owned(), data))
}

impl From<Unanswered> for Trouble {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused { status, detail } => {
                let trouble = Trouble::new(detail);
                if status == StatusCode::NOT_FOUND && trouble.is_about("Session") {
                    return trouble.next("`abide session list --all` shows the sessions there are");
                }
                trouble
            }
            Unanswered::Broken(why) => Trouble::new(format!("the daemon went away: {why}"))
                .next("run the command again; its log says why it went")
                .code(OWN),
            Unanswered::NoDaemon(why) => Trouble::new(why)
                .next("`abide serve` runs it in the foreground and shows what is wrong")
                .code(OWN),
        }
    }
}

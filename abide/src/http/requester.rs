//! Identity of the caller of a request: the agent on whose behalf it acts, and the evidence that a
//! person may have sent it.

use abide_core::request::Caller;
use abide_core::session::End;
use abide_core::{Agent, Asking, Conversation, Millis, SessionId, SessionName};
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::access_check::Credential;
use super::headers;
use super::login_store::LoginId;
use super::problem::Problem;
use super::state::{ConnectedPeer, State, until_login_ends};
use crate::tools::{self, Context};
use abide_engine::config;
use abide_engine::peer::{Peer, SessionMembership};
use abide_engine::{Handle, SessionView};
use abide_session::frame::InheritedLimits;
use abide_session::keeper_record;

/// Longest agent name, in bytes.
const AGENT_LIMIT: usize = 200;

/// Longest conversation name, in bytes.
const CONVERSATION_LIMIT: usize = 300;

/// Caller of a request.
pub struct Requester {
    /// Agent that the request names, or the agent of the session that the calling process runs in.
    /// `None` for a person, who sees everything.
    pub agent: Option<Agent>,
    kind: RequesterKind,
    default_agent: Agent,
}

/// Transport of the request, and the evidence it gives about the caller.
enum RequesterKind {
    /// Unix socket: a process of the same user, which may run inside a session.
    Local(Peer),
    /// TCP, as an agent.
    Agent(Peer),
    /// TCP, from a process outside every session that claims to be a person or shows a login.
    Person(Peer, Option<LoginId>),
    /// Another machine of the fleet. The target has checked its rights; `person`: it says that a person calls.
    Machine { person: bool },
    /// No peer information. The caller is treated as a process inside a session.
    Unknown,
}

impl Requester {
    /// Caller as the core knows it.
    pub fn caller(&self) -> Caller {
        Caller {
            agent: self.agent.clone(),
            conversation: None,
        }
    }

    /// Agent that owns what this caller starts. What people start belongs to the agent without a name.
    pub fn acting_agent(&self) -> Agent {
        self.agent
            .clone()
            .unwrap_or_else(|| self.default_agent.clone())
    }

    /// Reason to record for a session that this caller ends.
    pub fn end(&self) -> End {
        match self.agent {
            Some(_) => End::Agent,
            None => End::User,
        }
    }

    /// Returns `true` if a person may have sent the request: it names no agent and does not come from a
    /// process inside a session.
    pub fn may_be_a_person(&self) -> bool {
        self.agent.is_none() && !self.is_inside_a_session()
    }

    /// Returns `true` if a person may sit at the terminal that the caller claims to have. Naming an
    /// agent does not change who sits there; over TCP only a person has a terminal.
    pub fn may_be_at_terminal(&self) -> bool {
        match &self.kind {
            RequesterKind::Local(peer) => !peer.is_inside_a_session(),
            RequesterKind::Person(..) => true,
            RequesterKind::Agent(_) | RequesterKind::Machine { .. } | RequesterKind::Unknown => {
                false
            }
        }
    }

    /// Returns `true` if what the caller reads may go to a model: it acts as an agent, and no person sits at its terminal.
    pub fn is_a_model(&self) -> bool {
        self.agent.is_some() && !self.may_be_at_terminal()
    }

    /// Returns `true` if the request comes from a process inside a session. Agents over TCP are not
    /// checked here.
    pub fn is_inside_a_session(&self) -> bool {
        match &self.kind {
            RequesterKind::Local(peer) => peer.is_inside_a_session(),
            RequesterKind::Person(..) | RequesterKind::Agent(_) => false,
            RequesterKind::Machine { person } => !person,
            RequesterKind::Unknown => true,
        }
    }

    /// Returns `true` if the caller may see what belongs to this agent.
    pub fn sees(&self, owner: &Agent) -> bool {
        self.agent.as_ref().is_none_or(|agent| agent == owner)
    }

    /// Refuses an action, such as "stop the daemon", that an agent must not take.
    pub fn refuse_agent(&self, action: &str) -> Result<(), Problem> {
        match self.agent {
            None => Ok(()),
            Some(_) => Err(Problem::forbidden(format!(
                "an agent cannot {action}; only a person can"
            ))),
        }
    }

    /// Checks the peer again right before an action that only a person may take.
    pub async fn check_again(&self) -> Result<(), Problem> {
        match &self.kind {
            RequesterKind::Person(peer, _) => check_peer(peer.clone()).await,
            RequesterKind::Local(_)
            | RequesterKind::Agent(_)
            | RequesterKind::Machine { .. }
            | RequesterKind::Unknown => match self.may_be_a_person() {
                true => Ok(()),
                false => Err(not_a_person()),
            },
        }
    }

    /// Returns `true` if the request comes from a process inside this session.
    pub async fn is_inside(&self, view: &SessionView) -> bool {
        match &self.kind {
            RequesterKind::Local(peer) | RequesterKind::Agent(peer) => {
                tools::is_process_of(view, peer.clone()).await
            }
            // A person was checked to be outside every session; no process of one runs on another machine.
            RequesterKind::Person(..) | RequesterKind::Machine { .. } => false,
            RequesterKind::Unknown => true,
        }
    }

    /// Returns `true` for a person over TCP. Reading as a person does not mark messages of agents as read.
    pub fn is_a_person_over_tcp(&self) -> bool {
        matches!(self.kind, RequesterKind::Person(..))
    }

    /// Returns `true` if another machine of the fleet has forwarded the request.
    pub fn is_another_machine(&self) -> bool {
        matches!(self.kind, RequesterKind::Machine { .. })
    }

    /// Login that the request shows.
    pub fn login(&self) -> Option<LoginId> {
        match self.kind {
            RequesterKind::Person(_, login) => login,
            RequesterKind::Local(_)
            | RequesterKind::Agent(_)
            | RequesterKind::Machine { .. }
            | RequesterKind::Unknown => None,
        }
    }

    /// Finds a session that is visible to this caller.
    pub fn session(&self, state: &State, id: &str) -> Result<Arc<SessionView>, Problem> {
        let known = id.parse::<SessionId>().ok();
        known
            .and_then(|id| state.handle.published().session(id))
            .filter(|view| view.visible_to(self.agent.as_ref()))
            .ok_or_else(|| Problem::not_found(format!("Session '{id}' not found")))
    }
}

impl FromRequestParts<State> for Requester {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Problem> {
        let named = named_agent(&parts.headers, &state.handle)?;
        conversation(&parts.headers)?;
        let peer = parts.extensions.get::<ConnectInfo<ConnectedPeer>>();
        let default_agent = || match peer.map(|info| &info.0.0) {
            // An agent or a person without a name is the one of the machine that has called.
            Some(Peer::Machine(name)) => Agent::default_on(name),
            _ => state.handle.default_agent().clone(),
        };
        let login = match parts.extensions.get::<Credential>() {
            Some(Credential::Login(login)) => Some(*login),
            Some(Credential::Token | Credential::None) | None => None,
        };
        let (agent, kind) = match peer.map(|info| info.0.0.clone()) {
            None => (named, RequesterKind::Unknown),
            Some(peer @ Peer::Process { .. }) => {
                let agent_at = |membership| {
                    let view = session_of(state, membership);
                    view.map_or_else(default_agent, |view| view.state.agent.clone())
                };
                let own = || peer.membership().map(agent_at);
                (named.or_else(own), RequesterKind::Local(peer))
            }
            Some(Peer::Machine(_)) => {
                let person = claims_person(&parts.headers)? && named.is_none();
                // Who is neither a named agent nor a person sees what an agent without a name sees.
                let named = named.or_else(|| (!person).then(default_agent));
                (named, RequesterKind::Machine { person })
            }
            Some(peer @ Peer::Tcp { .. }) if claims_person(&parts.headers)? || login.is_some() => {
                if named.is_some() {
                    return Err(Problem::bad_input(format!(
                        "`{}` is for agents only: leave it out to act as a person",
                        headers::AGENT_HEADER
                    )));
                }
                check_outside_sessions(parts).await?;
                (None, RequesterKind::Person(peer, login))
            }
            Some(peer @ Peer::Tcp { .. }) => (
                Some(named.unwrap_or_else(default_agent)),
                RequesterKind::Agent(peer),
            ),
        };
        Ok(Requester {
            agent,
            kind,
            default_agent: default_agent(),
        })
    }
}

/// Session that a process runs in, if it is known. A command that calls acts as the agent of its session, not as a
/// person who sees everything.
pub fn session_of(state: &State, membership: SessionMembership) -> Option<Arc<SessionView>> {
    let published = state.handle.published();
    match membership {
        SessionMembership::Session(id) => published.session(id),
        SessionMembership::Keeper(pid) => {
            let mut running = published
                .sessions()
                .into_iter()
                .filter(|view| view.is_running());
            running.find(|view| {
                let meta = keeper_record::read_meta(&view.folder).ok().flatten();
                meta.is_some_and(|meta| i32::try_from(meta.keeper.pid) == Ok(pid))
            })
        }
        SessionMembership::Unknown => None,
    }
}

/// Cache of a successful check that the peer is outside every session. The check is slow, so a
/// connection is checked once for requests that only read; every other request is checked again.
#[derive(Clone, Default)]
pub struct OutsideSessions(Arc<AtomicBool>);

/// Refuses the request if its peer is a process inside a session. The check runs on a blocking thread,
/// because finding the owner of a TCP socket is slow.
pub async fn check_outside_sessions(parts: &Parts) -> Result<(), Problem> {
    let reads = (parts.method == Method::GET || parts.method == Method::HEAD)
        && !parts.headers.contains_key(header::UPGRADE);
    let checked = parts.extensions.get::<OutsideSessions>();
    if reads && checked.is_some_and(|checked| checked.0.load(Ordering::Relaxed)) {
        return Ok(());
    }
    let peer = parts.extensions.get::<ConnectInfo<ConnectedPeer>>();
    check_peer(peer.map_or(Peer::Process(None), |peer| peer.0.0.clone())).await?;
    if let Some(checked) = checked {
        checked.0.store(true, Ordering::Relaxed);
    }
    Ok(())
}

async fn check_peer(peer: Peer) -> Result<(), Problem> {
    let check = tokio::task::spawn_blocking(move || peer.is_inside_a_session());
    match check.await {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => Err(not_a_person()),
    }
}

fn not_a_person() -> Problem {
    Problem::forbidden(
        "a command cannot speak for a person, and no process outside of every session could be \
         identified at the other end of this connection; use `abide answer` at a terminal, or a \
         browser on this machine with the page that `abide open` opens",
    )
}

fn claims_person(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers
        .get(headers::PERSON_HEADER)
        .map(HeaderValue::as_bytes)
    {
        None => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(Problem::bad_input(format!(
            "`{}` must be `true` or absent",
            headers::PERSON_HEADER
        ))),
    }
}

/// Agent that the request names in its header.
pub fn named_agent(headers: &HeaderMap, handle: &Handle) -> Result<Option<Agent>, Problem> {
    let name = headers.get(headers::AGENT_HEADER);
    let name = name.map(|name| agent(name.as_bytes())).transpose()?;
    Ok(name.map(|name| handle.agent_called(&name.0)))
}

/// Working directory for commands of the caller that name none.
pub fn root(headers: &HeaderMap) -> Result<PathBuf, Problem> {
    let name = headers::ROOT_HEADER;
    match text(headers, name)? {
        None => Ok(config::home()),
        Some(root) if root.starts_with('/') => Ok(root.into()),
        Some(root) => {
            let detail = format!("`{name}` must be an absolute path; got {root}");
            Err(Problem::bad_input(detail))
        }
    }
}

/// Conversation that the request names in its header.
pub fn conversation(headers: &HeaderMap) -> Result<Option<Conversation>, Problem> {
    let name = headers::CONVERSATION_HEADER;
    match text(headers, name)? {
        None => Ok(None),
        Some(named) if (1..=CONVERSATION_LIMIT).contains(&named.len()) && !named.contains('\t') => {
            Ok(Some(Conversation(named.into())))
        }
        Some(_) => Err(Problem::bad_input(format!(
            "`{name}` must have 1 to {CONVERSATION_LIMIT} bytes and no tab"
        ))),
    }
}

/// Value of a header that must be ASCII text.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Problem::bad_input(format!("`{name}` must be plain ASCII")))
}

/// Time that the answer of another machine may take, as the machine that forwards the call says.
pub fn standby(headers: &HeaderMap) -> Result<Option<Millis>, Problem> {
    let name = headers::STANDBY_HEADER;
    let given = text(headers, name)?.map(str::parse).transpose();
    let given =
        given.map_err(|_| Problem::bad_input(format!("`{name}` must be whole milliseconds")))?;
    Ok(given.map(Millis))
}

/// Resource limits and umask of the caller, which its commands inherit.
pub fn inherited_limits(headers: &HeaderMap) -> Result<Option<InheritedLimits>, Problem> {
    let inherited_limits: Option<headers::InheritedLimits> =
        json(headers, headers::INHERITED_LIMITS_HEADER)?;
    Ok(inherited_limits.map(Into::into))
}

/// State of the watched files at the time when the caller began to wait.
pub fn files_before(headers: &HeaderMap) -> Result<headers::FilesBefore, Problem> {
    Ok(json(headers, headers::FILES_HEADER)?.unwrap_or_default())
}

/// Value of a header that must be JSON.
pub fn json<T: DeserializeOwned>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let wrong = |fault| Problem::bad_input(format!("`{name}` is invalid: {fault}"));
    serde_json::from_slice(value.as_bytes())
        .map(Some)
        .map_err(wrong)
}

/// Parses an agent name.
pub fn agent(name: &[u8]) -> Result<Agent, Problem> {
    let name = std::str::from_utf8(name).ok().filter(|name| {
        (1..=AGENT_LIMIT).contains(&name.len()) && !name.chars().any(char::is_control)
    });
    name.map(|name| Agent(name.into())).ok_or_else(|| {
        Problem::bad_input(format!(
            "the agent (header `{}`, option `--agent`) must be a name of 1 to {AGENT_LIMIT} bytes without control characters",
            headers::AGENT_HEADER
        ))
    })
}

/// Name from a request; empty text is no name.
pub fn session_name(given: Option<&str>) -> Result<Option<SessionName>, Problem> {
    let name = given.filter(|given| !given.is_empty());
    name.map(SessionName::parse)
        .transpose()
        .map_err(|invalid| Problem::bad_input(format!("`name` is not valid: {invalid}")))
}

/// Idempotency key in the header of a request.
fn request_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let key = text(headers, headers::KEY_HEADER)?;
    if key.is_some_and(|key| key.trim().is_empty()) {
        let name = headers::KEY_HEADER;
        let detail = format!("`{name}` must be text that is not blank, or left out");
        return Err(Problem::bad_input(detail));
    }
    // The same key in the arguments names the same request.
    Ok(key.map(|key| format!("given:{key}")))
}

/// Context of a call: everything besides its arguments.
pub fn context(requester: &Requester, headers: &HeaderMap) -> Result<Context, Problem> {
    Ok(Context {
        agent: requester.acting_agent(),
        root: root(headers)?,
        env: config::environment().into(),
        asking: Asking::Elsewhere,
        standby: standby(headers)?,
        waited: Millis(0),
        request_key: request_key(headers)?,
        conversation: conversation(headers)?,
        client: None,
        is_person: requester.may_be_a_person(),
        inherited_limits: inherited_limits(headers)?,
        session_name: session_name(
            json::<String>(headers, headers::SESSION_NAME_HEADER)?.as_deref(),
        )?,
        files_before: files_before(headers)?,
    })
}

/// Waits until the login of a request ends; never returns if the request has no login.
pub async fn login_ends(state: &State, requester: &Requester) {
    until_login_ends(state.logins.clone(), requester.login()).await;
}

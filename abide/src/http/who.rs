//! On whose behalf a request comes, and whether a person can stand behind it.

use abide_core::request::Caller;
use abide_core::session::End;
use abide_core::{Agent, Conversation, SessionId};
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ConnectedPeer;
use super::lock::Shown;
use super::problem::Problem;
use super::{State, wire};
use crate::http::logins::LoginId;
use crate::tools;
use abide_engine::SessionView;
use abide_engine::config;
use abide_engine::peer::{Peer, SessionMembership};
use abide_session::folder;
use abide_session::frame::InheritedLimits;

/// The longest name of an agent, in bytes.
const AGENT_LIMIT: usize = 200;

/// The longest name of a conversation, in bytes.
const CONVERSATION_LIMIT: usize = 300;

/// Who asks.
pub struct Who {
    /// The agent that the request names, or to which the command belongs that it comes out of; a person at
    /// the command line names none and sees all.
    pub agent: Option<Agent>,
    way: Way,
}

/// How the request came, and what that says of whoever sent it.
enum Way {
    /// From a process of our own user, which may or may not be inside a session.
    Local(Peer),
    /// Over TCP, from an agent.
    Agent(Peer),
    /// Over TCP, from outside of every session, with the claim to be a person or with a login.
    Person(Peer, Option<LoginId>),
    /// Nobody knows.
    Unknown,
}

impl Who {
    /// As the core sees it.
    pub fn caller(&self) -> Caller {
        Caller {
            agent: self.agent.clone(),
            conversation: None,
        }
    }

    /// Why something ended that this caller ended.
    pub fn end(&self) -> End {
        match self.agent {
            Some(_) => End::Agent,
            None => End::User,
        }
    }

    /// Whether a person may be at the other end: no agent, and nothing that a command started.
    pub fn may_be_a_person(&self) -> bool {
        self.agent.is_none() && !self.is_inside_a_session()
    }

    /// Whether a person can sit at the terminal that the caller says it has. Naming an agent does
    /// not change who sits there; over TCP only a person has one.
    pub fn may_be_seated(&self) -> bool {
        match &self.way {
            Way::Local(peer) => !peer.is_inside_a_session(),
            Way::Person(..) => true,
            Way::Agent(_) | Way::Unknown => false,
        }
    }

    /// Whether the request comes out of a command that is kept here.
    pub fn is_inside_a_session(&self) -> bool {
        match &self.way {
            Way::Local(peer) => peer.is_inside_a_session(),
            Way::Person(..) | Way::Agent(_) => false,
            Way::Unknown => true,
        }
    }

    /// Looks again who is there, right before something is done that only a person may do.
    pub async fn look_again(&self) -> Result<(), Problem> {
        match &self.way {
            Way::Person(peer, _) => look(peer.clone()).await,
            Way::Local(_) | Way::Agent(_) | Way::Unknown if self.may_be_a_person() => Ok(()),
            Way::Local(_) | Way::Agent(_) | Way::Unknown => Err(unidentified()),
        }
    }

    /// Whether the request comes out of this very session.
    pub async fn is_inside(&self, view: &SessionView) -> bool {
        match &self.way {
            Way::Local(peer) | Way::Agent(peer) => tools::is_own(view, peer.clone()).await,
            // Nobody who is a person is inside any.
            Way::Person(..) => false,
            Way::Unknown => true,
        }
    }

    /// Whether a person asks over TCP, who reads no agent's messages by asking.
    pub fn is_a_person_over_tcp(&self) -> bool {
        matches!(self.way, Way::Person(..))
    }

    /// The login that the request shows.
    pub fn login(&self) -> Option<LoginId> {
        match self.way {
            Way::Person(_, login) => login,
            Way::Local(_) | Way::Agent(_) | Way::Unknown => None,
        }
    }

    /// A session that this caller may know of.
    pub fn session(&self, state: &State, id: &str) -> Result<Arc<SessionView>, Problem> {
        let known = id.parse::<SessionId>().ok();
        known
            .and_then(|id| state.handle.published().session(id))
            .filter(|view| view.visible_to(self.agent.as_ref()))
            .ok_or_else(|| Problem::not_found(format!("Session '{id}' not found")))
    }
}

impl FromRequestParts<State> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Problem> {
        let named = named_agent(&parts.headers)?;
        let peer = parts.extensions.get::<ConnectInfo<ConnectedPeer>>();
        let login = match parts.extensions.get::<Shown>() {
            Some(Shown::Login(login)) => Some(*login),
            Some(Shown::Token | Shown::Nothing) | None => None,
        };
        let (agent, way) = match peer.map(|info| info.0.0.clone()) {
            None => (named, Way::Unknown),
            Some(peer @ Peer::Process { .. }) => {
                let own = || peer.membership().map(|place| agent_at(state, place));
                (named.or_else(own), Way::Local(peer))
            }
            Some(peer @ Peer::Tcp { .. }) if says_person(&parts.headers)? || login.is_some() => {
                if named.is_some() {
                    return Err(Problem::bad_input(format!(
                        "`{}` is for agents only: a person is not an agent",
                        wire::AGENT_HEADER
                    )));
                }
                be_outside(parts).await?;
                (None, Way::Person(peer, login))
            }
            Some(peer @ Peer::Tcp { .. }) => (Some(named.unwrap_or_default()), Way::Agent(peer)),
        };
        Ok(Who { agent, way })
    }
}

/// The agent on whose behalf a command runs: what it does through the command line it may do as that agent, not
/// as a person who sees all. Where nobody knows whose it is, it is the agent that callers without a name are.
fn agent_at(state: &State, place: SessionMembership) -> Agent {
    let published = state.handle.published();
    let view = match place {
        SessionMembership::Session(id) => published.session(id),
        SessionMembership::Keeper(pid) => {
            let mut running = published
                .sessions()
                .into_iter()
                .filter(|view| view.is_running());
            running.find(|view| {
                let meta = folder::read_meta(&view.folder).ok().flatten();
                meta.is_some_and(|meta| i32::try_from(meta.keeper.pid) == Ok(pid))
            })
        }
        SessionMembership::Unknown => None,
    };
    view.map(|view| view.state.agent.clone())
        .unwrap_or_default()
}

/// Whether a connection was found to be held from outside every session. Looking takes a while, so for requests that only
/// read it is done once a connection; what acts is looked at each time.
#[derive(Clone, Default)]
pub struct Looked(Arc<AtomicBool>);

/// CpuSamples, beside the loop, whether a command is at the other end.
pub async fn be_outside(parts: &Parts) -> Result<(), Problem> {
    let reads = (parts.method == Method::GET || parts.method == Method::HEAD)
        && !parts.headers.contains_key(header::UPGRADE);
    let looked = parts.extensions.get::<Looked>();
    if reads && looked.is_some_and(|looked| looked.0.load(Ordering::Relaxed)) {
        return Ok(());
    }
    let peer = parts.extensions.get::<ConnectInfo<ConnectedPeer>>();
    look(peer.map_or(Peer::Process(None), |peer| peer.0.0.clone())).await?;
    if let Some(looked) = looked {
        looked.0.store(true, Ordering::Relaxed);
    }
    Ok(())
}

async fn look(peer: Peer) -> Result<(), Problem> {
    let look = tokio::task::spawn_blocking(move || peer.is_inside_a_session());
    match look.await {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => Err(unidentified()),
    }
}

fn unidentified() -> Problem {
    Problem::forbidden(
        "a command cannot speak for a person, and no process outside of every session could be \
         identified at the other end of this connection; use `abide answer` at a terminal, or a \
         browser on this machine with the page that `abide open` opens",
    )
}

fn says_person(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(wire::PERSON_HEADER).map(HeaderValue::as_bytes) {
        None => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(Problem::bad_input(format!(
            "`{}` must be `true` or absent",
            wire::PERSON_HEADER
        ))),
    }
}

/// The agent that a request names.
pub fn named_agent(headers: &HeaderMap) -> Result<Option<Agent>, Problem> {
    let name = headers.get(wire::AGENT_HEADER);
    name.map(|name| agent(name.as_bytes())).transpose()
}

/// The folder in which the caller's commands run where they name none.
pub fn root(headers: &HeaderMap) -> Result<PathBuf, Problem> {
    let name = wire::ROOT_HEADER;
    match text(headers, name)? {
        None => Ok(config::home()),
        Some(root) if root.starts_with('/') => Ok(root.into()),
        Some(root) => {
            let detail = format!("`{name}` must be an absolute path; got {root}");
            Err(Problem::bad_input(detail))
        }
    }
}

/// The conversation that a request names.
pub fn conversation(headers: &HeaderMap) -> Result<Option<Conversation>, Problem> {
    let name = wire::CONVERSATION_HEADER;
    match text(headers, name)? {
        None => Ok(None),
        Some(named) if (1..=CONVERSATION_LIMIT).contains(&named.len()) => {
            Ok(Some(Conversation(named.into())))
        }
        Some(_) => Err(Problem::bad_input(format!(
            "`{name}` must have 1 to {CONVERSATION_LIMIT} bytes"
        ))),
    }
}

/// A header of plain text.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Problem::bad_input(format!("`{name}` must be plain ASCII")))
}

/// What commands inherit of whoever asks.
pub fn inherited_limits(headers: &HeaderMap) -> Result<Option<InheritedLimits>, Problem> {
    let inherited_limits: Option<wire::InheritedLimits> =
        json(headers, wire::INHERITED_LIMITS_HEADER)?;
    Ok(inherited_limits.map(Into::into))
}

/// How files were when whoever asks began to wait.
pub fn files_before(headers: &HeaderMap) -> Result<wire::FilesBefore, Problem> {
    Ok(json(headers, wire::FILES_HEADER)?.unwrap_or_default())
}

/// A header of JSON.
fn json<T: DeserializeOwned>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Problem> {
    let Some(said) = headers.get(name) else {
        return Ok(None);
    };
    let wrong = |fault| Problem::bad_input(format!("`{name}` is invalid: {fault}"));
    serde_json::from_slice(said.as_bytes())
        .map(Some)
        .map_err(wrong)
}

/// The agent of this name.
pub fn agent(name: &[u8]) -> Result<Agent, Problem> {
    let name = std::str::from_utf8(name).ok().filter(|name| {
        (1..=AGENT_LIMIT).contains(&name.len()) && !name.chars().any(char::is_control)
    });
    name.map(|name| Agent(name.into())).ok_or_else(|| {
        Problem::bad_input(format!(
            "`{}` must be a name of 1 to {AGENT_LIMIT} bytes without control characters",
            wire::AGENT_HEADER
        ))
    })
}

//! On whose behalf a request comes, and whether a person can stand behind it.

use abide_core::request::Caller;
use abide_core::session::End;
use abide_core::{Agent, SessionId};
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use std::path::PathBuf;
use std::sync::Arc;

use super::problem::Problem;
use super::{State, wire};
use crate::config;
use crate::daemon::SessionView;
use crate::world::peer::Peer;

/// The longest name of an agent, in bytes.
const AGENT_LIMIT: usize = 200;

/// Who asks.
pub struct Who {
    /// The agent that the request names; a person at the command line names none and sees all.
    pub agent: Option<Agent>,
    way: Way,
}

/// How the request came, and what that says of whoever sent it.
enum Way {
    /// From a process of our own user, which may or may not be inside a session.
    Local(Peer),
    /// Over TCP, from an agent.
    Agent,
    /// Over TCP, from somebody outside every session who says to be a person.
    Person,
    /// Nobody knows.
    Unknown,
}

impl Who {
    /// As the core sees it.
    pub fn caller(&self) -> Caller {
        Caller {
            agent: self.agent.clone(),
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
        match self.way {
            Way::Local(peer) => !peer.is_inside_a_session(),
            Way::Person => true,
            Way::Agent | Way::Unknown => false,
        }
    }

    /// Whether the request comes out of a command that is kept here.
    pub fn is_inside_a_session(&self) -> bool {
        match self.way {
            Way::Local(peer) => peer.is_inside_a_session(),
            Way::Person | Way::Agent => false,
            Way::Unknown => true,
        }
    }

    /// A session that this caller may know of.
    pub fn session(&self, state: &State, id: &str) -> Result<Arc<SessionView>, Problem> {
        let known = id.parse::<SessionId>().ok();
        known
            .and_then(|id| state.handle.board().session(id))
            .filter(|view| view.visible_to(self.agent.as_ref()))
            .ok_or_else(|| Problem::not_found(format!("Session '{id}' not found")))
    }
}

impl<S: Sync> FromRequestParts<S> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let named = named_agent(&parts.headers)?;
        let peer = parts.extensions.get::<ConnectInfo<Peer>>();
        let (agent, way) = match peer.map(|info| info.0) {
            None => (named, Way::Unknown),
            Some(peer @ Peer::Process { .. }) => (named, Way::Local(peer)),
            Some(peer @ Peer::Tcp { .. }) if says_person(&parts.headers)? => {
                if named.is_some() {
                    return Err(Problem::bad_input(format!(
                        "`{}` and `{}` exclude each other: a person is not an agent",
                        wire::PERSON_HEADER,
                        wire::AGENT_HEADER
                    )));
                }
                be_outside(peer).await?;
                (None, Way::Person)
            }
            Some(Peer::Tcp { .. }) => (Some(named.unwrap_or_default()), Way::Agent),
        };
        Ok(Who { agent, way })
    }
}

/// Looks, beside the loop, whether a command is at the other end.
async fn be_outside(peer: Peer) -> Result<(), Problem> {
    let looked = tokio::task::spawn_blocking(move || peer.is_inside_a_session());
    match looked.await {
        Ok(false) => Ok(()),
        Ok(true) | Err(_) => Err(Problem::forbidden(
            "a command cannot speak for a person, and nobody else could be found at the other end \
             of this connection",
        )),
    }
}

fn says_person(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get(wire::PERSON_HEADER).map(HeaderValue::as_bytes) {
        None => Ok(false),
        Some(b"true") => Ok(true),
        Some(_) => Err(Problem::bad_input(format!(
            "`{}` must be `true`, or not be there",
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

/// A header of plain text.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let value = headers.get(name).map(HeaderValue::to_str).transpose();
    value.map_err(|_| Problem::bad_input(format!("`{name}` must be plain ASCII")))
}

fn agent(name: &[u8]) -> Result<Agent, Problem> {
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

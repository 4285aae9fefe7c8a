//! On whose behalf a request comes, and whether a person can stand behind it.

use abide_core::request::Caller;
use abide_core::session::End;
use abide_core::{Agent, SessionId};
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use std::sync::Arc;

use super::problem::Problem;
use super::{State, wire};
use crate::daemon::SessionView;
use crate::world::peer::{Peer, peer_is_inside_a_session};

/// The longest name of an agent, in bytes.
const AGENT_LIMIT: usize = 200;

/// Who asks.
pub struct Who {
    /// The agent that the request names; a person at the command line names none and sees all.
    pub agent: Option<Agent>,
    peer: Option<Peer>,
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
    /// not change who sits there.
    pub fn may_be_seated(&self) -> bool {
        !self.is_inside_a_session()
    }

    /// Whether the request comes out of a command that is kept here.
    pub fn is_inside_a_session(&self) -> bool {
        let pid = self.peer.and_then(|peer| peer.pid);
        pid.is_none_or(peer_is_inside_a_session)
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
        let peer = parts
            .extensions
            .get::<ConnectInfo<Peer>>()
            .map(|info| info.0);
        let agent = match parts.headers.get(wire::AGENT_HEADER) {
            None => None,
            Some(name) => Some(agent(name.as_bytes())?),
        };
        Ok(Who { agent, peer })
    }
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

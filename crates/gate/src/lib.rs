//! The network gate of one sandboxed session.
//!
//! A sandbox with a network allowlist has a network namespace of its own, without a device but `lo`. Programs inside
//! use the network as always, without proxy variables:
//!
//! 1. While the sandbox is built, its first process opens sockets in the new namespace and sends them to the gate
//!    (`abide_session::sandbox::gate_sockets`).
//! 2. The gate, a process outside, answers DNS queries ([`dns`]): a name that is allowed, or that a person can be asked
//!    about, gets an address of 198.18.0.0/15 that stands for it in this session ([`names`]). An allowed name is looked up
//!    outside before; if that fails, it does not exist inside either, or there is a server failure if no answer came.
//! 3. A connection to such an address arrives at a listener of the gate ([`tcp`]). Its local address says which name was
//!    meant. If no rule knows the name, the connection waits for a person ([`questions`]).
//! 4. The gate takes the addresses of that look-up, or looks the name up, once, checks them, dials one ([`outside`]) and
//!    moves bytes ([`relay`]).
//! 5. Ports on which programs inside listen are published on the host's loopback ([`publish`]), and reached by other commands
//!    of the agent ([`agent_ports`]).
//!
//! Refusals are listed exactly ([`refusals`]), for the keeper. Questions and published ports are shown to the daemon, which
//! may come and go ([`control`]).
//!
//! The gate ends when the sandbox's first process has ended, or with SIGTERM. It needs no privileges.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod address;
pub mod agent_ports;
pub mod allowlist;
pub mod client_hello;
mod clock;
pub mod control;
pub mod control_lines;
pub mod dns;
mod keeper;
pub mod names;
pub mod outside;
pub mod process;
pub mod proxy;
pub mod publish;
pub mod questions;
pub mod refusals;
pub mod relay;
pub mod tcp;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};

use agent_ports::AgentPorts;
use allowlist::{Allowlist, HostName};
use names::Names;
use outside::Dialer;
use publish::{DialSockets, Publications};
use questions::Questions;
use refusals::Refusals;

/// Connections of one session at the same time. Each has two descriptors and two buffers.
pub const MAX_CONNECTIONS: usize = 512;

/// State of the gate of one session.
pub struct Gate {
    allow: Allowlist,
    /// A person is asked about names that no rule knows.
    ask: bool,
    /// Ports of the host's loopback that programs inside reach on their own loopback.
    host_ports: BTreeSet<u16>,
    /// Ports on which the gate itself listens inside; they are not published.
    inside_ports: BTreeSet<u16>,
    never_publish: BTreeSet<u16>,
    agent_ports: AgentPorts,
    names: Mutex<Names>,
    dialer: Dialer,
    dial_sockets: DialSockets,
    slots: Arc<Semaphore>,
    pipes: Semaphore,
    questions: Questions,
    workspace: String,
    refusals: Refusals,
    publications: watch::Sender<Publications>,
}

impl Gate {
    /// True if a connection to a name that no pattern matches waits for a person instead of being refused.
    fn can_ask_about(&self, name: &HostName) -> bool {
        self.ask && name.can_be_asked_about()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

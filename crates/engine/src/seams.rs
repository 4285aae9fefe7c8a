//! Seams of the event loop: the traits through which it and its effects reach the outside, together with
//! [`Clock`](crate::clock::Clock) and [`Store`]. Each has a real implementation, and a simulated one with which the tests
//! run the same loop (`tests/sim`).
//!
//! No order waits for a keeper or the network, though some make short system calls. What becomes of an order comes back
//! as an event.

use std::collections::BTreeMap;
use std::path::PathBuf;

use abide_core::timer::Until;
use abide_core::{ConnectionAnswer, Containment, End, Sandboxed, SessionId, TimerId};
use abide_session::daemon_record::ChangedLimits;
use abide_session::frame::{Launch, ToKeeper};

use crate::keepers::PortState;
pub use crate::store::Store;

/// Keepers, as the event loop uses them.
pub trait KeeperControl: Send + Sync {
    /// Reserves a keeper. Returns the id of its session.
    fn reserve(&self) -> SessionId;

    /// Id for a session that may be started later. No keeper is reserved for it.
    fn unused_id(&self) -> SessionId;

    /// Makes a keeper for the session with this id, which [`unused_id`](Self::unused_id) has returned, maybe to an
    /// earlier daemon.
    fn prepare(&self, id: SessionId);

    /// Returns a reserved keeper that was not used.
    fn release(&self, id: SessionId);

    fn start(&self, id: SessionId, launch: Launch);

    /// Reports that a session could not be started. If a keeper was reserved or made for it, the keeper exits.
    fn fail(&self, id: SessionId, why: &str);

    /// Sends an order to a keeper. Does nothing if the keeper is gone.
    fn send(&self, id: SessionId, order: &ToKeeper);

    /// Ends an overdue session if its keeper does not.
    fn end_forcibly(&self, id: SessionId, end: End);

    /// Writes changed limits to the session's directory, where the next daemon reads them.
    fn write_limits(&self, id: SessionId, limits: ChangedLimits);

    /// Notes in the session's directory that a person interrupted a call that waited for it.
    fn mark_interrupted(&self, id: SessionId);

    /// Notes in the session's directory that its ending was reported.
    fn mark_ending_delivered(&self, id: SessionId);

    /// Forgets the connection of a session that could not be started. Ends no keeper: one that reported the failure exits
    /// by itself, and [`fail`](Self::fail) closes the connection of any other.
    fn forget(&self, id: SessionId);

    /// Removes the directory of an ended session.
    fn remove(&self, id: SessionId);

    fn folder(&self, id: SessionId) -> PathBuf;

    /// Containment of a session's process tree, once it is known.
    fn contained_by(&self, id: SessionId) -> Option<Containment>;

    /// Sandbox of a session's command, once it is known.
    fn sandboxed(&self, id: SessionId) -> Option<Sandboxed>;

    /// Ports on which a session's command listens, and which of them are published on this machine.
    fn published_ports(&self, id: SessionId) -> BTreeMap<u16, PortState>;

    /// Answers connections of a session's sandbox that wait.
    fn answer_connection(&self, id: SessionId, number: u64, answer: &ConnectionAnswer);
}

/// Probes of conditions, as the event loop uses them.
pub trait ProbeControl: Send + Sync {
    /// Starts the probe of a condition. `None`: the condition is known.
    fn start(&self, timer: TimerId, until: Option<Until>);

    /// Stops a probe until it is started again.
    fn pause(&self, timer: TimerId);

    fn remove(&self, timer: TimerId);

    /// Last observation of a probe.
    fn last_seen(&self, timer: TimerId) -> Option<String>;
}

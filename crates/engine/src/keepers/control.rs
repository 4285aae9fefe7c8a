//! Orders of the event loop to keepers.

use std::path::PathBuf;
use std::sync::Arc;

use abide_core::{Containment, End, Sandboxed, SessionId};
use abide_session::changed_limits::{self, ChangedLimits};
use abide_session::folder;
use abide_session::frame::{Launch, ToKeeper};

use super::{Keepers, RecoveredDetails, failed_keeper};
use crate::seams::KeeperControl;

impl KeeperControl for Arc<Keepers> {
    fn reserve(&self) -> SessionId {
        Keepers::reserve(self)
    }

    fn unused_id(&self) -> SessionId {
        Keepers::unused_id(self)
    }

    fn prepare(&self, id: SessionId) {
        Keepers::start_keeper_for(self, id);
    }

    fn release(&self, id: SessionId) {
        Keepers::release(self, id);
    }

    fn start(&self, id: SessionId, launch: Launch) {
        Keepers::start(self, id, launch);
    }

    fn fail(&self, id: SessionId, why: &str) {
        Keepers::fail(self, id, why);
    }

    fn send(&self, id: SessionId, order: &ToKeeper) {
        Keepers::send(self, id, order);
    }

    fn end_forcibly(&self, id: SessionId, end: End) {
        tokio::spawn(failed_keeper::end_session(self.clone(), id, end));
    }

    fn write_limits(&self, id: SessionId, limits: ChangedLimits) {
        if let Err(fault) = changed_limits::write(&Keepers::folder(self, id), limits) {
            tracing::warn!(
                "cannot store the new limits of {id}, so the next daemon will not know them: {fault}"
            );
        }
    }

    fn mark_ending_delivered(&self, id: SessionId) {
        // A directory that is gone needs no mark.
        let _ = folder::mark_ending_delivered(&Keepers::folder(self, id));
    }

    fn forget(&self, id: SessionId) {
        let mut connections = self.connections.lock().expect("no holder panics");
        connections.remove(&id);
    }

    /// Removes it in the background. A directory that cannot be removed is found by the next daemon.
    fn remove(&self, id: SessionId) {
        let keepers = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(e) = Keepers::remove(&keepers, id)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!("cannot remove the folder of {id}: {e}");
            }
        });
    }

    fn folder(&self, id: SessionId) -> PathBuf {
        Keepers::folder(self, id)
    }

    fn contained_by(&self, id: SessionId) -> Option<Containment> {
        let containment = self.containment.lock().expect("no holder panics");
        containment.get(&id).copied()
    }

    fn sandboxed(&self, id: SessionId) -> Option<Sandboxed> {
        let sandboxes = self.sandboxes.lock().expect("no holder panics");
        sandboxes.get(&id).cloned()
    }

    fn take_recovered_details(&self, id: SessionId) -> RecoveredDetails {
        let mut recovered = self.recovered.lock().expect("no holder panics");
        recovered.remove(&id).unwrap_or_default()
    }
}

//! Orders of the event loop to keepers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use abide_core::{ConnectionAnswer, Containment, End, Sandboxed, SessionId};
use abide_session::daemon_record::ChangedLimits;
use abide_session::frame::{Launch, ToKeeper};
use abide_session::keeper_record;
use abide_session::sandbox::Network;

use super::{DISK_FULL, Keepers, NO_KEEPER, PortState, failed_keeper};
use crate::clock::{Clock, SystemClock};
use crate::gate_plan;
use crate::lock::lock;
use crate::seams::KeeperControl;

impl KeeperControl for Arc<Keepers> {
    /// Id of a keeper that is ready or being made.
    fn reserve(&self) -> SessionId {
        let mut idle = lock(&self.idle);
        if let Some(id) = self.next_ready(&idle).and_then(|at| idle.remove(at)) {
            return id;
        }
        while let Some(id) = idle.pop_front() {
            // A keeper that was killed is skipped.
            if self.connection(id).is_some() {
                return id;
            }
        }
        drop(idle);
        let id = Keepers::unused_id(self);
        self.prepare(id);
        id
    }

    fn unused_id(&self) -> SessionId {
        Keepers::unused_id(self)
    }

    fn prepare(&self, id: SessionId) {
        if let Err(fault) = self.start_keeper(id) {
            lock(&self.keeper_faults).insert(id, fault);
        }
    }

    /// Returns a reserved id that was not used.
    fn release(&self, id: SessionId) {
        match self.connection(id) {
            Some(_) => lock(&self.idle).push_front(id),
            None => drop(lock(&self.keeper_faults).remove(&id)),
        }
    }

    /// Tells the keeper to start the command. The result arrives as an event.
    fn start(&self, id: SessionId, mut launch: Launch) {
        let network = launch.sandbox.as_mut().map(|plan| &mut plan.network);
        if let Some(Network::Allowlist(gate)) = network {
            let published = self.gates.published_by(&launch.record.agent, id);
            gate_plan::add_agent_ports(gate, &self.sessions, published);
        }
        match self.connection(id) {
            _ if self.disk_is_full() => KeeperControl::fail(self, id, DISK_FULL),
            Some(connection) => {
                // First, because the keeper may report the start at once.
                self.starting.add(self, id);
                connection.begin_start();
                connection.send(&ToKeeper::Start(Box::new(launch)));
                // While the command runs, there is time to prepare the others for reuse.
                self.reuse_deferred();
            }
            None => {
                let fault = lock(&self.keeper_faults).remove(&id);
                KeeperControl::fail(self, id, fault.as_deref().unwrap_or(NO_KEEPER));
            }
        }
        self.fill_pool();
    }

    fn fail(&self, id: SessionId, why: &str) {
        self.failed_at(id, why, SystemClock.now().wall);
        if let Some(connection) = self.connection(id) {
            connection.close();
        }
    }

    fn send(&self, id: SessionId, order: &ToKeeper) {
        Keepers::send(self, id, order);
    }

    fn end_forcibly(&self, id: SessionId, end: End) {
        tokio::spawn(failed_keeper::end_overdue(self.clone(), id, end));
    }

    fn write_limits(&self, id: SessionId, limits: ChangedLimits) {
        if let Err(fault) = self.record(id).set_limits(limits) {
            tracing::warn!(
                "cannot store the new limits of {id}, so the next daemon will not know them: {fault}"
            );
        }
    }

    fn mark_interrupted(&self, id: SessionId) {
        if let Err(fault) = self.record(id).mark_interrupted() {
            tracing::warn!(
                "cannot store that a call about {id} was interrupted, so the next daemon will not know: {fault}"
            );
        }
    }

    fn mark_ending_delivered(&self, id: SessionId) {
        // A directory that is gone needs no mark.
        let _ = keeper_record::mark_ending_delivered(&Keepers::folder(self, id));
    }

    fn forget(&self, id: SessionId) {
        let mut connections = lock(&self.connections);
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
        let containment = lock(&self.containment);
        containment.get(&id).copied()
    }

    fn sandboxed(&self, id: SessionId) -> Option<Sandboxed> {
        let sandboxes = lock(&self.sandboxes);
        sandboxes.get(&id).cloned()
    }

    fn published_ports(&self, id: SessionId) -> BTreeMap<u16, PortState> {
        self.gates.ports(id)
    }

    fn answer_connection(&self, id: SessionId, number: u64, answer: &ConnectionAnswer) {
        self.gates.answer(id, number, answer);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use abide_core::Event;
    use tokio::sync::mpsc;

    use super::*;
    use crate::stream::Stream;
    use abide_session::frame::{ContainmentChoice, LaunchRecord, Stdin};

    fn launch() -> Launch {
        Launch {
            record: LaunchRecord::default(),
            argv: Vec::new(),
            env: Vec::new(),
            stdin: Stdin::None,
            containment: ContainmentChoice::Auto,
            max_processes: 0,
            sandbox: None,
            inherited: None,
        }
    }

    #[tokio::test]
    async fn reason_without_a_keeper_is_told_to_the_start_that_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::channel(8);
        let keepers = Keepers::new(folder.path().into(), "/nonexistent".into(), 0, events);
        let other = KeeperControl::unused_id(&keepers);
        let first = keepers.reserve();
        keepers.start(other, launch());
        keepers.start(first, launch());
        for (id, is_known) in [(other, false), (first, true)] {
            let Some(Event::StartFailed { session, fault, .. }) = reported.recv().await else {
                panic!("both starts fail");
            };
            assert_eq!((session, &*fault != NO_KEEPER), (id, is_known), "{fault}");
        }
    }

    #[tokio::test]
    async fn idle_keeper_that_exits_reports_no_failed_start() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::channel(8);
        let keepers = Keepers::new(folder.path().into(), "/nonexistent".into(), 0, events);
        let (idle, started) = (SessionId::from_bits(1), SessionId::from_bits(2));
        for id in [idle, started] {
            let (ours, _) = UnixStream::pair().unwrap();
            keepers.adopt(id, Stream::new(ours).unwrap(), id == idle);
        }
        let Some(Event::StartFailed { session, .. }) = reported.recv().await else {
            panic!("the started one has failed");
        };
        assert_eq!(session, started, "the idle one was gone before");
    }

    #[tokio::test]
    async fn failed_start_closes_the_connection_of_its_keeper() {
        let folder = tempfile::tempdir().unwrap();
        let (events, mut reported) = mpsc::channel(8);
        let keepers = Keepers::new(folder.path().into(), "/nonexistent".into(), 0, events);
        let (ours, mut keeper) = UnixStream::pair().unwrap();
        keeper.set_nonblocking(true).unwrap();
        let id = SessionId::from_bits(1);
        keepers.adopt(id, Stream::new(ours).unwrap(), true);
        keepers.fail(id, "no workspace");
        let Some(Event::StartFailed { session, fault, .. }) = reported.recv().await else {
            panic!("the failure is reported first");
        };
        assert_eq!((session, &*fault), (id, "no workspace"));
        // A keeper without a command exits when its connection is closed.
        assert_eq!(keeper.read(&mut [0; 64]).ok(), Some(0));
    }
}

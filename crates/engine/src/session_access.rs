//! Access of probes to sessions: reads the published state, and runs the commands of conditions as sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_core::fleet::MachineId;
use abide_core::held::NotStarted;
use abide_core::request::Caller;
use abide_core::session::Phase;
use abide_core::wait::Asking;
use abide_core::{Agent, Millis, Outcome, Request, SandboxedBy, SessionId, TimerId, Try, Wall};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{Change, Handle, LaunchOptions, SessionView};
use crate::candidate_sessions::CandidateSessions;
use crate::config;
use crate::handle::PendingCall;
use crate::keepers::{Follower, PortState};
use crate::machine_link::session_end;
use crate::probe::{Bounds, Command, OutOfBounds, Owner, SessionEnd, TRY_LIMIT, TryResult};
use crate::refusals;
use crate::sandbox::{SandboxChoice, SandboxSubject, SandboxWish, WishOf, confine_environment};
use crate::text::{ending_text, last_lines, refusal_sentence, short_command};
use abide_output::printable::one_line;
use abide_session::log::tail;

/// Access through a handle.
pub(super) struct SessionAccess(pub Handle);

impl SessionAccess {
    /// Publishes that the observation of a timer's condition has changed after a try.
    pub fn try_observed(&self, timer: TimerId) {
        self.0.published().timer_changed(timer);
    }

    /// Waits until a command that needs the approval of a person is started. Fails with the reason if it never will be.
    pub async fn started(&self, session: SessionId) -> Result<(), String> {
        // A call waits for an answer for a limited time.
        loop {
            if self.0.published().session(session).is_some() {
                return Ok(());
            }
            let request = Request::JoinStart {
                session,
                asking: Asking::Never,
                standby: None,
            };
            let pending = self.0.call(Caller::PERSON, request, None).await;
            match pending.done().await {
                Some(Outcome::NotStarted(.., NotStarted::Held(_))) => {}
                Some(Outcome::NotStarted(.., why)) => return Err(not_started(&why)),
                // Whether it is known is for the caller to see.
                Some(_) => return Ok(()),
                // The daemon is stopping.
                None => return std::future::pending().await,
            }
        }
    }

    /// Waits until the leader has ended, and describes how. `None`: there is no such session.
    pub async fn ended(&self, session: SessionId) -> Option<String> {
        let mut changes = self.0.published().follow();
        loop {
            let view = self.0.published().session(session)?;
            if let Some(how) = end_text(&view) {
                return Some(how);
            }
            if let Err(RecvError::Closed) = changes.recv().await {
                return std::future::pending().await;
            }
        }
    }

    /// Waits until a session of another machine has ended or is lost, and describes how. `observe` is told what is known
    /// before.
    pub async fn ended_elsewhere(
        &self,
        session: SessionId,
        machine: MachineId,
        observe: impl Fn(String) + Send + Sync,
    ) -> String {
        session_end::ended(&self.0, session, machine, observe).await
    }

    /// Keeps a session active while the guard exists: what is waited for is not closed for inactivity.
    pub async fn keep_active(&self, session: SessionId) -> PendingCall {
        let request = Request::Probe { session };
        self.0.call(Caller::PERSON, request, None).await
    }

    /// Follows the length of its log; `None`: the log is complete.
    pub fn follow(&self, session: SessionId) -> Option<Follower> {
        self.0.keepers().follow(session)
    }

    pub fn folder(&self, session: SessionId) -> PathBuf {
        self.0.keepers().folder(session)
    }

    /// Ending of a session; `None`: there is no such session.
    pub fn session_end(&self, session: SessionId) -> Option<SessionEnd> {
        let view = self.0.published().session(session)?;
        Some(self.end_of(&view))
    }

    /// Runs a command as a session, and waits until its whole tree is gone. Dropping the future ends the session.
    pub async fn try_once(&self, wanted: &Command, owner: &Owner, leaf: usize) -> TryResult {
        let request = Request::Try(Try {
            command: wanted.command.as_str().into(),
            started_by: owner.started_by,
            key: owner.key(leaf),
            deadline: Millis(TRY_LIMIT.as_millis() as u64),
        });
        let caller = Caller {
            agent: Some(owner.agent.clone()),
            conversation: None,
        };
        let launch = self.launch(wanted, &owner.agent);
        let pending = self.0.call(caller, request, Some(launch)).await;
        match pending.done().await {
            Some(Outcome::Refused(refusal)) => TryResult::NotRun(refusal_sentence(&refusal)),
            Some(outcome) => self.try_result(&outcome),
            // The daemon is stopping.
            None => std::future::pending().await,
        }
    }

    /// Bounds of what the conditions of an agent with this root folder may look at now; `None`: its commands have no
    /// sandbox.
    pub fn bounds(&self, owner: &Owner, root: &Path) -> Result<Option<Bounds>, OutOfBounds> {
        let env = config::environment();
        let config = self.0.config();
        let subject = SandboxSubject {
            config: &config,
            paths: self.0.paths(),
            policy: self.0.policy(),
            agent: &owner.agent,
            conversation: owner.conversation.as_ref(),
            root,
            env: &env,
        };
        match subject.choose(WishOf::Agent, SandboxWish::default()) {
            Ok(SandboxChoice::Off) => Ok(None),
            Ok(SandboxChoice::Plan(plan)) => Ok(Some(Bounds {
                plan: *plan,
                own_ports: subject.own_ports(),
                published: self.published_ports(&owner.agent),
            })),
            Ok(SandboxChoice::Impossible(why)) => Err(OutOfBounds(why)),
            Err(refused) => Err(OutOfBounds(refused.0)),
        }
    }

    /// Follows the sessions of an agent that could open a port for which the owner of a condition has waited since then.
    pub fn port_candidates(&self, owner: &Owner, since: Wall) -> CandidateFollower {
        let handle = self.0.clone();
        let changes = handle.published().follow();
        let mut candidates =
            CandidateSessions::new(owner.agent.clone(), owner.conversation.clone(), since);
        candidates.update_all(handle.published().sessions());
        CandidateFollower {
            access: SessionAccess(handle),
            changes,
            candidates,
        }
    }
}

/// Candidate sessions for a port, updated as sessions change.
pub(super) struct CandidateFollower {
    access: SessionAccess,
    changes: Receiver<Change>,
    candidates: CandidateSessions,
}

impl CandidateFollower {
    /// Waits until none of them runs and a server has failed, and describes the last one that did.
    pub async fn all_failed(&mut self) -> SessionEnd {
        // Changes that are queued already come first.
        while let Ok(change) = self.changes.try_recv().map(Some).or_else(lagged_as_none) {
            self.apply(change);
        }
        loop {
            if let Some(last) = self.candidates.last_failed() {
                return self.access.end_of(last);
            }
            match self.changes.recv().await {
                Ok(change) => self.apply(Some(change)),
                Err(RecvError::Lagged(_)) => self.apply(None),
                Err(RecvError::Closed) => return std::future::pending().await,
            }
        }
    }
}

/// Maps a lagging receiver to `None`: all sessions have to be read again.
fn lagged_as_none(fault: TryRecvError) -> Result<Option<Change>, TryRecvError> {
    match fault {
        TryRecvError::Lagged(_) => Ok(None),
        TryRecvError::Empty | TryRecvError::Closed => Err(fault),
    }
}

impl CandidateFollower {
    /// Applies a change; `None`: some changes were missed.
    fn apply(&mut self, change: Option<Change>) {
        let published = self.access.0.published();
        match change {
            None => self.candidates.update_all(published.sessions()),
            Some(Change::Session(id)) => match published.session(id) {
                Some(view) => self.candidates.update(view),
                None => self.candidates.forget(id),
            },
            Some(
                Change::Asked(_)
                | Change::Closed(..)
                | Change::Timer(_)
                | Change::Message(..)
                | Change::MessageUpdated(_),
            ) => {}
        }
    }
}

impl SessionAccess {
    /// Launch data for the command of a condition, as it was when the condition was set. It has the sandbox of its
    /// agent.
    fn launch(&self, wanted: &Command, agent: &Agent) -> LaunchOptions {
        let words = wanted.shell.iter().chain([&wanted.command]);
        let mut env = config::environment();
        if let Some(path) = &wanted.search_path {
            env.retain(|(name, _)| name != "PATH");
            env.push(("PATH".into(), path.into()));
        }
        let subject = SandboxSubject {
            config: &self.0.config(),
            paths: self.0.paths(),
            policy: self.0.policy(),
            agent,
            conversation: None,
            root: &wanted.cwd,
            env: &env,
        };
        let sandbox = subject.choose(WishOf::Agent, SandboxWish::default());
        let sandbox = sandbox.unwrap_or_else(|refused| SandboxChoice::Impossible(refused.0));
        confine_environment(&sandbox, &mut env);
        LaunchOptions {
            argv: Some(words.map(Into::into).collect()),
            sandbox,
            ..LaunchOptions::plain(wanted.cwd.clone(), env, None, Arc::default())
        }
    }

    /// Ports on which commands of an agent listen, and that are published on this machine.
    fn published_ports(&self, agent: &Agent) -> Vec<u16> {
        let sessions = self.0.published().sessions();
        let own = sessions.iter().filter(|view| view.state.agent == *agent);
        let ports = own.flat_map(|view| &view.ports);
        let published = ports.filter(|(_, state)| **state == PortState::Published);
        published.map(|(port, _)| *port).collect()
    }

    fn try_result(&self, outcome: &Outcome) -> TryResult {
        let id = outcome.session();
        let Some(view) = id.and_then(|id| self.0.published().session(id)) else {
            return TryResult::NotRun("its session was removed".into());
        };
        match (view.ending(), &view.state.phase) {
            (Some(ending), _) => TryResult::Ended {
                ending: ending.clone(),
                last_line: String::from_utf8_lossy(&tail::last_line(&view.folder)).into_owned(),
                sandbox: sandbox_of_try(&view),
            },
            (None, Phase::Failed { fault, .. }) => TryResult::NotRun(fault.to_string()),
            (None, _) => TryResult::NotRun("its last try cannot be killed".into()),
        }
    }

    fn end_of(&self, view: &SessionView) -> SessionEnd {
        SessionEnd {
            session: view.id,
            command: short_command(&self.0, view),
            how: end_text(view).unwrap_or_else(|| "its output is closed".into()),
            last_lines: last_lines(&self.0, view),
        }
    }
}

/// Reason why a command was not started, as text.
fn not_started(why: &NotStarted) -> String {
    match why {
        NotStarted::Held(_) => "a person has not answered yet".into(),
        NotStarted::Declined(None) => "a person said no".into(),
        NotStarted::Declined(Some(words)) => format!("a person said no: {words}"),
        NotStarted::Refused(why) => format!("it was refused after a person said yes: {why}"),
        NotStarted::Expired => "nobody answered within a day".into(),
        NotStarted::Withdrawn => "its call was interrupted".into(),
        NotStarted::Killed => "the agent has withdrawn it".into(),
        NotStarted::NotStored => {
            "nobody can be asked, and the question cannot be stored for later".into()
        }
    }
}

/// Refusals of a try that are named.
const REFUSALS_NAMED: usize = 3;

/// Sandbox of a try, and what it has refused; `None`: it had none.
fn sandbox_of_try(view: &SessionView) -> Option<String> {
    let sandboxed = view.sandboxed.as_ref()?;
    if sandboxed.by == SandboxedBy::Off {
        return None;
    }
    let mut text = format!("sandboxed_by {}", sandboxed.by.as_str());
    for gap in &sandboxed.gaps {
        text.push_str(&format!(", but {}", gap.as_str()));
    }
    if let Some(record) = refusals::record(view) {
        let (count, mode, network) = (record.count, &record.mode, &record.network);
        text.push_str(&format!(
            "; SANDBOX: {count} refused ({mode}, network {network})"
        ));
        for entry in record.entries.iter().take(REFUSALS_NAMED) {
            text.push_str(&format!(
                "; {} {}",
                entry.kind.as_str(),
                one_line(&entry.text)
            ));
        }
    }
    Some(text)
}

/// Ending of a session as text; `None`: it has not ended.
fn end_text(view: &SessionView) -> Option<String> {
    if let Phase::Failed { fault, .. } = &view.state.phase {
        return Some(fault.to_string());
    }
    (view.ending()).map(|ending| ending_text(ending.end, ending.exit))
}

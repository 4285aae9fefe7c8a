//! Effects: carries out what the core decided, in the order of the contract: act, ask, publish, tell, reply. Records, and
//! the effects that wait for them, come here after their commit (`commits.rs`).

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use abide_api::AuditLine;
use abide_core::session::{Phase, Session};
use abide_core::time::Wall;
use abide_core::timer::{self, Status};
use abide_core::{
    CallId, Closing, Effect, Engine, Millis, Mono, Now, Outcome, OwnerReport, QuestionId, Record,
    SessionId, Update,
};
use abide_output::mask::Mask;

use crate::config::{Config, Containment};
use crate::event_loop::OpenCall;
use crate::handle::{CallUpdate, Handle, LaunchOptions};
use crate::keepers::SessionDetails;
use crate::launch_bytes::HeldLaunch;
use crate::published_state::{QuestionView, SessionView};
use crate::sandbox::SandboxChoice;
use crate::seams::{KeeperControl, ProbeControl};
use crate::store::StoreFault;
use abide_session::crash_point;
use abide_session::daemon_record::ChangedLimits;
use abide_session::facts::{cpu_ms, facts};
use abide_session::frame::{self, ToKeeper};
use abide_session::keeper_record;
use abide_session::log::tail;

/// Lines of output that are searched for the last one with text.
const LAST_LINES: usize = 20;

/// Performer of effects: knows the keepers and the published state.
pub(super) struct Performer {
    handle: Handle,
    keepers: Box<dyn KeeperControl>,
    probes: Arc<dyn ProbeControl>,
    known: HashMap<SessionId, KnownSession>,
    /// Facts about sessions of earlier daemons that are not published yet.
    recovered: HashMap<SessionId, SessionDetails>,
    /// Sessions whose ending was reported in this turn, which their directories are to say.
    delivered_endings: Vec<SessionId>,
}

/// Session, as the performer of effects knows it.
struct KnownSession {
    /// Facts at the start of the session or of this daemon. Their secrets are kept by the handle.
    details: SessionDetails,
    /// True if this daemon started the session.
    started_here: bool,
}

impl Performer {
    pub fn new(
        handle: Handle,
        keepers: Box<dyn KeeperControl>,
        probes: Arc<dyn ProbeControl>,
        recovered: HashMap<SessionId, SessionDetails>,
    ) -> Self {
        Performer {
            handle,
            keepers,
            probes,
            known: HashMap::new(),
            recovered,
            delivered_endings: Vec::new(),
        }
    }

    /// Handle on the event loop.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Keepers of the sessions.
    pub fn keepers(&self) -> &dyn KeeperControl {
        &*self.keepers
    }

    /// Number of people who watch now.
    pub fn watchers(&self) -> u32 {
        self.handle.watchers()
    }

    pub fn report_failed_commit(&self, fault: &StoreFault) {
        match fault {
            StoreFault::Damaged(_) => self.handle.published().set_storage_fault(&format!(
                "{fault}. Timers and messages are refused; `abide stop` has the next daemon set it aside and take \
                 over what can be read"
            )),
            // Another machine has told a message, or made a timer, a moment before.
            StoreFault::NotOwned(_) | StoreFault::Stale(_) => tracing::debug!("{fault}"),
            // A database that is away is in the log once, not with every commit.
            _ if self.handle.store().trouble().is_some() => {}
            fault => tracing::error!("{fault}"),
        }
    }

    /// Performs effects in their order.
    pub async fn perform(
        &mut self,
        engine: &Engine,
        calls: &mut HashMap<CallId, OpenCall>,
        effects: Vec<Effect>,
        now: Now,
    ) {
        // Before any reply, because an interface appends unread messages to an answer.
        let any_unread = engine.any_unread();
        let state = self.handle.published();
        state.set_any_unread(any_unread);
        state.set_timers_running(engine.counts().timers);
        let mut published = HashSet::new();
        for effect in effects {
            self.perform_one(engine, calls, effect, now, &mut published);
        }
        if !self.delivered_endings.is_empty() {
            // Calls that wait get their answers first.
            tokio::task::yield_now().await;
        }
        for id in self.delivered_endings.drain(..) {
            tracing::debug!(session = %id, "its ending was reported");
            self.keepers.mark_ending_delivered(id);
        }
    }

    /// Performs one effect. `published`: sessions that this turn has published, each in the state at the end of the turn.
    fn perform_one(
        &mut self,
        engine: &Engine,
        calls: &mut HashMap<CallId, OpenCall>,
        effect: Effect,
        now: Now,
        published: &mut HashSet<SessionId>,
    ) {
        match effect {
            Effect::Record(_) => {}
            Effect::Start {
                session,
                call,
                deadline,
            } => {
                let launch = calls.get_mut(&call).and_then(|call| call.launch.take());
                self.start(engine, session, launch, deadline, now.wall);
            }
            Effect::StartHeld {
                session,
                held,
                calls: waiting,
            } => {
                let launch = HeldLaunch::from_bytes(&held.approval.launch);
                let launch = launch.map(|launch| launch.options);
                self.keepers.prepare(session);
                self.start(engine, session, launch, held.deadline, now.wall);
                published.insert(session);
                self.publish(engine, session);
                for call in waiting {
                    self.send_update(calls, call, Update::Accepted(session));
                }
            }
            Effect::Kill { session, end } => {
                if engine.session(session).is_some_and(|of| of.interrupted) {
                    self.keepers.mark_interrupted(session);
                }
                let grace_ms = self.handle.config().kill_grace_ms();
                self.keepers
                    .send(session, &ToKeeper::Kill { end, grace_ms });
            }
            Effect::ForceKill { session, end } => self.keepers.end_forcibly(session, end),
            Effect::Remove { session } => self.keepers.remove(session),
            Effect::SetDeadline { session, deadline } => {
                self.deadline_changed(engine, session, deadline, now);
                self.keepers
                    .send(session, &ToKeeper::Deadline { in_ms: deadline.0 });
            }
            Effect::StoreLimits {
                session,
                idle,
                inactivity,
                unasked_until,
            } => {
                let limits = ChangedLimits {
                    idle,
                    inactivity,
                    deadline: (self.known.get(&session)).and_then(|of| of.details.deadline),
                    unasked_until,
                };
                self.keepers.write_limits(session, limits);
            }
            Effect::AnswerConnection {
                session,
                number,
                answer,
            } => self.keepers.answer_connection(session, number, &answer),
            Effect::QueryOutput { session } => self.keepers.send(session, &ToKeeper::Look),
            Effect::WatchOutput { session, beyond } => {
                self.keepers.send(session, &ToKeeper::Watch { beyond });
            }
            Effect::Ask { question } => {
                self.ask(engine, question);
                self.handle.published().question_shown(question);
            }
            Effect::Close { question, closing } => {
                if matches!(closing, Closing::Expired | Closing::Withdrawn) {
                    self.audit_closed(question, closing);
                }
                self.handle.published().close_question(question, closing);
            }
            Effect::Publish { session } => {
                if published.insert(session) {
                    self.publish(engine, session);
                }
            }
            Effect::Tell { call, update } => self.send_update(calls, call, update),
            Effect::Probe { timer, until } => self.probes.start(timer, until),
            Effect::PauseProbe { timer } => self.probes.pause(timer),
            Effect::StopProbe { timer } => self.probes.remove(timer),
            Effect::PublishTimer { timer } => {
                tracing::debug!(%timer, "changed");
                self.handle.published().timer_changed(timer);
            }
            Effect::PublishSeen { numbers } => {
                for number in numbers {
                    self.handle.published().message_updated(number);
                }
            }
            Effect::Posted { agent, message } => {
                self.handle.published().message_posted(agent, message)
            }
            Effect::Reply {
                call,
                outcome,
                tells_owner,
            } => {
                let reported = outcome.session().zip(tells_owner);
                let sent = self.reply(calls, call, outcome);
                match reported {
                    Some((session, _)) if !sent => self.handle.answer_lost(session),
                    Some((session, OwnerReport::First)) => self.delivered_endings.push(session),
                    Some((_, OwnerReport::Repeated)) | None => {}
                }
            }
            Effect::MarkEndingDelivered { session } => self.delivered_endings.push(session),
        }
    }

    /// Notes a question that is shown later, and adds the last observation of the prober to a timer that ended before its
    /// condition held.
    pub fn prepare(&self, effect: &mut Effect) {
        if let Effect::Ask { question } = effect {
            self.handle.published().question_asked(*question);
        }
        if let Effect::Record(Record::Timer(timer::Record::Ended(timer::Ended {
            id,
            seen,
            status,
            ..
        }))) = effect
            && seen.is_none()
            && matches!(status, Status::Completed { .. })
        {
            let last = self.probes.last_seen(*id).filter(|last| !last.is_empty());
            *seen = last.map(timer::Observation::new);
        }
    }

    /// Hands over an answer. Returns `false` if its caller is gone: then messages in it stay unread.
    fn reply(
        &mut self,
        calls: &mut HashMap<CallId, OpenCall>,
        call: CallId,
        outcome: Outcome,
    ) -> bool {
        crash_point("reply.pre_send");
        let session = outcome.session().map(tracing::field::display);
        tracing::debug!(call = call.0, session, "answered");
        let open = calls.remove(&call);
        let sent = open.is_some_and(|open| open.reply.outcome.send(outcome).is_ok());
        if !sent {
            self.handle.caller_gone(call);
        }
        crash_point("reply.post_send");
        sent
    }

    fn start(
        &mut self,
        engine: &Engine,
        id: SessionId,
        launch: Option<LaunchOptions>,
        deadline: Option<Millis>,
        created: Wall,
    ) {
        let (Some(session), Some(launch)) = (engine.session(id), launch) else {
            self.keepers.fail(id, "the call brought nothing to start");
            return;
        };
        let config = self.handle.config();
        let record = launch_record(id, session, &launch, deadline, created, &config);
        let sandbox = match launch.sandbox {
            SandboxChoice::Off => None,
            SandboxChoice::Plan(plan) => Some(*plan),
            SandboxChoice::Impossible(why) => {
                self.keepers.fail(id, &why);
                return;
            }
        };
        tracing::debug!(session = %id, agent = %session.agent.0, "started");
        let known = KnownSession {
            details: SessionDetails {
                cwd: launch.cwd.clone(),
                pty: launch.pty.is_some(),
                deadline,
                name: launch.name.clone(),
                ..SessionDetails::default()
            },
            started_here: true,
        };
        self.known.insert(id, known);
        let frame = frame::Launch {
            record,
            argv: arguments(launch.argv, &session.command, &config.shell),
            env: launch
                .env
                .into_iter()
                .map(|(k, v)| (into_bytes(k), into_bytes(v)))
                .collect(),
            stdin: launch.stdin,
            containment: containment_choice(config.containment),
            max_processes: config.max_processes,
            inherited: launch.inherited_limits,
            sandbox,
        };
        self.handle.remember_secrets(id, launch.secrets);
        crash_point("session.pre_start");
        self.keepers.start(id, frame);
        crash_point("session.post_start");
    }

    /// Announces a question, with the facts about its command.
    fn ask(&self, engine: &Engine, id: QuestionId) {
        crash_point("ask.pending");
        let Some(question) = engine.question(id).cloned() else {
            return;
        };
        if let Some(held) = question.held() {
            let view = Arc::new(QuestionView {
                id,
                command: held.command.clone(),
                agent: held.agent.clone(),
                cwd: PathBuf::from(&*held.approval.folder),
                ran: Millis(0),
                last_output: question.asked,
                last_lines: Vec::new(),
                pty: false,
                facts: None,
                cpu_percent: 0,
                state: question.clone(),
            });
            self.handle.published().announce_question(view);
            return;
        }
        let Some(session) = engine.session(question.session()) else {
            return;
        };
        let folder = self.keepers.folder(question.session());
        let meta = keeper_record::read_meta(&folder).ok().flatten();
        let facts = meta.as_ref().map(facts);
        let published = self.handle.published().session(question.session());
        let view = QuestionView {
            id,
            command: session.command.clone(),
            agent: session.agent.clone(),
            cwd: (self.known.get(&question.session()))
                .map(|known| known.details.cwd.clone())
                .unwrap_or_default(),
            // An earlier daemon may have asked the question.
            ran: Millis(question.asked.0.saturating_sub(session.created.0)),
            last_output: published
                .as_ref()
                .map_or(session.created, |view| view.last_activity()),
            last_lines: tail::last_lines(&folder, LAST_LINES),
            pty: published.is_some_and(|view| view.pty),
            cpu_percent: facts.map_or(0, |facts| {
                self.handle.cpu_percent(question.session(), session, &facts)
            }),
            facts,
            state: question,
        };
        self.handle.published().announce_question(Arc::new(view));
    }

    /// Samples the CPU time of a session whose keeper has reported its last output, so that a later question can say
    /// how busy the session was since then.
    pub fn sample_cpu(&self, engine: &Engine, id: SessionId, quiet_since: Mono) {
        let Some(session) = engine.session(id) else {
            return;
        };
        (self.handle).sample_cpu(id, session, quiet_since, || {
            let meta = keeper_record::read_meta(&self.keepers.folder(id));
            meta.ok().flatten().map(|meta| cpu_ms(&meta))
        });
    }

    /// Writes that a held command has expired or was withdrawn into the audit log.
    fn audit_closed(&self, question: QuestionId, closing: Closing) {
        let view = self.handle.published().question(question);
        let Some((view, held)) = view
            .as_ref()
            .and_then(|view| Some((view, view.state.held()?)))
        else {
            return;
        };
        let secrets = HeldLaunch::secrets_of(held);
        self.handle.audit().append(AuditLine {
            event: closing.as_str().into(),
            agent: view.agent.0.to_string(),
            command: Mask::of(secrets).apply(view.command.to_string()),
            question_id: Some(question.to_string()),
            ..AuditLine::default()
        });
    }

    /// Converts a limit that counts from now into one that counts from the start of the session.
    fn deadline_changed(&mut self, engine: &Engine, id: SessionId, from_now: Millis, now: Now) {
        let created = engine.session(id).map(|session| session.created);
        if let (Some(created), Some(known)) = (created, self.known.get_mut(&id)) {
            let ran = Millis(now.wall.0.saturating_sub(created.0));
            known.details.deadline = Some(ran + from_now);
        }
    }

    fn publish(&mut self, engine: &Engine, id: SessionId) {
        let Some(state) = engine.session(id) else {
            tracing::debug!(session = %id, "forgotten");
            self.known.remove(&id);
            self.handle.published().forget(id);
            self.handle.forget(id);
            return;
        };
        let known = self.known.entry(id).or_insert_with(|| {
            let mut details = self.recovered.remove(&id).unwrap_or_default();
            let secrets = std::mem::take(&mut details.secrets);
            self.handle.remember_secrets(id, Arc::new(secrets));
            KnownSession {
                details,
                started_here: false,
            }
        });
        let details = &known.details;
        self.handle.published().publish(SessionView {
            id,
            state: state.clone(),
            cwd: details.cwd.clone(),
            pty: details.pty,
            contained_by: self.keepers.contained_by(id),
            sandboxed: self.keepers.sandboxed(id),
            ports: self.keepers.published_ports(id),
            folder: self.keepers.folder(id),
            deadline: details.deadline,
            damage: details.damage.clone(),
            name: details.name.clone(),
            readers: Arc::default(),
            uses: Arc::default(),
        });
        let pty = details.pty.then_some(known.started_here);
        match (&state.phase, pty) {
            (Phase::Running { .. }, Some(started_here)) => {
                self.handle.screens().track(id, started_here);
            }
            (Phase::Failed { .. }, _) => self.keepers.forget(id),
            (Phase::Starting | Phase::Running { .. } | Phase::Leftover { .. }, _)
            | (Phase::Ended { .. }, _) => {}
        }
    }

    fn send_update(&self, calls: &HashMap<CallId, OpenCall>, call: CallId, update: Update) {
        let Some(open) = calls.get(&call) else { return };
        let update = match update {
            Update::Accepted(session) => CallUpdate::Accepted(session),
            Update::Closed(question, _) => CallUpdate::Closed(question),
            Update::Asked(question) => {
                let Some(view) = self.handle.published().question(question) else {
                    return;
                };
                CallUpdate::Asked(view)
            }
        };
        // A full queue loses an update, never the answer.
        let _ = open.reply.updates.try_send(update);
    }
}

/// Part of a launch that the directory of the session records.
fn launch_record(
    id: SessionId,
    session: &Session,
    launch: &LaunchOptions,
    deadline: Option<Millis>,
    created: Wall,
    config: &Config,
) -> frame::LaunchRecord {
    frame::LaunchRecord {
        session: id.to_string(),
        deadline_ms: deadline.map(|limit| limit.0),
        created_wall_ms: created.0,
        agent: session.agent.0.to_string(),
        command: session.command.as_bytes().to_vec(),
        cwd: into_bytes(launch.cwd.clone().into_os_string()),
        pty: launch.pty.map(|(cols, rows)| frame::Size { cols, rows }),
        idle_ms: session.idle.map(|idle| idle.0),
        inactivity_ms: session.inactivity.map(|limit| limit.0),
        log_quota: config.log_quota,
        keys: session.keys.iter().map(|key| key.0.to_string()).collect(),
        conversation: session.conversation.as_ref().map(|of| of.0.to_string()),
        started_by: session.started_by.name(),
        name: launch.name.as_ref().map(|name| name.as_str().to_owned()),
        grace_ms: config.kill_grace_ms(),
        secret_fingerprints: launch.secrets.to_bytes(),
    }
}

fn containment_choice(containment: Containment) -> frame::ContainmentChoice {
    match containment {
        Containment::Auto => frame::ContainmentChoice::Auto,
        Containment::Cgroup => frame::ContainmentChoice::Cgroup,
        Containment::PidNamespace => frame::ContainmentChoice::PidNamespace,
        Containment::Subreaper => frame::ContainmentChoice::Subreaper,
    }
}

/// Arguments of the process: those that were given, else the shell with the command.
fn arguments(given: Option<Vec<OsString>>, command: &str, shell: &[String]) -> Vec<Vec<u8>> {
    match given {
        Some(given) => given.into_iter().map(into_bytes).collect(),
        None => {
            let words = shell.iter().map(String::as_str).chain([command]);
            words.map(|word| word.as_bytes().to_vec()).collect()
        }
    }
}

fn into_bytes(text: OsString) -> Vec<u8> {
    std::os::unix::ffi::OsStringExt::into_vec(text)
}

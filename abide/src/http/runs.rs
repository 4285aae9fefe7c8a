//! `POST /v1/runs`, the daemon's side of `abide run`: starts a command or joins it again, and streams
//! its output and outcome. The stream may break at any byte; the same request with a later offset
//! resumes it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use abide_api::arguments::{FromArgument, PositiveSeconds};
use abide_api::{CommandTool, Id, RunAccepted, RunEnded, RunOutcome, Session};
use abide_core::held::Approval;
use abide_core::session::{End, Phase};
use abide_core::wait::Asking;
use abide_core::{Agent, Key, Millis, Outcome, Request, Run, SessionId, WhyRunning};
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;

use super::body::JsonBody;
use super::frame::{self, Frame};
use super::log_stream::{LogTail, frames, output_end};
use super::problem::{Problem, json};
use super::requester::{self, Requester};
use super::run_request::{OsText, RunBody, StdinKind, quoted};
use super::sessions::session_for;
use super::state::State;
use crate::tools::{CommandCaller, StartDecision, not_started, question_fields, refused_to_person};
use abide_engine::config;
use abide_engine::entropy;
use abide_engine::sandbox::{
    SandboxChoice, SandboxSubject, SandboxWish, WishOf, confine_environment,
};
use abide_engine::{CallStep, CallUpdate, Handle, LaunchOptions, PendingCall, SessionView, Stdin};
use abide_output::mask;
use abide_output::secret_fingerprints::SecretFingerprints;

pub async fn run(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let body: RunBody = body.into()?;
    let from = body.from;
    // If a command inside a session sent this request, its terminal is not operated by a person.
    let asking = if body.terminal && requester.may_be_at_terminal() {
        Asking::Here
    } else {
        Asking::Elsewhere
    };
    let wish = SandboxWish {
        mode: body.sandbox,
        network: body.network,
    };
    let (mut run, mut launch) = parse_request(body, asking)?;
    launch.inherited_limits = requester::inherited_limits(&headers)?;
    if requester.is_a_model() {
        launch.secrets = Arc::new(secrets_in(&launch.env));
    }
    // The words are executed, whatever the command line says.
    if !requester.may_be_a_person()
        && let Some(argv) = &launch.argv
    {
        let words: Vec<String> = argv.iter().map(|word| quoted(word)).collect();
        run.command = words.join(" ").into();
    }
    let agent = requester.acting_agent();
    let published = state.handle.published();
    let known = run.key.as_ref();
    let known = known.and_then(|key| published.session_under_key(&agent, key, &run.command));
    // The settings may have changed since: a command that was started is neither judged nor refused again.
    let (request, launch) = match known {
        Some(session) => (join(session, asking), None),
        None => {
            confine(&mut launch, &state.handle, &requester, wish)?;
            if !requester.may_be_a_person() {
                run.approval = judge(&state.handle, &agent, &run, &launch)?;
            }
            (Request::Run(run), Some(launch))
        }
    };
    let mut run_stream = RunStream {
        pending: state.handle.call(requester.caller(), request, launch).await,
        state,
        requester,
        asking,
        from,
        session: None,
        tail: None,
        outcome: None,
        ready: VecDeque::new(),
        ended_sent: false,
    };
    run_stream.wait_until_accepted().await?;
    let body = Body::from_stream(stream::try_unfold(run_stream, RunStream::next));
    Ok(([(header::CONTENT_TYPE, frame::MEDIA_TYPE)], body).into_response())
}

/// Fingerprints of the secrets among the variables that a request gives its command.
fn secrets_in(env: &[(OsString, OsString)]) -> SecretFingerprints {
    let texts = (env.iter()).filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    mask::fingerprint_secrets(texts, entropy::array)
}

fn join(session: SessionId, asking: Asking) -> Request {
    Request::Join {
        session,
        asking,
        standby: None,
    }
}

/// Approval that the command of an agent needs.
fn judge(
    handle: &Handle,
    agent: &Agent,
    run: &Run,
    launch: &LaunchOptions,
) -> Result<Option<Arc<Approval>>, Problem> {
    let inherited: Vec<_> = std::env::vars_os().collect();
    let caller = CommandCaller {
        agent,
        conversation: None,
        workspace: &launch.cwd,
        inherited: &inherited,
        asking: run.asking,
    };
    match caller.judge(handle, &run.command, launch) {
        StartDecision::Start => Ok(None),
        StartDecision::Approve(approval) => Ok(Some(approval)),
        StartDecision::Refused(result) => Err(Problem::forbidden(result.text)),
    }
}

fn parse_request(body: RunBody, asking: Asking) -> Result<(Run, LaunchOptions), Problem> {
    if body.command.trim().is_empty() || body.command.contains('\0') {
        return Err(Problem::bad_input(
            "`command` must be text without NUL bytes, and not blank",
        ));
    }
    if body.key.is_empty() {
        return Err(Problem::bad_input(
            "`key` is required and must not be empty",
        ));
    }
    let os = |field: &str, text: OsText| {
        text.into_os()
            .ok_or_else(|| Problem::bad_input(format!("`{field}` must not contain NUL bytes")))
    };
    let argv = match body.argv {
        None => None,
        Some(argv) if argv.is_empty() => {
            return Err(Problem::bad_input("`argv` must name what to execute"));
        }
        Some(argv) => Some(
            argv.into_iter()
                .map(|word| os("argv", word))
                .collect::<Result<_, _>>()?,
        ),
    };
    let mut env = Vec::with_capacity(body.env.len());
    for (name, value) in body.env {
        env.push((os("env", name)?, os("env", value)?));
    }
    if body.pty.is_none() {
        config::add_pipe_default(&mut env);
    }
    let launch = LaunchOptions {
        argv,
        cwd: os("cwd", body.cwd)?.into(),
        env,
        stdin: match body.stdin {
            StdinKind::None => Stdin::None,
            StdinKind::Open => Stdin::Open,
        },
        pty: body.pty.map(|size| (size.cols, size.rows)),
        inherited_limits: None,
        secrets: Arc::default(),
        sandbox: SandboxChoice::Off,
        beyond_settings: None,
        name: requester::session_name(body.name.as_deref())?,
    };
    let run = Run {
        command: body.command.into(),
        deadline: limit("timeout", body.timeout)?,
        idle: limit("idle", body.idle)?,
        inactivity: None,
        asking,
        standby: None,
        detach: false,
        key: Some(Key(format!("run:{}", body.key).into())),
        approval: None,
    };
    Ok((run, launch))
}

/// Gives the command its sandbox. A person chooses freely; an agent, or a command inside a session, is bound by the
/// configuration.
fn confine(
    launch: &mut LaunchOptions,
    handle: &Handle,
    requester: &Requester,
    wish: SandboxWish,
) -> Result<(), Problem> {
    let agent = requester.acting_agent();
    let of = match requester.may_be_at_terminal() {
        true => WishOf::Person,
        false => WishOf::Agent,
    };
    let subject = SandboxSubject {
        config: &handle.config(),
        paths: handle.paths(),
        policy: handle.policy(),
        agent: &agent,
        conversation: None,
        root: &launch.cwd,
        // An agent must not choose the proxy through which the gate of its sandbox dials.
        env: match of {
            WishOf::Person => &launch.env,
            WishOf::Agent => &[],
        },
    };
    let sandbox = (subject.choose(of, wish)).map_err(|refused| Problem::bad_input(refused.0))?;
    confine_environment(&sandbox, &mut launch.env);
    launch.sandbox = sandbox;
    Ok(())
}

fn limit(field: &str, seconds: Option<f64>) -> Result<Option<Millis>, Problem> {
    let limit = seconds.map(|seconds| PositiveSeconds::read(field, seconds.into()));
    Ok(limit.transpose()?.map(|PositiveSeconds(limit)| limit))
}

/// Run in progress, and the part of it that the client has received.
struct RunStream {
    state: State,
    requester: Requester,
    asking: Asking,
    pending: PendingCall,
    /// Log offset up to which the client has received output.
    from: u64,
    session: Option<SessionId>,
    tail: Option<LogTail>,
    outcome: Option<Outcome>,
    ready: VecDeque<Frame>,
    ended_sent: bool,
}

impl RunStream {
    /// Waits for the first step of the call, so that a refusal becomes an error response instead of a frame.
    async fn wait_until_accepted(&mut self) -> Result<(), Problem> {
        let step = self.pending.next().await.ok_or_else(Problem::stopping)?;
        if let CallStep::Done(Outcome::Refused(refusal)) = &step {
            return Err(Problem::from(refusal));
        }
        self.handle_step(step).await;
        Ok(())
    }

    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        while !self.ended_sent {
            // If new output closed a question, that output is sent before the closing.
            let closed = matches!(self.ready.front(), Some(Frame::Closed(_)));
            if !closed && let Some(frame) = self.ready.pop_front() {
                return Ok(Some((frame.encode(), self)));
            }
            if let Some(tail) = &mut self.tail {
                let page = tail.page().await?;
                if !page.is_empty() {
                    let bytes = frames(page, &mut self.from, None);
                    return Ok(Some((bytes, self)));
                }
            }
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some((frame.encode(), self)));
            }
            if let Some(outcome) = self.outcome.take() {
                self.finish(&outcome);
            } else if !self.wait().await {
                // The daemon is stopping. The client reconnects and resumes the session.
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front().map(|last| (last.encode(), self)))
    }

    /// Waits for output or for a step of the call. `false`: the daemon is stopping.
    async fn wait(&mut self) -> bool {
        let grown = async {
            let grown = match &mut self.tail {
                Some(tail) => tail.wait().await,
                None => false,
            };
            if !grown {
                std::future::pending::<()>().await;
            }
        };
        let step = tokio::select! {
            biased;
            step = self.pending.next() => step,
            () = grown => return true,
        };
        match step {
            Some(step) => {
                self.handle_step(step).await;
                true
            }
            None => false,
        }
    }

    async fn handle_step(&mut self, step: CallStep) {
        match step {
            CallStep::Update(CallUpdate::Accepted(session)) => self.accept(session),
            // Only a person's terminal shows questions.
            CallStep::Update(CallUpdate::Asked(question)) if self.asking.reaches_a_person() => self
                .ready
                .push_back(Frame::Question(Box::new(question_fields(&question)))),
            CallStep::Update(CallUpdate::Asked(_)) => {}
            CallStep::Update(CallUpdate::Closed(question)) => {
                self.ready.push_back(Frame::Closed(question))
            }
            CallStep::Done(Outcome::Running(
                session,
                WhyRunning::NobodyToAsk | WhyRunning::Standby,
            )) => {
                // The question reached no person, but the client still waits: join the session again.
                let request = join(session, self.asking);
                self.pending = (self.state.handle)
                    .call(self.requester.caller(), request, None)
                    .await;
            }
            CallStep::Done(outcome) => self.set_outcome(outcome),
        }
    }

    fn accept(&mut self, session: SessionId) {
        if self.session.is_some() {
            return;
        }
        self.session = Some(session);
        let accepted = RunAccepted {
            session_id: Id(session),
            from: self.from,
        };
        self.ready.push_back(Frame::Accepted(accepted));
        let handle = &self.state.handle;
        if let Some(view) = handle.published().session(session) {
            let tail = LogTail::open(handle, &self.requester, &view, self.from, None);
            self.tail = Some(tail);
        }
    }

    /// Records the outcome. The rest of the output is sent before it.
    fn set_outcome(&mut self, outcome: Outcome) {
        if let Some(view) = self.view(&outcome) {
            self.accept(view.id);
            if let (Some(tail), Some(end)) = (&mut self.tail, output_end(&view)) {
                tail.end_at(end);
            }
        }
        self.outcome = Some(outcome);
    }

    fn finish(&mut self, outcome: &Outcome) {
        self.ended_sent = true;
        let view = self.view(outcome);
        if let (Some(tail), Some(end)) = (&self.tail, view.as_deref().and_then(output_end))
            && tail.at() < end
        {
            self.ready.push_back(Frame::Gap(end - tail.at()));
        }
        let session = view.as_deref();
        let session = session.map(|view| session_for(&self.state, &self.requester, view));
        self.ready.push_back(Frame::Ended(json(&run_ended(
            &self.state.handle,
            outcome,
            view.as_deref(),
            session,
        ))));
    }

    fn view(&self, outcome: &Outcome) -> Option<Arc<SessionView>> {
        let id = outcome.session().or(self.session)?;
        self.state.handle.published().session(id)
    }
}

/// Reason why a session that survives its kill should have ended. The keeper enforces the deadline
/// without the engine.
fn wanted_end(view: &SessionView) -> Option<End> {
    let by_itself = || view.deadline.map(|_| End::Deadline);
    view.state.phase.wanted_end().or_else(by_itself)
}

fn run_ended(
    handle: &Handle,
    outcome: &Outcome,
    view: Option<&SessionView>,
    mut session: Option<Session>,
) -> RunEnded {
    let mut wanted = None;
    let (run_outcome, error) = match outcome {
        // The processes cannot be killed, so the client would wait for ever.
        Outcome::Running(session, WhyRunning::SurvivesKill) => {
            wanted = view.and_then(wanted_end).map(Into::into);
            (
                RunOutcome::Undying,
                Some(crate::tools::survives_kill(*session)),
            )
        }
        Outcome::Declined(_, idle) => {
            let error = format!("command execution timeout: no output for {idle}");
            (RunOutcome::Declined, Some(error))
        }
        Outcome::Cancelled(_) => (
            RunOutcome::Cancelled,
            Some("command execution cancelled by user".into()),
        ),
        Outcome::Failed(_) => (RunOutcome::Failed, None),
        Outcome::NotStarted(session, question, why) => {
            let result = not_started(handle, CommandTool::Execute, *session, *question, why);
            (RunOutcome::Refused, Some(result.text))
        }
        Outcome::Refused(refusal) => (
            RunOutcome::Refused,
            Some(abide_engine::text::refusal_sentence(refusal)),
        ),
        Outcome::Started(_)
        | Outcome::Ended(_)
        | Outcome::Running(..)
        | Outcome::Timer(..)
        | Outcome::Timers(_)
        | Outcome::TimersMade(_)
        | Outcome::TimersObserved(_)
        | Outcome::TimersCounted(_)
        | Outcome::Messages(..)
        | Outcome::Done => (RunOutcome::Ended, None),
    };
    // The session's own error is reported in the same field.
    let own = session.as_mut().and_then(|session| session.error.take());
    let start_error = view.and_then(|view| match &view.state.phase {
        Phase::Failed { error, .. } => Some((*error).into()),
        _ => None,
    });
    RunEnded {
        session,
        outcome: run_outcome,
        error: error.or(own),
        start_error,
        wanted_end: wanted,
        refused: view.and_then(refused_to_person),
    }
}

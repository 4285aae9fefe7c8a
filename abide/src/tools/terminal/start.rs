//! `start`: starts a command that outlives the call, in a terminal of its own unless `pty` is false.

use std::ffi::OsStr;
use std::sync::Arc;

use abide_api::arguments::{Cols, Rows, StartArgs};
use abide_api::{ActionResult, CommandTool, ErrorCode};
use abide_core::terminal_wait::TerminalWait;
use abide_core::wait::Asking;
use abide_core::{Millis, Outcome, Request, Run, SessionId, limit};

use super::read::ending;
use super::send::LINES;
use super::{ActionError, ActionRunner, BadInput, Context, FinishedAction, unreadable};
use crate::tools::not_started::not_started;
use crate::tools::policy::{self, StartDecision};
use crate::tools::sandbox::SandboxArgs;
use crate::tools::{key, report, start_key, started_before};
use abide_engine::clock::SystemClock;
use abide_engine::{CallStep, CallUpdate, Handle, LaunchOptions, PendingCall, SessionView, Stdin};

/// `TERM` value of the emulated terminal.
const TERM: &str = "xterm-256color";

pub(in crate::tools) struct Start {
    pub begin: Begin,
    /// The call waits for the first output and returns it.
    pub shows_output: bool,
}

/// Begin of a start.
pub(in crate::tools) enum Begin {
    /// Starts a command.
    Run(Box<(Run, LaunchOptions)>),
    /// Waits for the session of the same call, which returned to ask a person or is repeated.
    Join(SessionId),
}

pub(super) fn read(args: StartArgs, context: &Context, handle: &Handle) -> Result<Start, BadInput> {
    let command = args.command.map(|text| text.0).unwrap_or_default();
    if command.trim().is_empty() {
        return Err(BadInput::new("ERROR: Command cannot be empty.".into()));
    }
    let pty = args.pty.unwrap_or(true);
    let (cols, rows) = size(args.cols, args.rows);
    let (cols, rows) = (
        cols.unwrap_or(limit::COLS_DEFAULT),
        rows.unwrap_or(limit::ROWS_DEFAULT),
    );
    let inactivity = match args.inactivity_timeout.map(|time| time.0) {
        None => Some(limit::INACTIVITY_DEFAULT),
        Some(Millis(0)) => None,
        Some(limit) => Some(limit),
    };
    let key = key(args.idempotency_key, context);
    let key = start_key(key, args.cwd.as_ref(), args.env.as_ref(), None);
    if let Some(session) = started_before(handle, context, key.as_ref(), &command) {
        return Ok(Start {
            begin: Begin::Join(session),
            shows_output: true,
        });
    }
    let names_term = (args.env.iter().flat_map(|env| &env.0)).any(|(name, _)| name == "TERM");
    let asked = SandboxArgs {
        sandbox: args.sandbox,
        network: args.network,
        needs: args.needs,
        justification: args.justification,
    };
    let launch = report::launch_options(args.cwd, args.env, None, asked, pty, context, handle)?;
    let mut launch = LaunchOptions {
        stdin: Stdin::Open,
        pty: pty.then_some((cols, rows)),
        name: context.session_name.clone(),
        ..launch
    };
    if pty && !names_term {
        (launch.env).retain(|(name, _)| !of_another_terminal(name));
        launch.env.push(("TERM".into(), TERM.into()));
    }
    let run = Run {
        command: command.into(),
        deadline: None,
        idle: None,
        inactivity,
        asking: Asking::Never,
        standby: context.standby_left(),
        detach: true,
        key,
        approval: None,
    };
    Ok(Start {
        begin: Begin::Run(Box::new((run, launch))),
        shows_output: true,
    })
}

/// Columns and rows as `u16`. The casts lose nothing: the argument types have the bounds of a screen.
pub(super) fn size(cols: Option<Cols>, rows: Option<Rows>) -> (Option<u16>, Option<u16>) {
    (
        cols.map(|cols| cols.0 as u16),
        rows.map(|rows| rows.0 as u16),
    )
}

/// True for variables that describe the caller's own terminal.
fn of_another_terminal(name: &OsStr) -> bool {
    let names = [
        "TERM",
        "COLUMNS",
        "LINES",
        "TERMCAP",
        "COLORTERM",
        "TERM_PROGRAM",
    ];
    names.iter().any(|known| name == OsStr::new(known))
}

impl ActionRunner {
    /// Starts a command, and answers when it has shown its first output.
    pub(super) async fn start(&self, start: Start) -> FinishedAction {
        let mut caller = self.caller();
        caller.agent = Some(self.context.agent.clone());
        let (request, launch) = match start.begin {
            Begin::Join(session) => {
                let request = Request::JoinStart {
                    session,
                    asking: self.context.asking,
                    standby: self.context.standby_left(),
                };
                (request, None)
            }
            Begin::Run(begin) => {
                let (mut run, launch) = *begin;
                match policy::judge(&self.handle, &self.context, &run.command, &launch) {
                    StartDecision::Start => {}
                    StartDecision::Approve(approval) => run.approval = Some(approval),
                    StartDecision::Refused(result) => return Ok((*result).into()),
                }
                (Request::Run(run), Some(launch))
            }
        };
        let pending = self.handle.call(caller, request, launch).await;
        let (outcome, guard) = self.started(pending, start.shows_output).await;
        let outcome = outcome.ok_or(ActionError::Stopping)?;
        if let Outcome::NotStarted(session, question, why) = &outcome {
            let tool = CommandTool::Execute;
            let held = not_started(&self.handle, tool, *session, *question, why);
            return Ok(held.into());
        }
        if let Outcome::Refused(refusal) = &outcome {
            return Err(ActionError::from(refusal));
        }
        let Some(view) = report::session_of(&self.handle, &outcome) else {
            return Ok(report::vanished().into());
        };
        if let Some(fault) = report::fault(&view) {
            let fault = self.mask(&view, fault.to_owned());
            let action = ActionResult::Start {
                pty: view.pty,
                error: Some(fault.clone()),
                alternate_screen: None,
            };
            let mut failed = self.result(&view, fault, action);
            failed.error = Some(ErrorCode::Conflict);
            return Ok(failed.into());
        }
        if start.shows_output {
            let guard = match guard {
                Some(guard) => guard,
                None => self.attend(view.id).await,
            };
            return self.first_output(view, guard).await;
        }
        let action = ActionResult::Start {
            pty: view.pty,
            error: None,
            alternate_screen: None,
        };
        Ok(self.result(&view, started(&view), action).into())
    }

    /// Waits for the start, and passes on questions about the command. `attends`: the session is kept active from its
    /// begin, so that the end of a short command counts as told by this call.
    async fn started(
        &self,
        mut pending: PendingCall,
        attends: bool,
    ) -> (Option<Outcome>, Option<PendingCall>) {
        let mut guard = None;
        loop {
            let step = tokio::select! {
                biased;
                step = pending.next() => step,
                () = self.person_unreachable.notified() => {
                    pending.person_unreachable();
                    continue;
                }
            };
            match step {
                None => return (None, guard),
                Some(CallStep::Done(outcome)) => return (Some(outcome), guard),
                Some(CallStep::Update(CallUpdate::Accepted(session))) if attends => {
                    guard = Some(self.attend(session).await);
                }
                Some(CallStep::Update(CallUpdate::Accepted(_))) => {}
                // A full queue loses a question, never the answer.
                Some(CallStep::Update(update)) => drop(self.steps.try_send(update)),
            }
        }
    }

    async fn first_output(&self, view: Arc<SessionView>, mut guard: PendingCall) -> FinishedAction {
        let record = self.handle.daemon_record(view.id);
        let from = self.position(&view, &record);
        let mut reading = self.reading(&view);
        let wait = TerminalWait::start(SystemClock.mono(), self.context.standby_left());
        let found = reading
            .response(from, LINES, wait, (0, 0))
            .await
            .map_err(unreadable)?;
        self.has_read(&view, &record, found.cursor);
        let view = self.settled(&view, &reading, &mut guard).await;
        // The screen of a program that writes lines is not built: it takes memory for as long as the session runs.
        let screen = match reading.has_full_screen_program() {
            true => self.full_screen(&view).await,
            false => None,
        };
        let alternate_screen = screen.is_some().then_some(true);
        let mut text = started(&view);
        let output = screen.unwrap_or_else(|| found.text());
        if !output.is_empty() {
            text.push('\n');
            text.push_str(output.trim_end_matches('\n'));
        }
        if let Some(ending) = ending(&view) {
            text.push('\n');
            text.push_str(&ending);
        }
        let activity = match found.ends_with_complete_line() {
            true => None,
            false => self.activity(&view),
        };
        let summary = report::summary_with(&view, view.is_running(), reading.extent(&found));
        let action = ActionResult::Start {
            pty: view.pty,
            error: None,
            alternate_screen,
        };
        let text = self.mask(&view, text);
        let result = self.result_of(&view, summary, text, activity, action);
        let ended = (!view.is_running()).then_some(view.id);
        let finished = self.finished(result, guard, record, reading);
        Ok(finished.reporting_end_of(ended))
    }
}

/// First line of the result of a start.
fn started(view: &SessionView) -> String {
    format!("Session '{}' started", view.id)
}

//! `shell`: runs a command to its end under a deadline.

use abide_api::arguments::ShellArgs;
use abide_api::{ErrorCode, ShellResult, ShellStatus, ToolOutput, ToolResult};
use abide_core::session::End;
use abide_core::wait::Asking;
use abide_core::{Millis, Outcome, Run, WhyRunning, limit};
use abide_output::printable::visible;
use serde_json::{Map, Value};

use super::output;
use super::report::{self, OutputLimits};
use super::{BadInput, Context, key};
use abide_engine::config::Config;
use abide_engine::{Handle, Launch, SessionView};

/// Arguments that the result depends on.
pub(super) struct Shell {
    command: String,
    timeout: Millis,
    output: OutputLimits,
}

pub(super) fn read(
    arguments: Map<String, Value>,
    context: &Context,
    config: &Config,
) -> Result<(Run, Launch, Shell), BadInput> {
    let mut args = ShellArgs::read(arguments, "this tool")?;
    let command = args.command.take().map(|text| text.0).unwrap_or_default();
    if command.trim().is_empty() {
        return Err(BadInput("ERROR: Shell command cannot be empty.".into()));
    }
    let timeout = args.timeout.take();
    let timeout = timeout.map_or(limit::DEADLINE_DEFAULT, |timeout| timeout.0);
    let key = key(args.idempotency_key.take(), context);
    let (launch, output) = report::read_common(args, context, config);
    let run = Run {
        command: command.as_str().into(),
        deadline: Some(timeout),
        idle: None,
        inactivity: None,
        asking: Asking::Never,
        standby: context.standby,
        detach: false,
        key,
    };
    Ok((
        run,
        launch,
        Shell {
            command,
            timeout,
            output,
        },
    ))
}

impl Shell {
    pub(super) async fn result(
        &self,
        handle: &Handle,
        outcome: Outcome,
        standby: Option<Millis>,
    ) -> ToolResult {
        let Some(view) = report::session_of(handle, &outcome) else {
            return report::vanished();
        };
        let running = matches!(outcome, Outcome::Running(..));
        let undying = matches!(outcome, Outcome::Running(_, WhyRunning::Undying));
        let mut summary = report::summary(&view, running);
        // `extend` may have moved the deadline since the call was made.
        let limit = view.deadline.unwrap_or(self.timeout);
        let (status, code) = match undying && summary.duration >= report::in_seconds(limit) {
            true => (ShellStatus::TimeoutError, Some(-1)),
            false => self.status(&view, running),
        };
        let timed_out = status == ShellStatus::TimeoutError;
        let mut warnings = Vec::new();
        if timed_out {
            let secs = limit.0 / 1_000;
            let captured = match summary.bytes_total {
                0 => {
                    "No output was captured; a program that buffers its output on a pipe loses it when killed."
                }
                _ => "Partial output captured.",
            };
            warnings.push(format!("Command timed out after {secs}s. {captured}"));
        }
        if let Outcome::Cancelled(_) = outcome {
            warnings.push("command execution cancelled by user".into());
        } else if !running && !timed_out {
            warnings.extend(report::not_by_itself(&view).map(str::to_owned));
        }
        let (out, err) = report::two_streams(&view, &self.output).await;
        let mut error = report::fault(&view);
        let stderr = error.clone().unwrap_or_else(|| err.digested.text.clone());
        for (name, stream) in [("stdout", &out), ("stderr", &err)] {
            warnings.extend(report::shortened(name, &stream.digested, view.id));
        }
        warnings.extend(report::leftovers(&view, &mut summary));
        let (quota, streams) = (handle.config().log_quota, [&out, &err]);
        warnings.extend(output::lost(&view, quota, &streams, &mut summary));
        let unread = output::unread(&view, &streams);
        if let Some(unread) = &unread {
            error = Some(unread.clone());
            warnings.push(unread.clone());
        }
        let (mut activity, mut effective_timeout) = (None, None);
        if undying {
            warnings.extend(report::undying(&view, &mut summary));
        } else if running {
            let note = report::still_running(&view);
            effective_timeout = standby.map(report::in_seconds);
            let cut = standby.map(report::cut_at).unwrap_or_default();
            warnings.push(format!("still running; this call waited {cut}. {note}"));
            activity = report::sampled_activity(&view).await;
        }
        let return_code = code;
        let code = code.map_or_else(String::new, |code| code.to_string());
        let mut text = format!(
            "COMMAND: {}\nSTATUS: {}\nRETURN_CODE: {code}\nSTDOUT:\n{}\nSTDERR:\n{stderr}",
            visible(&self.command),
            status.as_str(),
            out.digested.text
        );
        for warning in warnings {
            text.push_str("\nWARNING: ");
            text.push_str(&warning);
        }
        let failed = matches!(outcome, Outcome::Cancelled(_)) || unread.is_some();
        report::mask_processes(&mut summary, |text| self.output.mask(text));
        let output = ShellResult {
            session: summary,
            status,
            return_code,
            effective_timeout,
            error,
            activity,
        };
        ToolResult {
            error: failed.then_some(ErrorCode::Fault),
            ..ToolResult::new(self.output.mask(text), ToolOutput::Shell(Box::new(output)))
        }
    }

    fn status(&self, view: &SessionView, running: bool) -> (ShellStatus, Option<i32>) {
        if running {
            return (ShellStatus::Running, None);
        }
        let Some(ending) = view.ending() else {
            return (ShellStatus::FatalError, Some(-2));
        };
        if ending.end == End::Deadline {
            return (ShellStatus::TimeoutError, Some(-1));
        }
        match ending.exit.map(|exit| exit.shell_code()) {
            Some(0) => (ShellStatus::Success, Some(0)),
            code => (ShellStatus::Error, code),
        }
    }
}

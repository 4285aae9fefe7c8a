//! `execute_command`: runs a command as long as it shows activity, and asks a person when it has been idle too long.

use abide_api::arguments::ExecuteCommandArgs;
use abide_api::{ErrorCode, ExecuteCommandResult, ToolOutput, ToolResult};
use abide_core::{Millis, Outcome, Run, WhyRunning, limit};
use serde_json::{Map, Value};

use super::output;
use super::report::{self, OutputLimits};
use super::{BadInput, Context, key};
use abide_engine::config::Config;
use abide_engine::{Handle, Launch};

/// Arguments that the result depends on.
pub(super) struct Execute {
    idle: Millis,
    output: OutputLimits,
}

pub(super) fn read(
    arguments: Map<String, Value>,
    context: &Context,
    config: &Config,
) -> Result<(Run, Launch, Execute), BadInput> {
    let mut args = ExecuteCommandArgs::read(arguments, "this tool")?;
    let command = args.command.take().map(|text| text.0).unwrap_or_default();
    if command.trim().is_empty() {
        return Err(BadInput("ERROR: Command cannot be empty.".into()));
    }
    let idle = args.timeout.take();
    let idle = idle.map_or(limit::IDLE_DEFAULT, |idle| idle.0);
    let key = key(args.idempotency_key.take(), context);
    let (launch, output) = report::read_common(args, context, config);
    let run = Run {
        command: command.into(),
        deadline: None,
        idle: Some(idle),
        inactivity: None,
        asking: context.asking,
        standby: context.standby,
        detach: false,
        key,
    };
    Ok((run, launch, Execute { idle, output }))
}

impl Execute {
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
        let written = report::one_stream(&view, &self.output).await;
        let mut summary = report::summary(&view, running);
        let mut last = None;
        let mut error = None;
        let mut effective_timeout = None;
        if let Outcome::Running(_, WhyRunning::NobodyToAsk | WhyRunning::Standby) = &outcome {
            effective_timeout = standby.map(report::in_seconds);
        }
        match &outcome {
            Outcome::Declined(_, idle) => {
                error = Some(format!("command execution timeout: no output for {idle}"));
            }
            Outcome::Cancelled(_) => error = Some("command execution cancelled by user".into()),
            Outcome::Running(_, WhyRunning::Undying) => {
                last = report::undying(&view, &mut summary);
            }
            Outcome::Running(_, WhyRunning::NobodyToAsk) => {
                let note = report::still_running(&view);
                // `extend` may have moved the idle limit since the call was made.
                let idle = view.state.idle.unwrap_or(self.idle);
                last = Some(format!(
                    "[still running: no output for {idle} and nobody can be asked. {note}]"
                ));
            }
            Outcome::Running(_, WhyRunning::Standby) => {
                let note = report::still_running(&view);
                let cut = standby.map(report::cut_at).unwrap_or_default();
                last = Some(format!("[still running; this call waited {cut}. {note}]"));
            }
            _ => match report::fault(&view) {
                Some(fault) => error = Some(fault.to_string()),
                None => last = Some(abide_engine::text::ending_line(&view)),
            },
        }
        let activity = match running {
            true => report::sampled_activity(&view).await,
            false => None,
        };
        let mut unread = output::unread(&view, &[&written]);
        if error.is_none() {
            error = unread.take();
        }
        let quota = handle.config().log_quota;
        let notes = [
            report::shortened("output", &written.digested, view.id),
            report::leftovers(&view, &mut summary),
            output::lost(&view, quota, &[&written], &mut summary),
            unread,
        ];
        let notes = notes.into_iter().flatten().map(|note| format!("[{note}]"));
        // The state of the command comes last, where readers look for it.
        let lines: Vec<String> = notes.chain(last).collect();
        let mut text = String::new();
        if let Some(error) = &error {
            text.push_str(error);
            text.push('\n');
        }
        if !written.digested.text.is_empty() {
            text.push_str(&written.digested.text);
            text.push('\n');
        }
        text.push_str(&lines.join("\n"));
        text.truncate(text.trim_end_matches('\n').len());
        report::mask_processes(&mut summary, |text| self.output.mask(text));
        let failed = error.is_some();
        let output = ExecuteCommandResult {
            session: summary,
            status: report::status(&view, running),
            effective_timeout,
            error,
            activity,
        };
        ToolResult {
            error: failed.then_some(ErrorCode::Fault),
            ..ToolResult::new(
                self.output.mask(text),
                ToolOutput::ExecuteCommand(Box::new(output)),
            )
        }
    }
}

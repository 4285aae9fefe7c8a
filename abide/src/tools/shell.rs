//! `shell`: run to the end, under a hard limit.

use abide_core::session::End;
use abide_core::wait::Asking;
use abide_core::{Millis, Outcome, Run, WhyRunning, limit};
use abide_output::printable::visible;
use serde_json::{Map, Value, json};

use super::output;
use super::report::{self, OutputLimits};
use super::{Args, BadInput, Context, ToolResult, key};
use abide_engine::config::Config;
use abide_engine::{Handle, Launch, SessionView};

pub(super) const FIELDS: &str =
    "command, timeout, cwd, env, stdin, max_output, raw, idempotency_key";

/// What the result needs to know of the arguments.
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
    let mut args = Args::new(arguments);
    let command = args.text("command")?.unwrap_or_default();
    if command.trim().is_empty() {
        return Err(BadInput("ERROR: Shell command cannot be empty.".into()));
    }
    let timeout = args
        .whole_seconds("timeout")?
        .unwrap_or(limit::DEADLINE_DEFAULT);
    let (launch, output) = report::read_common(&mut args, context, config)?;
    let run = Run {
        command: command.as_str().into(),
        deadline: Some(timeout),
        idle: None,
        inactivity: None,
        asking: Asking::Never,
        standby: context.standby,
        detach: false,
        key: key(&mut args, context)?,
    };
    args.finish(FIELDS)?;
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
        let mut facts = report::session_facts(&view, running);
        // The limit may have been moved since the call was made.
        let limit = view.deadline.unwrap_or(self.timeout);
        let (status, code) = match undying && is_over(limit, &facts) {
            true => ("TIMEOUT_ERROR", Some(-1)),
            false => self.status(&view, running),
        };
        let mut warnings = Vec::new();
        if status == "TIMEOUT_ERROR" {
            let secs = limit.0 / 1_000;
            let captured = match facts.get("bytes_total").and_then(Value::as_u64) {
                Some(0) => {
                    "No output was captured; a program that buffers its output on a pipe loses it when killed."
                }
                _ => "Partial output captured.",
            };
            warnings.push(format!("Command timed out after {secs}s. {captured}"));
        }
        if let Outcome::Cancelled(_) = outcome {
            warnings.push("command execution cancelled by user".into());
        } else if !running && status != "TIMEOUT_ERROR" {
            warnings.extend(report::not_by_itself(&view).map(str::to_owned));
        }
        let (out, err) = report::two_streams(&view, &self.output).await;
        let stderr = match report::fault(&view) {
            Some(fault) => {
                facts.insert("error".into(), json!(fault));
                fault.to_string()
            }
            None => err.digested.text.clone(),
        };
        for (name, stream) in [("stdout", &out), ("stderr", &err)] {
            warnings.extend(report::shortened(name, &stream.digested, view.id));
        }
        warnings.extend(report::leftovers(&view, &mut facts));
        let (quota, streams) = (handle.config().log_quota, [&out, &err]);
        warnings.extend(output::lost(&view, quota, &streams, &mut facts));
        let unread = output::unread(&view, &streams);
        if let Some(unread) = &unread {
            facts.insert("error".into(), json!(unread));
            warnings.push(unread.clone());
        }
        if undying {
            warnings.extend(report::undying(&view, &mut facts));
        } else if running {
            let note = report::still_running(&view, standby, &mut facts);
            let cut = standby.map(report::cut_at).unwrap_or_default();
            warnings.push(format!("still running; this call waited {cut}. {note}"));
            report::kernel_facts(&view, &mut facts).await;
        }
        facts.insert("status".into(), json!(status));
        facts.insert("return_code".into(), json!(code));
        let code = code.map_or_else(String::new, |code| code.to_string());
        let mut text = format!(
            "COMMAND: {}\nSTATUS: {status}\nRETURN_CODE: {code}\nSTDOUT:\n{}\nSTDERR:\n{stderr}",
            visible(&self.command),
            out.digested.text
        );
        for warning in warnings {
            text.push_str("\nWARNING: ");
            text.push_str(&warning);
        }
        let is_error = matches!(outcome, Outcome::Cancelled(_)) || unread.is_some();
        report::mask_processes(&mut facts, |text| self.output.mask(text));
        ToolResult {
            text: self.output.mask(text),
            facts,
            is_error,
        }
        .sealed()
    }

    fn status(&self, view: &SessionView, running: bool) -> (&'static str, Option<i32>) {
        if running {
            return ("RUNNING", None);
        }
        let Some(ending) = view.ending() else {
            return ("FATAL_ERROR", Some(-2));
        };
        if ending.end == End::Deadline {
            return ("TIMEOUT_ERROR", Some(-1));
        }
        match ending.exit.map(|exit| exit.shell_code()) {
            Some(0) => ("SUCCESS", Some(0)),
            code => ("ERROR", code),
        }
    }
}

/// Whether a session has run for longer than its hard limit.
fn is_over(limit: Millis, facts: &Map<String, Value>) -> bool {
    let duration = facts.get("duration").and_then(Value::as_f64);
    duration.is_some_and(|run| run >= limit.0 as f64 / 1_000.0)
}

//! Result of `shell`, which runs a command to its end under a deadline.

use abide_api::{ErrorCode, ShellResult, ShellStatus, ToolOutput, ToolResult};
use abide_core::session::End;
use abide_core::{Outcome, WhyRunning};
use abide_engine::SessionView;

use super::command::{Command, ResultFacts};
use super::output::{self, Part};
use super::report;

pub(super) async fn result(
    command: &Command,
    facts: ResultFacts<'_>,
    part: &mut Part,
) -> ToolResult {
    let ResultFacts {
        handle,
        view,
        outcome,
        standby,
        mask,
    } = facts;
    let running = matches!(outcome, Outcome::Running(..));
    let undying = matches!(outcome, Outcome::Running(_, WhyRunning::Undying));
    let mut summary = report::summary(view, running);
    // `extend` may have moved the deadline since the call was made.
    let limit = view.deadline.unwrap_or(command.limit);
    let (status, code) = match undying && summary.duration >= report::in_seconds(limit) {
        true => (ShellStatus::TimeoutError, Some(-1)),
        false => status_of(view, running),
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
        warnings.extend(report::forced_end_reason(view).map(str::to_owned));
    }
    let (out, err) = part.two_streams(command.output).await;
    let mut error = report::fault(view);
    let stderr = error.clone().unwrap_or_else(|| err.digested.text.clone());
    for (name, stream) in [("stdout", &out), ("stderr", &err)] {
        warnings.extend(report::shortened(name, &stream.digested, view.id));
    }
    warnings.extend(report::leftovers(view, &mut summary));
    let (quota, streams) = (handle.config().log_quota, [&out, &err]);
    warnings.extend(output::lost(view, quota, &streams, &mut summary));
    warnings.extend(command.ignored_limit().map(str::to_owned));
    let unread = output::unread(view, &streams);
    if let Some(unread) = &unread {
        error = Some(unread.clone());
        warnings.push(unread.clone());
    }
    let (mut activity, mut effective_timeout) = (None, None);
    if undying {
        warnings.extend(report::undying(view, &mut summary));
    } else if running {
        let next = command.next_steps(view);
        effective_timeout = standby.map(report::in_seconds);
        let cut = report::cut_call(standby, part);
        warnings.push(format!("still running; {cut}. {next}"));
        activity = report::sampled_activity(view).await;
    }
    let return_code = code;
    let code = code.map_or_else(String::new, |code| code.to_string());
    let mut text = format!(
        "COMMAND: {}\nSTATUS: {}\nRETURN_CODE: {code}\nSTDOUT:\n{}\nSTDERR:\n{stderr}",
        report::shown_command(&view.state.command),
        status.as_str(),
        out.digested.text
    );
    for warning in warnings {
        text.push_str("\nWARNING: ");
        text.push_str(&warning);
    }
    if let Some(refused) = report::refused(view) {
        text.push('\n');
        text.push_str(&refused);
    }
    let failed = matches!(outcome, Outcome::Cancelled(_)) || unread.is_some();
    report::mask_processes(&mut summary, |text| mask.apply(text));
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
        ..ToolResult::new(mask.apply(text), ToolOutput::Shell(Box::new(output)))
    }
}

fn status_of(view: &SessionView, running: bool) -> (ShellStatus, Option<i32>) {
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

//! Result of `execute_command`, which runs a command as long as it shows activity, and asks a person when it has been
//! idle too long.

use abide_api::{ErrorCode, ExecuteCommandResult, ToolOutput, ToolResult};
use abide_core::{Outcome, WhyRunning};

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
    let written = part.one_stream(command.output).await;
    let mut summary = report::summary(view, running);
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
            last = report::undying(view, &mut summary);
        }
        Outcome::Running(_, WhyRunning::NobodyToAsk) => {
            let next = command.next_steps(view);
            // `extend` may have moved the idle limit since the call was made.
            let idle = view.state.idle.unwrap_or(command.limit);
            last = Some(format!(
                "[still running: no output for {idle} and nobody can be asked. {next}]"
            ));
        }
        Outcome::Running(_, WhyRunning::Standby) => {
            let next = command.next_steps(view);
            let cut = report::cut_call(standby, part);
            last = Some(format!("[still running; {cut}. {next}]"));
        }
        _ => match report::fault(view) {
            Some(fault) => error = Some(fault.to_string()),
            None => last = Some(abide_engine::text::ending_line(view)),
        },
    }
    let activity = match running {
        true => report::sampled_activity(view).await,
        false => None,
    };
    let mut unread = output::unread(view, &[&written]);
    if error.is_none() {
        error = unread.take();
    }
    let quota = handle.config().log_quota;
    let notes = [
        report::shortened("output", &written.digested, view.id),
        report::leftovers(view, &mut summary),
        output::lost(view, quota, &[&written], &mut summary),
        command.ignored_limit().map(str::to_owned),
        unread,
    ];
    let notes = notes.into_iter().flatten().map(|note| format!("[{note}]"));
    // The state of the command comes last, where readers look for it.
    let lines: Vec<String> = notes.chain(report::refused(view)).chain(last).collect();
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
    report::mask_processes(&mut summary, |text| mask.apply(text));
    let failed = error.is_some();
    let output = ExecuteCommandResult {
        session: summary,
        status: report::status(view, running),
        effective_timeout,
        error,
        activity,
    };
    ToolResult {
        error: failed.then_some(ErrorCode::Fault),
        ..ToolResult::new(
            mask.apply(text),
            ToolOutput::ExecuteCommand(Box::new(output)),
        )
    }
}

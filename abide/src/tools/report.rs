//! Parts that results share: facts about a session, its output as a model receives it, and warnings.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use abide_api::arguments::{CommandArgs, Env, FilledText};
use abide_api::{Activity, ErrorCode, Id, Process, SessionStatus, SessionSummary, ToolResult};
use abide_core::session::{End, Exit, Phase};
use abide_core::{Millis, Outcome};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config;
use abide_engine::keepers::PortState;
use abide_engine::{Handle, LaunchOptions, SessionView};
use abide_output::digest::{Digested, line_count};
use abide_output::mask;
use abide_output::printable::{one_line, visible};
use abide_output::secret_fingerprints::SecretFingerprints;
use abide_session::facts::{self, Facts, ProcessActivity};
use abide_session::folder;
use abide_session::log::Log;
use abide_session::tree;

use super::args::folder;
use super::output::Part;
use super::refused_text::{RefusalReader, refused_text};
use super::sandbox::SandboxArgs;
use super::{BadInput, Context};

/// Name and value of an environment variable.
type Variable = (OsString, OsString);

/// Masks secrets in the command lines of processes, which may contain the values of the session's variables.
pub(super) fn mask_processes(summary: &mut SessionSummary, mask: impl Fn(String) -> String) {
    for process in &mut summary.still_running {
        process.command = mask(std::mem::take(&mut process.command));
    }
}

/// Launch options of a new command of `shell` or `execute_command`.
pub(super) fn read_launch<L>(
    args: CommandArgs<L>,
    context: &Context,
    handle: &Handle,
) -> Result<LaunchOptions, BadInput> {
    let stdin = args.stdin.map(|stdin| stdin.0);
    let asked = SandboxArgs {
        sandbox: args.sandbox,
        network: args.network,
        needs: args.needs,
        justification: args.justification,
    };
    launch_options(args.cwd, args.env, stdin, asked, false, context, handle)
}

/// Launch options of a new command, with the environment and the sandbox that the caller's settings give it.
pub(super) fn launch_options(
    cwd: Option<FilledText>,
    env: Option<Env>,
    stdin: Option<String>,
    asked: SandboxArgs,
    pty: bool,
    context: &Context,
    handle: &Handle,
) -> Result<LaunchOptions, BadInput> {
    let given = env.map(|env| env.0).unwrap_or_default();
    let secrets = Arc::new(secrets_in(&given));
    let chosen = asked.choose(context, handle, &given)?;
    let (cwd, env) = (folder(cwd, context), merged_env(chosen.env, given, pty));
    Ok(LaunchOptions {
        inherited_limits: context.inherited_limits.clone(),
        sandbox: chosen.sandbox,
        beyond_settings: chosen.beyond_settings,
        ..LaunchOptions::plain(cwd, env, stdin, secrets)
    })
}

/// Fingerprints of the secrets among the variables that a call sets.
fn secrets_in(given: &[(OsString, Option<OsString>)]) -> SecretFingerprints {
    let texts = given
        .iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.as_ref()?.to_str()?)));
    mask::fingerprint_secrets(texts, abide_engine::entropy::array)
}

/// Inherited environment with the variables that the call sets or removes.
fn merged_env(
    inherited: Vec<Variable>,
    given: Vec<(OsString, Option<OsString>)>,
    pty: bool,
) -> Vec<Variable> {
    let mut env = inherited;
    if !pty {
        config::add_pipe_default(&mut env);
    }
    for (name, value) in given {
        env.retain(|(old, _)| *old != name);
        env.extend(value.map(|value| (name, value)));
    }
    env
}

/// Session that an outcome is about.
pub(super) fn session_of(handle: &Handle, outcome: &Outcome) -> Option<Arc<SessionView>> {
    handle.published().session(outcome.session()?)
}

pub(super) fn vanished() -> ToolResult {
    ToolResult::error(
        ErrorCode::Conflict,
        "the session was removed while its result was being made; run it again".into(),
    )
}

/// Status of a session in a result. `running`: the call returns before the session has ended.
pub(crate) fn status(view: &SessionView, running: bool) -> SessionStatus {
    match view.state.phase {
        _ if running => SessionStatus::Running,
        Phase::Failed { .. } => SessionStatus::Failed,
        Phase::Starting | Phase::Running { .. } => SessionStatus::Running,
        Phase::Leftover { .. } | Phase::Ended { .. } => SessionStatus::Exited,
    }
}

/// Summary that every result about a session has.
pub(crate) fn summary(view: &SessionView, running: bool) -> SessionSummary {
    summary_with(view, running, None)
}

/// Summary for a caller that knows the extent of the log: bytes written, and how many of them were dropped.
pub(super) fn summary_with(
    view: &SessionView,
    running: bool,
    extent: Option<(u64, u64)>,
) -> SessionSummary {
    let ending = view.ending().filter(|_| !running);
    let exit = ending.and_then(|ending| ending.exit);
    let duration = match (ending, &view.state.phase) {
        (Some(ending), _) => ending.duration,
        // A command that could not be started has no duration.
        (None, Phase::Failed { .. }) => Millis(0),
        (None, _) => ran_until_now(view),
    };
    let (bytes_total, bytes_dropped) = ending.map_or_else(
        || extent.unwrap_or_else(|| written_and_missing(view)),
        |ending| (ending.bytes, ending.dropped),
    );
    SessionSummary {
        session_id: Id(view.id),
        exit_code: exit.and_then(code_of),
        signal: exit.and_then(signal_of),
        end: ending.map(|ending| ending.end.into()),
        duration: duration.as_secs_f64(),
        bytes_total,
        bytes_dropped,
        still_running: Vec::new(),
        contained_by: view.contained_by.map(Into::into),
        sandboxed_by: view.sandboxed.as_ref().map(|sandboxed| sandboxed.by.into()),
        sandbox_gaps: view
            .sandboxed
            .iter()
            .flat_map(|sandboxed| &sandboxed.gaps)
            .map(|gap| gap.as_str().to_owned())
            .collect(),
        ports: (told_ports(view))
            .filter(|(_, state)| **state == PortState::Published)
            .map(|(port, _)| *port)
            .collect(),
        started_by: view.state.started_by.condition(),
        damaged: view.damage.as_deref().map(Into::into),
    }
}

/// Counts the output of an ended session again: background processes of the command may have written since.
pub(crate) fn recount_output(view: &SessionView, summary: &mut SessionSummary) {
    let (total, dropped) = written_and_missing(view);
    if view.ending().is_some_and(|ending| ending.bytes < total) {
        (summary.bytes_total, summary.bytes_dropped) = (total, dropped);
    }
}

/// Bytes written so far, and how many of them are missing from the log. If the log cannot be read, the counts
/// that the view has.
fn written_and_missing(view: &SessionView) -> (u64, u64) {
    let log = Log::open(&view.folder).with_written(view.bytes());
    let dropped = view.ending().map_or(0, |ending| ending.dropped);
    log.extent().unwrap_or((view.bytes(), dropped))
}

pub(super) fn code_of(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(code) => Some(code),
        Exit::Signal(_) => None,
    }
}

pub(super) fn signal_of(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Code(_) => None,
        Exit::Signal(signal) => Some(signal),
    }
}

fn ran_until_now(view: &SessionView) -> Millis {
    Millis(
        SystemClock
            .now()
            .wall
            .0
            .saturating_sub(view.state.created.0),
    )
}

/// Characters of a command that a result shows. The session has the whole command.
const COMMAND_CHARS: usize = 500;

/// Command as a result shows it: whole, or its first lines and how much follows.
pub(super) fn shown_command(command: &str) -> String {
    let Some((limit, _)) = command.char_indices().nth(COMMAND_CHARS) else {
        return visible(command);
    };
    // A first line that is too long is cut.
    let end = command[..limit].rfind('\n').unwrap_or(limit);
    let rest = &command[end..];
    let chars = match rest.chars().count() {
        1 => "1 character of the command follows".into(),
        chars => format!("{chars} characters of the command follow"),
    };
    let lines = match rest.trim_matches('\n').lines().count() {
        lines if rest.starts_with('\n') => format!("{}, ", line_count(lines as u64)),
        _ => String::new(),
    };
    format!("{}\n[… {lines}{chars} …]", visible(&command[..end]))
}

/// Reason why the command could not be started.
pub(super) fn fault(view: &SessionView) -> Option<String> {
    match &view.state.phase {
        Phase::Failed { fault, .. } => Some(visible(fault)),
        _ => None,
    }
}

/// Warning that states how much of a stream was left out and where the rest can be read.
pub(super) fn shortened(name: &str, stream: &Digested, view: &SessionView) -> Option<String> {
    stream.shortened.then(|| {
        format!(
            "{name} was shortened: {}{} bytes left out; {}",
            lines_left_out(stream),
            stream.bytes_left_out,
            abide_engine::text::omitted_hint(view)
        )
    })
}

/// Number of lines left out, as far as they were counted. A part of a long line is no line.
fn lines_left_out(stream: &Digested) -> String {
    match (stream.uncounted, stream.lines_left_out) {
        (_, 0) => String::new(),
        (true, lines) => format!("at least {}, ", line_count(lines)),
        (false, lines) => format!("{}, ", line_count(lines)),
    }
}

/// Reason of the end of a command, if the command did not exit by itself and its exit code does not show why.
pub(super) fn forced_end_reason(view: &SessionView) -> Option<&'static str> {
    let ending = view.ending()?;
    match ending.end {
        _ if ending.exit.is_none() => {
            Some("nobody saw how the command ended; what it wrote until then is kept")
        }
        End::OutOfMemory => Some("the command was killed: out of memory"),
        End::Sandbox => Some("the command was ended by its sandbox"),
        End::User => Some("the command was ended by a person"),
        End::Agent => Some("the command was ended by terminal_session kill"),
        _ => None,
    }
}

/// Refusals of the sandbox of a command, and names that the command has made and other programs obey.
pub(super) fn refused(view: &SessionView) -> Option<String> {
    refused_text(&super::refusals::record(view)?, RefusalReader::Model)
}

/// The same for the person who ran the command.
pub(crate) fn refused_to_person(view: &SessionView) -> Option<String> {
    refused_text(&super::refusals::record(view)?, RefusalReader::Person)
}

/// Ports of a session that has not ended. Its gate notices the end a moment later.
fn told_ports(view: &SessionView) -> impl Iterator<Item = (&u16, &PortState)> {
    let lives = view.is_running() || matches!(view.state.phase, Phase::Leftover { .. });
    view.ports.iter().filter(move |_| lives)
}

/// Sentences about the ports on which a sandboxed command listens.
pub(super) fn ports(view: &SessionView) -> Vec<String> {
    let ports = told_ports(view).map(|(port, state)| match state {
        PortState::Published => {
            format!("port {port} of the command is reachable at 127.0.0.1:{port}")
        }
        PortState::Failed(why) => format!(
            "port {port} of the command is not reachable from outside its sandbox: {}",
            one_line(why)
        ),
    });
    ports.collect()
}

/// Lists the background processes that the command left behind.
pub(crate) fn leftovers(view: &SessionView, summary: &mut SessionSummary) -> Option<String> {
    let Phase::Leftover { ending } = &view.state.phase else {
        return None;
    };
    if ending.end.is_kill() {
        return survives_kill(view, summary);
    }
    let names = processes(view, summary)?;
    let fate = match summary.still_running.len() {
        1 => format!("It lives on in {} until it ends or is killed.", view.id),
        _ => format!("They live on in {} until they end or are killed.", view.id),
    };
    Some(format!("still running in the background: {names}. {fate}"))
}

/// Lists processes that should have been killed and are still alive.
pub(super) fn survives_kill(view: &SessionView, summary: &mut SessionSummary) -> Option<String> {
    let names = processes(view, summary)?;
    let sentence = super::survives_kill(view.id);
    Some(format!("{sentence}: {names}"))
}

/// Names the processes of a session, and lists them in its summary.
fn processes(view: &SessionView, summary: &mut SessionSummary) -> Option<String> {
    let meta = folder::read_meta(&view.folder).ok().flatten()?;
    let left = tree::processes(&meta);
    if left.is_empty() {
        return None;
    }
    // A process can set its name to anything, including control characters.
    let left = left.iter().map(|process| Process {
        pid: process.pid,
        command: one_line(&process.command),
    });
    summary.still_running = left.collect();
    let names: Vec<String> = summary
        .still_running
        .iter()
        .map(|Process { pid, command }| format!("{command} (pid {pid})"))
        .collect();
    Some(names.join(", "))
}

/// Wait of a call that was cut to its client's limit, as text.
pub(super) fn cut_at(limit: Millis) -> String {
    let whole = Millis(limit.0 / 1_000 * 1_000);
    let shown = if whole.0 > 0 { whole } else { limit };
    format!("{shown} (limit of this client)")
}

/// Wait of a `shell` or `execute_command` call that was cut to its client's limit, as text.
pub(super) fn cut_call(standby: Option<Millis>, part: &Part) -> String {
    let cut = standby.map(cut_at).unwrap_or_default();
    match part.is_empty() {
        true => format!("no output in {cut}"),
        false => format!("this call waited {cut}"),
    }
}

/// True if a process waits for input and none is busy, so that the session makes no progress before input is sent.
pub(super) fn waits_for_input_alone(session_folder: &Path) -> bool {
    let meta = folder::read_meta(session_folder).ok().flatten();
    meta.is_some_and(|meta| facts::facts(&meta).only_input)
}

/// Activity of a running session. CPU use counts since its last output.
pub(super) fn current_activity(handle: &Handle, view: &SessionView) -> Option<Activity> {
    let meta = folder::read_meta(&view.folder).ok().flatten()?;
    let now = facts::facts(&meta);
    let cpu = handle.cpu_percent(view.id, &view.state, &now);
    Some(activity(&now, cpu, view.pty))
}

fn activity(now: &Facts, cpu: u32, has_terminal: bool) -> Activity {
    Activity {
        waiting_for_input: now.waiting_for_input(),
        cpu,
        doing: activity_text(Some(now), cpu, has_terminal),
    }
}

/// Description of what a command does, with its CPU use.
pub(super) fn activity_text(facts: Option<&Facts>, cpu_percent: u32, has_terminal: bool) -> String {
    match (facts.map(|facts| facts.doing), cpu_percent) {
        (Some(ProcessActivity::Busy), cpu) => format!("busy (CPU {cpu}%)"),
        (Some(ProcessActivity::Sleeping), cpu @ 1..) => format!("sleeping (CPU {cpu}%)"),
        (Some(ProcessActivity::Sleeping), _) => "sleeping".into(),
        (Some(ProcessActivity::Stopped), _) => "stopped".into(),
        (Some(ProcessActivity::WaitingForInput), _) if has_terminal => {
            "waiting for input at its terminal".into()
        }
        (Some(ProcessActivity::WaitingForInput), _) => "waiting for input".into(),
        (None, _) => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_command_is_shown_by_its_first_lines() {
        let short = "echo a\n".repeat(71);
        assert_eq!(shown_command(&short), short);
        let script = format!(
            "cat > file <<EOF\n{}EOF\n",
            "line of 20 characters\n".repeat(100)
        );
        let shown = shown_command(&script);
        assert!(shown.starts_with("cat > file <<EOF\nline of 20"), "{shown}");
        let end = "\n[… 80 lines, 1743 characters of the command follow …]";
        assert!(shown.ends_with(end), "{shown}");
        let line = "é".repeat(700);
        let cut = format!(
            "{}\n[… 200 characters of the command follow …]",
            "é".repeat(500)
        );
        assert_eq!(shown_command(&line), cut);
    }
}

//! `list`: the sessions of an agent.

use abide_api::arguments::ListArgs;
use abide_api::{
    Id, ListedSession, SessionList, SessionState, TerminalSessionResult, ToolOutput, ToolResult,
};
use abide_core::session::Phase;
use abide_core::{Exit, Millis, Wall, limit, shorten};
use abide_output::printable::one_line;

use super::ActionRunner;
use crate::fleet;
use crate::tools::report::{self, code_of, signal_of};
use abide_engine::SessionView;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::text::whole_seconds;
use abide_session::log::Log;

/// Limits on the characters of a command: in the line of text, and in the structured result.
const COMMAND: usize = 120;
const WHOLE_COMMAND: usize = 2_000;

impl ActionRunner {
    pub(super) async fn list(&self, list: &ListArgs) -> ToolResult {
        let include_ended = list.include_ended.unwrap_or_default();
        let agent = self.caller().agent;
        let now = SystemClock.now().wall.0;
        let mut views = self.handle.published().sessions();
        views.retain(|view| view.visible_to(agent.as_ref()) && (include_ended || view.is_alive()));
        let living = views.iter().filter(|view| view.is_alive()).count();
        // Without a limit, all living sessions are listed, and the newest of the ended ones up to the default number.
        let most = list.max_lines.map(|most| most.0 as usize);
        let most = most.unwrap_or(living.max(limit::LINES_DEFAULT));
        let left_out = views.len().saturating_sub(most);
        if left_out > 0 {
            // Keep the living sessions first, then the newest of the ended ones.
            views.sort_by_key(|view| std::cmp::Reverse((view.is_alive(), view.state.created.0)));
            views.truncate(most);
        }
        views.sort_by_key(|view| view.state.created.0);
        let mut lines = Vec::new();
        let mut sessions = Vec::new();
        for view in &views {
            let (line, session) = self.listed(view, now);
            lines.push(line);
            sessions.push(session);
        }
        let elsewhere = fleet::listed(&self.handle, agent.as_ref(), include_ended, now).await;
        let room = most.saturating_sub(views.len());
        let left_out = left_out + elsewhere.len().saturating_sub(room);
        for session in elsewhere.into_iter().take(room) {
            lines.push(line_elsewhere(&session, now));
            sessions.push(session);
        }
        if left_out > 0 {
            let are = if left_out == 1 { "is" } else { "are" };
            lines.push(format!(
                "[{left_out} more {are} not listed, the oldest; max_lines lists up to {}]",
                limit::LINES_MAX
            ));
        }
        let shared = self.handle.fleet().map(|fleet| fleet.state());
        if shared.is_some_and(|fleet| fleet.is_database_away && fleet.has_others())
            && let Some(why) = self.handle.storage_fault()
        {
            lines.push(format!(
                "[{why}; sessions of other machines are listed as they were read last]"
            ));
        }
        let text = match lines.len() {
            0 => "No sessions".to_owned(),
            _ => lines.join("\n"),
        };
        let list = TerminalSessionResult::List(SessionList {
            sessions,
            truncated: left_out > 0,
        });
        ToolResult::new(text, ToolOutput::TerminalSession(list))
    }

    /// Line and fields of a session of this machine.
    fn listed(&self, view: &SessionView, now: u64) -> (String, ListedSession) {
        let age = now.saturating_sub(view.state.created.0);
        let output = Log::open(&view.folder).last_at().ok().flatten();
        let used = view.uses.last(Wall(now)).0.max(view.state.created.0);
        let active = output.map_or(used, |output| output.max(used));
        let idle = now.saturating_sub(active);
        let state = state(view);
        let command = shorten(&self.mask(view, one_line(&view.state.command)), COMMAND);
        let started_by = view.state.started_by.condition();
        let of = match &started_by {
            None => String::new(),
            Some(name) => format!("condition of {name}: "),
        };
        let line = format!(
            "{}  {}{}{}  age {}  last activity {} ago  {of}{command}",
            view.id,
            state.as_str(),
            ending(view).map_or_else(String::new, |how| {
                format!(" ({})", self.mask(view, how))
            }),
            if view.damage.is_some() {
                " (damaged record)"
            } else {
                ""
            },
            whole_seconds(Millis(age)),
            whole_seconds(Millis(idle))
        );
        let command = shorten(
            &self.mask(view, view.state.command.to_string()),
            WHOLE_COMMAND,
        );
        let session = ListedSession {
            session_id: Id(view.id),
            command,
            state,
            age: Millis(age).as_secs_f64(),
            last_activity: Millis(idle).as_secs_f64(),
            agent: view.state.agent.0.to_string(),
            cwd: self.mask(view, view.cwd.to_string_lossy().into_owned()),
            pty: view.pty,
            exit_code: exit(view).and_then(code_of),
            signal: exit(view).and_then(signal_of),
            end: view.ending().map(|ending| ending.end.into()),
            started_by,
            damaged: view.damage.as_deref().map(Into::into),
            machine: None,
            as_of: None,
        };
        (line, session)
    }
}

/// Line of a session of another machine.
fn line_elsewhere(session: &ListedSession, now: u64) -> String {
    format!(
        "{}  {}  age {}  on machine {}, as of {} ago  {}",
        session.session_id.0,
        session.state.as_str(),
        whole_seconds(Millis::from_secs_f64(session.age)),
        session.machine.as_deref().unwrap_or_default(),
        whole_seconds(Millis(now.saturating_sub(session.as_of.unwrap_or(now)))),
        shorten(&one_line(&session.command), COMMAND)
    )
}

/// Ending of a session in words.
fn ending(view: &SessionView) -> Option<String> {
    if let Some(fault) = report::fault(view) {
        return Some(fault);
    }
    view.ending()?;
    let line = abide_engine::text::ending_line(view);
    Some(line.trim_matches(['[', ']']).to_owned())
}

fn state(view: &SessionView) -> SessionState {
    match view.state.phase {
        Phase::Starting => SessionState::Starting,
        Phase::Running { ending: None, .. } => SessionState::Running,
        Phase::Running { .. } => SessionState::Ending,
        Phase::Leftover { .. } => SessionState::Background,
        Phase::Ended { .. } => SessionState::Ended,
        Phase::Failed { .. } => SessionState::Failed,
    }
}

fn exit(view: &SessionView) -> Option<Exit> {
    view.ending()?.exit
}

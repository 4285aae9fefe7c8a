//! Sessions of other machines in lists, as the directory has them.

use abide_api::{
    Id, ListedSession, Process, Session, SessionEnd, SessionState, SessionStatus, SessionSummary,
};
use abide_core::fleet::session::Reach;
use abide_core::{Agent, Millis, SessionId};
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::store::{DirectoryRow, DirectoryState};

/// Longest command in a list for a model, in characters.
const COMMAND: usize = 2_000;

/// Sessions of other machines that an agent may see; `None` is a person. Empty without a fleet.
pub async fn sessions(handle: &Handle, agent: Option<&Agent>, include_ended: bool) -> Vec<Session> {
    let now = SystemClock.now().wall.0;
    let rows = rows(handle, agent, include_ended).await;
    rows.into_iter()
        .map(|known| session(&known, now))
        .filter(|session| include_ended || session.status != SessionStatus::Lost)
        .collect()
}

/// Session of another machine that an agent may see, as the directory has it.
pub async fn known_session(
    handle: &Handle,
    agent: Option<&Agent>,
    id: SessionId,
) -> Option<Session> {
    let row = handle.other_machines()?.session(id).await.ok()??;
    let known = known(handle, vec![row]).pop()?;
    let is_own = agent.is_none_or(|agent| *agent.0 == *known.row.agent);
    is_own.then(|| session(&known, SystemClock.now().wall.0))
}

/// Session of another machine that an agent may see, after its machine has not answered a call, and a sentence about it
/// if it is lost.
pub async fn unanswered(
    handle: &Handle,
    agent: Option<&Agent>,
    id: SessionId,
) -> Option<(Session, Option<String>)> {
    let machines = handle.other_machines()?;
    let row = machines.session(id).await.ok()??;
    let lost = machines.loss(&row);
    let known = known(handle, vec![row]).pop()?;
    let is_own = agent.is_none_or(|agent| *agent.0 == *known.row.agent);
    is_own.then(|| (session(&known, SystemClock.now().wall.0), lost))
}

/// Sessions of other machines whose rows were written after `from`, each with the clock of the database at that time.
/// `None`: the database cannot be reached.
pub async fn changed_sessions(handle: &Handle, from: u64) -> Option<(u64, Vec<(u64, Session)>)> {
    let now = SystemClock.now().wall.0;
    let (clock, rows) = handle.other_machines()?.changed_sessions(from).await?;
    let known = known(handle, rows).into_iter();
    let sessions = known.map(|known| (known.row.as_of, session(&known, now)));
    Some((clock, sessions.collect()))
}

/// The same for the list of `terminal_session`.
pub async fn listed(
    handle: &Handle,
    agent: Option<&Agent>,
    include_ended: bool,
    now: u64,
) -> Vec<ListedSession> {
    let rows = rows(handle, agent, include_ended).await;
    rows.into_iter()
        .map(|known| listed_session(&known, now))
        .filter(|session| include_ended || session.state != SessionState::Lost)
        .collect()
}

/// Row of the directory with what is known of its machine.
struct Known {
    row: DirectoryRow,
    machine: String,
    reach: Reach,
    as_of: u64,
}

async fn rows(handle: &Handle, agent: Option<&Agent>, include_ended: bool) -> Vec<Known> {
    let Some(machines) = handle.other_machines() else {
        return Vec::new();
    };
    let rows = machines.sessions(agent, include_ended).await;
    known(handle, rows)
}

fn known(handle: &Handle, rows: Vec<DirectoryRow>) -> Vec<Known> {
    let Some(machines) = handle.other_machines() else {
        return Vec::new();
    };
    let rows = rows.into_iter().map(|row| Known {
        machine: machines.shown_name(row.machine),
        reach: machines.reach(&row),
        as_of: row.told_until,
        row,
    });
    rows.collect()
}

/// Cause of its end. A word of a later version is left out.
fn end(row: &DirectoryRow) -> Option<SessionEnd> {
    let word = row.facts.end.clone()?;
    serde_json::from_value(word.into()).ok()
}

/// Processes that run in the background, as far as its machine can be asked.
fn still_running(known: &Known) -> Vec<Process> {
    match (known.reach, known.row.facts.state) {
        (Reach::Known, DirectoryState::Background) => known.row.facts.left.clone(),
        _ => Vec::new(),
    }
}

fn session(known: &Known, now: u64) -> Session {
    let row = &known.row;
    let facts = &row.facts;
    // What has ended stays as it was; only what ran can be lost.
    let status = match (known.reach, facts.state) {
        (_, DirectoryState::Ended) => SessionStatus::Exited,
        (_, DirectoryState::Failed) => SessionStatus::Failed,
        (Reach::Unreachable { .. }, _) => SessionStatus::Unreachable,
        (Reach::Lost(_), _) => SessionStatus::Lost,
        (Reach::Known, DirectoryState::Running) => SessionStatus::Running,
        (Reach::Known, DirectoryState::Background) => SessionStatus::Exited,
    };
    let end = match status {
        SessionStatus::Lost => Some(SessionEnd::Lost),
        _ => end(row),
    };
    let ended_at = facts.ended_at;
    let duration = ended_at.unwrap_or(now).saturating_sub(facts.created_at);
    Session {
        summary: SessionSummary {
            session_id: Id(row.id),
            exit_code: facts.exit_code,
            signal: facts.signal,
            end,
            duration: Millis(duration).as_secs_f64(),
            bytes_total: facts.bytes,
            bytes_dropped: 0,
            still_running: still_running(known),
            contained_by: None,
            sandboxed_by: None,
            sandbox_gaps: Vec::new(),
            ports: Vec::new(),
            started_by: facts.started_by.clone(),
            damaged: None,
        },
        status,
        command: row.command.clone(),
        name: row.name.clone(),
        agent: row.agent.clone(),
        created_at: facts.created_at,
        ended_at,
        cwd: facts.cwd.clone(),
        pty: facts.pty,
        timeout: None,
        idle: None,
        inactivity_timeout: None,
        last_activity: row.facts.last_activity,
        idle_for: None,
        error: facts.error.clone(),
        machine: Some(known.machine.clone()),
        as_of: Some(known.as_of),
        live_activity: None,
    }
}

fn listed_session(known: &Known, now: u64) -> ListedSession {
    let session = session(known, now);
    let summary = session.summary;
    ListedSession {
        session_id: summary.session_id,
        command: session.command.chars().take(COMMAND).collect(),
        state: match (session.status, known.row.facts.state) {
            (SessionStatus::Unreachable, _) => SessionState::Unreachable,
            (SessionStatus::Lost, _) => SessionState::Lost,
            (_, DirectoryState::Running) => SessionState::Running,
            (_, DirectoryState::Background) => SessionState::Background,
            (_, DirectoryState::Ended) => SessionState::Ended,
            (_, DirectoryState::Failed) => SessionState::Failed,
        },
        age: Millis(now.saturating_sub(session.created_at)).as_secs_f64(),
        last_activity: Millis(now.saturating_sub(session.last_activity)).as_secs_f64(),
        agent: session.agent,
        cwd: session.cwd,
        pty: session.pty,
        exit_code: summary.exit_code,
        signal: summary.signal,
        end: summary.end,
        started_by: summary.started_by,
        damaged: summary.damaged,
        machine: session.machine,
        as_of: session.as_of,
    }
}

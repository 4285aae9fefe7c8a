//! Writes the sessions of this machine into the directory, at most once a second, all changes together. A machine that
//! has changed something here over a link finds it there at once: its answer waits for the write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_api::Process;
use abide_core::session::{Phase, StartedBy};
use abide_core::{Exit, SessionId};
use abide_output::mask::Mask;
use abide_output::printable::one_line;
use abide_session::{keeper_record, tree};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::machines::OtherMachines;
use crate::clock::{boot_id, pause};
use crate::store::{DirectoryFacts, DirectoryRow, DirectoryState, MAX_ENTRIES, StoreFault};
use crate::text::ending_and_last_lines;
use crate::{Change, Handle, PublishedState, SessionView};

/// Time between two writes.
const EVERY: Duration = Duration::from_secs(1);
/// Longest command in the directory, in bytes.
const MAX_COMMAND: usize = 4_096;

/// Processes in the background that a row names.
const MAX_LEFT: usize = 16;

/// Request to write at once; answered when everything that had changed before it is written.
pub type FlushRequest = oneshot::Sender<()>;

/// Keeps the rows of this machine as its sessions are, until the daemon stops.
pub async fn run(
    machines: Arc<OtherMachines>,
    handle: Handle,
    mut requests: mpsc::Receiver<FlushRequest>,
) {
    let published = handle.published();
    let mut changes = published.follow();
    // Rows that an earlier daemon left are compared with the sessions that are here.
    let mut is_compared = false;
    let mut changed = all(published);
    // Sessions whose rows have the text about their end.
    let mut told = BTreeSet::new();
    let mut unanswered: Vec<FlushRequest> = Vec::new();
    loop {
        if !is_compared || !changed.is_empty() {
            let written = async {
                if !is_compared {
                    let [all, ended] = stored(&machines).await?;
                    changed.extend(all);
                    told.extend(ended);
                }
                write(&machines, &handle, &changed, &mut told).await
            };
            if written.await.is_ok() {
                is_compared = true;
                changed.clear();
            }
        }
        if is_compared && changed.is_empty() {
            for request in unanswered.drain(..) {
                // The answer may have stopped waiting.
                let _ = request.send(());
            }
        }
        tokio::select! {
            () = pause(EVERY) => {}
            Some(request) = requests.recv() => unanswered.push(request),
        }
        if is_compared && changed.is_empty() && unanswered.is_empty() {
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(change) => note(change, &mut changed),
                    Err(RecvError::Lagged(_)) => changed = all(published),
                    Err(RecvError::Closed) => return,
                },
                Some(request) = requests.recv() => unanswered.push(request),
            }
        }
        drain(&mut changes, published, &mut changed);
    }
}

fn all(published: &PublishedState) -> BTreeSet<SessionId> {
    published.sessions().iter().map(|view| view.id).collect()
}

fn note(change: Change, changed: &mut BTreeSet<SessionId>) {
    if let Change::Session(id) = change {
        changed.insert(id);
    }
}

/// Takes the changes that have come meanwhile.
fn drain(
    changes: &mut broadcast::Receiver<Change>,
    published: &PublishedState,
    changed: &mut BTreeSet<SessionId>,
) {
    loop {
        match changes.try_recv() {
            Ok(change) => note(change, changed),
            Err(broadcast::error::TryRecvError::Lagged(_)) => changed.extend(all(published)),
            Err(_) => return,
        }
    }
}

/// Sessions of which there are rows of this machine, and those whose rows have the text about their end.
async fn stored(machines: &OtherMachines) -> Result<[Vec<SessionId>; 2], StoreFault> {
    let table = machines.table().await.ok_or_else(away)?;
    table.own_directory().await
}

fn away() -> StoreFault {
    StoreFault::Unwritable("the database cannot be reached".into())
}

async fn write(
    machines: &OtherMachines,
    handle: &Handle,
    changed: &BTreeSet<SessionId>,
    told: &mut BTreeSet<SessionId>,
) -> Result<(), StoreFault> {
    let table = machines.table().await.ok_or_else(away)?;
    let own = machines.state().own.ok_or_else(away)?;
    let (views, gone): (Vec<_>, Vec<_>) = (changed.iter())
        .map(|id| (*id, handle.published().session(*id)))
        .partition(|(_, view)| view.is_some());
    for views in views.chunks(MAX_ENTRIES) {
        let views = views.iter().filter_map(|(_, view)| view.as_deref());
        let rows = views.clone().map(|view| {
            let is_told = told.contains(&view.id) || view.ending().is_none();
            let row = DirectoryRow {
                machine: own,
                ..entry(handle, view)
            };
            (row, (!is_told).then(|| ending_and_last_lines(handle, view)))
        });
        table.put_directory(&rows.collect::<Vec<_>>()).await?;
        // What a leader left behind may write more lines.
        told.extend(views.filter(|view| !view.is_alive()).map(|view| view.id));
    }
    let gone: Vec<SessionId> = gone.into_iter().map(|(id, _)| id).collect();
    for gone in gone.chunks(MAX_ENTRIES) {
        table.remove_directory(gone).await?;
        told.retain(|id| !gone.contains(id));
    }
    Ok(())
}

/// Row of a session, whose machine is filled in by the caller. Secrets in the command do not enter the database.
fn entry(handle: &Handle, view: &SessionView) -> DirectoryRow {
    let (exit_code, signal) = match view.ending().and_then(|ending| ending.exit) {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let mask = Mask::of(handle.secrets(view.id));
    let shortened = |command: String| {
        let command = mask.apply(command);
        command[..command.floor_char_boundary(MAX_COMMAND)].to_owned()
    };
    let command = shortened(view.state.command.to_string());
    DirectoryRow {
        machine: abide_core::fleet::MachineId(0),
        id: view.id,
        boot: boot_id(),
        agent: view.state.agent.0.to_string(),
        name: view.name.as_ref().map(ToString::to_string),
        command,
        facts: DirectoryFacts {
            state: match view.state.phase {
                Phase::Starting | Phase::Running { .. } => DirectoryState::Running,
                Phase::Leftover { .. } => DirectoryState::Background,
                Phase::Ended { .. } => DirectoryState::Ended,
                Phase::Failed { .. } => DirectoryState::Failed,
            },
            created_at: view.state.created.0,
            ended_at: view.ended_at().map(|ended| ended.0),
            last_activity: view.last_activity().0,
            left: left_processes(view, shortened),
            exit_code,
            signal,
            end: view.ending().map(|ending| ending.end.as_str().to_owned()),
            cwd: view.cwd.to_string_lossy().into_owned(),
            pty: view.pty,
            bytes: view.bytes(),
            started_by: view.state.started_by.condition(),
            by_person: view.state.started_by == StartedBy::Person,
            error: match &view.state.phase {
                Phase::Failed { fault, .. } => Some(fault.to_string()),
                _ => None,
            },
        },
        as_of: 0,
        told_until: 0,
    }
}

/// Processes that the leader of a session left, at most [`MAX_LEFT`].
fn left_processes(view: &SessionView, shortened: impl Fn(String) -> String) -> Vec<Process> {
    if !matches!(view.state.phase, Phase::Leftover { .. }) {
        return Vec::new();
    }
    let Ok(Some(meta)) = keeper_record::read_meta(&view.folder) else {
        return Vec::new();
    };
    let left = tree::processes(&meta).into_iter().take(MAX_LEFT);
    let left = left.map(|process| Process {
        pid: process.pid,
        // A process can set its name to anything, including control characters.
        command: shortened(one_line(&process.command)),
    });
    left.collect()
}

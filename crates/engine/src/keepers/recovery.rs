//! Recovery of the sessions of earlier daemons: those whose keepers are alive, those that have ended, and those whose
//! ending no process saw. An exit code that no process saw stays unknown.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use abide_core::session::{Ending, Phase, Session, StartedBy};
use abide_core::{Agent, Conversation, End, Key, Millis, Mono, SessionId, SessionName, Wall};
use abide_output::secret_fingerprints::SecretFingerprints;

use super::{Keepers, RecoveredSession, SessionDetails, failed_keeper, hello, start_error};
use crate::clock::{Clock, SystemClock, pause};
use crate::socket;
use abide_session::daemon_record::{ChangedLimits, DaemonRecord};
use abide_session::frame::Exited;
use abide_session::keeper_record::{self, Meta, MetaState, RecordedEnding};
use abide_session::log::Log;
use abide_session::{cgroup, tree};

/// Time for a keeper to greet after a connection.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Time between two attempts to reach a keeper that may be alive.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Reads all session directories, and connects to the keepers that are alive.
pub(super) fn recover(keepers: &Arc<Keepers>) -> Vec<RecoveredSession> {
    let Ok(entries) = std::fs::read_dir(&keepers.sessions) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let path = entry.path();
        let (mut record, mut has_keeper) = (keeper_record::read_all(&path), true);
        if !matches!(record.meta, MetaState::Whole(_)) {
            // An idle keeper exits with its daemon, unless the daemon gave it a command in its last moment. A
            // keeper that greets has carried out its earlier orders.
            has_keeper = has_living_keeper(&path);
            record = keeper_record::read_all(&path);
        }
        let ending_delivered = record.ending_delivered;
        match record.meta {
            MetaState::Whole(meta) => {
                keepers.set_containment(id, meta.contained_by);
                keepers.set_sandbox(id, meta.sandboxed.clone());
                let complete_length = complete_length(record.ending.as_ref());
                let phase = phase(keepers, id, &path, &meta, record.ending);
                let bytes = complete_length.unwrap_or_else(|| Log::open(&path).end().unwrap_or(0));
                let mut session = recovered_session(keepers, id, meta, phase, bytes, None);
                session.ending_delivered = ending_delivered;
                found.push(session);
            }
            MetaState::Unused if !has_keeper => remove_unused(id, &path),
            MetaState::Unused => {}
            MetaState::Damaged { remnant, why } => {
                let shown = path.display();
                let damage = format!(
                    "the record of this session, {shown}/meta, is damaged: {why}. What is known of it may be \
                     wrong; its log is kept and can be read"
                );
                tracing::error!("{id}: {damage}");
                let mut session =
                    damaged_session(keepers, id, &path, remnant, record.ending, damage);
                // An owner that is not known for certain gets no message about the end.
                session.ending_delivered = true;
                session.deadline = None;
                found.push(session);
            }
        }
    }
    found
}

/// Removes the directory and the control group of a keeper that never got a command. Other files in the directory
/// stay.
pub(super) fn remove_unused(id: SessionId, path: &Path) {
    if !matches!(keeper_record::read_all(path).meta, MetaState::Unused) {
        return;
    }
    cgroup::remove_group_of(&id.to_string());
    for name in [keeper_record::CTL, keeper_record::META] {
        let _ = std::fs::remove_file(path.join(name));
    }
    let _ = std::fs::remove_dir(path);
}

/// Session whose record is damaged. Such a record causes no write and no kill.
fn damaged_session(
    keepers: &Arc<Keepers>,
    id: SessionId,
    path: &Path,
    mut remnant: Meta,
    known: Option<RecordedEnding>,
    damage: String,
) -> RecoveredSession {
    let log = Log::open(path);
    let (bytes, dropped) = log.extent().unwrap_or_default();
    let last = log.last_at().ok().flatten();
    if remnant.launch.created_wall_ms == 0 {
        let changed = std::fs::symlink_metadata(path).and_then(|found| found.modified());
        let since = changed.map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let changed = since.map_or(0, |since| since.as_millis() as u64);
        remnant.launch.created_wall_ms = log.first_at().ok().flatten().unwrap_or(changed);
    }
    if remnant.launch.command.is_empty() {
        remnant.launch.command = b"(unknown: the record of this session is damaged)".to_vec();
    }
    let known = match known {
        Some(RecordedEnding::Ended(exited)) => Some(Ending::from(&exited)),
        Some(RecordedEnding::Failed(_)) | None => None,
    };
    let phase = match (adopt(keepers, id), known) {
        (true, Some(ending)) => Phase::Leftover { ending },
        (true, None) => Phase::Running {
            quiet_since: Mono(0),
            ending: None,
        },
        (false, Some(ending)) => Phase::Ended { ending },
        (false, None) => Phase::Ended {
            ending: Ending {
                exit: None,
                end: End::Lost,
                duration: Millis(last.map_or(0, |last| {
                    last.saturating_sub(remnant.launch.created_wall_ms)
                })),
                bytes,
                dropped,
            },
        },
    };
    recovered_session(keepers, id, remnant, phase, bytes, Some(damage.into()))
}

/// True if the session in a directory has a keeper. Waits until the keeper has greeted.
fn has_living_keeper(path: &Path) -> bool {
    let mut stream = match socket::connect(&path.join(keeper_record::CTL)) {
        Ok(stream) => stream,
        Err(e) => return !is_gone(&e),
    };
    let _ = stream.set_read_timeout(Some(GREETING_LIMIT));
    // If the keeper exits at this moment, the read below fails.
    let _ = stream.write_all(&hello());
    match stream.read(&mut [0]) {
        Ok(read) => read > 0,
        Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
        Err(e) => {
            tracing::warn!("the keeper of {} does not answer: {e}", path.display());
            true
        }
    }
}

/// Length of a log that is complete, so that the log need not be read.
fn complete_length(ending: Option<&RecordedEnding>) -> Option<u64> {
    match ending {
        Some(RecordedEnding::Ended(over)) if over.empty && over.closed => Some(over.bytes),
        _ => None,
    }
}

/// Phase of a session from its record, after an attempt to connect to its keeper.
fn phase(
    keepers: &Arc<Keepers>,
    id: SessionId,
    path: &Path,
    meta: &Meta,
    known: Option<RecordedEnding>,
) -> Phase {
    match &known {
        Some(RecordedEnding::Failed(failure)) => {
            return Phase::Failed {
                fault: failure.sentence.as_str().into(),
                error: start_error(failure.errno),
                at: Wall(failure.at_wall_ms),
            };
        }
        Some(RecordedEnding::Ended(exited)) if exited.empty && exited.closed => {
            return Phase::Ended {
                ending: Ending::from(exited),
            };
        }
        _ => {}
    }
    match (adopt(keepers, id), known) {
        (true, Some(RecordedEnding::Ended(exited))) => Phase::Leftover {
            ending: Ending::from(&exited),
        },
        (true, _) => Phase::Running {
            quiet_since: Mono(0),
            ending: None,
        },
        (false, Some(RecordedEnding::Ended(exited))) => {
            ended_phase(Ending::from(&exited), end_own_orphans(path, meta))
        }
        (false, _) => {
            let (ending, empty) = kill_and_record_lost(path, None, None);
            ended_phase(ending, empty)
        }
    }
}

/// Connects to the keeper of a session; false: the keeper is gone. A keeper that cannot be reached for another reason,
/// such as too many open files, may well be alive: the connection is tried again until it is made or the keeper is gone.
fn adopt(keepers: &Arc<Keepers>, id: SessionId) -> bool {
    match keepers.connect(id) {
        Ok(stream) => keepers.adopt(id, stream, false),
        Err(e) if is_gone(&e) => return false,
        Err(e) => {
            tracing::error!("the keeper of {id} cannot be reached, which is tried again: {e}");
            tokio::spawn(connect_later(keepers.clone(), id));
        }
    }
    true
}

/// True if a connection failed because no keeper listens.
fn is_gone(fault: &std::io::Error) -> bool {
    matches!(
        fault.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

async fn connect_later(keepers: Arc<Keepers>, id: SessionId) {
    loop {
        tokio::select! {
            () = keepers.shutdown.cancelled() => return,
            () = pause(CONNECT_PAUSE) => {}
        }
        match keepers.connect(id) {
            Ok(stream) => return keepers.adopt(id, stream, false),
            Err(e) if is_gone(&e) => break,
            Err(_) => {}
        }
    }
    failed_keeper::report_lost(&keepers, id, None, None).await;
}

/// Session from its record, with an ending that was not delivered.
fn recovered_session(
    keepers: &Keepers,
    id: SessionId,
    meta: Meta,
    phase: Phase,
    bytes: u64,
    damage: Option<Arc<str>>,
) -> RecoveredSession {
    let changed = DaemonRecord::read(&keepers.folder(id));
    let limits = changed.limits.unwrap_or(ChangedLimits {
        idle: meta.launch.idle_ms.map(Millis),
        inactivity: meta.launch.inactivity_ms.map(Millis),
        deadline: meta.launch.deadline_ms.map(Millis),
        unasked_until: Mono(0),
    });
    let details = SessionDetails {
        cwd: OsString::from_vec(meta.launch.cwd).into(),
        pty: meta.launch.pty.is_some(),
        deadline: limits.deadline,
        secrets: SecretFingerprints::from_bytes(&meta.launch.secret_fingerprints),
        damage,
        name: (changed.name.as_deref().or(meta.launch.name.as_deref()))
            .and_then(|name| SessionName::parse(name).ok()),
    };
    let session = Session {
        agent: Agent(meta.launch.agent.as_str().into()),
        command: String::from_utf8_lossy(&meta.launch.command).into(),
        conversation: (meta.launch.conversation.as_deref()).map(|of| Conversation(of.into())),
        keys: (meta.launch.keys.iter())
            .map(|key| Key(key.as_str().into()))
            .collect(),
        started_by: StartedBy::from_name(meta.launch.started_by.as_deref()),
        created: Wall(meta.launch.created_wall_ms),
        idle: limits.idle,
        inactivity: limits.inactivity,
        unasked_until: limits.unasked_until,
        bytes,
        unattended: false,
        interrupted: changed.interrupted,
        end_heard: None,
        phase,
    };
    RecoveredSession {
        id,
        deadline: limits.deadline.map(|limit| until(limit, session.created)),
        session,
        details,
        ending_delivered: false,
    }
}

/// Time at which a session reaches its hard limit. Only its keeper knows exactly, because the limit does not run while
/// the machine sleeps.
fn until(limit: Millis, created: Wall) -> Mono {
    let now = SystemClock.now();
    let ran = now.wall.0.saturating_sub(created.0);
    now.mono + Millis(limit.0.saturating_sub(ran))
}

/// Phase of an ended session; `empty`: none of its processes is left.
fn ended_phase(ending: Ending, empty: bool) -> Phase {
    match empty {
        true => Phase::Ended { ending },
        false => Phase::Leftover { ending },
    }
}

/// Kills what is left of the tree of a session whose keeper is gone. True if none of its processes is left. The processes
/// of a folder that was copied belong to the original.
fn end_own_orphans(path: &Path, meta: &Meta) -> bool {
    if !tree::is_kept_elsewhere(meta, path) {
        return tree::end_orphans(meta);
    }
    tracing::warn!(
        "{} is a copy of the folder of a session that runs; the session is left alone",
        path.display()
    );
    true
}

/// Ending of a session whose keeper is gone, and true if none of its processes is left. The ending is the recorded
/// one, else `Lost`, or `forced` if the daemon ended the session itself. Kills what is left of the tree, because
/// nothing else controls it. The session is known to have run until `seen`, else until its last output.
pub(super) fn kill_and_record_lost(
    path: &Path,
    seen: Option<Wall>,
    forced: Option<End>,
) -> (Ending, bool) {
    let meta = keeper_record::read_meta(path).ok().flatten();
    let empty = (meta.as_ref()).is_none_or(|meta| end_own_orphans(path, meta));
    if let Ok(Some(RecordedEnding::Ended(exited))) = keeper_record::read_ending(path) {
        return (Ending::from(&exited), empty);
    }
    let log = Log::open(path);
    let (bytes, dropped) = log.extent().unwrap_or_default();
    let seen = seen.or_else(|| log.last_at().ok().flatten().map(Wall));
    let ran = seen.zip(meta).map_or(0, |(seen, meta)| {
        seen.0.saturating_sub(meta.launch.created_wall_ms)
    });
    let end = forced.unwrap_or(End::Lost);
    let lost = Exited::unseen(end, ran, bytes, dropped, empty);
    if let Err(e) = keeper_record::write_ending(path, &RecordedEnding::Ended(lost)) {
        tracing::warn!("cannot write the ending of {}: {e}", path.display());
    }
    (Ending::from(&lost), empty)
}

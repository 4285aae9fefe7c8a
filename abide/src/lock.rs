//! Lock on an installation's folder: one daemon at a time, and an older daemon makes way for a newer one.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use abide_engine::config::Paths;
use abide_engine::socket;
use abide_session::{ext4_placement, private_file};
use anyhow::{Context as _, bail};

use crate::daemon_process;
use crate::http::blocking_client;

/// Creates the folders of an installation, readable by their owner alone.
pub(crate) fn make_folders(paths: &Paths) -> io::Result<()> {
    socket::own_folder(&paths.state)?;
    socket::private_folder(&paths.runtime)?;
    ext4_placement::make(&paths.sessions());
    socket::private_folder(&paths.sessions())
}

/// Takes a lock of this name, held as long as the file is open. `None`: another process holds it.
pub fn try_lock_file(paths: &Paths, name: &str) -> io::Result<Option<File>> {
    make_folders(paths)?;
    let mut file = private_file::open(&paths.runtime.join(name))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            write!(file, "{}", std::process::id())?;
            Ok(Some(file))
        }
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Takes the lock on a folder for an engine inside a program. Fails if another process holds the lock.
pub fn take_lock(paths: &Paths) -> anyhow::Result<File> {
    make_folders(paths)?;
    let lock = private_file::open(&paths.lock()).context("cannot open the lock")?;
    if lock.try_lock().is_err() {
        bail!(
            "{} is in use by another abide; give this one a folder of its own",
            paths.state.display()
        );
    }
    daemon_process::check_outside(paths)?;
    Ok(lock)
}

/// Creates the folders and takes the lock. The lock is taken before the sockets are opened, so that two
/// daemons never answer at the same time.
pub(crate) fn prepare(paths: &Paths) -> anyhow::Result<File> {
    make_folders(paths)?;
    let mut lock = private_file::open(&paths.lock()).context("cannot open the lock")?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => replace_older(paths, &lock)?,
        Err(std::fs::TryLockError::Error(e)) => return Err(e).context("cannot take the lock"),
    }
    daemon_process::check_outside(paths)?;
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// Attempts to take a lock whose holder does not answer; [`LOCK_PAUSE`] is the time between two.
const LOCK_ATTEMPTS: u32 = 500;
/// Attempts to take a lock whose holder has confirmed that it stops, which may take a while.
const STOP_ATTEMPTS: u32 = 3_000;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Takes over from the daemon that holds the lock. An older daemon is told to stop and leaves its sessions
/// running; one of this version or a newer one stays, which is an error here. A daemon that does not answer
/// is stopping or starting.
fn replace_older(paths: &Paths, lock: &File) -> anyhow::Result<()> {
    let socket = paths.http_socket();
    let mut stop_requested = false;
    let mut attempts = 0;
    while attempts
        < if stop_requested {
            STOP_ATTEMPTS
        } else {
            LOCK_ATTEMPTS
        }
    {
        attempts += 1;
        if !stop_requested && let Ok(running) = blocking_client::daemon_process(&socket) {
            stop_requested = stop_older(&socket, &running.version)?;
        }
        if lock.try_lock().is_ok() {
            return Ok(());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a lock cannot be waited for with an end, and nothing runs yet that this holds up"
        )]
        std::thread::sleep(LOCK_PAUSE);
    }
    let state = if stop_requested {
        "has agreed to stop but still runs"
    } else {
        "does not answer"
    };
    bail!(
        "another daemon holds {} and {state}",
        paths.lock().display()
    );
}

/// Tells a daemon that is older than this program to stop. `false`: the daemon went away before it was told.
fn stop_older(socket: &Path, running: &str) -> anyhow::Result<bool> {
    if !is_older(running, env!("CARGO_PKG_VERSION")) {
        bail!(
            "a daemon runs already (version {running}); `abide status` shows it, `abide stop` ends it"
        );
    }
    match blocking_client::stop_daemon(socket) {
        Ok(()) => Ok(true),
        Err(fault) if is_gone(fault.kind()) => Ok(false),
        Err(fault) => Err(fault).context("the older daemon does not stop"),
    }
}

/// True if this error means that the daemon is gone.
fn is_gone(fault: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        fault,
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
    )
}

/// True if the version `left` is before `right`.
pub(crate) fn is_older(left: &str, right: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        version
            .split(['.', '-', '+'])
            .map_while(|part| part.parse().ok())
            .collect()
    };
    !left.is_empty() && numbers(left) < numbers(right)
}

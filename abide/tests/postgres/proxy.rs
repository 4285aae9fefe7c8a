//! Proxy between a daemon and its server, which delays, cuts, swallows and alters.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use tempfile::TempDir;

/// Treatment of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Requests arrive, answers do not.
    DropAnswers,
    /// Nothing arrives, and no connection is closed.
    Silent,
    /// Connections are closed, and new ones too.
    Cut,
    /// Nothing arrives until the next mode.
    Hold,
    /// Every `NOTIFY` fails, as with a full queue of notifications.
    RefuseNotify,
}

struct State {
    mode: Mode,
    target: PathBuf,
    open: Vec<UnixStream>,
    /// True if something was swallowed.
    swallowed: bool,
    /// Bytes that are held.
    held: Vec<u8>,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

pub struct Proxy {
    folder: TempDir,
    shared: Shared,
}

impl Proxy {
    pub fn to(target: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
        let state = State {
            mode: Mode::Pass,
            target,
            open: Vec::new(),
            swallowed: false,
            held: Vec::new(),
        };
        let shared: Shared = Arc::new((Mutex::new(state), Condvar::new()));
        let serving = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                serve(&serving, client);
            }
        });
        Proxy { folder, shared }
    }

    /// Address for `store`.
    pub fn url(&self) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/postgres?schema=abide")
    }

    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.0.lock().expect("no panic");
        state.mode = mode;
        state.swallowed = false;
        state.held.clear();
        if mode == Mode::Cut {
            close(&mut state);
        }
        self.shared.1.notify_all();
    }

    /// Sends new connections to another server, and closes the old ones.
    pub fn redirect(&self, target: PathBuf) {
        let mut state = self.shared.0.lock().expect("no panic");
        state.target = target;
        close(&mut state);
    }

    /// Waits until something was swallowed.
    pub fn wait_for_swallowed(&self) {
        let state = self.shared.0.lock().expect("no panic");
        let waited = self.shared.1.wait_while(state, |state| !state.swallowed);
        drop(waited.expect("no panic"));
    }

    /// Waits until a request with this text is held.
    pub fn wait_for_held(&self, text: &str) {
        let has_text = |state: &State| {
            let mut parts = state.held.windows(text.len());
            parts.any(|part| part == text.as_bytes())
        };
        let state = self.shared.0.lock().expect("no panic");
        let waited = self.shared.1.wait_while(state, |state| !has_text(state));
        drop(waited.expect("no panic"));
    }
}

fn close(state: &mut State) {
    for stream in state.open.drain(..) {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn serve(shared: &Shared, client: UnixStream) {
    let mut state = shared.0.lock().expect("no panic");
    let server = UnixStream::connect(&state.target).ok();
    let Some(server) = server.filter(|_| state.mode != Mode::Cut) else {
        return;
    };
    for stream in [&client, &server] {
        state.open.push(stream.try_clone().expect("a socket"));
    }
    drop(state);
    let clone = |stream: &UnixStream| stream.try_clone().expect("a socket");
    for (from, to, answers) in [
        (clone(&client), clone(&server), false),
        (server, client, true),
    ] {
        let shared = shared.clone();
        std::thread::spawn(move || copy(&shared, from, to, answers));
    }
}

fn copy(shared: &Shared, mut from: UnixStream, mut to: UnixStream, answers: bool) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut state = shared.0.lock().expect("no panic");
        if state.mode == Mode::Hold {
            state.held.extend_from_slice(&bytes[..count]);
            shared.1.notify_all();
            let waited = shared.1.wait_while(state, |state| state.mode == Mode::Hold);
            state = waited.expect("no panic");
        }
        let drops = match state.mode {
            Mode::Pass | Mode::Cut | Mode::Hold => false,
            Mode::DropAnswers => answers,
            Mode::Silent => true,
            Mode::RefuseNotify => {
                misspell(&mut bytes[..count]);
                false
            }
        };
        if drops {
            state.swallowed = true;
            shared.1.notify_all();
            continue;
        }
        drop(state);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Makes the word `NOTIFY` one that the server refuses.
fn misspell(bytes: &mut [u8]) {
    const WORD: &[u8] = b"NOTIFY ";
    let mut from = 0;
    while let Some(at) = bytes[from..]
        .windows(WORD.len())
        .position(|part| part == WORD)
    {
        from += at + WORD.len();
        bytes[from - 2] = b'X';
    }
}

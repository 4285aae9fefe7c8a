//! The tools as the doors call them, on a real engine with real children, within this process.

mod execute;
mod shell;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use abide::config::{Config, Places};
use abide::daemon::{Handle, Runtime, SessionView};
use abide::door::tools::{self, Context, NotCalled, ToolResult};
use abide_core::request::Caller;
use abide_core::{Agent, Asking, End, Outcome, Request};
use serde_json::Value;
use tempfile::TempDir;

/// An engine in a folder of its own.
pub struct Engine {
    pub handle: Handle,
    pub dir: TempDir,
}

impl Engine {
    pub async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        self.try_call(tool, arguments)
            .await
            .expect("the arguments are right")
    }

    pub async fn try_call(&self, tool: &str, arguments: Value) -> Result<ToolResult, NotCalled> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        let call = tools::begin(&self.handle, tool, arguments, self.context()).await?;
        Ok(call.result_only().await.expect("the engine runs"))
    }

    pub fn context(&self) -> Context {
        Context {
            agent: Agent::default(),
            root: self.dir.path().to_owned(),
            env: std::env::vars_os().collect(),
            reaches_person: false,
            standby: None,
            request_key: None,
            client: None,
            sees_all: false,
        }
    }

    /// Kills a session and waits until its tree is gone.
    pub async fn kill(&self, session: &str) {
        let session = session.parse().expect("an id");
        let request = Request::Kill {
            session,
            end: End::Agent,
        };
        let pending = self
            .handle
            .call(Caller { agent: None }, request, None)
            .await;
        pending.done().await.expect("the engine runs");
    }

    /// Waits until a session has ended.
    pub async fn ended(&self, session: &str) -> Arc<SessionView> {
        let session = session.parse().expect("an id");
        let request = Request::Join {
            session,
            asking: Asking::Never,
            standby: None,
        };
        let pending = self
            .handle
            .call(Caller { agent: None }, request, None)
            .await;
        let outcome = pending.done().await.expect("the engine runs");
        assert_eq!(outcome, Outcome::Ended(session));
        self.handle.board().session(session).expect("it is there")
    }

    /// A named pipe, to hold a command with until the test lets it go.
    pub fn fifo(&self, name: &str) -> std::path::PathBuf {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let path = self.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("a fifo");
        path
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

/// Runs a test against an engine.
pub fn with_engine<T, F: Future<Output = T>>(test: impl FnOnce(Engine) -> F) -> T {
    with_configured_engine(Config::default(), test)
}

pub fn with_configured_engine<T, F: Future<Output = T>>(
    config: Config,
    test: impl FnOnce(Engine) -> F,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let dir = TempDir::new().expect("a folder for the test");
    runtime.block_on(async {
        let places = Places::under(&dir.path().join("abide"));
        std::fs::create_dir_all(places.sessions()).expect("folders");
        let program = Path::new(env!("CARGO_BIN_EXE_abide")).to_owned();
        let engine = Runtime::start(&places, config, program).expect("the engine starts");
        let handle = engine.handle.clone();
        let done = test(Engine {
            handle: handle.clone(),
            dir,
        })
        .await;
        handle.stop().await;
        engine.stopped().await.expect("it stops well");
        done
    })
}

/// Processes whose command line is exactly this.
pub fn living(command_line: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        let line: Vec<_> = line
            .split(|b| *b == 0)
            .map(String::from_utf8_lossy)
            .collect();
        if line.join(" ").trim_end() == command_line {
            found.push(pid);
        }
    }
    found
}

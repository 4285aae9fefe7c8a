//! The tools as the doors call them, on a real engine with real children, within this process.

mod shell;

use std::future::Future;
use std::path::Path;

use abide::config::{Config, Places};
use abide::daemon::{Handle, Runtime};
use abide::door::tools::{self, Context, NotCalled, ToolResult};
use abide_core::Agent;
use serde_json::Value;
use tempfile::TempDir;

/// An engine in a folder of its own.
pub struct Engine {
    pub handle: Handle,
    pub dir: TempDir,
}

impl Engine {
    pub async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        self.try_call(tool, arguments).await.expect("the arguments are right")
    }

    pub async fn try_call(&self, tool: &str, arguments: Value) -> Result<ToolResult, NotCalled> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
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
        }
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dir = TempDir::new().expect("a folder for the test");
    runtime.block_on(async {
        let places = Places::under(&dir.path().join("abide"));
        std::fs::create_dir_all(places.sessions()).expect("folders");
        let program = Path::new(env!("CARGO_BIN_EXE_abide")).to_owned();
        let engine = Runtime::start(&places, config, program).expect("the engine starts");
        let handle = engine.handle.clone();
        let done = test(Engine { handle: handle.clone(), dir }).await;
        handle.stop().await;
        engine.stopped().await;
        done
    })
}

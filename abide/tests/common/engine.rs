//! An engine within the process of the test.

use std::future::Future;
use std::path::{Path, PathBuf};

use abide::tools::{self, Context, ToolCall};
use abide_api::ToolResult;
use abide_api::arguments::BadInput;
use abide_core::{Agent, Asking, Millis};
use abide_engine::config::{Config, Paths};
use abide_engine::{Handle, Runtime};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::fifo;

/// An engine with its own directory.
pub struct Engine {
    pub handle: Handle,
    pub dir: TempDir,
}

impl Engine {
    pub fn context(&self) -> Context {
        Context {
            agent: Agent::default(),
            root: self.dir.path().to_owned(),
            env: std::env::vars_os().collect(),
            asking: Asking::Elsewhere,
            standby: None,
            waited: Millis(0),
            request_key: None,
            conversation: None,
            client: None,
            is_person: false,
            inherited_limits: None,
            session_name: None,
            files_before: Default::default(),
        }
    }

    /// Starts a call.
    pub async fn try_begin(
        &self,
        tool: &str,
        arguments: Value,
        context: Context,
    ) -> Result<ToolCall, BadInput> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        let tool = tool.parse().expect("the name of a tool");
        tools::begin(&self.handle, tool, arguments, context).await
    }

    /// Calls a tool in a context of its own.
    pub async fn call_as(&self, context: Context, tool: &str, arguments: Value) -> ToolResult {
        let call = self.try_begin(tool, arguments, context).await;
        let call = call.expect("the arguments are right");
        call.result_only().await.expect("the engine runs")
    }

    /// Calls a tool with invalid arguments. Returns the sentence of the refusal.
    pub async fn refused(&self, tool: &str, arguments: Value) -> String {
        let call = self.try_begin(tool, arguments, self.context()).await;
        call.err().expect("it is refused").to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a named pipe, on which a command blocks until the test writes to it.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fifo::make(&path);
        path
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
        let paths = Paths::under(&dir.path().join("abide"));
        std::fs::create_dir_all(paths.sessions()).expect("folders");
        let program = Path::new(env!("CARGO_BIN_EXE_abide")).to_owned();
        let engine = Runtime::start(&paths, config, program, abide::tools::approved_refusal)
            .await
            .expect("the engine starts");
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

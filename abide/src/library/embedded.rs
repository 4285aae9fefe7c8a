//! Engine inside a program: no daemon, no socket, the same calls.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Abide;
use crate::client::Client;
use abide_engine::Runtime;
use abide_engine::config::{self, Config, Paths};

/// Engine that runs inside this program. It needs a tokio runtime with time and I/O enabled.
///
/// Sessions outlive the engine, as they outlive a daemon: the next engine under the same folder finds them again.
/// Keepers are separate processes of an abide executable: either the installed one, or this program itself,
/// if its `main` begins with [`run_child_role_if_requested`](crate::run_child_role_if_requested).
///
/// ```no_run
/// abide::run_child_role_if_requested();
/// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
/// runtime.block_on(async {
///     let engine = abide::EmbeddedEngine::start("/var/lib/my-agent", "/proc/self/exe").await.expect("abide");
///     let done = engine.abide().shell("echo hello").await.expect("a result");
///     println!("{}", done.text);
///     engine.stop().await.expect("a clean end");
/// });
/// ```
pub struct EmbeddedEngine {
    runtime: Runtime,
    abide: Abide,
    /// Held as long as the engine runs: there is one engine per folder.
    _lock: File,
}

impl EmbeddedEngine {
    /// Starts an engine whose files are under `folder`, with that folder's `config.toml`.
    pub async fn start(
        folder: impl AsRef<Path>,
        program: impl Into<PathBuf>,
    ) -> anyhow::Result<Self> {
        let paths = Paths::under(folder.as_ref());
        let config = Config::load(&paths.config)?;
        EmbeddedEngine::start_with(paths, config, program).await
    }

    /// Starts an engine with other settings.
    pub async fn start_with(
        paths: Paths,
        config: Config,
        program: impl Into<PathBuf>,
    ) -> anyhow::Result<Self> {
        let lock = crate::lock::take_lock(&paths)?;
        let mut runtime = Runtime::start(
            &paths,
            config,
            program.into(),
            crate::tools::approved_refusal,
        )
        .await?;
        if !runtime.ready().await {
            runtime.stopped().await?;
            anyhow::bail!("the engine stopped before it was ready");
        }
        let routes = crate::serve::in_process_routes(&runtime, paths);
        let agent = config::agent_from_env();
        let client = Client::in_process(routes, Some(agent.clone()));
        Ok(EmbeddedEngine {
            runtime,
            abide: Abide { client, agent },
            _lock: lock,
        })
    }

    /// Interface for calls to this engine.
    pub fn abide(&self) -> Abide {
        self.abide.clone()
    }

    /// Stops the engine. Sessions keep running.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.runtime.handle.stop().await;
        self.runtime
            .stopped()
            .await
            .context("the engine has failed")
    }
}

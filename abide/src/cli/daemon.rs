//! Commands for the daemon process: `serve`, `stop`, and the MCP front.

use std::time::Duration;

use abide_api::cli::Stopped;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::error::{CliError, EXIT_ABIDE_ERROR};
use super::show;
use crate::connect::{self, DaemonSocket};
use crate::http;
use crate::{daemon_process, serve};
use abide_engine::config::{Config, Paths};
use abide_session::proc::{ProcessHandle, wait_for_end};

/// Longest wait for the exit of a daemon that has agreed to stop.
const STOP_TIME: Duration = Duration::from_secs(3_600);

pub fn serve(paths: Paths, background: bool) -> Result<(), CliError> {
    let ready = background
        .then(|| daemon_process::ready_pipe(&paths))
        .flatten();
    let log = match background {
        true => daemon_process::log_to_file(&paths),
        false => Ok(()),
    };
    // `ABIDE_LOG=debug` shows the way of each call, session and timer. The MCP library logs every step of every client
    // at `info`; keep only its errors.
    let level = std::env::var("ABIDE_LOG").ok();
    let level = level.and_then(|level| level.parse().ok());
    let worth = Targets::new()
        .with_default(level.unwrap_or(LevelFilter::INFO))
        .with_target("rmcp", LevelFilter::ERROR);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false);
    tracing_subscriber::registry()
        .with(lines)
        .with(worth)
        .init();
    let own = |sentence: String| CliError::new(sentence).code(EXIT_ABIDE_ERROR);
    let config = log.map_err(|fault| fault.to_string());
    let config = config
        .and_then(|()| Config::load(&paths.config).map_err(|fault| fault.to_string()))
        .inspect_err(|fault| {
            if let Some(ready) = &ready {
                let _ = rustix::io::write(ready, fault.as_bytes());
            }
        })
        .map_err(own)?;
    serve::serve(paths, config, ready).map_err(|fault| own(format!("{fault:#}")))
}

/// Stops the daemon and waits until its process has exited. Succeeds if no daemon is running.
pub fn stop(paths: &Paths, as_json: bool) -> Result<(), CliError> {
    if connect::connect_running(paths, DaemonSocket::Http).is_err() {
        let fields = Stopped { stopped: false };
        show::result(as_json, &fields, "No daemon is running.");
        return Ok(());
    }
    stop_running(paths)?;
    let stopped = "The daemon has stopped. Sessions continue; the next command starts it again.";
    show::result(as_json, &Stopped { stopped: true }, stopped);
    Ok(())
}

/// Stops the daemon if one runs, and says nothing. The next command starts it again.
pub fn stop_quietly(paths: &Paths) -> Result<(), CliError> {
    match connect::connect_running(paths, DaemonSocket::Http) {
        Ok(_) => stop_running(paths),
        Err(_) => Ok(()),
    }
}

/// Stops the running daemon and waits until its process has exited.
fn stop_running(paths: &Paths) -> Result<(), CliError> {
    let daemon = http::daemon_process(&paths.http_socket()).ok();
    let pid = daemon.and_then(|daemon| daemon.pid);
    let process = pid.and_then(ProcessHandle::open);
    http::stop_daemon(&paths.http_socket()).map_err(|fault| {
        CliError::new(format!("the daemon did not stop: {fault}")).code(EXIT_ABIDE_ERROR)
    })?;
    wait_for_end(process.as_slice(), STOP_TIME);
    Ok(())
}

pub fn mcp(paths: &Paths, agent: &str) -> Result<(), CliError> {
    crate::mcp::front(paths, agent.to_owned())
        .map_err(|fault| CliError::new(fault.to_string()).code(EXIT_ABIDE_ERROR))
}

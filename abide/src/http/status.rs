//! Status of the daemon, and the request to stop it.

use std::path::Path;

use abide_api::{
    Configuration, Containments, Daemon, Database, Health, HttpListener, Places, PolicyState,
    QuestionCounts, SessionCounts, Status, Stopping, TimerCounts,
};
use abide_core::session::Phase;
use abide_core::{Outcome, Request, timer};
use axum::extract::State as Shared;

use super::body::JsonResponse;
use super::problem::Problem;
use super::requester::Requester;
use super::state::{State, Tcp};
use crate::fleet;
use abide_engine::config::Containment;

/// Health check, which needs no credential and reveals nothing else.
pub async fn health() -> JsonResponse<Health> {
    JsonResponse(Health { status: "ok" })
}

pub async fn status(Shared(state): Shared<State>, requester: Requester) -> JsonResponse<Status> {
    let sessions = state.handle.published().sessions();
    let visible = || {
        sessions
            .iter()
            .filter(|view| view.visible_to(requester.agent.as_ref()))
    };
    let running = visible().filter(|view| view.is_running()).count();
    let left = |phase: &Phase| matches!(phase, Phase::Leftover { .. });
    let background = visible().filter(|view| left(&view.state.phase)).count();
    let questions = state.handle.published().questions();
    let open = questions.iter();
    let open = open.filter(|question| requester.sees(&question.agent));
    let elsewhere = fleet::open_questions(&state.handle, requester.agent.as_ref()).await;
    JsonResponse(Status {
        daemon: Daemon {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: state.daemon.started_at.0,
        },
        sessions: SessionCounts {
            running,
            background,
            ended: visible().count() - running - background,
        },
        questions: QuestionCounts {
            open: open.count() + elsewhere,
        },
        timers: TimerCounts {
            running: running_timers(&state, &requester).await,
        },
        containment: containment(&state, &sessions),
        configuration: configuration(&state),
        policy: PolicyState {
            trouble: state
                .handle
                .policy()
                .policy()
                .err()
                .map(|broken| broken.to_string()),
        },
        database: Database {
            trouble: state.handle.storage_fault(),
        },
        http: http(&state),
        places: Places {
            state: path_text(&state.daemon.paths.state),
            runtime: path_text(&state.daemon.paths.runtime),
            config: path_text(&state.daemon.paths.config),
        },
    })
}

fn configuration(state: &State) -> Configuration {
    let now = state.handle.live_config().state();
    Configuration {
        read_at: now.read_at.0,
        trouble: now.fault.as_deref().map(Into::into),
        at_next_start: now.at_next_start.into_iter().map(Into::into).collect(),
    }
}

/// Path as text; bytes that are not UTF-8 are replaced, since JSON cannot hold them.
fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Address of the TCP listener; `None` if the configuration disables it.
fn http(state: &State) -> Option<HttpListener> {
    let token = state.daemon.paths.token();
    match &state.daemon.tcp {
        Tcp::Off => None,
        Tcp::At(address) => Some(HttpListener {
            address: Some(address.to_string()),
            token_file: Some(path_text(&token)),
            error: None,
        }),
        Tcp::Failed(why) => Some(HttpListener {
            address: None,
            token_file: None,
            error: Some(why.clone()),
        }),
    }
}

/// Number of running timers. For a person the published total; for an agent the engine counts its own.
async fn running_timers(state: &State, requester: &Requester) -> Option<usize> {
    if requester.agent.is_none() {
        return Some(state.handle.published().timers_running());
    }
    let request = timer::Request::Count;
    let pending = state
        .handle
        .call(requester.caller(), Request::Timer(request), None)
        .await;
    match pending.done().await {
        Some(Outcome::TimersCounted(count)) => Some(count),
        _ => None,
    }
}

/// Configured containment and the one of the newest session, if there is one.
fn containment(
    state: &State,
    sessions: &[std::sync::Arc<abide_engine::SessionView>],
) -> Containments {
    let wanted = match state.handle.config().containment {
        Containment::Auto => "auto",
        Containment::Cgroup => "cgroup",
        Containment::PidNamespace => "pid_namespace",
        Containment::Subreaper => "subreaper",
    };
    let newest = sessions
        .iter()
        .filter(|view| view.contained_by.is_some())
        .max_by_key(|view| view.state.created);
    let used = newest.and_then(|view| view.contained_by);
    Containments {
        wanted: wanted.to_owned(),
        last_used: used.map(Into::into),
    }
}

/// Reads the configuration again.
pub async fn reload(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<Configuration>, Problem> {
    requester.refuse_agent("reload the configuration")?;
    state.handle.live_config().reread();
    Ok(JsonResponse(configuration(&state)))
}

/// Stops the daemon. Sessions continue, and the next command starts a daemon again.
pub async fn stop(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<Stopping>, Problem> {
    requester.refuse_agent("stop the daemon")?;
    state.handle.stop().await;
    Ok(JsonResponse(Stopping {
        stopping: true,
        pid: std::process::id(),
    }))
}

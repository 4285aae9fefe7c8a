//! Metrics for Prometheus, collected on request.

use std::fmt::Write as _;

use abide_core::Millis;
use abide_core::session::Phase;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::requester::Requester;
use super::state::State;
use crate::tools::{BOUNDS, tool_stats};
use abide_engine::clock::{Clock, SystemClock};
use abide_session::{facts, proc};

/// Media type of the Prometheus text format.
const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn metrics(Shared(state): Shared<State>, _: Requester) -> Result<Response, Problem> {
    let messages = state.handle.store_reader().message_counts().await?;
    let mut out = MetricsText::default();
    sessions(&state, &mut out);
    let published = state.handle.published();
    out.gauge(
        "abide_timers",
        "Active timers.",
        published.timers_running() as f64,
    );
    out.gauge(
        "abide_questions_open",
        "Open questions.",
        published.questions().len() as f64,
    );
    out.gauge(
        "abide_messages_unseen",
        "Messages that the agent has not seen.",
        messages.unseen as f64,
    );
    let name = "abide_wakeups_total";
    let help = "Deliveries by wakers: succeeded and given up.";
    out.head(name, "counter", help);
    out.value(name, &[("result", "done")], messages.woken as f64);
    out.value(name, &[("result", "failed")], messages.not_woken as f64);
    out.gauge(
        "abide_event_streams",
        "Clients that follow the event stream.",
        state.hub.clients() as f64,
    );
    tools(&mut out);
    let now = SystemClock.now().wall.0;
    let uptime = Millis(now.saturating_sub(state.daemon.started_at.0)).as_secs_f64();
    out.gauge(
        "abide_uptime_seconds",
        "Seconds since the daemon started.",
        uptime,
    );
    let (memory, cpu_seconds) = process_usage();
    out.gauge(
        "process_resident_memory_bytes",
        "Resident memory of the daemon.",
        memory as f64,
    );
    let name = "process_cpu_seconds_total";
    out.head(name, "counter", "CPU time used by the daemon.");
    out.value(name, &[], cpu_seconds);
    out.head("abide_build_info", "gauge", "Version of the daemon.");
    out.value(
        "abide_build_info",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1.0,
    );
    Ok(([(header::CONTENT_TYPE, KIND)], out.0).into_response())
}

/// Resident memory of this process in bytes, and its CPU time in seconds.
fn process_usage() -> (u64, f64) {
    let me = rustix::process::Pid::as_raw(Some(rustix::process::getpid()));
    proc::stat(me).map_or((0, 0.0), |stat| {
        let cpu_seconds = stat.cpu_ticks as f64 / facts::ticks_per_second() as f64;
        (stat.resident_pages * facts::page_size(), cpu_seconds)
    })
}

fn sessions(state: &State, out: &mut MetricsText) {
    let mut counts = [("running", 0), ("leftover", 0), ("ended", 0), ("failed", 0)];
    for view in state.handle.published().sessions() {
        counts[match view.state.phase {
            Phase::Starting | Phase::Running { .. } => 0,
            Phase::Leftover { .. } => 1,
            Phase::Ended { .. } => 2,
            Phase::Failed { .. } => 3,
        }]
        .1 += 1;
    }
    out.head("abide_sessions", "gauge", "Sessions by state.");
    for (name, count) in counts {
        out.value("abide_sessions", &[("state", name)], f64::from(count));
    }
}

fn tools(out: &mut MetricsText) {
    out.head(
        "abide_tool_call_seconds",
        "histogram",
        "Duration of tool calls, including waiting.",
    );
    for tool in tool_stats() {
        let name = ("tool", tool.tool);
        let all = tool.up_to[BOUNDS.len()];
        // Leave out tools without calls: each would add a dozen lines.
        if all == 0 {
            continue;
        }
        for (bound, count) in BOUNDS.iter().zip(tool.up_to) {
            let le = bound.to_string();
            out.value(
                "abide_tool_call_seconds_bucket",
                &[name, ("le", &le)],
                count as f64,
            );
        }
        out.value(
            "abide_tool_call_seconds_bucket",
            &[name, ("le", "+Inf")],
            all as f64,
        );
        out.value("abide_tool_call_seconds_sum", &[name], tool.seconds);
        out.value("abide_tool_call_seconds_count", &[name], all as f64);
    }
}

/// Output in the Prometheus text format.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn head(&mut self, name: &str, kind: &str, about: &str) {
        let _ = write!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}\n");
    }

    fn gauge(&mut self, name: &str, about: &str, value: f64) {
        self.head(name, "gauge", about);
        self.value(name, &[], value);
    }

    /// Appends a sample. Label values come from this program and need no escaping.
    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

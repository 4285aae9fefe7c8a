//! `abide session list`, `kill` and `extend`: list sessions, end them, change their limits.

use abide_core::Millis;
use abide_output::printable::one_line;
use serde_json::{Value, json};

use super::args::{ExtendArgs, KillArgs, ListArgs};
use super::client::Client;
use super::error::CliError;
use super::show::{self, Row, outln};
use abide_engine::clock::{Clock, SystemClock};

/// Page size of list requests.
const PAGE: usize = 1_000;

pub async fn list(client: Client, list: ListArgs) -> Result<u8, CliError> {
    let mut sessions = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!(
            "/v1/sessions?include_ended={}&limit={PAGE}{after}",
            list.all
        );
        let mut page = client.get(&path).await?;
        if let Value::Array(some) = page["sessions"].take() {
            sessions.extend(some);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    if list.json.json {
        show::json(&json!({"sessions": sessions}));
    } else if sessions.is_empty() && list.all {
        outln!("No sessions.");
    } else if sessions.is_empty() {
        outln!("No sessions are running; --all shows those that have ended.");
    } else {
        let now = SystemClock.now().wall.0;
        let rows: Vec<Row> = sessions.iter().map(|session| row(session, now)).collect();
        show::table(
            &["SESSION", "STATE", "AGE", "QUIET", "AGENT", "COMMAND"],
            &rows,
        );
    }
    Ok(0)
}

fn row(session: &Value, now: u64) -> Row {
    let text = |field: &str| one_line(session[field].as_str().unwrap_or_default());
    let moment = |field: &str| session[field].as_u64().unwrap_or(now);
    let (mut state, mut colour) = state(session);
    if session["damaged"].is_string() {
        state.push_str(", damaged");
        colour = show::BAD;
    }
    let quiet = match session["status"].as_str() {
        Some("running") => show::ago(now, moment("last_activity")),
        _ => "-".into(),
    };
    vec![
        (text("session_id"), anstyle::Style::new()),
        (state, colour),
        (show::ago(now, moment("created_at")), anstyle::Style::new()),
        (quiet, anstyle::Style::new()),
        (text("agent"), show::FAINT),
        (text("command"), anstyle::Style::new()),
    ]
}

/// State of a session in at most two words, with its style.
fn state(session: &Value) -> (String, anstyle::Style) {
    let left = session["still_running"]
        .as_array()
        .is_some_and(|left| !left.is_empty());
    match session["status"].as_str() {
        Some("running") => ("running".into(), show::GOOD),
        Some("failed") => ("not started".into(), show::BAD),
        _ if left => ("background".into(), show::GOOD),
        _ if session["end"] == "deadline" => ("timed out".into(), show::BAD),
        _ => match (session["exit_code"].as_i64(), session["signal"].as_i64()) {
            (Some(0), _) => ("exited 0".into(), show::FAINT),
            (Some(code), _) => (format!("exited {code}"), show::BAD),
            (_, Some(signal)) => (format!("signal {signal}"), show::BAD),
            _ => ("lost".into(), show::BAD),
        },
    }
}

pub async fn kill(client: Client, kill: KillArgs) -> Result<u8, CliError> {
    let path = format!("/v1/sessions/{}/kill", super::check_id(&kill.session)?);
    let session = client.post_retrying(&path, &json!({})).await?;
    if kill.json.json {
        show::json(&session);
    } else {
        outln!("{}", killed(&kill.session, &session));
    }
    Ok(0)
}

/// Text about a session that was killed. If its keeper was lost, the exit of its processes was not observed.
pub(super) fn killed(id: &str, session: &Value) -> String {
    match session["end"].as_str() {
        Some("lost") => format!(
            "{id} was lost: its keeper was killed. None of its processes was found running."
        ),
        _ => format!("{id} has ended, with every process it started."),
    }
}

pub async fn extend(client: Client, extend: ExtendArgs) -> Result<u8, CliError> {
    let path = format!("/v1/sessions/{}/extend", super::check_id(&extend.session)?);
    let seconds = |span: Option<Millis>| span.map(|span| span.0 as f64 / 1_000.0);
    let body = json!({"timeout": seconds(extend.timeout), "idle": seconds(extend.idle)});
    let session = client.post_retrying(&path, &body).await?;
    if extend.json.json {
        show::json(&session);
        return Ok(0);
    }
    if let Some(timeout) = extend.timeout {
        outln!("{} ends in {timeout} at the latest.", extend.session);
    }
    if let Some(idle) = extend.idle {
        outln!(
            "{}: you will be asked after {idle} without output.",
            extend.session
        );
    }
    Ok(0)
}

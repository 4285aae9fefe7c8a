//! `abide ps`, `kill`, `rm`, `session rename` and `session extend`: list sessions, end and delete them, change their
//! names and limits.

use abide_core::{Millis, SessionName};
use abide_output::printable::one_line;
use serde_json::{Value, json};

use super::args::{ExtendArgs, KillArgs, ListArgs, RemoveArgs, RenameArgs};
use super::client::Client;
use super::error::CliError;
use super::ids;
use super::prompt;
use super::show::{self, Row, outln};
use abide_engine::clock::{Clock, SystemClock};

/// Sessions that run; newest first.
pub(super) async fn running(client: &Client) -> Result<Vec<Value>, CliError> {
    let path = "/v1/sessions?include_ended=false";
    Ok(client.get_all(path, "sessions").await?)
}

/// Returns `true` if the session checks a condition of a timer or of `abide wait`, and was started by no call.
pub(in crate::cli) fn is_check(session: &Value) -> bool {
    session["started_by"].is_string()
}

pub async fn list(client: Client, list: ListArgs) -> Result<u8, CliError> {
    let sessions = match list.all {
        true => {
            let path = "/v1/sessions?include_ended=true";
            client.get_all(path, "sessions").await?
        }
        false => {
            let mut sessions = running(&client).await?;
            sessions.retain(|session| !is_check(session));
            sessions
        }
    };
    if list.json.json {
        show::json(&json!({"sessions": sessions}));
    } else if sessions.is_empty() && list.all {
        outln!("No sessions.");
    } else if sessions.is_empty() {
        outln!("No sessions are running; --all shows those that have ended.");
    } else {
        print_sessions(&sessions);
    }
    Ok(0)
}

/// Columns of the names and the machines in a row.
const NAME: usize = 1;
const MACHINE: usize = 2;

/// Prints the table. The column of the names is left out if no session has one, that of the machines if all are here.
pub(super) fn print_sessions(sessions: &[Value]) {
    let now = SystemClock.now().wall.0;
    let mut rows: Vec<Row> = sessions.iter().map(|session| row(session, now)).collect();
    let has = |field: &str| sessions.iter().any(|session| session[field].is_string());
    let mut head = vec![
        "SESSION", "NAME", "MACHINE", "STATE", "AGE", "QUIET", "AGENT", "COMMAND",
    ];
    for (column, _) in [(MACHINE, has("machine")), (NAME, has("name"))]
        .into_iter()
        .filter(|(_, shown)| !shown)
    {
        head.remove(column);
        rows.iter_mut().for_each(|row| drop(row.remove(column)));
    }
    show::table(&head, &rows);
    if let Some(oldest) = oldest_known(sessions, now) {
        outln!(
            "Those of other machines are as of {} ago: `abide doctor` checks the database.",
            show::ago(now, oldest)
        );
    }
}

/// Age of what is known about a machine that answers, beyond which it is worth a line, in milliseconds. Machines tell it
/// every five seconds.
const STALE: u64 = 15_000;

/// Time of the oldest facts about a session of another machine, if they are stale. An unreachable one is known as such.
fn oldest_known(sessions: &[Value], now: u64) -> Option<u64> {
    let running = sessions.iter().filter(|of| of["status"] == "running");
    let oldest = running.filter_map(|of| of["as_of"].as_u64()).min();
    oldest.filter(|oldest| now.saturating_sub(*oldest) > STALE)
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
        (text("name"), show::HEADING),
        (text("machine"), show::FAINT),
        (state, colour),
        (show::ago(now, moment("created_at")), anstyle::Style::new()),
        (quiet, anstyle::Style::new()),
        (text("agent"), show::FAINT),
        (text("command"), anstyle::Style::new()),
    ]
}

/// State of a session in a few words, the same as on the page, with its style.
pub(super) fn state(session: &Value) -> (String, anstyle::Style) {
    let left = session["still_running"]
        .as_array()
        .is_some_and(|left| !left.is_empty());
    let words = match (session["status"].as_str(), session["end"].as_str()) {
        (Some("running"), _) => return ("running".into(), show::GOOD),
        (Some("failed"), _) => "failed to start",
        (Some("unreachable"), _) => "machine unreachable",
        (Some("lost"), _) => "lost",
        _ if left => return ("background processes".into(), show::GOOD),
        (_, Some("deadline")) => "timed out",
        (_, Some("idle_declined")) => "declined by a person",
        (_, Some("user")) => "killed by a person",
        (_, Some("agent")) => "killed by its agent",
        (_, Some("inactivity")) => "closed: inactive",
        (_, Some("out_of_memory")) => "out of memory",
        (_, Some("sandbox")) => "ended by its sandbox",
        _ => match (session["exit_code"].as_i64(), session["signal"].as_i64()) {
            (Some(0), _) => return ("exit code 0".into(), show::FAINT),
            (Some(code), _) => return (format!("exit code {code}"), show::BAD),
            (_, Some(signal)) => return (format!("signal {signal}"), show::BAD),
            _ => "lost",
        },
    };
    (words.into(), show::BAD)
}

pub async fn kill(client: Client, kill: KillArgs) -> Result<u8, CliError> {
    let Some(session) = &kill.session else {
        return kill_all(&client, &kill).await;
    };
    let id = ids::session(&client, session).await?;
    end(&client, &id, kill.json.json).await?;
    Ok(0)
}

/// Ends every session that runs on this machine.
async fn kill_all(client: &Client, kill: &KillArgs) -> Result<u8, CliError> {
    let mut running = running(client).await?;
    running.retain(|session| session["machine"].is_null());
    if running.is_empty() {
        if !kill.json.json {
            outln!("No sessions are running.");
        }
        return Ok(0);
    }
    if !kill.yes {
        print_sessions(&running);
        let ask = match running.len() {
            1 => "End this session with every process it started?".to_owned(),
            count => format!("End these {count} sessions with every process they started?"),
        };
        if !confirmed(&ask, "ended")? {
            return Ok(1);
        }
    }
    for session in &running {
        let id = session["session_id"].as_str().unwrap_or_default();
        end(client, id, kill.json.json).await?;
    }
    Ok(0)
}

/// Ends one session and says so.
async fn end(client: &Client, id: &str, as_json: bool) -> Result<(), CliError> {
    let path = format!("/v1/sessions/{id}");
    // A command that waits for the answer of a person is no session yet, and can be withdrawn.
    if let Ok(before) = client.get(&path).await
        && is_over(&before)
    {
        show::result(as_json, &before, ended_before(id, &before));
        return Ok(());
    }
    let session = client
        .post_retrying(&format!("{path}/kill"), &json!({}))
        .await?;
    show::result(as_json, &session, killed(id, &session));
    Ok(())
}

/// Returns `true` if no process of the session is left.
fn is_over(session: &Value) -> bool {
    let is_empty = session["still_running"]
        .as_array()
        .is_none_or(Vec::is_empty);
    let is_ended = matches!(
        session["status"].as_str(),
        Some("exited" | "failed" | "lost")
    );
    is_ended && is_empty
}

/// Text about a session that had ended before it was to be killed.
fn ended_before(id: &str, session: &Value) -> String {
    let now = SystemClock.now().wall.0;
    let when = session["ended_at"].as_u64();
    let when = when.map_or_else(String::new, |at| format!(" {} ago", show::ago(now, at)));
    format!("{id} had already ended{when}: {}.", state(session).0)
}

/// Asks at the terminal before something is `done`, and says if it is not. Without a terminal, the command is refused.
fn confirmed(ask: &str, done: &str) -> Result<bool, CliError> {
    match prompt::confirm(ask) {
        None => Err(CliError::new(format!(
            "there is no terminal to ask at; nothing was {done}"
        ))
        .next("--yes does it without asking")
        .code(2)),
        Some(false) => {
            outln!("Nothing was {done}.");
            Ok(false)
        }
        Some(true) => Ok(true),
    }
}

/// Text about a session that was killed. If its keeper was lost, the exit of its processes was not observed.
pub(super) fn killed(id: &str, session: &Value) -> String {
    match session["end"].as_str() {
        _ if session["status"] == "withdrawn" => {
            format!("{id} was waiting for an answer and is withdrawn. Nothing was run.")
        }
        Some("lost") => format!(
            "{id} was lost: its keeper was killed. None of its processes was found running."
        ),
        _ => format!("{id} has ended, with every process it started."),
    }
}

pub async fn rename(client: Client, rename: RenameArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &rename.session).await?;
    let path = format!("/v1/sessions/{id}/rename");
    let name = rename.name.as_ref().map(SessionName::as_str);
    let session = client.post_retrying(&path, &json!({"name": name})).await?;
    match name {
        _ if rename.json.json => show::json(&session),
        Some(name) => outln!("{id} is now called {name}."),
        None => outln!("{id} has no name now."),
    }
    Ok(0)
}

pub async fn remove(client: Client, remove: RemoveArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &remove.session).await?;
    let session = client.get(&format!("/v1/sessions/{id}")).await?;
    if session["status"] == "running" {
        return Err(CliError::new(format!("Session '{id}' is still running"))
            .next(format!("`abide kill {id}` ends it; then it can be deleted")));
    }
    if !remove.yes {
        let command = one_line(session["command"].as_str().unwrap_or_default());
        let bytes = session["bytes_total"].as_u64().unwrap_or(0);
        let ask = format!("Delete {id} ({command}) and its log of {bytes} bytes?");
        if !confirmed(&ask, "deleted")? {
            return Ok(1);
        }
    }
    let path = format!("/v1/sessions/{id}/delete");
    let deleted = client.post(&path, &json!({})).await?;
    let sentence = format_args!("{id} and its log are deleted.");
    show::result(remove.json.json, &deleted, sentence);
    Ok(0)
}

pub async fn extend(client: Client, extend: ExtendArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &extend.session).await?;
    let path = format!("/v1/sessions/{id}/extend");
    let seconds = |span: Option<Millis>| span.map(Millis::as_secs_f64);
    let body = json!({"timeout": seconds(extend.timeout), "idle": seconds(extend.idle)});
    let session = client.post_retrying(&path, &body).await?;
    if extend.json.json {
        show::json(&session);
        return Ok(0);
    }
    if let Some(timeout) = extend.timeout {
        outln!("{id} ends in {timeout} at the latest.");
    }
    if let Some(idle) = extend.idle {
        outln!("{id}: the idle limit is {idle} from now.");
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_facts_of_a_running_session_elsewhere_are_found() {
        let session = |status: &str, as_of: u64| json!({"status": status, "as_of": as_of});
        let now = 100_000;
        let all = [session("running", 80_000), session("running", 70_000)];
        assert_eq!(oldest_known(&all, now), Some(70_000));
        let fresh = [session("running", 90_000), session("unreachable", 1)];
        assert_eq!(oldest_known(&fresh, now), None);
        assert_eq!(oldest_known(&[json!({"status": "running"})], now), None);
    }

    #[test]
    fn endings_have_the_same_words_as_on_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/src/parts/session.tsx");
        let page = std::fs::read_to_string(page).expect("the page's source");
        let listed = page.split_once("const ENDS").expect("the words").1;
        let listed = listed.split_once("};").expect("the end of the words").0;
        let mut ends = 0;
        for line in listed.lines() {
            let Some((end, words)) = line.trim().split_once(": '") else {
                continue;
            };
            let session = json!({"status": "exited", "end": end, "signal": 15});
            // The page begins them with a capital.
            let words = words.trim_end_matches("',");
            let words = format!("{}{}", words[..1].to_lowercase(), &words[1..]);
            // A lost session has no signal and no exit code.
            let session = match end {
                "lost" => json!({"status": "lost", "end": "lost"}),
                _ => session,
            };
            assert_eq!(state(&session).0, words);
            ends += 1;
        }
        assert_eq!(ends, 8);
    }
}

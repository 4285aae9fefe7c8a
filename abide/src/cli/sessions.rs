//! `abide ps`, `kill`, `rm`, `session rename` and `session extend`: list sessions, end and delete them, change their
//! names and limits.

use abide_api::{Killed, Session, SessionEnd, SessionPage, SessionStatus, cli};
use abide_core::{Millis, SessionName};
use abide_output::printable::one_line;
use serde_json::json;

use super::args::{ExtendArgs, KillArgs, ListArgs, RemoveArgs, RenameArgs};
use super::client::Client;
use super::error::CliError;
use super::ids;
use super::prompt;
use super::show::{self, Row, outln};
use abide_engine::clock::{Clock, SystemClock};

/// Sessions that run; newest first.
pub(super) async fn running(client: &Client) -> Result<Vec<Session>, CliError> {
    read(client, false).await
}

async fn read(client: &Client, include_ended: bool) -> Result<Vec<Session>, CliError> {
    let path = format!("/v1/sessions?include_ended={include_ended}");
    let split = |page: SessionPage| (page.sessions, page.next);
    Ok(client.get_all(&path, split).await?)
}

/// Returns `true` if the session checks a condition of a timer or of `abide wait`, and was started by no call.
pub(in crate::cli) fn is_check(session: &Session) -> bool {
    session.summary.started_by.is_some()
}

pub async fn list(client: Client, list: ListArgs) -> Result<u8, CliError> {
    let mut sessions = read(&client, list.all).await?;
    if !list.all {
        sessions.retain(|session| !is_check(session));
    }
    if list.json.json {
        show::json(&cli::SessionList { sessions });
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
pub(super) fn print_sessions(sessions: &[Session]) {
    let now = SystemClock.now().wall.0;
    let mut rows: Vec<Row> = sessions.iter().map(|session| row(session, now)).collect();
    let has_machine = sessions.iter().any(|session| session.machine.is_some());
    let has_name = sessions.iter().any(|session| session.name.is_some());
    let mut head = vec![
        "SESSION", "NAME", "MACHINE", "STATE", "AGE", "QUIET", "AGENT", "COMMAND",
    ];
    for (column, _) in [(MACHINE, has_machine), (NAME, has_name)]
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
fn oldest_known(sessions: &[Session], now: u64) -> Option<u64> {
    let running = sessions.iter().filter(|session| is_running(session));
    let oldest = running.filter_map(|session| session.as_of).min();
    oldest.filter(|oldest| now.saturating_sub(*oldest) > STALE)
}

fn row(session: &Session, now: u64) -> Row {
    let named = |text: &Option<String>| one_line(text.as_deref().unwrap_or_default());
    let (mut state, mut colour) = state(session);
    if session.summary.damaged.is_some() {
        state.push_str(", damaged");
        colour = show::BAD;
    }
    let quiet = match is_running(session) {
        true => show::ago(now, session.last_activity),
        false => "-".into(),
    };
    let plain = anstyle::Style::new();
    vec![
        (session.summary.session_id.0.to_string(), plain),
        (named(&session.name), show::HEADING),
        (named(&session.machine), show::FAINT),
        (state, colour),
        (show::ago(now, session.created_at), plain),
        (quiet, plain),
        (one_line(&session.agent), show::FAINT),
        (show::first_line(&session.command), plain),
    ]
}

/// State of a session in a few words, the same as on the page, with its style.
pub(super) fn state(session: &Session) -> (String, anstyle::Style) {
    use SessionStatus::{Exited, Failed, Lost, Running, Unreachable};
    let summary = &session.summary;
    let words = match (session.status, summary.end) {
        (Running, _) => return ("running".into(), show::GOOD),
        (Failed, _) => "failed to start",
        (Unreachable, _) => "machine unreachable",
        (Lost, _) => "lost",
        (Exited, _) if !summary.still_running.is_empty() => {
            return ("background processes".into(), show::GOOD);
        }
        (Exited, Some(SessionEnd::Deadline)) => "timed out",
        (Exited, Some(SessionEnd::IdleDeclined)) => "declined by a person",
        (Exited, Some(SessionEnd::User)) => "killed by a person",
        (Exited, Some(SessionEnd::Agent)) => "killed by its agent",
        (Exited, Some(SessionEnd::Inactivity)) => "closed: inactive",
        (Exited, Some(SessionEnd::OutOfMemory)) => "out of memory",
        (Exited, Some(SessionEnd::Sandbox)) => "ended by its sandbox",
        (Exited, _) => match (summary.exit_code, summary.signal) {
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
    running.retain(|session| session.machine.is_none());
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
        let id = session.summary.session_id.0.to_string();
        end(client, &id, kill.json.json).await?;
    }
    Ok(0)
}

/// Ends one session and says so.
async fn end(client: &Client, id: &str, as_json: bool) -> Result<(), CliError> {
    let path = format!("/v1/sessions/{id}");
    // A command that waits for the answer of a person is no session yet, and can be withdrawn.
    if let Ok(before) = client.get::<Session>(&path).await
        && is_over(&before)
    {
        show::result(as_json, &before, ended_before(&before));
        return Ok(());
    }
    let path = format!("{path}/kill");
    let ended: Killed = client.post_retrying(&path, &json!({})).await?;
    let says = match &ended {
        Killed::Session(session) => killed(session),
        Killed::Withdrawn(_) => {
            format!("{id} was waiting for an answer and is withdrawn. Nothing was run.")
        }
    };
    show::result(as_json, &ended, says);
    Ok(())
}

/// Returns `true` if no process of the session is left.
fn is_over(session: &Session) -> bool {
    use SessionStatus::{Running, Unreachable};
    let is_ended = !matches!(session.status, Running | Unreachable);
    is_ended && session.summary.still_running.is_empty()
}

fn is_running(session: &Session) -> bool {
    session.status == SessionStatus::Running
}

/// Text about a session that had ended before it was to be killed.
fn ended_before(session: &Session) -> String {
    let id = session.summary.session_id.0;
    let now = SystemClock.now().wall.0;
    let when = session.ended_at;
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
pub(super) fn killed(session: &Session) -> String {
    let id = session.summary.session_id.0;
    match session.summary.end {
        Some(SessionEnd::Lost) => format!(
            "{id} was lost: its keeper was killed. None of its processes was found running."
        ),
        _ => format!("{id} has ended, with every process it started."),
    }
}

pub async fn rename(client: Client, rename: RenameArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &rename.session).await?;
    let path = format!("/v1/sessions/{id}/rename");
    let name = rename.name.as_ref().map(SessionName::as_str);
    let session: Session = client.post_retrying(&path, &json!({"name": name})).await?;
    match name {
        _ if rename.json.json => show::json(&session),
        Some(name) => outln!("{id} is now called {name}."),
        None => outln!("{id} has no name now."),
    }
    Ok(0)
}

pub async fn remove(client: Client, remove: RemoveArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &remove.session).await?;
    let session: Session = client.get(&format!("/v1/sessions/{id}")).await?;
    if is_running(&session) {
        return Err(CliError::new(format!("Session '{id}' is still running"))
            .next(format!("`abide kill {id}` ends it; then it can be deleted")));
    }
    if !remove.yes {
        let command = one_line(&session.command);
        let bytes = session.summary.bytes_total;
        let ask = format!("Delete {id} ({command}) and its log of {bytes} bytes?");
        if !confirmed(&ask, "deleted")? {
            return Ok(1);
        }
    }
    let path = format!("/v1/sessions/{id}/delete");
    let deleted: Session = client.post(&path, &json!({})).await?;
    let sentence = format_args!("{id} and its log are deleted.");
    show::result(remove.json.json, &deleted, sentence);
    Ok(0)
}

pub async fn extend(client: Client, extend: ExtendArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &extend.session).await?;
    let path = format!("/v1/sessions/{id}/extend");
    let seconds = |span: Option<Millis>| span.map(Millis::as_secs_f64);
    let body = json!({"timeout": seconds(extend.timeout), "idle": seconds(extend.idle)});
    let session: Session = client.post_retrying(&path, &body).await?;
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
    use crate::cli::sample;

    #[test]
    fn stale_facts_of_a_running_session_elsewhere_are_found() {
        let session =
            |status: &str, as_of: u64| sample::session(json!({"status": status, "as_of": as_of}));
        let now = 100_000;
        let all = [session("running", 80_000), session("running", 70_000)];
        assert_eq!(oldest_known(&all, now), Some(70_000));
        let fresh = [session("running", 90_000), session("unreachable", 1)];
        assert_eq!(oldest_known(&fresh, now), None);
        assert_eq!(oldest_known(&[sample::session(json!({}))], now), None);
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
            assert_eq!(state(&sample::session(session)).0, words);
            ends += 1;
        }
        assert_eq!(ends, 8);
    }
}

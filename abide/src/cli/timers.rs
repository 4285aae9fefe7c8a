//! `abide timer`: starts, controls and lists timers.

use abide_api::cli::TimerList;
use abide_api::{Timer, TimerDetails, TimerPage, TimerStats, TimerStatus};
use abide_core::Millis;
use abide_output::printable::one_line;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::args::{TimerActionArgs, TimerCommand, TimerStartArgs, TimerWaitArgs};
use super::client;
use super::client::Client;
use super::error::CliError;
use super::ids;
use super::reconnect::post_waiting;
use super::show::{self, Row, errln, outln};
use super::wait::{ProgressBar, with_file_state};
use abide_engine::secret;

pub async fn timer(timer: TimerCommand) -> Result<u8, CliError> {
    match timer {
        TimerCommand::Start(new) => start(client(&new.agent)?, new).await,
        TimerCommand::Wait(args) => wait(args).await,
        TimerCommand::Read(read) => match read.timer {
            Some(timer) => {
                let client = client(&read.agent)?;
                let id = ids::timer(&client, &timer).await?;
                let timer: TimerDetails = client.get(&format!("/v1/timers/{id}")).await?;
                print_timer(&timer, read.json.json);
                Ok(0)
            }
            None => list_active(&client(&read.agent)?, read.json.json).await,
        },
        TimerCommand::Stop(args) => timer_action("stop", args, json!({})).await,
        TimerCommand::Cancel(args) => timer_action("cancel", args, json!({})).await,
        TimerCommand::Resume(args) => timer_action("resume", args, json!({})).await,
        TimerCommand::Pause(pause) => {
            let more = json!({"pause_duration": pause.time.as_secs_f64()});
            timer_action("pause", pause.timer, more).await
        }
        TimerCommand::List(list) => list_active(&client(&list.agent)?, list.json.json).await,
        TimerCommand::History(history) => {
            let path = format!("/v1/timers/history?limit={}", history.limit);
            let page: TimerPage = client(&history.agent)?.get(&path).await?;
            let ended = TimerList {
                timers: page.timers,
                as_of: page.as_of,
                trouble: page.trouble,
            };
            print_table(&ended, history.json.json, "No timers have ended yet.");
            Ok(0)
        }
        TimerCommand::Stats(stats) => {
            let found: TimerStats = client(&stats.agent)?.get("/v1/timers/stats").await?;
            if stats.json.json {
                show::json(&found);
            } else {
                print_stats(&found);
            }
            Ok(0)
        }
    }
}

/// Prints the active timers.
async fn list_active(client: &Client, as_json: bool) -> Result<u8, CliError> {
    let (mut as_of, mut trouble) = (None, None);
    let path = "/v1/timers?include_ended=false";
    let split = |page: TimerPage| {
        (as_of, trouble) = (page.as_of, page.trouble);
        (page.timers, page.next)
    };
    let timers = client.get_all(path, split).await?;
    print_table(
        &TimerList {
            timers,
            as_of,
            trouble,
        },
        as_json,
        "No active timers; `abide timer history` shows past ones.",
    );
    Ok(0)
}

async fn start(client: Client, new: TimerStartArgs) -> Result<u8, CliError> {
    let client = match &new.until {
        Some(until) => with_file_state(client, until),
        None => client,
    };
    let body = json!({
        "total_duration": new.total.as_secs_f64(),
        "reason": new.reason,
        "mission": new.mission,
        "until": new.until,
        // Idempotency key: a retry does not create a second timer.
        "idempotency_key": secret::random_hex::<16>(),
    });
    let standby = Standby {
        client: &client,
        path: "/v1/timers",
        body: &body,
        time: new.standby,
    };
    let purpose = new.reason.as_ref().or(new.mission.as_ref());
    let purpose = purpose.cloned().unwrap_or_default();
    let bar = ProgressBar {
        total: new.total,
        before: Millis(0),
        standby: new.standby,
        purpose,
    };
    let Some(timer) = standby.wait(bar).await? else {
        return Ok(INTERRUPTED);
    };
    print_timer(&timer, new.json.json);
    let is_completed = timer.timer.status == TimerStatus::Completed;
    Ok(match new.mission.is_some() && !is_completed {
        true => u8::from(timer.timeout == Some(true)),
        false => exit_code(&timer),
    })
}

/// Waits for a timer that was started before.
async fn wait(args: TimerWaitArgs) -> Result<u8, CliError> {
    let client = client(&args.agent)?;
    let id = ids::timer(&client, &args.timer).await;
    let id = id.map_err(|error| error.code(NOT_FOUND))?;
    let read = client.get(&format!("/v1/timers/{id}")).await;
    let TimerDetails { timer, .. } = read.map_err(|error| CliError::from(error).code(NOT_FOUND))?;
    let purpose = timer.reason.or(timer.mission);
    let standby = Standby {
        client: &client,
        path: &format!("/v1/timers/{id}/continue"),
        body: &json!({}),
        time: args.standby,
    };
    let bar = ProgressBar {
        total: timer.total_duration.0,
        before: timer.elapsed_time.0,
        standby: standby.time,
        purpose: purpose.unwrap_or_default(),
    };
    let is_paused = timer.status == TimerStatus::Paused;
    let waited = standby.wait(bar).await.map_err(|error| match is_paused {
        true => error.code(ENDED_OTHERWISE),
        false => error,
    });
    let Some(timer) = waited? else {
        return Ok(INTERRUPTED);
    };
    print_timer(&timer, args.json.json);
    Ok(exit_code(&timer))
}

/// Exit code of a wait for a timer that is not known.
const NOT_FOUND: u8 = 2;
/// Exit code of a wait for a timer that is stopped, cancelled or paused.
const ENDED_OTHERWISE: u8 = 3;

/// Exit code of a wait.
fn exit_code(timer: &TimerDetails) -> u8 {
    match timer.timer.status {
        TimerStatus::Completed => 0,
        _ if timer.timeout == Some(true) => 1,
        _ => ENDED_OTHERWISE,
    }
}

/// Exit code after Ctrl-C: 128 + `SIGINT`.
const INTERRUPTED: u8 = 130;

/// Request that stands by on a timer.
struct Standby<'a> {
    client: &'a Client,
    path: &'a str,
    body: &'a Value,
    /// Longest time to wait; `None`: until the timer ends.
    time: Option<Millis>,
}

impl Standby<'_> {
    /// Waits with a progress bar. `None`: a person pressed Ctrl-C, and was told what becomes of the timer.
    async fn wait(&self, bar: ProgressBar) -> Result<Option<TimerDetails>, CliError> {
        let waiting = post_waiting(self.client, self.path, self.time, |left| self.body(left));
        // Received from here on: a Ctrl-C right after the bar appears does not end the program without a word.
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            timer = bar.show_during(waiting) => Ok(Some(timer?)),
            _ = interrupt.recv() => {
                tokio::select! {
                    () = self.tell_left() => {}
                    // A daemon that does not answer is not waited for.
                    _ = interrupt.recv() => {}
                }
                Ok(None)
            }
        }
    }

    /// Body of a request that stands by for this many seconds; `None`: until the timer ends.
    fn body(&self, standby: Option<f64>) -> Value {
        let mut body = self.body.clone();
        body["timeout_duration"] = json!(standby);
        body
    }

    /// Tells the person who left the wait how to go on. The repeated request says which timer it is.
    async fn tell_left(&self) {
        ProgressBar::clear();
        let body = self.body(Some(0.001));
        match self.client.post::<TimerDetails>(self.path, &body).await {
            Ok(timer) => {
                let id = timer.timer.timer_id.0;
                errln!(
                    "{id} continues. `abide timer read {id}` shows it, `abide timer wait {id}` waits for it, \
                     `abide timer stop {id}` stops it."
                );
            }
            Err(_) => errln!("The timer continues if it was started. `abide timer list` shows it."),
        }
    }
}

async fn timer_action(act: &str, args: TimerActionArgs, mut body: Value) -> Result<u8, CliError> {
    let client = client(&args.agent)?;
    let id = ids::timer(&client, &args.timer).await?;
    let path = format!("/v1/timers/{id}/{act}");
    body["reason"] = json!(args.reason);
    let timer: TimerDetails = client.post_retrying(&path, &body).await?;
    print_timer(&timer, args.json.json);
    Ok(0)
}

fn print_timer(timer: &TimerDetails, as_json: bool) {
    if as_json {
        show::json(timer);
        return;
    }
    for line in timer.text.iter().flat_map(|text| text.lines()) {
        outln!("{}", one_line(line));
    }
}

fn print_table(listed: &TimerList, as_json: bool, none: &str) {
    if as_json {
        show::json(listed);
        return;
    }
    if let Some(trouble) = &listed.trouble {
        outln!("{}", one_line(trouble));
        outln!("Timers that this machine does not have in memory may be missing.");
    }
    let timers = &listed.timers;
    if timers.is_empty() && listed.trouble.is_none() {
        outln!("{none}");
    } else if !timers.is_empty() {
        let rows: Vec<Row> = timers.iter().map(|details| row(&details.timer)).collect();
        show::table(
            &["TIMER", "STATE", "ELAPSED", "TOTAL", "AGENT", "FOR"],
            &rows,
        );
    }
}

fn row(timer: &Timer) -> Row {
    let plain = anstyle::Style::new();
    let colour = match timer.status {
        TimerStatus::Running | TimerStatus::RunningBackground => show::GOOD,
        TimerStatus::Stopped => show::BAD,
        TimerStatus::Paused | TimerStatus::Completed => show::FAINT,
    };
    let purpose = timer.mission.as_deref().or(timer.reason.as_deref());
    vec![
        (timer.timer_id.0.to_string(), plain),
        (timer.status.as_str().to_owned(), colour),
        (show::short(timer.elapsed_time.0), plain),
        (show::short(timer.total_duration.0), plain),
        (one_line(&timer.agent), show::FAINT),
        (show::first_line(purpose.unwrap_or_default()), plain),
    ]
}

fn print_stats(stats: &TimerStats) {
    let heading = show::HEADING;
    let span = |seconds: f64| show::short(Millis::from_secs_f64(seconds));
    let completed = format!(
        "{} by time, {} by condition, {} impossible",
        stats.completed_by_time, stats.completed_by_condition, stats.completed_by_impossible
    );
    for (name, value) in [
        ("created", stats.made.to_string()),
        ("running", stats.running.to_string()),
        ("completed", completed),
        ("stopped", stats.stopped.to_string()),
        ("waited", format!("{} in total", span(stats.elapsed_total))),
        ("delay", format!("at most {}", span(stats.max_late))),
    ] {
        outln!("{heading}{name:<10}{heading:#} {value}");
    }
}

//! `abide timer`: starts, controls and lists timers.

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
                let timer = client.get(&format!("/v1/timers/{id}")).await?;
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
            let timers = client(&history.agent)?.get(&path).await?;
            print_table(&timers, history.json.json, "No timers have ended yet.");
            Ok(0)
        }
        TimerCommand::Stats(stats) => {
            let found = client(&stats.agent)?.get("/v1/timers/stats").await?;
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
    let timers = client
        .get_whole("/v1/timers?include_ended=false", "timers")
        .await?;
    print_table(
        &timers,
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
    Ok(
        match new.mission.is_some() && timer["status"] != "completed" {
            true => u8::from(timer["timeout"] == true),
            false => exit_code(&timer),
        },
    )
}

/// Waits for a timer that was started before.
async fn wait(args: TimerWaitArgs) -> Result<u8, CliError> {
    let client = client(&args.agent)?;
    let id = ids::timer(&client, &args.timer).await;
    let id = id.map_err(|error| error.code(NOT_FOUND))?;
    let timer = client.get(&format!("/v1/timers/{id}")).await;
    let timer = timer.map_err(|error| CliError::from(error).code(NOT_FOUND))?;
    let time = |field: &str| Millis::from_secs_f64(timer[field].as_f64().unwrap_or(0.0));
    let purpose = timer["reason"].as_str().or(timer["mission"].as_str());
    let standby = Standby {
        client: &client,
        path: &format!("/v1/timers/{id}/continue"),
        body: &json!({}),
        time: args.standby,
    };
    let bar = ProgressBar {
        total: time("total_duration"),
        before: time("elapsed_time"),
        standby: standby.time,
        purpose: purpose.unwrap_or_default().to_owned(),
    };
    let is_paused = timer["status"] == "paused";
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
fn exit_code(timer: &Value) -> u8 {
    match timer["status"].as_str() {
        Some("completed") => 0,
        _ if timer["timeout"] == true => 1,
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
    async fn wait(&self, bar: ProgressBar) -> Result<Option<Value>, CliError> {
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
        match self.client.post(self.path, &self.body(Some(0.001))).await {
            Ok(timer) => {
                let id = one_line(timer["timer_id"].as_str().unwrap_or_default());
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
    let timer = client.post_retrying(&path, &body).await?;
    print_timer(&timer, args.json.json);
    Ok(0)
}

fn print_timer(timer: &Value, as_json: bool) {
    if as_json {
        show::json(timer);
        return;
    }
    let text = timer["text"].as_str().unwrap_or_default();
    for line in text.lines() {
        outln!("{}", one_line(line));
    }
}

fn print_table(timers: &Value, as_json: bool, none: &str) {
    let all = timers["timers"].as_array().cloned().unwrap_or_default();
    let trouble = timers["trouble"].as_str();
    if as_json {
        let mut listed = json!({"timers": all});
        for field in ["as_of", "trouble"] {
            if !timers[field].is_null() {
                listed[field] = timers[field].clone();
            }
        }
        show::json(&listed);
        return;
    }
    if let Some(trouble) = trouble {
        outln!("{}", one_line(trouble));
        outln!("Timers that this machine does not have in memory may be missing.");
    }
    if all.is_empty() && trouble.is_none() {
        outln!("{none}");
    } else if !all.is_empty() {
        let rows: Vec<Row> = all.iter().map(row).collect();
        show::table(
            &["TIMER", "STATE", "ELAPSED", "TOTAL", "AGENT", "FOR"],
            &rows,
        );
    }
}

fn row(timer: &Value) -> Row {
    let text = |field: &str| one_line(timer[field].as_str().unwrap_or_default());
    let time = |field: &str| {
        let seconds = timer[field].as_f64().unwrap_or(0.0);
        show::short(Millis::from_secs_f64(seconds))
    };
    let plain = anstyle::Style::new();
    let colour = match timer["status"].as_str() {
        Some("running" | "running_background") => show::GOOD,
        Some("stopped") => show::BAD,
        _ => show::FAINT,
    };
    let purpose = if timer["mission"].is_string() {
        "mission"
    } else {
        "reason"
    };
    vec![
        (text("timer_id"), plain),
        (text("status"), colour),
        (time("elapsed_time"), plain),
        (time("total_duration"), plain),
        (text("agent"), show::FAINT),
        (text(purpose), plain),
    ]
}

fn print_stats(stats: &Value) {
    let heading = show::HEADING;
    let number = |field: &str| stats[field].as_u64().unwrap_or(0);
    let span =
        |field: &str| show::short(Millis::from_secs_f64(stats[field].as_f64().unwrap_or(0.0)));
    let completed = format!(
        "{} by time, {} by condition, {} impossible",
        number("completed_by_time"),
        number("completed_by_condition"),
        number("completed_by_impossible")
    );
    for (name, value) in [
        ("created", number("made").to_string()),
        ("running", number("running").to_string()),
        ("completed", completed),
        ("stopped", number("stopped").to_string()),
        ("waited", format!("{} in total", span("elapsed_total"))),
        ("delay", format!("at most {}", span("max_late"))),
    ] {
        outln!("{heading}{name:<10}{heading:#} {value}");
    }
}

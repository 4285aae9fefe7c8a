//! `abide wait`, and the progress bar of a wait.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use abide_api::Waited;
use abide_core::Millis;
use abide_output::printable::one_line;
use serde_json::{Map, Value, json};

use super::args::WaitArgs;
use super::client::{Client, ClientError};
use super::error::CliError;
use super::ids;
use super::reconnect::post_waiting;
use super::show::{self, errln, outln};
use crate::cli::terminal::size_of;
use crate::http::headers::{FILES_HEADER, FilesBefore};
use abide_engine::clock::{Clock, SystemClock, pause};
use abide_engine::probe::Fingerprint;

pub async fn wait(client: Client, mut wait: WaitArgs) -> Result<u8, CliError> {
    check_options(&wait)?;
    if let Some(session) = &mut wait.session {
        let known = ids::session(&client, session).await;
        // Code 1 says that the condition was not met.
        *session = known.map_err(|error| match error.code {
            1 => error.code(2),
            _ => error,
        })?;
    }
    let until = condition(&wait)?;
    let purpose = describe(&until);
    let client = with_file_state(client, &until);
    let body = |left: Option<f64>| json!({"until": until, "for": left});
    let waiting = post_waiting(&client, "/v1/wait", Some(wait.time), body);
    let bar = ProgressBar {
        total: wait.time,
        before: Millis(0),
        standby: None,
        purpose,
    };
    let result = bar.show_during(waiting).await;
    let result: Waited = result.map_err(|error| with_option(error, wait.until.is_some()))?;
    let met = result.held;
    if wait.json.json {
        show::json(&result);
    } else {
        if result.impossible == Some(true) {
            let seen = lines(&result.seen);
            errln!("abide: the condition can no longer be met: {seen}");
            return Ok(1);
        }
        let seen = one_line(&result.seen);
        if met {
            outln!("{seen}");
        } else {
            errln!("abide: not met within {}: {seen}", wait.time);
        }
    }
    Ok(u8::from(!met))
}

/// Error in which the part of the condition is named as the option that gave it, unless JSON gave some.
fn with_option(mut error: ClientError, has_json: bool) -> ClientError {
    if let ClientError::Refused { detail, field, .. } = &mut error
        && !has_json
        && let Some(part) = field.take_if(|field| field.starts_with("until."))
    {
        let option = part.rsplit('.').next().unwrap_or_default();
        *detail = detail.replace(&format!("`{part}`"), &format!("--{option}"));
    }
    error
}

/// Text with every line made safe to print.
fn lines(text: &str) -> String {
    text.lines().map(one_line).collect::<Vec<_>>().join("\n")
}

/// Client that sends the current state of the files in the condition, so that a restarted daemon
/// detects changes since now.
pub fn with_file_state(client: Client, until: &Value) -> Client {
    let mut files = FilesBefore::new();
    add_changed_files(until, &mut files);
    match files.is_empty() {
        true => client,
        false => client.with_header(FILES_HEADER, &files),
    }
}

fn add_changed_files(until: &Value, files: &mut FilesBefore) {
    for part in [&until["all"], &until["any"]] {
        let parts = part.as_array().into_iter().flatten();
        parts.for_each(|part| add_changed_files(part, files));
    }
    // The daemon resolves `~`.
    if until["is"] == "changed"
        && let Some(path) = until["file"].as_str().filter(|path| !path.starts_with('~'))
        && let Ok(here) = std::env::current_dir()
        && let Ok(now) = Fingerprint::of(&here.join(path))
    {
        files.insert(here.join(path), now);
    }
}

/// Path as UTF-8 text, which a condition requires.
fn path_text(path: &Path) -> Result<&str, CliError> {
    path.to_str().ok_or_else(|| {
        let shown = path.to_string_lossy();
        CliError::new(format!("'{shown}' is not UTF-8"))
            .next("use --command 'test -e …' instead")
            .code(2)
    })
}

/// Checks that there is a condition, and that options of a condition come with it.
fn check_options(wait: &WaitArgs) -> Result<(), CliError> {
    let WaitArgs {
        port,
        url,
        file,
        session,
        command,
        ..
    } = wait;
    let has_tries = port.is_some() || url.is_some() || command.is_some();
    let needs = [
        ("--status", wait.status.is_some(), "--url", url.is_some()),
        ("--body", wait.body.is_some(), "--url", url.is_some()),
        ("--is", wait.is.is_some(), "--file", file.is_some()),
        (
            "--matches",
            wait.matches.is_some(),
            "--file",
            file.is_some(),
        ),
        (
            "--output",
            wait.output.is_some(),
            "--session",
            session.is_some(),
        ),
        (
            "--every",
            wait.every.is_some(),
            "--port, --url or --command",
            has_tries,
        ),
    ];
    if let Some((option, _, other, _)) = needs.iter().find(|(_, given, _, has)| *given && !has) {
        return Err(CliError::new(format!("{option} needs {other}"))
            .next("`abide help wait` has examples")
            .code(2));
    }
    let is_given = has_tries || file.is_some() || session.is_some() || wait.until.is_some();
    match is_given {
        true => Ok(()),
        false => Err(CliError::new("there is nothing to wait for")
            .next("name it with --port, --url, --file, --session, --command or --until; `abide help wait` has examples")
            .code(2)),
    }
}

fn condition(wait: &WaitArgs) -> Result<Value, CliError> {
    let mut all: Vec<Value> = Vec::new();
    let mut add = |fields: &[(&str, Option<Value>)]| {
        if fields[0].1.is_some() {
            let given = fields
                .iter()
                .filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
            all.push(Value::Object(Map::from_iter(given)));
        }
    };
    let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
    let file = match &wait.file {
        None => None,
        Some(file) => {
            let file = std::path::absolute(file)
                .map_err(|_| CliError::new("--file must be a path; got \"\"").code(2))?;
            Some(json!(path_text(&file)?))
        }
    };
    let every = wait.every.map(|every| json!(every.as_secs_f64()));
    add(&[("port", text(&wait.port)), ("every", every.clone())]);
    add(&[
        ("url", text(&wait.url)),
        ("status", wait.status.map(Into::into)),
        ("body", text(&wait.body)),
        ("every", every.clone()),
    ]);
    add(&[
        ("file", file),
        ("is", text(&wait.is)),
        ("matches", text(&wait.matches)),
    ]);
    add(&[
        ("session", text(&wait.session)),
        ("output", text(&wait.output)),
    ]);
    add(&[("command", text(&wait.command)), ("every", every)]);
    all.extend(wait.until.clone());
    Ok(match all.len() {
        1 => all.remove(0),
        _ => json!({"all": all}),
    })
}

/// Short description of the condition.
fn describe(until: &Value) -> String {
    let joined = |all: &Value, between: &str| {
        let all = all.as_array().into_iter().flatten();
        all.map(describe).collect::<Vec<_>>().join(between)
    };
    for (name, value) in until.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("all", all) => return joined(all, " and "),
            ("any", any) => return joined(any, " or "),
            ("url" | "file" | "session" | "command", Value::String(text)) => return text.clone(),
            ("port", Value::String(port)) => return format!("port {port}"),
            ("port", port) => return format!("port {port}"),
            _ => {}
        }
    }
    until.to_string()
}

/// Interval between two updates of the progress bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
const WIDTH: u64 = 24;

/// Progress bar on standard error, if that is a terminal.
pub struct ProgressBar {
    /// Total duration.
    pub total: Millis,
    /// Part of it that had passed before.
    pub before: Millis,
    /// Duration of this call's wait.
    pub standby: Option<Millis>,
    /// Reason for the wait.
    pub purpose: String,
}

impl ProgressBar {
    /// Updates the progress bar while `what` is pending.
    pub async fn show_during<T>(self, what: impl Future<Output = T>) -> T {
        if !std::io::stderr().is_terminal() {
            return what.await;
        }
        let began = SystemClock.now().boot.0;
        tokio::pin!(what);
        let done = loop {
            self.draw(Millis(SystemClock.now().boot.0 - began));
            tokio::select! {
                biased;
                done = &mut what => break done,
                () = pause(UPDATE_INTERVAL) => {}
            }
        };
        ProgressBar::clear();
        done
    }

    /// Erases the progress bar.
    pub fn clear() {
        let mut err = std::io::stderr();
        if err.is_terminal() {
            let _ = write!(err, "\r\x1b[K");
        }
    }

    fn draw(&self, passed: Millis) {
        let mut err = std::io::stderr();
        // One column less than the width: a full line would wrap, and the next update would not erase it.
        let room = usize::from(size_of(err.as_fd()).0).saturating_sub(1);
        let line = show::truncate(&self.line(passed), room);
        let _ = write!(err, "\r\x1b[K{line}");
        let _ = err.flush();
    }

    /// The bar after this time of waiting.
    fn line(&self, waited: Millis) -> String {
        let passed = Millis(self.before.0 + waited.0);
        let part = passed.0.min(self.total.0);
        let full = part * WIDTH / self.total.0.max(1);
        let bar: String = (0..WIDTH)
            .map(|at| if at < full { '█' } else { '░' })
            .collect();
        let mut line = format!(
            "{bar} {} of {}",
            show::short(passed),
            show::short(self.total)
        );
        if let Some(standby) = self.standby {
            line.push_str(&format!(", standing by for {}", show::short(standby)));
        }
        if !self.purpose.is_empty() {
            line.push_str(&format!(": {}", one_line(&self.purpose)));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_shows_the_elapsed_share() {
        let bar = ProgressBar {
            total: Millis::from_secs(100),
            before: Millis(0),
            standby: Some(Millis::from_secs(60)),
            purpose: "the build\u{1b}[2J".into(),
        };
        assert!(bar.line(Millis(0)).starts_with("░░"));
        assert!(
            bar.line(Millis::from_secs(50))
                .starts_with(&format!("{}░", "█".repeat(12)))
        );
        assert_eq!(
            bar.line(Millis::from_secs(200)),
            format!(
                "{} 3m20s of 1m40s, standing by for 60s: {}",
                "█".repeat(24),
                one_line("the build\u{1b}[2J")
            )
        );
    }

    #[test]
    fn progress_bar_counts_the_time_before_the_wait() {
        let bar = ProgressBar {
            total: Millis::from_secs(600),
            before: Millis::from_secs(300),
            standby: None,
            purpose: String::new(),
        };
        let line = format!("{}{} 5m2s of 10m", "█".repeat(12), "░".repeat(12));
        assert_eq!(bar.line(Millis::from_secs(2)), line);
    }

    #[test]
    fn condition_is_described_in_a_few_words() {
        let until = json!({"any": [{"port": 3000}, {"all": [{"file": "/x", "is": "gone"}, {"command": "true"}]}]});
        assert_eq!(describe(&until), "port 3000 or /x and true");
        assert_eq!(describe(&json!({"port": "db:5432"})), "port db:5432");
        assert_eq!(describe(&json!({"new": 1})), r#"{"new":1}"#);
    }
}

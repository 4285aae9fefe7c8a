//! Checks of the daemon: its status, log, database, listeners and clock.

use std::path::Path;

use abide_api::{Daemon, HttpListener};
use abide_output::printable::one_line;

use super::Finding;
use crate::cli::doctor::system;
use crate::cli::show;
use crate::connect::{self, DaemonSocket};
use crate::http;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::{Config, Paths};
use abide_engine::store;

/// Number of bytes that are read from the end of the daemon's log.
const LOG_BYTES: u64 = 256 << 10;
/// Tolerated difference between wall clock and boot-time clock, in milliseconds.
const CLOCK_TOLERANCE: i64 = 5_000;

pub fn check(paths: &Paths) -> Vec<Finding> {
    let mut findings = Vec::new();
    let status = match connect::connect_running(paths, DaemonSocket::Http) {
        Ok(_) => http::daemon_status(&paths.http_socket()),
        Err(_) => {
            let sentence = "not running; the next command starts it";
            findings.push(Finding::good("daemon", sentence));
            findings.push(database(paths, None, store::wal_is_damaged));
            return findings
                .into_iter()
                .chain(log(paths))
                .chain(clock(None))
                .collect();
        }
    };
    match &status {
        Err(fault) => findings.push(Finding::trouble(
            "daemon",
            format!("running, but it does not answer: {fault}"),
            "`abide stop`, or end the process whose id is in run/lock; sessions continue",
        )),
        Ok(status) => {
            findings.push(version(&status.daemon));
            findings.push(address(status.http.as_ref()));
        }
    }
    let status = status.ok();
    let trouble = status
        .as_ref()
        .and_then(|known| known.database.trouble.as_deref());
    // The write-ahead log of a running daemon may change while it is read, so its check is skipped.
    findings.push(database(paths, trouble, |_| false));
    findings.extend(log(paths));
    findings.extend(clock(status.map(|status| status.daemon)));
    findings
}

/// Checks that the database can be used and that no records were lost.
fn database(paths: &Paths, trouble: Option<&str>, wal_is_damaged: fn(&Path) -> bool) -> Finding {
    let path = paths.database();
    let config = Config::load(&paths.config).unwrap_or_default();
    if let Some(server) = config.shown_store() {
        return match trouble {
            None => Finding::good("database", server),
            Some(trouble) => Finding::trouble(
                "database",
                one_line(trouble),
                "check the server and `store` in the configuration; the daemon connects by itself, and commands run \
                 meanwhile",
            ),
        };
    }
    if let Some(trouble) = trouble {
        let next = "check `abide timer list` for missing timers; the daemon's log has details";
        return Finding::trouble("database", one_line(trouble), next);
    }
    let checked = match wal_is_damaged(&path) {
        true => Err("its journal (abide.db-wal) is damaged".into()),
        false => store::check(&path).map_err(|fault| fault.to_string()),
    };
    if let Err(why) = checked {
        return Finding::trouble(
            "database",
            format!("{}: {}", path.display(), one_line(&why)),
            "`abide stop`, then run any command: the next daemon sets it aside and copies what can be read",
        );
    }
    match store::damaged_copies(&path).last() {
        None => Finding::good("database", "intact"),
        Some(aside) => Finding::warning(
            "database",
            format!("intact; a damaged one was set aside as {}", aside.display()),
            "timers and messages in it may be lost; delete the file when you no longer need it",
        ),
    }
}

/// Checks that the web page is embedded in this program.
pub fn page() -> Finding {
    if http::page_is_built() {
        return Finding::good("page", "built in; `abide open` shows it");
    }
    Finding::warning(
        "page",
        "this build does not include it",
        "build with `make build`, which builds the page first (needs npm)",
    )
}

fn version(daemon: &Daemon) -> Finding {
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &daemon.version);
    let uptime = show::ago(SystemClock.now().wall.0, daemon.started_at);
    let sentence = format!("version {theirs}, process {}, up for {uptime}", daemon.pid);
    if theirs == ours {
        return Finding::good("daemon", sentence);
    }
    Finding::warning(
        "daemon",
        format!("{sentence}; this program is version {ours}"),
        "run `abide stop`; sessions continue, and the next command starts this version",
    )
}

fn address(listener: Option<&HttpListener>) -> Finding {
    let Some(listener) = listener else {
        return Finding::good("address", "off (configured)");
    };
    match &listener.address {
        Some(address) => Finding::good("address", format!("http://{address}")),
        None => Finding::trouble(
            "address",
            one_line(listener.error.as_deref().unwrap_or_default()),
            "choose another address with `http = \"127.0.0.1:PORT\"` in the configuration",
        ),
    }
}

/// Warnings and errors in the log since the last start of the daemon.
fn log(paths: &Paths) -> Option<Finding> {
    let path = paths.daemon_log();
    let text = system::tail(&path, LOG_BYTES).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let begin = lines
        .iter()
        .rposition(|line| line.contains(" starts, process "));
    let since = &lines[begin.unwrap_or(0)..];
    let with = |mark: &str| since.iter().filter(|line| line.contains(mark)).count();
    let (errors, warnings) = (with(" ERROR "), with(" WARN "));
    let last = since
        .iter()
        .rfind(|line| line.contains(" ERROR ") || line.contains("panicked"));
    let file = path.display();
    Some(match last {
        Some(last) => Finding::warning(
            "log",
            format!(
                "{errors} {} since the daemon started; last: {}",
                if errors == 1 { "error" } else { "errors" },
                one_line(last.trim())
            ),
            format!("see {file}"),
        ),
        None => Finding::good("log", format!("no errors, {warnings} warnings; {file}")),
    })
}

/// Checks the clock. Timers run on the boot-time clock and are stored with wall-clock times.
fn clock(daemon: Option<Daemon>) -> Option<Finding> {
    let clock_shift = daemon.and_then(clock_shift);
    if let Some(clock_shift) = clock_shift.filter(|clock_shift| clock_shift.abs() > CLOCK_TOLERANCE)
    {
        let span = show::short(abide_core::Millis(clock_shift.unsigned_abs()));
        let direction = if clock_shift > 0 { "ahead" } else { "back" };
        return Some(Finding::warning(
            "clock",
            format!("the system clock was set {direction} by {span} since the daemon started"),
            "timers adjust by themselves; earlier timestamps do not match later ones",
        ));
    }
    Some(match abide_session::clock_is_synchronised() {
        Some(true) => Finding::good("clock", "synchronised"),
        Some(false) => Finding::warning(
            "clock",
            "not synchronised (as reported by the kernel)",
            "run a time service such as chrony, unless the host does it",
        ),
        None => Finding::good("clock", "it is not known whether it is synchronised"),
    })
}

/// Change of the wall clock relative to the boot-time clock since the daemon started, in milliseconds.
fn clock_shift(daemon: Daemon) -> Option<i64> {
    let now = SystemClock.now();
    let began = system::process_start(i32::try_from(daemon.pid).ok()?)?;
    let since_boot = now.boot.0.checked_sub(began)?.cast_signed();
    Some(now.wall.0.cast_signed() - daemon.started_at.cast_signed() - since_boot)
}

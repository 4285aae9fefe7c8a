//! `abide doctor`: checks the installation and says how to repair it. The command starts no daemon and
//! works with an invalid configuration, because it is run when something is broken.

mod clients;
mod daemon;
mod fleet;
mod hostile;
mod machine;
mod server;
pub mod system;

use abide_api::cli;

use super::args::DoctorArgs;
use super::error::CliError;
use super::show::{self, outln};
use abide_engine::config::{Config, ConfigError, Paths};
use abide_engine::policy::PolicyStore;
use abide_output::printable::one_line;

/// Columns that level and topic take.
const LEFT_COLUMNS: usize = 24;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Switched off in the configuration.
    Off,
    /// No problem.
    Ok,
    /// Works with limitations.
    Warning,
    /// Does not work.
    Trouble,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Off => "off",
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Trouble => "trouble",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    topic: &'static str,
    level: Severity,
    says: String,
    next: Option<String>,
}

impl Finding {
    /// Finding without a problem.
    pub fn good(topic: &'static str, says: impl Into<String>) -> Self {
        Finding {
            topic,
            level: Severity::Ok,
            says: says.into(),
            next: None,
        }
    }

    /// Finding that something is switched off, with the way to switch it on.
    pub fn off(topic: &'static str, says: impl Into<String>, next: impl Into<String>) -> Self {
        Finding {
            level: Severity::Off,
            ..Finding::warning(topic, says, next)
        }
    }

    /// Finding that something could be better, with the next step.
    pub fn warning(topic: &'static str, says: impl Into<String>, next: impl Into<String>) -> Self {
        Finding {
            topic,
            level: Severity::Warning,
            says: says.into(),
            next: Some(next.into()),
        }
    }

    /// Finding that something does not work, with the next step.
    pub fn trouble(topic: &'static str, says: impl Into<String>, next: impl Into<String>) -> Self {
        Finding {
            level: Severity::Trouble,
            ..Finding::warning(topic, says, next)
        }
    }

    fn facts(&self) -> cli::Finding {
        cli::Finding {
            topic: self.topic.into(),
            level: self.level.word().into(),
            says: self.says.clone(),
            next: self.next.clone(),
        }
    }
}

pub fn doctor(args: DoctorArgs, paths: Result<Paths, ConfigError>) -> Result<u8, CliError> {
    if let Some(scene) = &args.attack {
        return hostile::attack(scene);
    }
    if args.hostile {
        let paths = paths.map_err(|fault| CliError::new(fault.to_string()))?;
        return hostile::hostile(&paths, args.json.json);
    }
    let findings = check(paths);
    let worst = findings.iter().map(|finding| finding.level).max();
    let worst = worst.unwrap_or(Severity::Ok);
    if args.json.json {
        show::json(&cli::Doctor {
            version: env!("CARGO_PKG_VERSION"),
            level: worst.word().into(),
            findings: findings.iter().map(Finding::facts).collect(),
        });
    } else {
        print(&findings);
    }
    Ok(u8::from(worst == Severity::Trouble))
}

fn check(paths: Result<Paths, ConfigError>) -> Vec<Finding> {
    let paths = match paths {
        Ok(paths) => paths,
        Err(fault) => {
            let next = "set HOME, or set ABIDE_DIR to a directory of your own";
            return vec![Finding::trouble("folders", fault.to_string(), next)];
        }
    };
    let config = Config::load(&paths.config);
    let mut findings = vec![configuration(&paths, &config)];
    // A file that is no configuration at all was reported above.
    findings.extend(config.is_ok().then(|| policy(&paths)));
    findings.extend(daemon::check(&paths));
    findings.push(daemon::page());
    let usable = config.unwrap_or_default();
    findings.extend(server::check(&usable));
    findings.extend(fleet::check(&paths, &usable));
    findings.extend(machine::check(&paths, &usable));
    findings.extend(clients::check());
    findings.extend(clients::wakers(&usable));
    findings
}

fn configuration(paths: &Paths, config: &Result<Config, ConfigError>) -> Finding {
    let file = paths.config.display();
    if let Some(missing) = config.as_ref().ok().and_then(missing_file) {
        return missing;
    }
    match config {
        Ok(_) if paths.config.exists() => Finding::good("configuration", format!("{file}")),
        Ok(_) => Finding::good(
            "configuration",
            format!("defaults; put changes into {file}"),
        ),
        Err(fault) => Finding::trouble(
            "configuration",
            one_sentence(&fault.to_string()),
            "correct the file; until then a new daemon cannot start, and one that runs refuses commands of agents",
        ),
    }
}

/// Finding for a shell or a file of certificates that the configuration names and that is not there.
fn missing_file(config: &Config) -> Option<Finding> {
    let topic = "configuration";
    let shell = &config.shell[0];
    if system::program(shell, &clients::search_path()).is_none() {
        let says = format!(
            "the shell {} cannot be executed: no command can be started",
            one_line(shell)
        );
        return Some(Finding::trouble(topic, says, "correct or remove `shell`"));
    }
    let file = config.ca_file.as_ref()?;
    let fault = std::fs::File::open(file).err()?;
    let says = format!(
        "the certificates in {} cannot be read: {fault}",
        file.display()
    );
    Some(Finding::trouble(topic, says, "correct or remove `ca_file`"))
}

/// Checks the rules about commands of agents.
fn policy(paths: &Paths) -> Finding {
    match PolicyStore::new(&paths.config).policy() {
        Ok(policy) => Finding::good(
            "policy",
            format!(
                "{} rules; `abide policy list` shows them",
                policy.rules.len()
            ),
        ),
        Err(broken) => Finding::trouble(
            "policy",
            one_sentence(&broken.to_string()),
            "correct the file; until then all commands of agents are refused",
        ),
    }
}

/// Text of several lines as one line.
fn one_sentence(text: &str) -> String {
    let lines: Vec<&str> = text.split_whitespace().collect();
    one_line(&lines.join(" "))
}

fn print(findings: &[Finding]) {
    let faint = show::FAINT;
    for finding in findings {
        let colour = match finding.level {
            Severity::Off => show::FAINT,
            Severity::Ok => show::GOOD,
            Severity::Warning => show::WARN,
            Severity::Trouble => show::BAD,
        };
        let (word, topic) = (finding.level.word(), finding.topic);
        let bold = show::HEADING;
        let mut lines = wrapped(&finding.says).into_iter();
        let first = lines.next().unwrap_or_default();
        outln!("{colour}{word:<8}{colour:#} {bold}{topic:<14}{bold:#} {first}");
        for line in lines {
            outln!("{:<LEFT_COLUMNS$}{line}", "");
        }
        for line in finding.next.iter().flat_map(|next| wrapped(next)) {
            outln!("{:<LEFT_COLUMNS$}{faint}{line}{faint:#}", "");
        }
    }
    let count = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    match (count(Severity::Trouble), count(Severity::Warning)) {
        (0, 0) => outln!("\nNo problems found."),
        (0, warnings) => outln!("\nIt works. {}", plural(warnings, "warning")),
        (troubles, warnings) => outln!(
            "\n{}, {}",
            plural(troubles, "problem").trim_end_matches('.'),
            plural(warnings, "warning")
        ),
    }
}

/// Text wrapped to the width beside the topics; one line if the output is not a terminal.
fn wrapped(text: &str) -> Vec<String> {
    show::wrapped(text, LEFT_COLUMNS)
}

fn plural(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}."),
        count => format!("{count} {what}s."),
    }
}

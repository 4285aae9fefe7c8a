//! `abide schema`: JSON Schemas of `--json` output, derived from the public types. Later versions may
//! add fields, so a reader must ignore unknown ones. Tests check the real output of every command
//! against these schemas.

use abide_api::schema::{printed, tool_output, with_is_error};
use abide_api::{
    FleetMachines, Killed, Link, MachineActed, Message, PolicyRemoved, PolicyRules, PolicyTested,
    Session, Status, TerminalSessionResult, TimerDetails, TimerStats, Waited, cli,
};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::args::SchemaArgs;
use super::error::CliError;
use super::show::{self, outln};

/// Function that generates a schema.
type Schema = fn() -> Value;

/// Commands with `--json`, and the type that each prints.
const COMMANDS: &[(&str, Schema)] = &[
    ("run", printed::<cli::Run>),
    ("answer", printed::<cli::Answer>),
    ("ps", printed::<cli::SessionList>),
    ("attach", printed::<cli::Attached>),
    ("kill", lines::<Killed>),
    ("rm", printed::<Session>),
    ("rerun", printed::<cli::Run>),
    ("session start", action),
    ("session list", printed::<cli::SessionList>),
    ("session attach", printed::<cli::Attached>),
    ("session read", lines::<cli::OutputLine>),
    ("session send", action),
    ("session screen", action),
    ("session search", action),
    ("session extend", printed::<Session>),
    ("session resize", action),
    ("session signal", action),
    ("session rename", printed::<Session>),
    ("session kill", lines::<Killed>),
    ("session rm", printed::<Session>),
    ("session rerun", printed::<cli::Run>),
    ("logs", lines::<cli::OutputLine>),
    ("timer start", printed::<TimerDetails>),
    ("timer wait", printed::<TimerDetails>),
    ("timer read", printed::<cli::TimerRead>),
    ("timer stop", printed::<TimerDetails>),
    ("timer cancel", printed::<TimerDetails>),
    ("timer pause", printed::<TimerDetails>),
    ("timer resume", printed::<TimerDetails>),
    ("timer list", printed::<cli::TimerList>),
    ("timer history", printed::<cli::TimerList>),
    ("timer stats", printed::<TimerStats>),
    ("wait", printed::<Waited>),
    ("messages", printed::<cli::Messages>),
    ("messages resend", printed::<Message>),
    ("policy list", printed::<PolicyRules>),
    ("policy test", printed::<PolicyTested>),
    ("policy remove", printed::<PolicyRemoved>),
    ("policy replay", printed::<cli::PolicyReplay>),
    ("audit", lines::<cli::Audit>),
    ("call", printed::<cli::Called>),
    ("fleet status", printed::<FleetMachines>),
    ("machine list", printed::<FleetMachines>),
    ("machine lost", printed::<MachineActed>),
    ("machine forget", printed::<MachineActed>),
    ("machine revoke", printed::<MachineActed>),
    ("sandbox layers", printed::<cli::Layers>),
    ("open", printed::<Link>),
    ("status", printed::<Status>),
    ("top", printed::<cli::Top>),
    ("setup", lines::<cli::SetupOutput>),
    ("doctor", printed::<cli::DoctorOutput>),
    ("stop", printed::<cli::Stopped>),
    ("version", printed::<cli::Version>),
];

/// Commands without `--json`, and the reason.
const PLAIN: &[(&str, &str)] = &[
    (
        "fleet init",
        "what it did is in the configuration; `abide fleet status --json` says how it is",
    ),
    (
        "fleet join",
        "what it did is in the configuration; `abide fleet status --json` says how it is",
    ),
    (
        "fleet leave",
        "what it did is in the configuration; `abide fleet status --json` says how it is",
    ),
    (
        "machine label",
        "what it did is in the configuration; `abide machine list --json` shows it",
    ),
    ("sandbox shell", "it is a shell for a person"),
    (
        "serve",
        "it is the daemon; `abide status --json` says how that is",
    ),
    ("mcp", "it speaks MCP, whose schemas `abide tools` prints"),
    ("relay", "it carries bytes between two daemons"),
    ("tools", "what it prints is described by its `--format`"),
    ("schema", "what it prints are JSON Schemas themselves"),
    ("completions", "it prints a script for a shell"),
    ("complete", "shells read what it prints"),
    ("man", "it prints and writes pages for people"),
];

pub fn schema(args: &SchemaArgs) -> Result<(), CliError> {
    let wanted = args.command.join(" ");
    if wanted.is_empty() {
        let all: Map<String, Value> = COMMANDS
            .iter()
            .map(|(name, _)| ((*name).to_owned(), of(name).unwrap_or_default()))
            .collect();
        show::json(&Value::Object(all));
        return Ok(());
    }
    let found = of(&wanted).ok_or_else(|| {
        let shown = abide_output::printable::one_line(&wanted);
        let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
        let plain = PLAIN.iter().find(|(name, _)| *name == wanted);
        let why = plain.map_or(String::new(), |(_, why)| format!(": {why}"));
        CliError::new(format!("'{shown}' prints no JSON{why}"))
            .next(format!("these do: {}", names.join(", ")))
            .code(2)
    })?;
    outln!("{found:#}");
    Ok(())
}

/// Schema of the output of a command.
fn of(command: &str) -> Option<Value> {
    let (name, schema) = COMMANDS.iter().find(|(name, _)| *name == command)?;
    let mut schema = schema();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(format!("abide {name} --json"));
    Some(schema)
}

/// Schema of an action on a session: the result of the tool.
fn action() -> Value {
    with_is_error(tool_output::<TerminalSessionResult>())
}

/// Schema of each line, for a command that prints many.
fn lines<T: JsonSchema>() -> Value {
    let mut schema = printed::<T>();
    schema["description"] = json!("Every line is such a value.");
    schema
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    /// Collects every command by its words, and a flag for `--json`.
    fn commands(command: &clap::Command, typed: &str, all: &mut Vec<(String, bool)>) {
        for sub in command.get_subcommands() {
            let name = format!("{typed} {}", sub.get_name());
            let speaks = |arg: &clap::Arg| arg.get_long() == Some("json");
            if !sub.is_subcommand_required_set() {
                let json = sub.get_arguments().any(speaks);
                all.push((name.trim_start().to_owned(), json));
            }
            commands(sub, &name, all);
        }
    }

    #[test]
    fn every_command_has_a_schema_or_a_reason_to_have_none() {
        let mut all = Vec::new();
        commands(&Cli::command(), "", &mut all);
        for (name, json) in &all {
            assert_eq!(of(name).is_some(), *json, "{name}");
            let reason = PLAIN.iter().any(|(plain, _)| plain == name);
            assert_eq!(reason, !json, "{name}");
        }
        assert_eq!(all.len(), COMMANDS.len() + PLAIN.len());
    }

    #[test]
    fn every_schema_is_whole() {
        for (name, _) in COMMANDS {
            let schema = of(name).unwrap();
            let text = schema.to_string();
            for part in text.split("#/$defs/").skip(1) {
                let thing = part.split('"').next().unwrap();
                assert!(schema["$defs"][thing].is_object(), "{name}: {thing}");
            }
        }
        let list = of("session list").unwrap();
        assert_eq!(
            list["properties"]["sessions"]["items"]["$ref"],
            "#/$defs/Session"
        );
        let session = &list["$defs"]["Session"];
        assert_eq!(
            session["properties"]["exit_code"]["type"],
            json!(["integer", "null"])
        );
        assert!(
            !session["required"]
                .as_array()
                .unwrap()
                .contains(&json!("error"))
        );
        assert_eq!(
            of("run").unwrap()["properties"]["session_id"]["type"],
            "string"
        );
    }
}

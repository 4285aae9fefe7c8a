//! `abide schema`: what `--json` prints, as JSON Schemas. They say which fields there are; later versions
//! may add some, so a reader ignores what it does not know. The tests hold every command's real output
//! against them.

use serde_json::{Map, Value, json};

use super::args::SchemaOf;
use super::show::{self, say};
use super::trouble::Trouble;

/// Kinds of things that several commands print. A line is a field: its name, with `?` where it may be
/// missing, its kinds, and what it means. `or` begins another form that a command may print (with
/// `--follow`, for one, a line for each thing).
const THINGS: [(&str, &str); 9] = [
    ("session", SESSION),
    ("timer", TIMER),
    ("question", QUESTION),
    ("message", MESSAGE),
    ("delivery", DELIVERY),
    ("talk", TALK),
    ("daemon", DAEMON),
    ("line", LINE),
    ("finding", FINDING),
];

const SESSION: &str = "\
session_id string
command string
agent string : whose it is
status string : running, exited or failed
end string|null : why it ended
exit_code integer|null
signal integer|null : the signal that ended it
duration number : seconds
bytes_total integer : written so far
bytes_dropped integer : written but not kept
damaged? string : what is wrong with its record
contained_by string|null
still_running [any] : what it left in the background
created_at integer : Unix milliseconds
ended_at? integer : Unix milliseconds
last_activity integer : Unix milliseconds
cwd string
pty boolean
idle number|null : seconds of silence after which a person is asked
idle_for number|null : seconds without output
timeout number|null : the hard limit in seconds, counted from its start
inactivity_timeout number|null : seconds
error? string : why it could not be started
tail? [string] : its last lines
cpu? number|null : 1 is one processor
memory? integer|null : bytes
waiting_for_input? boolean";

const TIMER: &str = "\
timer_id string
timer_type string : waiting or mission
status string : running, paused, running_background, completed or stopped
total_duration number : seconds
timeout_duration number : seconds that a call stands by
elapsed_time number : seconds
remaining_time number : seconds
created_at integer : Unix milliseconds
last_check_at integer : Unix milliseconds
agent? string
reason? string
mission? string
stop_reason? string
completed_by? string : time, condition or impossible
seen? string : what the condition saw in the end
last_look? string : what the condition saw last
late? number : seconds after it was due
pause_until? integer : Unix milliseconds
ended_at? integer : Unix milliseconds
standing_by? boolean
until? any : the condition
timeout? boolean : whether the standby ended first
effective_timeout? number : seconds
text? string : the same for people";

const QUESTION: &str = "\
question_id string
session_id string
question string
command string
agent string
idle number : seconds
running_for number : seconds
idle_for? number : seconds
last_line string
tail? [string]
doing string|null
facts? any
waiting_for_input boolean
cpu number|null : percent
asked_at integer : Unix milliseconds
text string : the same for people
event? string : asked or closed
state? string
closing? string";

const MESSAGE: &str = "\
message_id string
timer_id? string
session_id? string
agent string
text string
created_at integer : Unix milliseconds
seen_at integer|null : Unix milliseconds
woken_at integer|null : Unix milliseconds
wake_attempts integer
wake_fault string|null
deliveries [delivery]";

const DELIVERY: &str = "\
waker string
state string
ok boolean
at integer|null : Unix milliseconds
attempts integer
fault string|null
next_at integer|null : Unix milliseconds";

const TALK: &str = "\
session_id string
text string : the same for people
is_error boolean
status string
end string|null
exit_code integer|null
signal integer|null
duration number : seconds
bytes_total integer
bytes_dropped integer
contained_by string|null
still_running [any]
pty? boolean
cursor? any : where the screen's cursor is, or the place in the log
lines? any
more? boolean
sent? any
doing? string|null
waiting_for_input? boolean
cpu? number|null
found? [any]
matches? integer
lines_total? integer
complete? boolean
cols? integer
rows? integer
title? string|null
screen? [string]
cursor_col? integer
cursor_row? integer
cursor_visible? boolean
alternate_screen? boolean
application_cursor? boolean
bracketed_paste? boolean
mouse? boolean : whether the program wants to hear of the mouse
person_attached? boolean
matched? boolean
gone? boolean
error? string
damaged? string : what is wrong with its record
timeout? number|null : seconds
idle? number|null : seconds
inactivity_timeout? number|null : seconds
effective_timeout? number : seconds
messages? [any]";

const DAEMON: &str = "\
pid integer
version string
started_at integer : Unix milliseconds";

const LINE: &str = "\
offset? integer : where in the log
stream? string : stdout, stderr or pty
time? integer : when it came, Unix milliseconds
text? string
base64? string : instead of text, where it is not UTF-8
gap? integer : bytes that are not kept";

const FINDING: &str = "\
topic string
level string : ok, warning or trouble
says string
next string|null : what to do";

/// Every command that has `--json`, and what it prints.
const COMMANDS: [(&str, &str); 34] = [
    ("run", RUN),
    (
        "answer",
        "questions [question]\nor question_id string\nanswer string\nor = question",
    ),
    ("session start", "= talk"),
    ("session list", "sessions [session]"),
    (
        "session attach",
        "+ session\nleft boolean : whether the person left and it goes on",
    ),
    ("session read", "= line, one a line"),
    ("session send", "= talk"),
    ("session screen", "= talk"),
    ("session search", "= talk"),
    ("session extend", "= session"),
    ("session resize", "= talk"),
    ("session signal", "= talk"),
    ("session kill", "= session"),
    ("logs", "= line, one a line"),
    ("timer start", "= timer"),
    ("timer read", "= timer\nor timers [timer]"),
    ("timer stop", "= timer"),
    ("timer cancel", "= timer"),
    ("timer pause", "= timer"),
    ("timer resume", "= timer"),
    ("timer list", "timers [timer]"),
    ("timer history", "timers [timer]"),
    ("timer stats", STATS),
    (
        "wait",
        "held boolean\nseen string : what was seen last, or why it can no longer hold\n\
         impossible? boolean : it can no longer hold, so the wait ended early",
    ),
    (
        "messages",
        "messages [message]\nnext? string|null : where the next page begins\nor = message",
    ),
    ("messages resend", "= message"),
    (
        "call",
        "tool string\nline integer\nresult object : as the tool's own schema says",
    ),
    ("open", "url string\nexpires_in integer : seconds"),
    ("status", STATUS),
    ("top", TOP),
    ("setup", SETUP),
    (
        "doctor",
        "version string\nlevel string : the worst\nfindings [finding]",
    ),
    ("stop", "stopped boolean : false where none ran"),
    ("version", "version string"),
];

/// Commands that have no `--json`, and why.
const PLAIN: [(&str, &str); 6] = [
    (
        "serve",
        "it is the daemon; `abide status --json` says how that is",
    ),
    ("mcp", "it speaks MCP, whose schemas `abide tools` prints"),
    ("tools", "what it prints is described by its `--format`"),
    ("schema", "what it prints are JSON Schemas themselves"),
    ("completions", "it prints a script for a shell"),
    ("man", "it prints and writes pages for people"),
];

const RUN: &str = "\
+ session
outcome string
return_code integer : what `abide run` exits with
stdout string
stderr string
truncated boolean
error? string : one sentence
wanted_end? string|null : why it should have ended, where it cannot be ended";

const STATS: &str = "\
made integer
running integer
stopped integer
completed_by_time integer
completed_by_condition integer
completed_by_impossible integer
elapsed_total number : seconds
latest number : seconds after it was due
calls_saved? integer
days? [any]";

const STATUS: &str = "\
daemon daemon
sessions object
questions object
timers object
containment object
database object : trouble says what is wrong with it
http object|null
places object";

const TOP: &str = "\
daemon daemon
questions [question]
sessions [session]
timers [timer]
messages [message]";

const SETUP: &str = "\
client string
agent string
written boolean
files [any] : path, change, diff and backup of each file";

pub fn schema(args: &SchemaOf) -> Result<(), Trouble> {
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
        Trouble::new(format!("'{shown}' prints no JSON{why}"))
            .next(format!("these do: {}", names.join(", ")))
            .code(2)
    })?;
    say!("{found:#}");
    Ok(())
}

/// What a command prints.
fn of(command: &str) -> Option<Value> {
    let (name, fields) = COMMANDS.iter().find(|(name, _)| *name == command)?;
    let mut forms: Vec<Value> = fields.split("\nor ").map(form).collect();
    let mut schema = match forms.len() {
        1 => forms.remove(0),
        _ => json!({"anyOf": forms}),
    };
    let mut needed = Vec::new();
    gather(&schema, &mut needed);
    let things: Map<String, Value> = THINGS
        .iter()
        .filter(|(thing, _)| needed.contains(thing))
        .map(|(thing, fields)| ((*thing).to_owned(), object(fields)))
        .collect();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!(format!("abide {name} --json"));
    if !things.is_empty() {
        schema["$defs"] = Value::Object(things);
    }
    Some(schema)
}

/// One form of what a command prints.
fn form(fields: &str) -> Value {
    let Some(thing) = fields.strip_prefix("= ") else {
        return object(fields);
    };
    let (thing, many) = thing.split_once(", ").unwrap_or((thing, ""));
    let mut schema = json!({"$ref": format!("#/$defs/{thing}")});
    if !many.is_empty() {
        schema["description"] = json!("Every line is such a value.");
    }
    schema
}

/// The things that a schema speaks of, and those that they speak of.
fn gather(schema: &Value, needed: &mut Vec<&'static str>) {
    let text = schema.to_string();
    for (thing, fields) in &THINGS {
        let named = text.contains(&format!("\"#/$defs/{thing}\""));
        if named && !needed.contains(thing) {
            needed.push(thing);
            gather(&object(fields), needed);
        }
    }
}

/// An object of these fields.
fn object(fields: &str) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for line in fields.lines() {
        if let Some(thing) = line.strip_prefix("+ ") {
            let more = THINGS.iter().find(|(name, _)| *name == thing);
            let more = object(more.map_or("", |(_, fields)| fields));
            properties.extend(more["properties"].as_object().cloned().unwrap_or_default());
            required.extend(more["required"].as_array().cloned().unwrap_or_default());
            continue;
        }
        let (what, meaning) = line.split_once(" : ").unwrap_or((line, ""));
        let (name, kinds) = what.split_once(' ').unwrap_or((what, "any"));
        let mut schema = kind(kinds);
        if !meaning.is_empty() {
            schema["description"] = json!(meaning);
        }
        let plain = name.trim_end_matches('?');
        if plain == name {
            required.push(json!(name));
        }
        properties.insert(plain.to_owned(), schema);
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// A kind, a list of one, or several.
fn kind(kinds: &str) -> Value {
    if let Some(items) = kinds.strip_prefix('[') {
        return json!({"type": "array", "items": kind(items.trim_end_matches(']'))});
    }
    if kinds == "any" {
        return json!({});
    }
    if THINGS.iter().any(|(thing, _)| *thing == kinds) {
        return json!({"$ref": format!("#/$defs/{kinds}")});
    }
    let all: Vec<&str> = kinds.split('|').collect();
    match all.as_slice() {
        [one] => json!({"type": one}),
        many => json!({"type": many}),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Line;

    /// Every command, by the words that it is typed with, and whether it knows `--json`.
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
        commands(&Line::command(), "", &mut all);
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
            "#/$defs/session"
        );
        let session = &list["$defs"]["session"];
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

//! What a model is told about each tool. The first sentence says when to use it.

mod timers;

use abide_api::schema::tool_output;
use abide_api::{ExecuteCommandResult, ShellResult, TerminalSessionResult};
use serde_json::{Value, json};

/// A tool as it is published.
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// When to use it and what to expect.
    pub description: &'static str,
    /// The most that a call of it can do.
    pub power: Power,
    /// Schema of its arguments.
    pub input: fn() -> Value,
    /// Schema of its result, derived from its type in `abide_api`.
    pub output: fn() -> Value,
}

/// The most that a call of a tool can do, whatever its arguments are. A client may ask its user before a call
/// by the hints that follow from this, and it sees no arguments for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It looks, and changes nothing.
    Reads,
    /// It changes things of abide, and ends nothing.
    Changes,
    /// It ends a timer or a process.
    Ends,
    /// It has commands run, or types into programs, which can do anything.
    Runs,
}

impl Power {
    /// Whether it only looks.
    pub const fn read_only(self) -> bool {
        matches!(self, Power::Reads)
    }

    /// Whether it may destroy something.
    pub const fn destructive(self) -> bool {
        matches!(self, Power::Ends | Power::Runs)
    }

    /// Whether calling it twice is the same as calling it once.
    pub const fn idempotent(self) -> bool {
        matches!(self, Power::Reads)
    }

    /// Whether it may reach beyond abide and this machine.
    pub const fn open_world(self) -> bool {
        matches!(self, Power::Runs)
    }
}

/// All tools, in the order in which they are listed.
pub fn all() -> &'static [Described] {
    &TOOLS
}

/// One tool.
pub fn named(name: &str) -> Option<&'static Described> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// How many tools there are.
pub(super) const COUNT: usize = 10;

static TOOLS: [Described; COUNT] = [
    Described {
        name: "execute_command",
        title: "Execute command",
        description: "Run a command that may take long and whose duration you cannot tell: builds, \
            installs, test suites, downloads, migrations. It is never killed for taking long; only \
            when it has been quiet for `timeout` seconds a person is asked whether to go on waiting. \
            Returns the output and a last line such as `[exited with code 0 after 12s]`; an exit code \
            that is not 0 is a result, not an error. With status `running` the command goes on in \
            its session: do not start it again. The command line is run by sh.",
        power: Power::Runs,
        input: execute_input,
        output: tool_output::<ExecuteCommandResult>,
    },
    Described {
        name: "shell",
        title: "Shell",
        description: "Run a short command to its end under a hard time limit: listing files, git, grep, \
            a quick script. Returns COMMAND, STATUS (SUCCESS, ERROR, TIMEOUT_ERROR, FATAL_ERROR), \
            RETURN_CODE, STDOUT and STDERR. At the limit the whole process tree is killed and all \
            output so far is returned. What the command leaves in the background lives on in its \
            session. Use execute_command for what may take long. The command line is run by sh.",
        power: Power::Runs,
        input: shell_input,
        output: tool_output::<ShellResult>,
    },
    Described {
        name: "terminal_session",
        title: "Terminal session",
        description: "Keep a program running and talk to it: a REPL (python3 -i, node, psql), a shell, \
            ssh, a debugger, a dev server, an editor or any full-screen program; also to read on, \
            search or end a session that shell or execute_command left running. Actions: `start` \
            (first line: Session 'id' started); `read_output` (the next unread lines, waiting up to \
            timeout_seconds for one, or `until` a regex matches; then the cursor); `send_input` \
            (`input` is typed, \\n is Enter, then `keys` are pressed; returns what came back); \
            `screen` (what a person would see now, for full-screen programs); `search` (lines of the \
            whole log by regex); `extend` (move limits); `resize`; `signal`; `kill` (the whole process \
            tree is gone when it returns); `list`. Wait with timeout_seconds and until instead of \
            calling again and again. Reading destroys nothing. A session that has neither output, \
            input nor a reader for inactivity_timeout seconds is closed; its log is kept.",
        power: Power::Runs,
        input: terminal_input,
        output: tool_output::<TerminalSessionResult>,
    },
    timers::TIMER,
    timers::READ_TIMER,
    timers::STOP_TIMER,
    timers::CANCEL_TIMER,
    timers::PAUSE_TIMER,
    timers::RESUME_TIMER,
    timers::READ_MESSAGES,
];

fn run_fields(timeout: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line, as for sh -c."},
            "timeout": timeout,
            "cwd": {"type": "string", "description": "Folder to run in; a relative one is meant from the agent's root folder. Default: the agent's root folder."},
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables to set, in addition to the inherited ones."},
            "stdin": {"type": "string", "description": "Text for the command's standard input. Default: none, reading it gives end of file at once."},
            "max_output": {"type": "integer", "minimum": 1, "maximum": super::report::MAX_OUTPUT, "description": "Most characters of output to return (per stream). Default: 10000. The whole log is kept in any case."},
            "raw": {"type": "boolean", "description": "Return the output byte for byte up to max_output instead of as a person would see it. Default: false."},
            "idempotency_key": {"type": "string", "description": "A call repeated with the same key never runs the command twice; it gets the result of the first."}
        },
        "required": ["command"],
        "additionalProperties": false
    })
}

fn shell_input() -> Value {
    run_fields(json!({"type": "integer", "minimum": 1, "default": 100,
        "description": "Hard limit in seconds: then the whole process tree is killed."}))
}

fn execute_input() -> Value {
    run_fields(
        json!({"type": "number", "exclusiveMinimum": 0, "default": 60,
        "description": "Seconds without any output before a person is asked. Any output restarts it; there is no limit on the total time."}),
    )
}

fn terminal_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": super::terminal::ACTIONS, "description": "What to do."},
            "session_id": {"type": "string", "description": "Which session. For every action but start and list."},
            "command": {"type": "string", "description": "start: the command line, as for sh -c."},
            "cwd": {"type": "string", "description": "start: folder to run in; a relative one is meant from the agent's root folder."},
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "start: variables to set, in addition to the inherited ones."},
            "pty": {"type": "boolean", "default": true, "description": "start: give it a terminal. Without one, stdout and stderr are told apart."},
            "cols": {"type": "integer", "minimum": 2, "maximum": 1000, "default": 120, "description": "start, resize: columns of the terminal. With resize, what is not given stays."},
            "rows": {"type": "integer", "minimum": 1, "maximum": 500, "default": 40, "description": "start, resize: rows of the terminal. With resize, what is not given stays."},
            "inactivity_timeout": {"type": "number", "minimum": 0, "default": 300, "description": "start, extend: seconds without output, input or a reader after which the session is closed; 0: never."},
            "max_lines": {"type": "integer", "minimum": 1, "maximum": 10000, "default": 100, "description": "read_output, search, list: most lines to return. A list without it leaves out nothing that runs."},
            "timeout_seconds": {"type": "number", "minimum": 0, "default": 0, "description": "read_output: how long to wait where nothing is unread, or for `until`."},
            "until": {"type": "string", "description": "read_output: a regular expression; return as soon as a line matches, with everything up to it."},
            "since": {"type": "string", "description": "read_output: a cursor from an earlier result; read on from there instead of from what is unread."},
            "input": {"type": "string", "description": "send_input: text to type. A newline is the Enter key."},
            "keys": {"type": "array", "items": {"type": "string"}, "description": "send_input: keys to press after the text, such as enter, tab, esc, ctrl-c, up, page-down, f5, alt-x, shift-tab."},
            "pattern": {"type": "string", "description": "search: a regular expression."},
            "context": {"type": "integer", "minimum": 0, "maximum": 50, "default": 0, "description": "search: lines to show before and after each match."},
            "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "extend: new hard limit in seconds from now."},
            "idle": {"type": "number", "exclusiveMinimum": 0, "description": "extend: new limit in seconds without output, from now."},
            "signal": {"type": ["string", "integer"], "description": "signal: a name such as INT, TERM or HUP, or a number."},
            "include_ended": {"type": "boolean", "default": false, "description": "list: ended sessions too."},
            "idempotency_key": {"type": "string", "description": "start: a call repeated with the same key never runs the command twice."}
        },
        "required": ["action"],
        "additionalProperties": false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a schema has a field of this name, at any depth.
    fn has_field(schema: &Value, name: &str) -> bool {
        match schema {
            Value::Object(fields) => {
                let own = fields.get("properties").and_then(Value::as_object);
                own.is_some_and(|own| own.contains_key(name))
                    || fields.values().any(|within| has_field(within, name))
            }
            Value::Array(list) => list.iter().any(|within| has_field(within, name)),
            _ => false,
        }
    }

    #[test]
    fn tool_that_takes_a_command_is_destructive_and_open_world() {
        let takes_command = |tool: &&Described| has_field(&(tool.input)(), "command");
        let names: Vec<_> = (all().iter().filter(takes_command))
            .map(|tool| (tool.name, tool.power))
            .collect();
        let all_that_run = ["execute_command", "shell", "terminal_session", "timer"];
        assert_eq!(names, all_that_run.map(|name| (name, Power::Runs)));
        let runs = Power::Runs;
        assert!(runs.destructive() && runs.open_world() && !runs.read_only());
    }

    #[test]
    fn every_kind_of_condition_is_in_the_schema() {
        let schema = &(named("timer").expect("a tool").input)()["properties"]["until"];
        for kind in crate::tools::condition::KINDS {
            assert!(has_field(schema, kind), "{kind}");
        }
    }

    #[test]
    fn tool_that_ends_or_resumes_a_timer_says_what_it_does_to_the_command_of_its_condition() {
        for (name, power) in [
            ("read_timer", Power::Reads),
            ("read_messages", Power::Changes),
            ("cancel_timer", Power::Changes),
            ("stop_timer", Power::Ends),
            // It ends the try that runs.
            ("pause_timer", Power::Ends),
            // It begins the next one.
            ("resume_timer", Power::Runs),
        ] {
            assert_eq!(named(name).expect("a tool").power, power, "{name}");
        }
    }
}

//! Descriptions of the tools for models. The first sentence of each says when to use the tool.

mod timers;

use abide_api::arguments::{ExecuteCommandArgs, ShellArgs, TerminalSessionArgs};
use abide_api::schema::{tool_input, tool_output};
use abide_api::{ExecuteCommandResult, ShellResult, TerminalSessionResult};
use serde_json::Value;

/// Published description of a tool.
pub struct Described {
    /// Name in calls.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Use of the tool, and what to expect of it.
    pub description: &'static str,
    /// Strongest effect that a call can have.
    pub power: Power,
    /// Schema of the arguments, derived from their type in `abide_api`.
    pub input: fn() -> Value,
    /// Schema of the result, derived from its type in `abide_api`.
    pub output: fn() -> Value,
}

/// Strongest effect that a call of a tool can have, whatever its arguments are. The annotations of the tool follow from
/// it; a client may use them, without seeing arguments, to decide whether to ask its user before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Reads, and changes nothing.
    Reads,
    /// Changes state of abide, and ends nothing.
    Changes,
    /// Ends a timer or a process.
    Ends,
    /// Runs commands or sends input to programs, which can do anything.
    Runs,
}

impl Power {
    /// True if the tool only reads.
    pub const fn read_only(self) -> bool {
        matches!(self, Power::Reads)
    }

    /// True if the tool may destroy something.
    pub const fn destructive(self) -> bool {
        matches!(self, Power::Ends | Power::Runs)
    }

    /// True if calling the tool twice has the same effect as calling it once.
    pub const fn idempotent(self) -> bool {
        matches!(self, Power::Reads)
    }

    /// True if the tool may reach beyond abide and this machine.
    pub const fn open_world(self) -> bool {
        matches!(self, Power::Runs)
    }
}

/// All tools, in the order in which they are listed.
pub fn all() -> &'static [Described] {
    &TOOLS
}

/// Tool of this name.
pub fn named(name: &str) -> Option<&'static Described> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Number of tools.
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
        input: tool_input::<ExecuteCommandArgs>,
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
        input: tool_input::<ShellArgs>,
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
        input: tool_input::<TerminalSessionArgs>,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a schema has a field of this name, at any depth.
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
            // Pausing ends the running command of a condition.
            ("pause_timer", Power::Ends),
            // Resuming starts the command of a condition again.
            ("resume_timer", Power::Runs),
        ] {
            assert_eq!(named(name).expect("a tool").power, power, "{name}");
        }
    }
}

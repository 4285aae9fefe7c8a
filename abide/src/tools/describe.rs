//! Descriptions of the tools for models. The first sentence of each says when to use the tool.

use std::path::Path;
use std::sync::OnceLock;

use abide_api::arguments::{
    ExecuteCommandArgs, PauseTimerArgs, ReadMessagesArgs, ReadTimerArgs, SANDBOX_FIELDS, ShellArgs,
    TerminalSessionArgs, TimerActionArgs, TimerArgs,
};
use abide_api::schema::{for_models, tool_input, tool_output};
use abide_api::{
    CommandTool, ExecuteCommandResult, ReadMessagesResult, ReadTimerResult, ShellResult,
    StartsCommand, TerminalSessionResult, TimerResult, TimerTool, ToolName,
};
use abide_engine::config::Config;
use serde_json::{Map, Value, json};

/// Published description of a tool.
pub struct ToolDescription {
    /// Name in calls.
    pub name: ToolName,
    /// Name for people.
    pub title: &'static str,
    /// Use of the tool, and what to expect of it. `{shell}` stands for the shell that runs commands.
    pub template: &'static str,
    /// Strongest effect that a call can have.
    pub effect: ToolEffect,
    /// Schema of the arguments, derived from their type in `abide_api`.
    pub input: fn() -> Value,
    /// Schema of the result, derived from its type in `abide_api`.
    pub output: fn() -> Value,
}

/// Strongest effect that a call of a tool can have, whatever its arguments are. The annotations of the tool follow from
/// it; a client may use them, without seeing arguments, to decide whether to ask its user before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// Reads, and changes nothing.
    Reads,
    /// Changes state of abide, and ends nothing.
    Changes,
    /// Ends a timer or a process.
    Ends,
    /// Runs commands or sends input to programs, which can do anything.
    Runs,
}

impl ToolEffect {
    /// True if the tool only reads.
    pub const fn read_only(self) -> bool {
        matches!(self, ToolEffect::Reads)
    }

    /// True if the tool may destroy something.
    pub const fn destructive(self) -> bool {
        matches!(self, ToolEffect::Ends | ToolEffect::Runs)
    }

    /// True if calling the tool twice has the same effect as calling it once.
    pub const fn idempotent(self) -> bool {
        matches!(self, ToolEffect::Reads)
    }

    /// True if the tool may reach beyond abide and this machine.
    pub const fn open_world(self) -> bool {
        matches!(self, ToolEffect::Runs)
    }
}

/// Name of the shell that runs commands.
static SHELL: OnceLock<String> = OnceLock::new();

/// Sets the shell that the descriptions name, before the first of them is read.
pub fn name_shell(shell: &[String]) {
    let _ = SHELL.set(program_name(shell));
}

fn program_name(shell: &[String]) -> String {
    let program = shell.first().map(Path::new).and_then(Path::file_name);
    program.map_or_else(|| "sh".into(), |name| name.to_string_lossy().into_owned())
}

impl ToolDescription {
    /// Use of the tool, and what to expect of it.
    pub fn description(&self) -> String {
        let shell = SHELL.get_or_init(|| program_name(&Config::default().shell));
        self.template.replace("{shell}", shell)
    }

    /// Schema of the arguments for models. Without a sandbox it has no arguments about one.
    pub fn input_for_models(&self, has_sandbox: bool) -> Value {
        let mut input = for_models((self.input)());
        if let Some(fields) = input["properties"].as_object_mut().filter(|_| !has_sandbox) {
            fields.retain(|name, _| !SANDBOX_FIELDS.contains(&name.as_str()));
        }
        input
    }
}

/// All tools, in the order in which they are listed.
pub fn all() -> &'static [ToolDescription] {
    &TOOLS
}

pub fn of(name: ToolName) -> &'static ToolDescription {
    match TOOLS.iter().find(|tool| tool.name == name) {
        Some(tool) => tool,
        None => unreachable!("every tool is described"),
    }
}

/// Adds the argument that chooses a machine to the schema of a tool that starts commands. Models are told of it only in a
/// fleet.
pub fn add_machine_argument(tool: ToolName, input: &mut Map<String, Value>) {
    let fields = input.get_mut("properties");
    if let Some(Value::Object(fields)) = fields.filter(|_| tool.starts_commands()) {
        let on = json!({
            "type": "string",
            "description": "Name or label of the machine to start it on.",
        });
        fields.insert("on".into(), on);
    }
}

static TOOLS: [ToolDescription; ToolName::ALL.len()] = [
    ToolDescription {
        name: ToolName::Command(CommandTool::Execute),
        title: "Execute command",
        template: "Run a command whose duration you do not know: build, install, test suite, download, \
            migration. Never killed for being slow; after `timeout` seconds without output a person is \
            asked. Returns the output, noise folded, then for example `[exited with code 0 after 12s]`. \
            If it says `running`, call again with its `session_id`. Runs in {shell}.",
        effect: ToolEffect::Runs,
        input: tool_input::<ExecuteCommandArgs>,
        output: tool_output::<StartsCommand<ExecuteCommandResult>>,
    },
    ToolDescription {
        name: ToolName::Command(CommandTool::Shell),
        title: "Shell",
        template: "Run a short command under a hard time limit: ls, git, grep, a quick script. Returns COMMAND, \
            STATUS, RETURN_CODE, STDOUT, STDERR. At the limit the whole process tree is killed; output \
            so far is returned. Runs in {shell}.",
        effect: ToolEffect::Runs,
        input: tool_input::<ShellArgs>,
        output: tool_output::<StartsCommand<ShellResult>>,
    },
    ToolDescription {
        name: ToolName::TerminalSession,
        title: "Terminal session",
        template: "Keep a program and talk to it (REPL, shell, ssh, debugger, dev server, editor), or look at \
            any session: `start`; `read_output`: unread lines; `send_input`: type text or press \
            keys, returns the response; `screen`: what a full-screen program shows; `search`: lines of \
            the whole log; `extend`: change limits; `resize`; `signal`; `kill`: end the process tree; \
            `list`.",
        effect: ToolEffect::Runs,
        input: tool_input::<TerminalSessionArgs>,
        output: tool_output::<StartsCommand<TerminalSessionResult>>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Timer),
        title: "Timer",
        template: "Wait without polling; survives restarts. With `reason`: wait now, until `until` holds or no \
            longer can, or the time is up. With `mission`: for later; returns at once and says how you \
            will be told. With `timer_id`: wait again on an existing timer.",
        effect: ToolEffect::Runs,
        input: tool_input::<TimerArgs>,
        output: tool_output::<TimerResult>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Read),
        title: "Read timer",
        template: "State of one timer or of all.",
        effect: ToolEffect::Reads,
        input: tool_input::<ReadTimerArgs>,
        output: tool_output::<ReadTimerResult>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Stop),
        title: "Stop timer",
        template: "End a timer. Nobody is notified.",
        effect: ToolEffect::Ends,
        input: tool_input::<TimerActionArgs>,
        output: tool_output::<TimerResult>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Cancel),
        title: "Cancel timer",
        template: "Stop waiting, but keep the timer running in the background; a message comes when it \
            completes.",
        effect: ToolEffect::Changes,
        input: tool_input::<TimerActionArgs>,
        output: tool_output::<TimerResult>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Pause),
        title: "Pause timer",
        template: "Pause a timer; it resumes by itself.",
        effect: ToolEffect::Ends,
        input: tool_input::<PauseTimerArgs>,
        output: tool_output::<TimerResult>,
    },
    ToolDescription {
        name: ToolName::Timer(TimerTool::Resume),
        title: "Resume timer",
        template: "Resume a paused timer now.",
        effect: ToolEffect::Runs,
        input: tool_input::<TimerActionArgs>,
        output: tool_output::<TimerResult>,
    },
    ToolDescription {
        name: ToolName::ReadMessages,
        title: "Read messages",
        template: "Read unread messages (timer completed, session ended), or wait for one. They also come with \
            the next result of any tool.",
        effect: ToolEffect::Changes,
        input: tool_input::<ReadMessagesArgs>,
        output: tool_output::<ReadMessagesResult>,
    },
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
        let takes_command = |tool: &&ToolDescription| has_field(&(tool.input)(), "command");
        let names: Vec<_> = (all().iter().filter(takes_command))
            .map(|tool| (tool.name, tool.effect))
            .collect();
        let all_that_run = [
            ToolName::Command(CommandTool::Execute),
            ToolName::Command(CommandTool::Shell),
            ToolName::TerminalSession,
            ToolName::Timer(TimerTool::Timer),
        ];
        assert_eq!(names, all_that_run.map(|name| (name, ToolEffect::Runs)));
        let runs = ToolEffect::Runs;
        assert!(runs.destructive() && runs.open_world() && !runs.read_only());
    }

    #[test]
    fn tools_are_described_in_their_order() {
        let described: Vec<_> = all().iter().map(|tool| tool.name).collect();
        assert_eq!(described, ToolName::ALL);
    }

    #[test]
    fn every_kind_of_condition_is_in_the_schema() {
        let schema = &(of(ToolName::Timer(TimerTool::Timer)).input)()["properties"]["until"];
        for kind in crate::tools::condition::Kind::ALL {
            assert!(has_field(schema, kind.name()), "{}", kind.name());
        }
    }

    #[test]
    fn tool_that_ends_or_resumes_a_timer_says_what_it_does_to_the_command_of_its_condition() {
        for (name, power) in [
            (TimerTool::Read, ToolEffect::Reads),
            (TimerTool::Cancel, ToolEffect::Changes),
            (TimerTool::Stop, ToolEffect::Ends),
            // Pausing ends the running command of a condition.
            (TimerTool::Pause, ToolEffect::Ends),
            // Resuming starts the command of a condition again.
            (TimerTool::Resume, ToolEffect::Runs),
        ] {
            assert_eq!(of(ToolName::Timer(name)).effect, power, "{name:?}");
        }
    }
}

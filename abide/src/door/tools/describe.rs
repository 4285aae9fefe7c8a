//! What a model is told about each tool. The first sentence says when to use it.

mod timers;

use serde_json::{Value, json};

/// A tool as it is published.
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// When to use it and what to expect.
    pub description: &'static str,
    /// Whether it only looks.
    pub read_only: bool,
    /// Whether it may destroy something.
    pub destructive: bool,
    /// Whether calling it twice is the same as calling it once.
    pub idempotent: bool,
    /// Whether it reaches beyond this machine.
    pub open_world: bool,
    /// Schema of its arguments.
    pub input: fn() -> Value,
    /// Schema of its facts.
    pub output: fn() -> Value,
}

/// All tools, in the order in which they are listed.
pub fn all() -> &'static [Described] {
    &TOOLS
}

/// One tool.
pub fn named(name: &str) -> Option<&'static Described> {
    TOOLS.iter().find(|tool| tool.name == name)
}

static TOOLS: [Described; 9] = [
    Described {
        name: "execute_command",
        title: "Execute command",
        description: "Run a command that may take long and whose duration you cannot tell: builds, \
            installs, test suites, downloads, migrations. It is never killed for taking long; only \
            when it has been quiet for `timeout` seconds a person is asked whether to go on waiting. \
            Returns the output and a last line such as `[exited with code 0 after 12s]`; an exit code \
            that is not 0 is a result, not an error. With status `running` the command goes on in \
            its session: do not start it again. The command line is run by sh.",
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
        input: execute_input,
        output: execute_output,
    },
    Described {
        name: "shell",
        title: "Shell",
        description: "Run a short command to its end under a hard time limit: listing files, git, grep, \
            a quick script. Returns COMMAND, STATUS (SUCCESS, ERROR, TIMEOUT_ERROR, FATAL_ERROR), \
            RETURN_CODE, STDOUT and STDERR. At the limit the whole process tree is killed and all \
            output so far is returned. What the command leaves in the background lives on in its \
            session. Use execute_command for what may take long. The command line is run by sh.",
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
        input: shell_input,
        output: shell_output,
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
            "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables to set besides the inherited ones."},
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

fn session_output(status: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "The whole result as text."},
            "session_id": {"type": "string"},
            "status": status,
            "exit_code": {"type": ["integer", "null"]},
            "signal": {"type": ["integer", "null"]},
            "end": {"type": ["string", "null"], "enum": ["exited", "signaled", "deadline", "idle_declined", "user", "agent", "inactivity", "out_of_memory", "lost", null]},
            "duration": {"type": "number", "description": "Seconds."},
            "bytes_total": {"type": "integer"},
            "bytes_dropped": {"type": "integer"},
            "still_running": {"type": "array", "items": {"type": "object", "properties": {"pid": {"type": "integer"}, "command": {"type": "string"}}}},
            "contained_by": {"type": ["string", "null"], "enum": ["cgroup", "pid_namespace", "subreaper", null]},
            "effective_timeout": {"type": "number", "description": "Seconds that this call could wait, fitted to the client's own limit."},
            "error": {"type": "string"},
            "waiting_for_input": {"type": "boolean"},
            "cpu": {"type": "integer", "description": "Percent of one processor used just now."},
            "doing": {"type": "string"}
        },
        "required": ["text"]
    })
}

fn shell_output() -> Value {
    let mut schema = session_output(json!({"type": "string",
        "enum": ["SUCCESS", "ERROR", "TIMEOUT_ERROR", "FATAL_ERROR", "RUNNING"]}));
    schema["properties"]["return_code"] = json!({"type": ["integer", "null"]});
    schema
}

fn execute_output() -> Value {
    session_output(json!({"type": "string", "enum": ["exited", "running", "failed"]}))
}

//! `shell` and `execute_command`: their arguments, and which output their results return. A call starts a command, or
//! waits again for a session whose earlier call was handed over.

use abide_api::arguments::{AnyText, CommandArgs, ExecuteCommandArgs, ShellArgs};
use abide_api::{CommandTool, ErrorCode, ToolResult};
use abide_core::session::Phase;
use abide_core::wait::Asking;
use abide_core::{Millis, Outcome, Request, Run, SessionId, limit};
use abide_engine::config::{Config, NetworkMode};
use abide_engine::{Handle, LaunchOptions, SessionView};
use abide_output::mask::Mask;
use abide_session::daemon_record::OpenRecord;
use serde_json::{Map, Value};

use super::command_result::{self, ResultFacts};
use super::output::{OutputLimits, Part};
use super::policy::{self, StartDecision};
use super::position::CallerPosition;
use super::terminal::{SessionRef, not_found};
use super::{BadInput, Context, key, report, start_key, started_before};

/// Arguments that the result of a call depends on.
pub(super) struct Command {
    pub tool: CommandTool,
    /// Deadline (`shell`) or idle limit (`execute_command`) of the call.
    pub limit: Millis,
    pub output: OutputLimits,
    /// The call waits again for a session.
    pub joined: bool,
    /// The call waits again for a session and names a limit, which it does not move.
    limit_ignored: bool,
    /// Connections of the command may wait for a person.
    asks_about_connections: bool,
    position: CallerPosition,
}

pub(super) enum CallStart {
    /// Starts a command.
    Run(Box<(Run, LaunchOptions)>),
    /// Waits for a session.
    Join(SessionId),
    /// No session has this name.
    NotFound(String),
}

/// Reads the arguments of a call.
pub(super) fn read(
    tool: CommandTool,
    arguments: Map<String, Value>,
    context: &Context,
    handle: &Handle,
) -> Result<(CallStart, Command), BadInput> {
    match tool {
        CommandTool::Shell => {
            let mut args = ShellArgs::read(arguments, "this tool")?;
            let limit = args.timeout.take().map(|limit| limit.0);
            read_fields(tool, args, limit, context, handle)
        }
        CommandTool::Execute => {
            let mut args = ExecuteCommandArgs::read(arguments, "this tool")?;
            let limit = args.timeout.take().map(|limit| limit.0);
            read_fields(tool, args, limit, context, handle)
        }
    }
}

/// True if the sandbox of the caller's commands has a network allowlist.
fn has_allowlist(context: &Context, config: &Config) -> bool {
    let sandbox = &config.sandbox;
    let home = abide_engine::config::home();
    let settings = sandbox
        .is_used()
        .then(|| sandbox.of(&context.agent.0, &context.root, &home));
    settings.is_some_and(|settings| settings.network() == NetworkMode::Allowlist)
}

/// Reads the arguments that both tools have.
fn read_fields<L>(
    tool: CommandTool,
    mut args: CommandArgs<L>,
    limit: Option<Millis>,
    context: &Context,
    handle: &Handle,
) -> Result<(CallStart, Command), BadInput> {
    let names_nothing = args.command.is_none() && args.session_id.is_some();
    let named = args.session_id.take().filter(|AnyText(id)| !id.is_empty());
    let config = handle.config();
    let max_chars = args.max_output.map_or(config.max_output, |most| most.0);
    let read = Command {
        tool,
        limit: limit.unwrap_or(match tool {
            CommandTool::Shell => limit::DEADLINE_DEFAULT,
            CommandTool::Execute => limit::IDLE_DEFAULT,
        }),
        output: OutputLimits {
            max_chars: usize::try_from(max_chars).unwrap_or(usize::MAX),
            raw: args.raw.unwrap_or_default(),
        },
        joined: named.is_some(),
        limit_ignored: named.is_some() && limit.is_some(),
        asks_about_connections: args.needs.is_some() || has_allowlist(context, &config),
        position: CallerPosition::of(context),
    };
    let start = match named {
        None if names_nothing => {
            return Err(BadInput::about(
                "session_id",
                "must be the id of a session, or left out for a new `command`; got \"\".",
            ));
        }
        None => start_command(args, &read, context, handle)?,
        Some(AnyText(id)) => wait_again(&id, &args)?,
    };
    Ok((start, read))
}

fn start_command<L>(
    mut args: CommandArgs<L>,
    read: &Command,
    context: &Context,
    handle: &Handle,
) -> Result<CallStart, BadInput> {
    let command = args.command.take().map(|text| text.0).unwrap_or_default();
    if command.trim().is_empty() {
        return Err(empty(read.tool));
    }
    let stdin = args.stdin.as_ref().map(|stdin| &*stdin.0);
    let key = key(args.idempotency_key.take(), context);
    let key = start_key(key, args.cwd.as_ref(), args.env.as_ref(), stdin);
    // The settings may have changed since: a command that was started is neither judged nor refused again.
    if let Some(session) = started_before(handle, context, key.as_ref(), &command) {
        return Ok(CallStart::Join(session));
    }
    let run = Run {
        command: command.into(),
        deadline: (read.tool == CommandTool::Shell).then_some(read.limit),
        idle: (read.tool == CommandTool::Execute).then_some(read.limit),
        inactivity: None,
        asking: read.asking(context),
        standby: context.standby_left(),
        detach: false,
        key,
        approval: None,
    };
    let launch = report::read_launch(args, context, handle)?;
    Ok(CallStart::Run(Box::new((run, launch))))
}

fn wait_again<L>(id: &str, args: &CommandArgs<L>) -> Result<CallStart, BadInput> {
    if args.command.as_ref().is_some_and(|text| !text.0.is_empty()) {
        return Err(BadInput::about(
            "command",
            "starts a command and `session_id` waits for one that was started; give one of them.",
        ));
    }
    if let Some(field) = launch_field(args) {
        return Err(BadInput::about(
            field,
            "goes with `command`; a session that `session_id` names was started already.",
        ));
    }
    Ok(match SessionRef::read(id) {
        SessionRef::Id(id) => CallStart::Join(id),
        SessionRef::Unknown(shown) => CallStart::NotFound(shown),
    })
}

fn empty(tool: CommandTool) -> BadInput {
    BadInput::new(match tool {
        CommandTool::Shell => "ERROR: Shell command cannot be empty.".into(),
        CommandTool::Execute => "ERROR: Command cannot be empty.".into(),
    })
}

/// First field that only a new command can have.
fn launch_field<L>(args: &CommandArgs<L>) -> Option<&'static str> {
    let given = [
        ("cwd", args.cwd.is_some()),
        ("env", args.env.is_some()),
        (
            "stdin",
            args.stdin.as_ref().is_some_and(|stdin| !stdin.0.is_empty()),
        ),
        ("sandbox", args.sandbox.is_some()),
        ("network", args.network.is_some()),
        ("needs", args.needs.is_some()),
    ];
    let field = given.into_iter().find(|(_, given)| *given);
    field.map(|(field, _)| field)
}

impl CallStart {
    /// Request to the engine, with the launch data of a new command, which the policy judges.
    pub fn into_request(
        self,
        command: &Command,
        handle: &Handle,
        context: &Context,
    ) -> Result<(Request, Option<LaunchOptions>), ToolResult> {
        let (mut run, launch) = match self {
            CallStart::Run(start) => *start,
            CallStart::Join(session) => return Ok((command.join(session, context), None)),
            CallStart::NotFound(id) => {
                return Err(ToolResult::error(ErrorCode::NotFound, not_found(&id)));
            }
        };
        match policy::judge(handle, context, &run.command, &launch) {
            StartDecision::Start => {}
            StartDecision::Approve(approval) => run.approval = Some(approval),
            StartDecision::Refused(result) => return Err(*result),
        }
        Ok((Request::Run(run), Some(launch)))
    }
}

impl Command {
    /// Request that waits for a session.
    pub fn join(&self, session: SessionId, context: &Context) -> Request {
        Request::Join {
            session,
            asking: self.asking(context),
            standby: context.standby_left(),
        }
    }

    /// A person is asked about idle commands of `execute_command` only, and about connections of a sandbox with an
    /// allowlist.
    fn asking(&self, context: &Context) -> Asking {
        match self.tool {
            CommandTool::Shell if !self.asks_about_connections => Asking::Never,
            CommandTool::Shell | CommandTool::Execute => context.asking,
        }
    }

    /// Result of a call, and the record of the session if the call moves read cursors.
    pub async fn result(
        &self,
        handle: &Handle,
        outcome: Outcome,
        standby: Option<Millis>,
    ) -> (ToolResult, Option<OpenRecord>) {
        let Some(view) = report::session_of(handle, &outcome) else {
            return (report::vanished(), None);
        };
        let goes_on = matches!(outcome, Outcome::Running(..))
            || matches!(view.state.phase, Phase::Leftover { .. });
        // A call that starts a command and sees its end returns everything. The record is
        // opened only for calls that share the output with others.
        let record = (self.joined || goes_on).then(|| handle.daemon_record(view.id));
        let from = record.as_ref().filter(|_| self.joined);
        let from = from.map(|record| self.position.read(handle, &view, record));
        let mut part = Part::since(&view, from);
        let facts = ResultFacts {
            handle,
            view: &view,
            outcome,
            standby,
            mask: Mask::of(handle.secrets(view.id)),
        };
        let result = command_result::result(self, facts, &mut part).await;
        // Nothing is awaited from here on. A result that is made a second time, because its first maker was dropped,
        // begins at the same cursor.
        if let Some(record) = &record {
            self.position.store(handle, &view, record, part.cursor());
        }
        (result, record)
    }

    /// Next steps for an agent whose call returns while the session runs on.
    pub fn next_steps(&self, view: &SessionView) -> String {
        let (tool, id) = (self.tool.as_str(), view.id);
        format!(
            "To wait for its end: {tool} {{\"session_id\": \"{id}\"}}, which returns only what is new. To end it: \
             terminal_session kill"
        )
    }

    /// Note that the limit in the arguments was not applied.
    pub fn ignored_limit(&self) -> Option<&'static str> {
        let note = "`timeout` was ignored: a session keeps its limit until terminal_session extend moves it";
        self.limit_ignored.then_some(note)
    }
}

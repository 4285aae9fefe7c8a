//! `extend`, `resize`, `signal` and `kill`: actions that control a running session, for the tool and for the routes of
//! HTTP.

use std::sync::Arc;

use abide_api::arguments::{LimitArgs, ResizeArgs};
use abide_api::{ActionResult, CommandTool, ToolName, ToolResult};
use abide_core::request::Caller;
use abide_core::session::{End, Phase};
use abide_core::{Millis, Outcome, Request, SessionId};
use serde_json::{Map, Value};

use super::read::ending;
use super::{
    ActionError, ActionOutcome, ActionRunner, BadInput, ErrorCode, FinishedAction, FinishedCall,
    SessionRef, ended, start,
};
use crate::signals;
use crate::tools::not_started::not_started;
use abide_engine::peer::Peer;
use abide_engine::screen::Size;
use abide_engine::{Handle, SessionView};
use abide_session::daemon_record::RequestName;
use abide_session::frame::ToKeeper;
use abide_session::keeper_record;

/// New limits of a session; those that are missing stay.
pub(crate) struct Extend {
    deadline: Option<Millis>,
    idle: Option<Millis>,
    inactivity: Option<Millis>,
}

/// New size of the terminal; a missing dimension keeps its value.
pub(in crate::tools) struct Resize {
    cols: Option<u16>,
    rows: Option<u16>,
}

pub(crate) fn read_extend(args: LimitArgs) -> Result<Extend, BadInput> {
    let limits = Extend {
        deadline: args.timeout.map(|time| time.0),
        idle: args.idle.map(|time| time.0),
        inactivity: args.inactivity_timeout.map(|time| time.0),
    };
    if limits
        .deadline
        .or(limits.idle)
        .or(limits.inactivity)
        .is_none()
    {
        return Err(BadInput::new(
            "`timeout`, `idle` or `inactivity_timeout` is required: there is nothing to move."
                .into(),
        ));
    }
    Ok(limits)
}

pub(super) fn read_resize(args: &ResizeArgs) -> Result<Resize, BadInput> {
    match start::size(args.cols, args.rows) {
        (None, None) => Err(BadInput::new(
            "`cols` or `rows` is required: there is no size to give.".into(),
        )),
        (cols, rows) => Ok(Resize { cols, rows }),
    }
}

pub(crate) fn read_signal(given: Option<&Value>) -> Result<i32, BadInput> {
    signals::number(given).ok_or_else(|| {
        let given = given.map_or("nothing".into(), |given| {
            super::shortened(&given.to_string())
        });
        BadInput::about(
            "signal",
            format!("must be a name such as \"INT\" or a number from 1 to 64; got {given}."),
        )
    })
}

/// One session, controlled by a caller who may see it.
pub(crate) struct SessionControl<'a> {
    pub handle: &'a Handle,
    pub caller: Caller,
    pub view: &'a SessionView,
}

impl SessionControl<'_> {
    /// Changes limits, counted from now.
    pub async fn extend(&self, limits: &Extend) -> Result<(), ActionError> {
        let request = Request::Extend {
            session: self.view.id,
            deadline: limits.deadline,
            idle: limits.idle,
            inactivity: limits.inactivity,
        };
        self.ask(request).await
    }

    /// Resizes the terminal, and returns its size: one outside the supported range is clamped.
    pub async fn resize(&self, cols: Option<u16>, rows: Option<u16>) -> Result<Size, ActionError> {
        let id = self.view.id;
        if !self.view.pty {
            let sentence = format!("Session '{id}' has no terminal");
            return Err(ActionError::conflict(sentence));
        }
        if !self.view.is_running() {
            return Err(ended(id));
        }
        let _activity = self.handle.keep_active(self.caller.clone(), id).await;
        // The screen is resized before the program is, so that what the program paints for the new size fits
        // the screen.
        let resized = self.handle.screens().resize(id, (cols, rows)).await;
        let size = resized.map_err(|fault| {
            let sentence = format!("the screen cannot be resized: {fault}");
            ActionError::Refused(ErrorCode::Fault, sentence)
        })?;
        let Size { cols, rows } = size;
        let keepers = self.handle.keepers();
        keepers.send(id, &ToKeeper::Resize { cols, rows });
        Ok(size)
    }

    /// Sends a signal to the foreground process group. A request with the same key is carried out once.
    pub async fn signal(&self, number: i32, key: Option<&[u8]>) -> Result<(), ActionError> {
        let id = self.view.id;
        let record = self.handle.daemon_record(id);
        let request = RequestName::new("signal", key);
        if self.view.is_running() {
            record.begin_request(&request);
            let _activity = self.handle.keep_active(self.caller.clone(), id).await;
            let once = key.map(<[u8]>::to_vec);
            let keepers = self.handle.keepers();
            keepers.send(id, &ToKeeper::Signal { number, once });
        } else if !record.has_begun(&request) {
            return Err(ended(id));
        }
        Ok(())
    }

    /// Kills the process tree, and answers when the tree is gone or what is left of it cannot be killed.
    pub async fn kill(&self, end: End) -> Result<Arc<SessionView>, ActionError> {
        let session = self.view.id;
        self.ask(Request::Kill { session, end }).await?;
        let newest = self.handle.published().session(session);
        let newest = newest.unwrap_or_else(|| Arc::new(self.view.clone()));
        match newest.is_running() {
            true => Err(ActionError::conflict(survives_kill(session))),
            false => Ok(newest),
        }
    }

    /// Sends a request to the engine and waits until it is done.
    async fn ask(&self, request: Request) -> Result<(), ActionError> {
        let pending = self.handle.call(self.caller.clone(), request, None).await;
        match pending.done().await.ok_or(ActionError::Stopping)? {
            Outcome::Refused(refusal) => Err(ActionError::from(&refusal)),
            _ => Ok(()),
        }
    }
}

impl ActionRunner {
    pub(super) async fn extend(&self, session_ref: &SessionRef, limits: Extend) -> ActionOutcome {
        let view = self.session(session_ref)?;
        self.control(&view).extend(&limits).await?;
        let moved: Vec<String> = [
            ("timeout", limits.deadline),
            ("idle", limits.idle),
            ("inactivity_timeout", limits.inactivity),
        ]
        .into_iter()
        .filter_map(|(name, limit)| Some((name, limit?)))
        .map(|(name, limit)| match limit {
            Millis(0) => format!("{name}: never"),
            limit => format!("{name}: {limit} from now"),
        })
        .collect();
        let text = format!("Session '{}' extended ({})", view.id, moved.join(", "));
        let action = ActionResult::Extend {
            timeout: limits.deadline.map(Millis::as_secs_f64),
            idle: limits.idle.map(Millis::as_secs_f64),
            inactivity_timeout: limits.inactivity.map(Millis::as_secs_f64),
        };
        Ok(self.result(&self.newest(&view), text, action))
    }

    pub(super) async fn resize(&self, session_ref: &SessionRef, size: Resize) -> ActionOutcome {
        let view = self.session(session_ref)?;
        let Size { cols, rows } = self.control(&view).resize(size.cols, size.rows).await?;
        let text = format!("Session '{}' has {cols} columns and {rows} rows", view.id);
        let action = ActionResult::Resize { cols, rows };
        Ok(self.result(&view, text, action))
    }

    pub(super) async fn signal(&self, session_ref: &SessionRef, number: i32) -> ActionOutcome {
        let view = self.session(session_ref)?;
        let key = self.context.request_key.as_deref().map(str::as_bytes);
        self.control(&view).signal(number, key).await?;
        let text = format!("Signal {number} sent to session '{}'", view.id);
        let action = ActionResult::Signal { sent: number };
        Ok(self.result(&view, text, action))
    }

    /// Kills the session's process tree, and answers when the tree is gone.
    pub(super) async fn kill(&self, session_ref: &SessionRef) -> FinishedAction {
        let end = if self.context.is_person {
            End::User
        } else {
            End::Agent
        };
        if let SessionRef::Id(session) = session_ref
            && let Some(withdrawn) = withdraw(&self.handle, self.caller(), *session, end).await?
        {
            return Ok(withdrawn.into());
        }
        let view = self.session(session_ref)?;
        let left = matches!(view.state.phase, Phase::Leftover { .. });
        let view = self.control(&view).kill(end).await?;
        let gone = !matches!(view.state.phase, Phase::Leftover { .. });
        let mut text = format!("Session '{}' killed", view.id);
        if view.ending().is_none_or(|ending| !ending.end.is_kill()) {
            text = format!("Session '{}' had ended already", view.id);
            if left && gone {
                text.push_str("; what it left in the background is killed");
            }
        }
        if let Some(ending) = ending(&view) {
            text.push('\n');
            text.push_str(&ending);
        }
        let by = view.contained_by.map(|by| by.as_str());
        let by = by.filter(|_| view.ending().is_some());
        let lost = view.ending().is_some_and(|ending| ending.exit.is_none());
        match by.filter(|_| gone) {
            // Only the keeper could have proven that the tree is gone.
            Some(by) if lost => text.push_str(&format!(
                " [its keeper was killed; none of its processes was found running; contained by {by}]"
            )),
            Some(by) => text.push_str(&format!(" [its process tree is gone; contained by {by}]")),
            None => {}
        }
        if !gone {
            text.push('\n');
            text.push_str(&survives_kill(view.id));
        }
        let result = self.result(&view, text, ActionResult::Kill { gone });
        Ok(FinishedCall::from(result).reporting_end_of(Some(view.id)))
    }
}

/// Withdraws a command that waits for the answer of a person. `None`: it was started, or is not one.
pub(crate) async fn withdraw(
    handle: &Handle,
    caller: Caller,
    session: SessionId,
    end: End,
) -> Result<Option<ToolResult>, ActionError> {
    if !handle.published().is_held(session, caller.agent.as_ref()) {
        return Ok(None);
    }
    let request = Request::Kill { session, end };
    let pending = handle.call(caller, request, None).await;
    Ok(match pending.done().await.ok_or(ActionError::Stopping)? {
        Outcome::NotStarted(session, question, why) => {
            let tool = CommandTool::Execute;
            Some(not_started(handle, tool, session, question, &why))
        }
        _ => None,
    })
}

/// Refusal for a command that tries to move its own limits: a limit that the command itself can move limits nothing.
pub(crate) const OWN_LIMITS: &str = "a command cannot change its own limits";

/// Id of the session whose limits a call would move; `None` for all other calls.
pub(crate) fn session_of_limit_change(
    tool: ToolName,
    arguments: &Map<String, Value>,
) -> Option<&str> {
    let action = arguments.get("action").and_then(Value::as_str);
    match (tool, action) {
        (ToolName::TerminalSession, Some("extend")) => arguments.get("session_id")?.as_str(),
        _ => None,
    }
}

/// True if the caller is a process of this session. Reading procfs takes a while, so a blocking thread does it.
pub(crate) async fn is_process_of(view: &SessionView, caller: Peer) -> bool {
    let folder = view.folder.clone();
    let look = move || {
        let meta = keeper_record::read_meta(&folder).ok().flatten();
        meta.is_some_and(|meta| caller.is_inside(&meta))
    };
    tokio::task::spawn_blocking(look).await.unwrap_or(true)
}

/// Sentence about processes that SIGKILL does not end.
pub(crate) fn survives_kill(session: SessionId) -> String {
    format!(
        "some processes of session '{session}' cannot be ended: they belong to another user, or the \
         kernel holds them; it is tried again until they are gone"
    )
}

//! Record of what the sandbox of a session has refused, as fields.

use abide_api::{Id, SandboxRefusal, SandboxRefusals};
use abide_engine::SessionView;
use abide_output::mask::Mask;
use abide_output::printable::one_line;
use abide_session::sandbox::{RefusalEntry, RefusalKind};

pub(crate) use abide_engine::refusals::record;

pub(crate) fn of_session(view: &SessionView, mask: &Mask) -> Option<SandboxRefusals> {
    let record = record(view)?;
    let mut refused = Vec::new();
    let mut planted = Vec::new();
    for RefusalEntry { kind, text, .. } in &record.entries {
        let what = mask.apply(one_line(text));
        let mut refuse = |kind: RefusalKind, what| {
            refused.push(SandboxRefusal {
                kind: kind.as_str().into(),
                what,
            });
        };
        match kind {
            RefusalKind::Planted => planted.push(what),
            RefusalKind::Full | RefusalKind::Limit => {}
            RefusalKind::Protected | RefusalKind::Remove => refuse(RefusalKind::Write, what),
            RefusalKind::Unreachable => refuse(RefusalKind::Name, what),
            RefusalKind::Write
            | RefusalKind::Make
            | RefusalKind::Name
            | RefusalKind::Address
            | RefusalKind::Udp
            | RefusalKind::Call
            | RefusalKind::Failed
            | RefusalKind::Removed => refuse(*kind, what),
        }
    }
    Some(SandboxRefusals {
        session_id: Id(view.id),
        agent: view.state.agent.0.to_string(),
        command: mask.apply(view.state.command.to_string()),
        created_at: view.state.created.0,
        mode: record.mode,
        network: record.network,
        count: record.count,
        refused,
        planted,
    })
}

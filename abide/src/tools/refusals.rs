//! Record of what the sandbox of a session has refused, as fields.

use abide_api::{Id, SandboxRefusal, SandboxRefusals};
use abide_engine::SessionView;
use abide_output::mask::Mask;
use abide_output::printable::one_line;

pub(crate) use abide_engine::refusals::record;

/// Refusals of the sandbox of a session.
pub(crate) fn of_session(view: &SessionView, mask: &Mask) -> Option<SandboxRefusals> {
    let record = record(view)?;
    let (head, lines) = record.split_once('\n')?;
    let mut head = head.split(' ');
    let (mode, network, count) = (head.next()?, head.next()?, head.next()?.parse().ok()?);
    let mut refused = Vec::new();
    let mut planted = Vec::new();
    for (kind, what) in lines.lines().filter_map(|line| line.split_once(' ')) {
        let what = mask.apply(one_line(what));
        match kind {
            "planted" => planted.push(what),
            "full" | "limit" => {}
            kind => refused.push(SandboxRefusal {
                kind: kind.into(),
                what,
            }),
        }
    }
    Some(SandboxRefusals {
        session_id: Id(view.id),
        agent: view.state.agent.0.to_string(),
        command: mask.apply(view.state.command.to_string()),
        created_at: view.state.created.0,
        mode: mode.into(),
        network: network.into(),
        count,
        refused,
        planted,
    })
}

//! Whether anything is left that could open a port on this machine. The sessions of the agent that waits are
//! all that is known here: where some of them ran and all have ended, the port will not open any more.

use std::time::Duration;

use super::Search;
use super::session::{Closing, Openers};
use crate::clock::pause;

/// A session that ended with code 0 may have launched a server elsewhere, such as in a container; that gets
/// this much longer.
const LAUNCHED: Duration = Duration::from_secs(5);

/// The sessions that could open a port, followed from now on; `None`: of such a port nothing is known.
pub(super) fn of(search: Search<'_>, near: bool) -> Option<Box<dyn Openers>> {
    let since = search.owner.since.filter(|_| near)?;
    let sessions = search.tools.sessions.get()?;
    Some(sessions.openers(&search.owner.agent, since))
}

/// Ends when no session is left that could open the port, and says which was the last.
pub(super) async fn gone(openers: Option<Box<dyn Openers>>) -> String {
    let Some(mut openers) = openers else {
        return std::future::pending().await;
    };
    let mut last = openers.gone().await;
    while !last.failed {
        pause(LAUNCHED).await;
        let now = openers.gone().await;
        let same = now.session == last.session;
        last = now;
        if same {
            break;
        }
    }
    told(&last)
}

fn told(last: &Closing) -> String {
    let Closing {
        session,
        command,
        how,
        ..
    } = last;
    last.with_output(format!(
        "No session is left that could open it: {session} (`{command}`) has ended, {how}"
    ))
}

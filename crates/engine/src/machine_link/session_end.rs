//! End of a session on another machine, for a condition that waits for it here. The directory tells it, within about two
//! seconds. A machine that cannot be reached proves nothing: the wait goes on until its session has ended or is lost.

use std::time::Duration;

use abide_core::fleet::row::Standing;
use abide_core::fleet::session::{Home, Loss, Reach, reach};
use abide_core::fleet::{MachineId, MachineRow};
use abide_core::session::End;
use abide_core::{Exit, Millis, SessionId, shorten};
use abide_output::printable::{one_line, visible};

use super::machines::OtherMachines;
use crate::Handle;
use crate::clock::{Clock, SystemClock, pause};
use crate::store::{DirectoryFacts, DirectoryRow, DirectoryState};
use crate::text::{COMMAND_CHARS, ending_text};

/// Time between two looks at the directory.
const EVERY: Duration = Duration::from_secs(1);
/// Further looks for the end of a session of which there is a new message. A row is written within a second.
pub(crate) const ROW_LOOKS: usize = 2;

/// Knowledge of a session on another machine.
enum Known {
    /// Ended, as described.
    Ended(String),
    /// Running, or not known to have ended, as described.
    Open(String),
}

/// Waits until a session of another machine has ended or is lost, and describes how. `observe` is told what is known
/// before.
pub(crate) async fn ended(
    handle: &Handle,
    session: SessionId,
    machine: MachineId,
    observe: impl Fn(String),
) -> String {
    loop {
        // Links start after the conditions of stored timers.
        if let Some(machines) = handle.other_machines() {
            match machines.known_end(session, machine).await {
                Known::Ended(how) => return how,
                Known::Open(seen) => observe(seen),
            }
        }
        pause(EVERY).await;
    }
}

impl OtherMachines {
    async fn known_end(&self, session: SessionId, machine: MachineId) -> Known {
        let name = self.shown_name(machine);
        let unreachable =
            || Known::Open(format!("machine {name}, which has it, cannot be reached"));
        let Ok(row) = self.session(session).await else {
            return Known::Open("the database cannot be reached".into());
        };
        let Some(row) = row else {
            let state = self.state();
            let standing = state.machines.get(&machine).map(|known| known.row.standing);
            return match standing {
                Some(Standing::Member) if self.is_silent(machine) => unreachable(),
                Some(Standing::Member) => Known::Ended("it is no longer known".into()),
                Some(Standing::Forgotten) => Known::Ended(lost(&name, Loss::Person)),
                Some(Standing::Left | Standing::Revoked) | None => unreachable(),
            };
        };
        if let Some(how) = end_text(&row.facts) {
            return Known::Ended(how);
        }
        match self.reach(&row) {
            Reach::Known => Known::Open(format!("it has not ended on machine {name}")),
            Reach::Unreachable { .. } => unreachable(),
            Reach::Lost(loss) => Known::Ended(lost(&name, loss)),
        }
    }

    /// Sentence about a session of another machine that is lost.
    pub fn loss(&self, row: &DirectoryRow) -> Option<String> {
        let (name, id) = (self.shown_name(row.machine), row.id);
        match (self.reach(row), row.facts.state) {
            (Reach::Lost(loss), DirectoryState::Running | DirectoryState::Background) => {
                Some(format!("Session '{id}' is lost: {}", why_lost(&name, loss)))
            }
            _ => None,
        }
    }

    /// Message about a session of another machine that has ended, as far as the directory has it. `None`: it does not
    /// have the session. A new message may be here a moment before the row: `looks` is the number of further looks.
    pub(crate) async fn end_message(&self, id: SessionId, looks: usize) -> Option<String> {
        let mut row = self.session(id).await.ok()?;
        let may_change = |row: &Option<DirectoryRow>| {
            (row.as_ref())
                .is_none_or(|row| end_text(&row.facts).is_none() && self.reach(row) == Reach::Known)
        };
        for _ in 0..looks {
            if !may_change(&row) {
                break;
            }
            pause(EVERY).await;
            row = self.session(id).await.ok()?;
        }
        let row = row?;
        let command = shorten(&one_line(&row.command), COMMAND_CHARS);
        if let Some(loss) = self.loss(&row) {
            return Some(format!("[System] {loss}.\nCommand: {command}"));
        }
        let name = self.shown_name(row.machine);
        let ending = match self.ending(&row).await {
            Some(text) => format!("\n{}", visible(&text)),
            None => end_text(&row.facts).map_or_else(String::new, |how| format!("\n[{how}]")),
        };
        Some(format!(
            "[System] Session '{}' on machine {name} has ended.\nCommand: {command}{ending}\nIts output is on machine \
             {name}: terminal_session reads it with read_output.",
            row.id,
        ))
    }

    /// Reach of a session of another machine.
    pub fn reach(&self, row: &DirectoryRow) -> Reach {
        self.reach_of(row.machine, row.boot)
    }

    /// Reach of a session that was started in a boot of another machine.
    pub(super) fn reach_of(&self, machine: MachineId, boot: u128) -> Reach {
        let (state, now) = (self.state(), SystemClock.now().boot);
        let machine = state.machines.get(&machine);
        let home = Home {
            row: machine.map(|machine| &machine.row),
            dead_for: match machine {
                Some(machine) => machine.silent_since.map(|since| now.since(since)),
                None => Some(Millis(0)),
            },
            declared_lost: machine.is_some_and(|machine| machine.declared_lost),
        };
        match reach(boot, home, state.now()) {
            Reach::Known if machine.is_some_and(|machine| machine.is_unanswered) => {
                let last = |row: &MachineRow| row.fleet_time;
                Reach::Unreachable {
                    as_of: home.row.and_then(last),
                }
            }
            reach => reach,
        }
    }
}

fn lost(machine: &str, loss: Loss) -> String {
    format!("it is lost: {}", why_lost(machine, loss))
}

fn why_lost(machine: &str, loss: Loss) -> String {
    match loss {
        Loss::Rebooted => format!("machine {machine} was started again"),
        Loss::Person => format!("a person has said so of machine {machine}"),
        Loss::Ephemeral => format!("machine {machine} was silent for too long"),
    }
}

/// Ending in the directory as text; `None`: its leader runs, as far as its machine has said.
fn end_text(facts: &DirectoryFacts) -> Option<String> {
    match facts.state {
        DirectoryState::Running => return None,
        DirectoryState::Background | DirectoryState::Ended | DirectoryState::Failed => {}
    }
    if let Some(error) = &facts.error {
        return Some(error.clone());
    }
    let code = facts.exit_code.map(Exit::Code);
    let exit = code.or(facts.signal.map(Exit::Signal));
    let word = facts.end.as_deref().unwrap_or_default();
    // A word of a later version.
    let end = End::of_word(word).unwrap_or(End::Exited);
    Some(ending_text(end, exit))
}

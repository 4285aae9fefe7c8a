//! Calls between the machines of a fleet. They are HTTP requests to the router of the machine that is called, over a link
//! (`abide_engine::machine_link`). The machine that is called decides, from its own configuration, what the caller may do.

mod calling_machine;
pub mod forward;
mod needed_right;
mod questions;
mod relay;
mod search;
mod serve;
mod sessions;

pub use calling_machine::CallingMachine;
pub use questions::{QuestionFollower, open_questions, questions};
pub use search::{PlaceElsewhere, SearchElsewhere};
pub use sessions::{changed_sessions, known_session, listed, sessions, unanswered};

use abide_engine::Handle;
use abide_engine::config::Paths;
use abide_engine::machine_link::{OtherMachines, StartedLinks, directory, lost_sessions};

use crate::http;

/// Connects this machine with the others, if it has a fleet secret. A fault is only logged: the daemon works alone.
pub fn start(paths: &Paths, handle: &Handle, state: &http::State) {
    let Some(fleet) = handle.fleet() else {
        return;
    };
    let links = match OtherMachines::start(paths, handle, fleet.clone()) {
        Ok(Some(started)) => started,
        Ok(None) => return,
        Err(fault) => {
            tracing::error!("this machine has no links to the others of its fleet: {fault}");
            return;
        }
    };
    let StartedLinks {
        machines,
        called,
        relayed,
        flush_requests,
    } = links;
    fleet.set_others(machines.clone());
    tokio::spawn(serve::serve(machines.clone(), called, state.clone()));
    relay::start(paths, relayed);
    tokio::spawn(lost_sessions::run(machines.clone(), handle.clone()));
    tokio::spawn(directory::run(machines, handle.clone(), flush_requests));
}

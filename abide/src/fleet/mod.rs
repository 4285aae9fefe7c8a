//! Calls between the machines of a fleet. They are HTTP requests to the router of the machine that is called, over a link
//! (`abide_engine::machine_link`). The machine that is called decides, from its own configuration, what the caller may do.

mod calling_machine;
pub mod forward;
mod needed_right;
mod questions;
pub mod relay;
mod search;
pub mod serve;
mod sessions;

pub use calling_machine::CallingMachine;
pub use questions::{QuestionFollower, open_questions, questions};
pub use search::{PlaceElsewhere, SearchElsewhere};
pub use sessions::{changed_sessions, known_session, listed, sessions, unanswered};

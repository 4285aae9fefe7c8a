//! Policy: decides from a parsed command line and rules if a command of an agent is started, asked about or refused.
//!
//! Pure: parsing shell text, reading the configuration and asking a person are work of the daemon. Rules on command
//! lines are guardrails against accidents, not a boundary: a program can do anything once it runs.

mod always;
mod builtin;
mod builtin_remote;
mod command;
mod decide;
mod names;
mod path;
mod pattern;
mod rule;
mod targets;

pub use always::{Choice, Offer, offers};
pub use builtin::builtin_rules;
pub use command::{
    CommandLine, Folder, Origin, Parsed, Piece, Redirect, RunsCode, SimpleCommand, Word,
};
pub use decide::{Decision, Part, Place, Policy, Reason};
pub use names::Names;
pub use path::normalized;
pub use pattern::matches;
pub use rule::{Action, Rule, Source};
pub use targets::Targets;

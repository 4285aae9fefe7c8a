//! Held connections: connections of a sandbox to a name that no rule allows, which wait for the answer of a person.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::policy::Choice;

/// Connections to one name and port that wait for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldConnection {
    /// Number of the question at the network gate of the session.
    pub number: u64,
    /// Host name.
    pub name: Arc<str>,
    /// Port.
    pub port: u16,
    /// Workspace of the sandbox, for the person.
    pub folder: Arc<str>,
    /// Answers that can be given, each with the entry that it adds, in the encoding of the daemon.
    pub offers: Vec<(Choice, Arc<str>)>,
}

/// Answer to the connections that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionAnswer {
    /// A person said yes.
    Yes,
    /// A person said no, with these words.
    No(Option<Arc<str>>),
    /// No person can be reached now. The question stays open for a moment, for one who looks.
    Nobody,
}

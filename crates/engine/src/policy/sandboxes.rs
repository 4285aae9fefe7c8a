//! Weaker sandboxes that people have accepted on a machine that cannot enforce what the settings want: `this agent` holds
//! until the daemon ends, `always here` is written beside the rules that "always" adds.

use std::io;
use std::path::Path;
use std::sync::Arc;

use abide_core::policy::Choice;
use abide_core::{Agent, Conversation, SandboxedBy};
use serde::{Deserialize, Serialize};

use super::{PolicyStore, settings};
use crate::config::AtLeast;

/// Weakest mechanism that is accepted for the commands of an agent in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedSandbox {
    /// Name for `abide policy remove`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// As in `[sandbox]` of the configuration.
    pub at_least: AtLeast,
    pub agent: String,
    /// Workspace.
    pub folder: String,
}

/// Sandbox that "this agent" has accepted.
#[derive(Clone)]
pub(super) struct SandboxGrant {
    pub conversation: Option<Conversation>,
    pub accepted: AcceptedSandbox,
}

/// Entry of an answer that accepts this mechanism, as its file has it. Empty if the mechanism is no sandbox.
pub fn shown_sandbox(by: SandboxedBy, agent: &Agent, workspace: &Path) -> String {
    let Some(at_least) = AtLeast::accepting(by) else {
        return String::new();
    };
    settings::shown_sandbox(&AcceptedSandbox {
        name: String::new(),
        at_least,
        agent: agent.0.to_string(),
        folder: workspace.to_string_lossy().into_owned(),
    })
}

impl AcceptedSandbox {
    fn is_for(&self, agent: &Agent, workspace: &Path) -> bool {
        self.agent == *agent.0 && workspace.to_str() == Some(&*self.folder)
    }

    /// Mechanism that it accepts.
    pub fn mechanism(&self) -> SandboxedBy {
        self.at_least.into()
    }
}

impl PolicyStore {
    /// Weakest mechanism that is enough for an agent in a workspace: the one that the settings want, or a weaker one that a
    /// person has accepted.
    pub fn least_accepted(
        &self,
        wanted: SandboxedBy,
        agent: &Agent,
        conversation: Option<&Conversation>,
        workspace: &Path,
    ) -> SandboxedBy {
        let granted = self.sandbox_grants.used(|grant| {
            grant.accepted.is_for(agent, workspace) && grant.conversation.as_ref() == conversation
        });
        let remembered = self.remembered_sandboxes();
        let here = remembered.iter().filter(|of| of.is_for(agent, workspace));
        here.map(AcceptedSandbox::mechanism)
            .chain(granted.iter().map(|grant| grant.accepted.mechanism()))
            .fold(wanted, SandboxedBy::min)
    }

    /// Keeps the answer of a person who accepts weaker sandboxes. `Once` and `No` add nothing.
    pub(super) fn remember_sandboxes(
        &self,
        choice: Choice,
        accepted: Vec<AcceptedSandbox>,
        conversation: Option<&Conversation>,
    ) -> io::Result<()> {
        match choice {
            Choice::Once | Choice::No => Ok(()),
            Choice::ThisAgent => {
                let grants = accepted.into_iter().map(|accepted| SandboxGrant {
                    conversation: conversation.cloned(),
                    accepted,
                });
                self.sandbox_grants.add(grants);
                Ok(())
            }
            Choice::AlwaysHere | Choice::Always => self.change_remembered(|kept| {
                for mut accepted in accepted {
                    // Another question may have added it already.
                    let is_same = |kept: &AcceptedSandbox| {
                        AcceptedSandbox {
                            name: String::new(),
                            ..kept.clone()
                        } == accepted
                    };
                    if !kept.sandboxes.iter().any(is_same) {
                        accepted.name = super::unused_name(kept);
                        kept.sandboxes.push(accepted);
                    }
                }
            }),
        }
    }

    /// Weaker sandboxes that `always here` has accepted, for people.
    pub fn remembered_sandboxes(&self) -> Arc<[AcceptedSandbox]> {
        self.loaded().sandboxes.clone()
    }
}

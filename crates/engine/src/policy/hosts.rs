//! Host names that people have allowed when a connection of a sandbox asked: `this agent` holds until the daemon ends,
//! `always here` is written beside the rules that "always" adds.

use std::io;
use std::path::Path;
use std::sync::Arc;

use abide_core::policy::Choice;
use abide_core::{Agent, Conversation};
use serde::{Deserialize, Serialize};

use super::{PolicyStore, settings};

/// Host name that may be connected to in a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AllowedHost {
    /// Name for `abide policy remove`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Host name and port, as in `sandbox.allow`.
    pub host: String,
    /// Workspace.
    pub folder: String,
}

/// Host name that "this agent" has allowed.
#[derive(Clone)]
pub(super) struct HostGrant {
    agent: Agent,
    conversation: Option<Conversation>,
    host: String,
}

/// Entry that `always here` adds, as its file has it.
pub fn shown_host(host: &str, workspace: &Path) -> String {
    settings::shown_host(&AllowedHost {
        name: String::new(),
        host: host.to_owned(),
        folder: workspace.to_string_lossy().into_owned(),
    })
}

impl PolicyStore {
    /// Host names that people have allowed to an agent in a workspace. None if the files cannot be read: then no command
    /// of an agent runs anyway.
    pub fn allowed_hosts(
        &self,
        agent: &Agent,
        conversation: Option<&Conversation>,
        workspace: &Path,
    ) -> Vec<String> {
        let here = workspace.to_string_lossy();
        let remembered = self.remembered_hosts();
        let hosts = remembered.iter().filter(|host| host.folder == here);
        let mut found: Vec<String> = hosts.map(|host| host.host.clone()).collect();
        let granted = self
            .host_grants
            .used(|grant| grant.agent == *agent && grant.conversation.as_ref() == conversation);
        found.extend(granted.into_iter().map(|grant| grant.host));
        found
    }

    /// Host names that `always here` has allowed, for people.
    pub fn remembered_hosts(&self) -> Arc<[AllowedHost]> {
        self.loaded().hosts.clone()
    }

    /// Keeps the answer of a person about a host name. `Once` and `No` add nothing.
    pub fn remember_host(
        &self,
        choice: Choice,
        host: &str,
        agent: &Agent,
        conversation: Option<&Conversation>,
        workspace: &Path,
    ) -> io::Result<()> {
        match choice {
            Choice::Once | Choice::No => Ok(()),
            Choice::ThisAgent => {
                self.host_grants.add([HostGrant {
                    agent: agent.clone(),
                    conversation: conversation.cloned(),
                    host: host.to_owned(),
                }]);
                Ok(())
            }
            Choice::AlwaysHere | Choice::Always => self.change_remembered(|kept| {
                let folder = workspace.to_string_lossy().into_owned();
                let is_same = |kept: &AllowedHost| kept.host == host && kept.folder == folder;
                if !kept.hosts.iter().any(is_same) {
                    let name = super::unused_name(kept);
                    kept.hosts.push(AllowedHost {
                        name,
                        host: host.to_owned(),
                        folder,
                    });
                }
            }),
        }
    }
}

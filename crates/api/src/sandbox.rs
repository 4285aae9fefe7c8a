//! Words of the settings of a sandbox.

use crate::words::words;

words! {
    /// Permission to write: only private layers; the folder, but for protected paths; everything, without a sandbox.
    #[derive(Default, PartialOrd, Ord)]
    SandboxMode {
        ReadOnly = "read-only",
        WorkspaceWrite = "workspace-write",
        #[default]
        Off = "off",
    };

    /// Permission to connect: only the loopback of the sandbox; names that the configuration or a person allows; the network
    /// of the machine.
    #[derive(Default, PartialOrd, Ord)]
    NetworkMode {
        #[default]
        Off = "off",
        Allowlist = "allowlist",
        On = "on",
    };
}

//! Probe of the mechanisms of this machine, by building sandboxes in which nothing runs.

use std::path::Path;

use abide_core::{SandboxGap, SandboxedBy};

use super::init::{MECHANISMS, NotBuilt, Sandbox};
use super::plan::{Folder, Plan};

/// A mechanism, and its gaps or the reason why it does not work here.
pub type Probed = (SandboxedBy, Result<Vec<SandboxGap>, NotBuilt>);

/// Name of the session that a probe pretends to be.
const SESSION: &str = "probe";

/// Tries all mechanisms, the strongest first. Must be called in a process with one thread, which it forks. `None`: this
/// process has more.
pub fn probe(layers: &Path) -> Option<Vec<Probed>> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.count();
    if threads != 1 {
        return None;
    }
    let plan = Plan {
        layers: layers.join(SESSION),
        ..Plan::read_only(Folder::resolve(Path::new("/usr")).ok()?)
    };
    let probed = MECHANISMS.map(|by| {
        let made = Sandbox::by(by, &plan, SESSION, None);
        (by, made.map(|made| made.sandboxed.gaps))
    });
    Some(probed.into())
}

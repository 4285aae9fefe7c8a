//! Off switches of the accelerators, so that a benchmark can measure what each one saves and the tests can run
//! without them: `ABIDE_OFF=keeper_pool,ext4_placement` in the environment of the daemon.

use std::sync::OnceLock;

/// A mechanism that only makes abide faster. Everything works without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// Keepers that are started before a command needs one.
    KeeperPool,
    /// Quiet block groups of ext4 for the directories of sessions and of sandboxes.
    Ext4Placement,
    /// A shortcut for lines of output that repeat except for numbers.
    RepeatFastPath,
    /// Statements that PostgreSQL parses and plans once for a connection.
    PreparedStatements,
}

impl Accelerator {
    /// All of them.
    pub const ALL: [Accelerator; 4] = [
        Accelerator::KeeperPool,
        Accelerator::Ext4Placement,
        Accelerator::RepeatFastPath,
        Accelerator::PreparedStatements,
    ];

    /// Name in `ABIDE_OFF`.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::KeeperPool => "keeper_pool",
            Accelerator::Ext4Placement => "ext4_placement",
            Accelerator::RepeatFastPath => "repeat_fast_path",
            Accelerator::PreparedStatements => "prepared_statements",
        }
    }

    /// Returns false if the environment of this process switches it off.
    pub fn is_on(self) -> bool {
        !is_off(self.name())
    }
}

/// Other mechanisms that can be switched off, so that tests can run what takes their place.
const OTHERS: [&str; 2] = ["namespaces", "bubblewrap"];

/// Returns true if the environment of this process switches off what has this name.
pub fn is_off(name: &str) -> bool {
    static OFF: OnceLock<String> = OnceLock::new();
    let off = OFF.get_or_init(|| std::env::var("ABIDE_OFF").unwrap_or_default());
    names(off).any(|off| off == name)
}

/// Name in `ABIDE_OFF` of something that cannot be switched off.
#[derive(Debug)]
pub struct UnknownSwitch(String);

impl std::fmt::Display for UnknownSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = switches().join(", ");
        write!(f, "ABIDE_OFF names '{}'; it can switch off {known}", self.0)
    }
}

impl std::error::Error for UnknownSwitch {}

/// Names of everything that can be switched off.
fn switches() -> Vec<&'static str> {
    [&Accelerator::ALL.map(Accelerator::name)[..], &OTHERS].concat()
}

/// Checks that `ABIDE_OFF` names only what can be switched off.
pub fn check_switches() -> Result<(), UnknownSwitch> {
    let off = std::env::var("ABIDE_OFF").unwrap_or_default();
    let known = switches();
    match names(&off).find(|name| !known.contains(name)) {
        Some(unknown) => Err(UnknownSwitch(unknown.to_owned())),
        None => Ok(()),
    }
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

//! The sandbox of a command: what the kernel lets it see and change.
//!
//! `plan` is data only: what the daemon wants. `init` starts the init process of the sandbox, which builds it
//! (`build`: mounts, devices, loopback) and then only reaps orphans; the command enters afterwards (`entry`), drops
//! its capabilities, and gets its Landlock domain (`rules`) and its system call filter (`filter`, compiled by `bpf`). The keeper stays outside. A
//! step that fails is named, and nothing runs.

pub mod attacks;
mod bpf;
mod bubblewrap;
mod build;
mod covers;
pub(crate) mod entry;
mod filter;
pub(crate) mod gate;
pub mod gate_sockets;
mod git;
mod git_config;
mod init;
mod inside;
mod layers;
mod mounts;
mod notification;
mod of_run;
mod only_landlock;
mod paths;
mod plan;
mod probe;
mod protected_names;
mod refusal_record;
mod refusals;
mod refused_calls;
mod rules;
mod sockets;
mod ssh_keys;
mod stored_layers;
mod supervision;

pub use build::all_hidden;
pub(crate) use filter::compile_ahead as compile_filters_ahead;
pub use gate::{
    BIND as GATE_BIND, LIST as GATE_LIST, NO_LISTENER as GATE_NO_LISTENER,
    PORTS_SOCKET as GATE_PORTS_SOCKET, READY as GATE_READY, REFUSED as GATE_REFUSED,
    RELEASED as GATE_RELEASED, SOCKET as GATE_SOCKET,
};
pub use init::NotBuilt;
pub(crate) use init::{Sandbox, cannot};
pub(crate) use of_run::RunSandbox;
pub use only_landlock::gaps as landlock_gaps;
pub(crate) use only_landlock::temporary_folder;
pub use paths::{HIDDEN_OF_SYS, OWN_FOLDERS, OWN_LAYERS, UNWRITABLE, hidden_in_home};
pub use plan::{ASK_OUTSIDE, Folder, GatePlan, Mode, Network, Plan};
pub use probe::{Probed, probe};
pub use protected_names::writes_already;
pub use refusal_record::{FILE as REFUSED, RefusalEntry, RefusalKind, RefusalRecord};
pub use stored_layers::{
    StoredLayers, clean_layers, measure_layers, measured_size, remove_folder, stored_layers,
};

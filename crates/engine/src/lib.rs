//! The inside of abide's daemon: the event loop around [`abide_core`], the effects it carries out, keepers, store,
//! probes, screens, search and wakers. Knows no protocol: MCP, HTTP and the command line are in the program.

pub mod async_fd;
mod candidate_sessions;
pub mod clients;
pub mod clock;
pub mod command_line;
mod commits;
pub mod config;
pub mod dns;
mod effects;
pub mod entropy;
mod event_loop;
pub mod fleet;
pub mod gate_plan;
mod handle;
pub mod keepers;
mod launch_bytes;
mod live_config;
pub mod lock;
pub mod machine_link;
pub mod peer;
pub mod policy;
pub mod probe;
mod published_state;
pub mod refusals;
mod retention;
mod runtime;
pub mod sandbox;
pub mod sandbox_probe;
pub mod screen;
pub mod screens;
mod seams;
pub mod search;
pub mod secret;
mod session_access;
mod sock_diag;
pub mod socket;
pub mod socket_owner;
pub mod store;
pub mod stream;
pub mod text;
pub mod timestamp;
pub mod wakers;
mod watched_file;
pub mod web;

#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
mod sim;

pub use handle::{
    AttachGuard, BeyondSettings, CallStep, CallUpdate, ConversationGuard, Handle, Input,
    LaunchOptions, PendingCall, ResendRequest, Stdin, WatcherGuard,
};
pub use launch_bytes::HeldLaunch;
pub use live_config::{ConfigState, LiveConfig};
pub use published_state::{Change, PublishedState, QuestionView, SessionView};
pub use runtime::{JudgeApproved, Runtime, RuntimeFault};

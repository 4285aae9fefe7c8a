//! The decisions of abide, without I/O.
//!
//! Nothing in this crate makes a system call, reads a clock, awaits, or knows JSON. The daemon passes an event
//! ([`Event`]) and the current time ([`Now`]), and the engine returns what the daemon should do ([`Effect`]). The
//! crate is `no_std`, so the compiler enforces this.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod conversation;
pub mod effect;
pub mod engine;
pub mod event;
pub mod fleet;
pub mod held;
pub mod held_connection;
pub mod id;
pub mod limit;
pub mod message;
mod numbers;
pub mod policy;
pub mod question;
mod random;
pub mod record;
pub mod request;
pub mod session;
pub mod session_name;
mod shorten;
pub mod terminal_wait;
pub mod time;
pub mod timer;
mod undo_log;
pub mod wait;
pub mod wake;
mod words;

pub use effect::{Effect, OwnerReport, Update};
pub use engine::Engine;
pub use event::Event;
pub use held::HeldCommand;
pub use held_connection::{ConnectionAnswer, HeldConnection};
pub use id::{
    Agent, CallId, Conversation, Key, MessageId, QuestionId, SessionId, TimerId, settings_name,
};
pub use message::About;
pub use question::{Answer, Closing, Question, Subject};
pub use record::Record;
pub use request::{Refusal, Request, Run, Try};
pub use session::{
    Containment, End, Ending, Exit, SandboxGap, Sandboxed, SandboxedBy, Session, StartError,
};
pub use session_name::SessionName;
pub use shorten::shorten;
pub use time::{Millis, Mono, Now, Wall};
pub use timer::Timer;
pub use wait::{Asking, Outcome, WhyRunning};

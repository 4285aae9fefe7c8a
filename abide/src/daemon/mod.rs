//! Carries events in and effects out, and knows nothing else.

mod board;
mod drive;
mod handle;
pub mod life;
mod openers;
mod perform;
mod retention;
mod sight;
pub mod start;

pub use board::{Board, Change, QuestionView, SessionView};
pub use handle::{
    Attached, Handle, Input, Launch, Pending, Present, SendAgain, Stdin, Step, Watcher,
};
pub use life::Runtime;

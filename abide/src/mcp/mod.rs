//! MCP, for agents: both generations of the protocol, over two transports.
//!
//! `abide mcp` is the [`front()`]: it copies lines between its client and the daemon's socket, and knows just
//! enough of what is said to replay what a daemon that went away has left unanswered. Inside the daemon its
//! lines come to [`serve`] (`stdio`), and requests over HTTP to [`Http`]. Both pass the messages they decode to
//! one `dispatch`, which answers them from `server` and `call`.

mod ask;
mod batch;
mod call;
mod cancel;
pub(crate) mod client;
mod control;
mod decode;
mod dispatch;
mod front;
mod front_state;
mod hello;
mod http;
mod in_flight;
mod limits;
mod lines;
mod message_notifications;
mod other_questions;
mod out;
mod peer;
mod pending;
mod progress;
mod prompt;
mod scan;
mod seal;
mod server;
mod stdio;
mod trial;
mod wire;

pub(crate) use client::front_of;
pub use front::front;
pub use http::Http;
pub use seal::Seal;
pub use server::{Origin, Way};
pub use stdio::serve;

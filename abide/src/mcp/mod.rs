//! MCP, for agents: both generations of the protocol, over two transports.
//!
//! `abide mcp` is the [`front()`]: it copies lines between its client and the daemon's socket, and parses
//! them only as far as it must to replay unanswered requests to the next daemon. In the daemon, [`serve`]
//! (`stdio`) takes the lines of fronts, and [`Http`] takes requests over HTTP. Both pass decoded messages to
//! `dispatch`, which answers them with `server` and `call`.

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
mod presentation;
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

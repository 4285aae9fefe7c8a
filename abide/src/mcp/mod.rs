//! MCP, for agents: both generations of the protocol, over two transports.
//!
//! `abide mcp` is the [`front()`]: it copies lines between its client and the daemon's socket, and parses
//! them only as far as it must to replay unanswered requests to the next daemon. In the daemon, [`serve`]
//! (`stdio`) takes the lines of fronts, and [`Http`] takes requests over HTTP. Both pass decoded messages to
//! `dispatch`, which answers them with `server` and `call`.
//!
//! - Streamable HTTP (`http/`): `headers` checks the head against the message, `sessions` holds the sessions of versions
//!   up to 2025-11-25, `event_stream` writes, records and replays SSE, `retained_answers` keeps it.
//!   A result counts as delivered when the response was read to its end.
//! - Up to 2025-11-25 a question is a request inside the call. From 2026-07-28 the call returns `input_required` with
//!   sealed state and is repeated.
//! - A slow client is slowed down in bounded memory (`front_writer`). A request that stops ten daemons in a row is
//!   answered with an error by the front (`replay_suspects`).

mod call;
mod cancellation;
pub(crate) mod client;
mod client_channel;
mod client_output;
mod client_quirks;
mod client_timeouts;
mod control;
mod conversations;
mod decode;
mod dispatch;
mod elicitation;
mod front;
mod front_hello;
mod front_state;
mod front_writer;
mod http;
mod in_flight;
mod json_line;
mod line_splitter;
mod message_notifications;
mod origin;
mod other_questions;
mod outline;
mod presentation;
mod progress;
#[cfg(test)]
mod random_lines;
mod replay_suspects;
mod round_codec;
mod server;
mod stdio;

pub use front::front;
pub use http::Http;
pub use origin::{Origin, Transport};
pub use round_codec::RoundCodec;
pub use server::tool_list;
pub use stdio::serve;

//! Tests of HTTP over TCP with handwritten requests to a real daemon: authentication, refusals, and MCP over HTTP.

mod api;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod conformance;
mod events;
mod harness;
mod hostile;
mod legacy;
mod listener;
mod lists;
mod log_lines;
mod login;
mod modern;
mod page;
mod person;
mod policy;
mod problems;
mod raw;
#[path = "../common/shape.rs"]
mod shape;
mod terminal;
#[path = "../common/terminal_page.rs"]
mod terminal_page;

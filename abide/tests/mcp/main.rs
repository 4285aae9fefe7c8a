//! Tests of MCP over stdio: the real `abide mcp`, a real daemon behind it, and plain lines of JSON-RPC in both
//! generations of the protocol.

mod backlog;
mod clients;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod common;
mod harness;
mod idle;
mod invalid_input;
mod killed;
mod legacy;
mod modern;
mod policy;
mod presentation;
mod rejoin;
mod replay;
mod restart;
mod timers;

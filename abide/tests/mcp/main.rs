//! MCP as a client sees it: the real `abide mcp` over its pipes, a real daemon behind it, plain lines
//! of JSON-RPC in both generations of the protocol.

mod backlog;
mod clients;
mod harness;
mod idle;
mod killed;
mod legacy;
mod life;
mod modern;
mod odd;
mod replay;
mod timers;

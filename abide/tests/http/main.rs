//! HTTP over TCP, spoken by hand to a real daemon: who is let in, who is not, and MCP as clients that
//! speak HTTP see it.

mod api;
mod conformance;
mod door;
mod events;
mod harness;
mod hostile;
mod legacy;
mod lists;
mod login;
mod modern;
mod page;
mod person;
mod problems;
mod raw;
#[path = "../common/shape.rs"]
mod shape;
mod terminal;

//! Translates between the outside (JSON, MCP, HTTP, argv, text for people and models) and the core.
//! A door decides nothing and touches nothing.

pub mod cli;
pub mod client;
pub mod http;
pub mod keys;
pub mod library;
pub mod lines;
pub mod mcp;
mod program;
mod readers;
pub mod signals;
mod stamp;
mod strict;
pub mod tools;
pub mod wake;
pub mod xml;

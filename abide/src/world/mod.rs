//! The hands: everything that makes a system call, reads a clock, touches disk, process, database
//! or socket. It decides nothing.

pub mod clients;
pub mod clock;
pub mod diag;
pub mod dns;
pub mod entropy;
pub mod exit;
pub mod handed;
pub mod heap;
pub mod keepers;
pub mod logins;
pub mod machine;
pub mod own;
pub mod peer;
pub mod probe;
pub mod rewrite;
pub mod screen;
pub mod screens;
pub mod search;
pub mod secret;
pub mod socket;
pub mod socket_owner;
pub mod store;
pub mod stream;
pub mod terminal;
pub mod web;

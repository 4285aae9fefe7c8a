//! The hands: everything that makes a system call, reads a clock, touches disk, process, database
//! or socket. It decides nothing.

pub mod clients;
pub mod clock;
pub mod descriptors;
pub mod entropy;
pub mod exit;
pub mod facts;
pub mod handed;
pub mod heap;
pub mod heritage;
pub mod holders;
pub mod keepers;
pub mod limits;
pub mod log;
pub mod logins;
pub mod machine;
pub mod names;
pub mod oom;
pub mod own;
pub mod peer;
pub mod prints;
pub mod probe;
pub mod pts;
pub mod rewrite;
pub mod screen;
pub mod screens;
pub mod search;
pub mod secret;
pub mod sequence;
pub mod socket;
pub mod store;
pub mod stream;
pub mod tail;
pub mod terminal;
pub mod unread;
pub mod web;

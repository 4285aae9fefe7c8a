//! Attacks on the sandbox, by their number, each beside a twin that must succeed. Every test
//! runs as the user of the tests, and as an ordinary user too if that one is root.

mod agents;
mod harness;
mod kernel;
mod modes;
mod own_files;
mod processes;
mod protected;
mod real_work;
mod secrets;
mod sockets;
mod writing;

//! Links between the machines of a fleet: TLS 1.3 with pinned keys, carried by frames in rows of the database. No port is
//! opened, so that machines behind a NAT can be called, and what the rows contain can only be read by the two machines.
//!
//! [`key`] knows the key of this machine and the fleet secret, [`tls`] pins keys, [`frame`] is the protocol of a link
//! (pure), [`stream`] makes a stream of bytes of it.

pub mod frame;
pub mod key;
pub mod stream;
pub mod tls;

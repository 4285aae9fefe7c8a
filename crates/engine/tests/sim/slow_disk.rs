//! Calls while the disk is slow.

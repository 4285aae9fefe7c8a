//! Parts that several test programs share.

pub mod cleanup;
pub mod fifo;
pub mod home;
pub mod postgres;
pub mod process;

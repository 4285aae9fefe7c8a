//! Parts that several test programs share.

pub mod calendar;
pub mod cleanup;
pub mod fifo;
pub mod home;
pub mod postgres;
pub mod process;
pub mod shim;

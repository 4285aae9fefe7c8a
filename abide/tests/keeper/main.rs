//! Real children under a real keeper, without a daemon.

mod attach;
mod ending;
mod facts;
mod harness;
mod log;
mod measure;
mod start;
mod talk;

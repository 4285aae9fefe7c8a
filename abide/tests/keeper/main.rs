//! Real children under a real keeper, without a daemon.

mod ending;
mod harness;

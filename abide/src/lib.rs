//! The program as a library: the rooms that act, translate and drive. What is decided is decided in
//! `abide_core`.

pub mod keeper;
pub mod world;

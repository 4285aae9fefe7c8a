//! The doors: where what the house knows becomes words for a person, a model or a wire.

pub mod cli;
pub mod digest;
pub mod mask;

//! Output of commands as text.

#![forbid(unsafe_code)]

pub mod digest;
pub mod lines;
pub mod mask;
pub mod printable;
pub mod sanitizer;
pub mod secret_fingerprints;
pub mod terminal_filter;
pub mod tokenizer;

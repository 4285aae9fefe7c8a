//! Output of commands as text.

#![forbid(unsafe_code)]

pub mod digest;
pub mod lines;
pub mod mask;
pub mod plain_text;
pub mod printable;
pub mod secret_fingerprints;
pub mod terminal_filter;
pub mod tokenizer;

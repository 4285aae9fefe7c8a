//! Output of commands as text: bytes in, text out, no I/O.
//!
//! A command writes bytes: text in some encoding, colours, progress bars, control sequences, now and
//! then a secret. This crate makes text of them for three kinds of readers.
//!
//! - **A language model** gets a digest ([`digest`]): the text as a terminal would show it, with
//!   repetitions folded, and if it is too long, its begin, its end, and the errors between them.
//! - **A person** gets text that cannot reprogram the terminal ([`sanitizer`], [`printable`],
//!   [`terminal_filter`]).
//! - **A program that follows a log** gets complete lines, page by page, with a cursor to continue
//!   ([`lines`]).
//!
//! [`mask`] hides secrets in any of these texts, and [`tokenizer`] is the one state machine by which all
//! of them tell text from escape sequences.
//!
//! ```
//! use abide_output::digest::{Limits, digest};
//! use abide_output::mask::Mask;
//!
//! let log = b"\x1b[1mBuilding\x1b[0m\r\n 10%\r 60%\r100%\r\nretry\nretry\nretry\nAuthorization: Bearer 0123456789abcdef\n";
//! let text = Mask::default().apply(digest(log, &Limits::default()).text);
//! assert_eq!(
//!     text,
//!     "Building\n100%\nretry [×3]\nAuthorization: Bearer [masked:bearer]"
//! );
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod digest;
pub mod lines;
pub mod mask;
pub mod printable;
pub mod sanitizer;
pub mod secret_fingerprints;
pub mod terminal_filter;
pub mod tokenizer;

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

//! The digest as a black box: real logs, planted errors, and properties of any input.

mod corpus;
mod folding;
mod golden;
mod mixed;
mod painting;
mod planted;
mod properties;
mod rare;
mod shortening;
mod signals;

use abide_output::digest::{Digested, Limits, digest};

fn limits(max_chars: usize) -> Limits {
    Limits {
        max_chars,
        omitted_hint:
            "terminal_session search, or read_output with since, on session_k3v9x2bc has them"
                .into(),
        ..Limits::default()
    }
}

fn usual(bytes: impl AsRef<[u8]>) -> Digested {
    digest(bytes.as_ref(), &limits(10_000))
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    usual(bytes).text
}

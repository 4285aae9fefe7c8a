//! Transcripts of sessions and questions: events, one per line, and the resulting effects of the engine. `>` is an effect,
//! `=` an answer to `show` or `alarm`.
//!
//! The call `3` has `s3` as the id of its session. Questions are `q1`, `q2` … in the order in which they appear.
//! `+61s` lets time pass, with a tick at each alarm on the way and at the end. After `fail`, the commit of the next step
//! with records fails.

mod script;
mod transcript;
mod words;

#[test]
fn scenarios_match_their_transcripts() {
    script::check::<transcript::Stage>("scenarios", 50);
}

//! Messages that another machine takes, or that are loaded again, while an answer carries them.

use alloc::vec;

use super::*;

const CALL: CallId = CallId(1);

fn stored(delivery_begun: bool) -> Vec<StoredMessage> {
    vec![StoredMessage {
        number: 3,
        agent: Agent::default(),
        about: About::Timer(TimerId::from_bits(5)),
        conversation: None,
        made: Wall(0),
        delivery_begun,
    }]
}

/// Outbox with one message, which an uncommitted answer carries.
fn in_answer() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.open(IdPermutation::default(), 4..100, stored(false), |_| {
        Steady(0)
    });
    outbox.tell(&Agent::default(), &[3], CALL);
    outbox.begin_commit();
    outbox
}

/// Mark of the message as repeated, if it is unread.
fn unread(outbox: &Outbox) -> Option<bool> {
    let all = outbox.boxes.get(&Agent::default())?;
    let entry = all.get(&3).filter(|entry| entry.with.is_none())?;
    Some(entry.repeated)
}

#[test]
fn message_that_is_gone_is_forgotten_when_its_answer_fails() {
    let mut outbox = in_answer();
    outbox.unload(|number| number == 3);
    outbox.commit_failed(RevertScope::Both);
    assert_eq!(unread(&outbox), None);
    outbox.load(stored(true), |_| Steady(0));
    assert_eq!(unread(&outbox), Some(true));
}

#[test]
fn message_that_is_loaded_again_is_unread_and_marked_when_its_answer_fails() {
    let mut outbox = in_answer();
    outbox.unload(|number| number == 3);
    outbox.load(stored(true), |_| Steady(0));
    assert_eq!(unread(&outbox), None);
    outbox.commit_failed(RevertScope::Both);
    assert_eq!(unread(&outbox), Some(true));
}

#[test]
fn unread_message_that_is_loaded_again_keeps_the_mark() {
    let mut outbox = in_answer();
    outbox.commit_failed(RevertScope::Both);
    assert_eq!(unread(&outbox), Some(false));
    outbox.load(stored(true), |_| Steady(0));
    outbox.load(stored(false), |_| Steady(0));
    assert_eq!(unread(&outbox), Some(true));
}

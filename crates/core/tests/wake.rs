//! Rules for waking agents.

use abide_core::Millis;
use abide_core::time::Steady;
use abide_core::wake::{BACK_OFF, BUDGET_SPAN, Failed, LONGEST_HOLD, Rules, Waker};

fn at(secs: u64) -> Steady {
    Steady(1_000_000 + secs * 1_000)
}

fn waker(after: u64, budget: usize) -> Waker {
    Waker::new(Rules {
        after: Millis::from_secs(after),
        budget,
        at_once: usize::MAX,
    })
}

#[test]
fn an_agent_that_reads_by_itself_is_not_woken() {
    let mut waker = waker(2, 10);
    waker.posted(at(0), 1);
    assert_eq!(waker.alarm(), Some(at(2)));
    assert_eq!(waker.take(at(1)), None);
    waker.settled(1);
    assert_eq!(waker.alarm(), None);
    assert_eq!(waker.take(at(9)), None);
}

#[test]
fn postponed_attempt_is_due_later_and_keeps_its_messages() {
    let mut waker = waker(2, 10);
    waker.postpone(at(9));
    assert_eq!(waker.alarm(), None, "nothing waits");
    waker.posted(at(0), 1);
    waker.postpone(at(1));
    assert_eq!(waker.alarm(), Some(at(2)), "it is due later anyway");
    waker.postpone(at(7));
    assert_eq!(waker.take(at(6)), None);
    assert_eq!(waker.take(at(7)), Some(vec![1]));
}

#[test]
fn agent_without_pending_state_can_be_removed() {
    let mut waker = waker(2, 10);
    assert!(waker.is_idle(at(0)));
    waker.posted(at(0), 1);
    assert!(!waker.is_idle(at(1)), "a message waits");
    assert_eq!(waker.take(at(2)), Some(vec![1]));
    assert!(!waker.is_idle(at(3)), "a try is under way");
    waker.done(&[1]);
    let hour = BUDGET_SPAN.0 / 1_000;
    assert!(!waker.is_idle(at(hour + 1)), "the budget counts it");
    assert!(waker.is_idle(at(hour + 2)));
}

#[test]
fn several_messages_are_one_wake() {
    let mut waker = waker(2, 10);
    waker.posted(at(0), 1);
    waker.posted(at(1), 2);
    assert_eq!(waker.alarm(), Some(at(2)), "the second does not put it off");
    assert_eq!(waker.take(at(2)), Some(vec![1, 2]));
    waker.posted(at(3), 3);
    assert_eq!(waker.take(at(60)), None, "one at a time");
    waker.done(&[1, 2]);
    assert_eq!(waker.take(at(4)), None, "it may be read yet");
    assert_eq!(waker.take(at(5)), Some(vec![3]));
}

#[test]
fn messages_are_sent_one_by_one_without_batching() {
    let mut waker = Waker::new(Rules {
        after: Millis::from_secs(2),
        budget: 100,
        at_once: 1,
    });
    for message in 1..=3 {
        waker.posted(at(0), message);
    }
    for message in 1..=3 {
        assert_eq!(waker.take(at(2)), Some(vec![message]));
        waker.done(&[message]);
    }
    assert_eq!(waker.alarm(), None);
}

#[test]
fn message_that_fails_does_not_hold_back_later_ones() {
    let mut waker = Waker::new(Rules {
        after: Millis(0),
        budget: 100,
        at_once: 1,
    });
    for message in [5, 6] {
        waker.posted(at(0), message);
    }
    assert_eq!(waker.take(at(0)), Some(vec![5]));
    waker.failed(at(0), &[5], None, 0);
    assert_eq!(waker.take(at(0)), Some(vec![6]));
    waker.done(&[6]);
    assert_eq!(waker.take(at(5)), Some(vec![5]));
    waker.failed(at(5), &[5], None, 0);
    let retry = at(5) + BACK_OFF[1];
    assert_eq!(waker.take(at(5)), None);
    assert_eq!(waker.alarm(), Some(retry));
    waker.posted(at(6), 12);
    assert_eq!(waker.take(at(6)), Some(vec![12]), "a new one is tried soon");
    waker.failed(at(6), &[12], Some(Millis::from_secs(60)), 0);
    waker.posted(at(7), 13);
    assert_eq!(
        waker.alarm(),
        Some(at(66)),
        "the receiver asked for a pause"
    );
    assert_eq!(waker.take(at(66)), Some(vec![12]));
    waker.done(&[12]);
    assert_eq!(waker.take(at(66)), Some(vec![13]));
    waker.done(&[13]);
    assert_eq!(waker.take(retry), Some(vec![5]));
}

#[test]
fn s28_failure_is_retried_for_days_and_then_given_up() {
    let mut waker = waker(0, 1_000);
    waker.posted(at(0), 1);
    let mut now = at(0);
    for pause in BACK_OFF {
        assert_eq!(waker.take(now), Some(vec![1]));
        let again = vec![(1, Failed::Again(now + pause))];
        assert_eq!(waker.failed(now, &[1], None, 0), again);
        assert_eq!(waker.take(Steady(now.0 + pause.0 - 1)), None);
        now = now + pause;
    }
    assert!(now.since(at(0)) >= Millis::from_secs(3 * 86_400));
    assert_eq!(waker.take(now), Some(vec![1]));
    assert_eq!(waker.failed(now, &[1], None, 0), [(1, Failed::GivenUp)]);
    assert_eq!(waker.alarm(), None);
    waker.posted(now, 2);
    assert_eq!(waker.take(now), Some(vec![2]), "the next message is tried");
}

#[test]
fn late_message_has_all_its_attempts() {
    let mut waker = waker(0, 1_000);
    waker.posted(at(0), 1);
    let mut now = at(0);
    for pause in BACK_OFF {
        assert_eq!(waker.take(now), Some(vec![1]));
        assert_eq!(
            waker.failed(now, &[1], None, 0),
            [(1, Failed::Again(now + pause))]
        );
        now = now + pause;
    }
    waker.posted(now, 2);
    assert_eq!(waker.take(now), Some(vec![1, 2]));
    let pause = BACK_OFF[0];
    let verdicts = waker.failed(now, &[1, 2], None, 0);
    assert_eq!(
        verdicts,
        [(1, Failed::GivenUp), (2, Failed::Again(now + pause))]
    );
    assert_eq!(waker.alarm(), Some(now + pause));
}

#[test]
fn failures_before_a_restart_count_and_a_hold_is_kept() {
    let mut waker = waker(1, 1_000);
    waker.restored(at(0), 1, 3, None);
    assert_eq!(waker.take(at(1)), Some(vec![1]), "tried soon after a start");
    let next = at(1) + BACK_OFF[2];
    let verdicts = waker.failed(at(1), &[1], None, 0);
    assert_eq!(verdicts, [(1, Failed::Again(next))], "the same pause again");
    assert_eq!(waker.failures(1), 3);
    assert_eq!(waker.take(next), Some(vec![1]));
    let again = Failed::Again(next + BACK_OFF[3]);
    assert_eq!(waker.failed(next, &[1], None, 0), [(1, again)]);

    let mut waker = self::waker(1, 1_000);
    waker.restored(at(0), 1, 1, Some(at(500)));
    assert_eq!(waker.alarm(), Some(at(500)));
    let mut waker = self::waker(1, 1_000);
    waker.restored(at(0), 1, 1, Some(at(10_000_000)));
    assert_eq!(waker.alarm(), Some(at(0) + LONGEST_HOLD), "not for ever");
}

#[test]
fn retry_after_is_honoured_and_jitter_adds_at_most_a_fifth() {
    let mut waker = waker(0, 1_000);
    waker.posted(at(0), 1);
    waker.take(at(0));
    let asked = Some(Millis::from_secs(77));
    let again = Failed::Again(at(77));
    assert_eq!(waker.failed(at(0), &[1], asked, 1_000), [(1, again)]);
    waker.take(at(77));
    let pause = BACK_OFF[1];
    let verdicts = waker.failed(at(77), &[1], None, 1_000);
    let latest = at(77) + Millis(pause.0 + pause.0 / 5);
    assert_eq!(verdicts, [(1, Failed::Again(latest))]);
}

#[test]
fn manual_send_does_not_wait() {
    let mut waker = Waker::new(Rules {
        after: Millis(0),
        budget: 1,
        at_once: 1,
    });
    waker.posted(at(0), 1);
    waker.posted(at(0), 2);
    assert_eq!(waker.take(at(0)), Some(vec![1]));
    waker.failed(at(0), &[1], None, 0);
    assert_eq!(waker.budget_delay(), Some(at(0) + BUDGET_SPAN));
    assert_eq!(waker.take(at(1)), None);
    waker.send_now(at(1), 2);
    assert_eq!(waker.take(at(1)), Some(vec![2]));
    waker.done(&[2]);
    assert_eq!(waker.waiting().collect::<Vec<_>>(), [1]);
}

#[test]
fn manual_send_during_an_attempt_follows_at_once() {
    let mut waker = waker(0, 1);
    waker.posted(at(0), 1);
    waker.take(at(0));
    waker.send_now(at(1), 1);
    let again = Failed::Again(at(2));
    assert_eq!(waker.failed(at(2), &[1], None, 0), [(1, again)]);
    assert_eq!(waker.take(at(2)), Some(vec![1]));
}

#[test]
fn two_manual_sends_are_both_sent() {
    let mut waker = Waker::new(Rules {
        after: Millis(0),
        budget: 1,
        at_once: 1,
    });
    for message in [3, 2] {
        waker.send_now(at(0), message);
    }
    for message in [2, 3] {
        assert!(waker.is_sent_now(message));
        assert_eq!(waker.take(at(0)), Some(vec![message]));
        waker.done(&[message]);
    }
    assert!(waker.is_empty());
}

#[test]
fn wake_loop_is_limited_by_the_budget() {
    let mut waker = waker(0, 3);
    let mut woken = 0;
    for second in 0..3_600 {
        waker.posted(at(second), second);
        if let Some(messages) = waker.take(at(second)) {
            woken += 1;
            waker.done(&messages);
        }
    }
    assert_eq!(woken, 3);
    assert_eq!(waker.budget_delay(), Some(at(0) + BUDGET_SPAN));
    assert_eq!(waker.alarm(), Some(at(0) + BUDGET_SPAN));
    let messages = waker
        .take(at(0) + BUDGET_SPAN)
        .expect("the budget is free again");
    assert_eq!(messages.len(), 3_597, "nothing is lost");
}

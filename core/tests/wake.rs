//! When agents are woken.

use abide_core::Millis;
use abide_core::time::Steady;
use abide_core::wake::{BACK_OFF, BUDGET_SPAN, Failed, Waker};

fn at(secs: u64) -> Steady {
    Steady(1_000_000 + secs * 1_000)
}

#[test]
fn an_agent_that_reads_by_itself_is_not_woken() {
    let mut waker = Waker::new(Millis::from_secs(2), 10);
    waker.posted(at(0), 1);
    assert_eq!(waker.alarm(), Some(at(2)));
    assert_eq!(waker.take(at(1)), None);
    waker.settled(1);
    assert_eq!(waker.alarm(), None);
    assert_eq!(waker.take(at(9)), None);
}

#[test]
fn several_messages_are_one_wake() {
    let mut waker = Waker::new(Millis::from_secs(2), 10);
    waker.posted(at(0), 1);
    waker.posted(at(1), 2);
    assert_eq!(waker.alarm(), Some(at(2)), "the second does not put it off");
    assert_eq!(waker.take(at(2)), Some(vec![1, 2]));
    waker.posted(at(3), 3);
    assert_eq!(waker.take(at(60)), None, "one at a time");
    waker.done(&[1, 2]);
    assert_eq!(waker.take(at(61)), Some(vec![3]));
}

#[test]
fn s28_a_failure_is_tried_again_over_days_and_then_given_up() {
    let mut waker = Waker::new(Millis(0), 1_000);
    waker.posted(at(0), 1);
    let mut now = at(0);
    for pause in BACK_OFF {
        assert_eq!(waker.take(now), Some(vec![1]));
        assert_eq!(waker.failed(now, &[1]), Failed::Again(now + pause));
        assert_eq!(waker.take(Steady(now.0 + pause.0 - 1)), None);
        now = now + pause;
    }
    assert!(now.since(at(0)) >= Millis::from_secs(2 * 86_400));
    assert_eq!(waker.take(now), Some(vec![1]));
    assert_eq!(waker.failed(now, &[1]), Failed::GivenUp);
    assert_eq!(waker.alarm(), None);
    waker.posted(now, 2);
    assert_eq!(waker.take(now), Some(vec![2]), "the next message is tried");
}

#[test]
fn a_loop_cannot_burn_a_quota() {
    let mut waker = Waker::new(Millis(0), 3);
    let mut woken = 0;
    for second in 0..3_600 {
        waker.posted(at(second), second);
        if let Some(messages) = waker.take(at(second)) {
            woken += 1;
            waker.done(&messages);
        }
    }
    assert_eq!(woken, 3);
    assert_eq!(waker.alarm(), Some(at(0) + BUDGET_SPAN));
    let messages = waker
        .take(at(0) + BUDGET_SPAN)
        .expect("the budget is free again");
    assert_eq!(messages.len(), 3_597, "nothing is lost");
}

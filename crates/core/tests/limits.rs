//! Every limit is enforced: a call beyond a limit is refused before anything changes.

use abide_core::request::Caller;
use abide_core::session::{Phase, StartedBy};
use abide_core::{
    Agent, Answer, Asking, CallId, Closing, Effect, End, Engine, Event, Millis, Mono, Now, Outcome,
    Refusal, Request, Run, Session, SessionId, StartError, Wall, limit,
};

fn run(call: u64, asking: Asking) -> Event {
    Event::Called {
        call: CallId(call),
        caller: Caller {
            agent: None,
            conversation: None,
        },
        reserved: Some(SessionId::from_bits(call)),
        request: Request::Run(Run {
            command: "true".into(),
            deadline: None,
            idle: Some(Millis(1)),
            inactivity: None,
            asking,
            standby: None,
            detach: false,
            key: None,
            approval: None,
        }),
    }
}

fn ask(call: u64, request: Request) -> Event {
    Event::Called {
        call: CallId(call),
        caller: Caller {
            agent: None,
            conversation: None,
        },
        reserved: Some(SessionId::from_bits(call)),
        request,
    }
}

fn step(engine: &mut Engine, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    engine.step(Now::default(), event, &mut effects);
    effects
}

/// Asserts that the call is refused with "too many" and that the engine is unchanged.
fn refuses(engine: &Engine, event: Event) {
    let mut after = engine.clone();
    let effects = step(&mut after, event);
    let [Effect::Reply { outcome, .. }] = &effects[..] else {
        panic!("not refused: {effects:?}");
    };
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::TooMany(_))),
        "{outcome:?}"
    );
    assert!(after == *engine, "a refused call changed something");
}

#[test]
fn running_sessions_are_limited() {
    let mut engine = Engine::new(1);
    let limit = limit::RUNNING_SESSIONS as u64;
    for call in 0..limit {
        step(&mut engine, run(call, Asking::Never));
        step(&mut engine, Event::CallerGone { call: CallId(call) });
    }
    assert_eq!(engine.counts().running, limit::RUNNING_SESSIONS);
    refuses(&engine, run(limit, Asking::Never));
    let session = SessionId::from_bits(0);
    let failed = Event::StartFailed {
        session,
        fault: "gone".into(),
        error: StartError::Other,
        at: Wall(0),
    };
    step(&mut engine, failed);
    let effects = step(&mut engine, run(limit, Asking::Never));
    assert!(matches!(effects[0], Effect::Start { .. }), "{effects:?}");
}

#[test]
fn waiting_calls_are_limited() {
    let mut engine = Engine::new(1);
    let session = SessionId::from_bits(0);
    let join = |call| {
        let (asking, standby) = (Asking::Here, Some(Millis(9)));
        ask(
            call,
            Request::Join {
                session,
                asking,
                standby,
            },
        )
    };
    step(&mut engine, run(0, Asking::Here));
    step(&mut engine, Event::Started { session });
    let limit = limit::WAITS as u64;
    for call in 1..limit {
        step(&mut engine, join(call));
    }
    assert_eq!(engine.counts().waits, limit::WAITS);
    refuses(&engine, join(limit));
    refuses(&engine, run(limit, Asking::Never));
    let end = End::Agent;
    refuses(&engine, ask(limit, Request::Kill { session, end }));
    step(&mut engine, Event::CallerGone { call: CallId(0) });
    assert!(matches!(
        step(&mut engine, join(limit))[..],
        [Effect::Tell { .. }]
    ));
    let mut effects = Vec::new();
    let mono = Mono(9);
    engine.step(
        Now {
            mono,
            ..Now::default()
        },
        Event::Tick,
        &mut effects,
    );
    let replies = effects.iter().filter(|e| matches!(e, Effect::Reply { .. }));
    assert_eq!(replies.count(), limit::WAITS, "each of them is answered");
    assert_eq!(engine.counts().alarms, 0);
}

#[test]
fn stored_sessions_are_limited() {
    let mut engine = Engine::new(1);
    for n in 0..limit::SESSIONS as u64 {
        let state = Session {
            agent: Agent::default(),
            conversation: None,
            command: "true".into(),
            keys: Vec::new(),
            started_by: StartedBy::Call,
            created: Wall(0),
            idle: None,
            inactivity: None,
            unasked_until: Mono::default(),
            bytes: 0,
            unattended: false,
            interrupted: false,
            end_heard: None,
            phase: Phase::Failed {
                fault: "no".into(),
                error: StartError::Other,
                at: Wall(0),
            },
        };
        let session = SessionId::from_bits(n);
        let deadline = None;
        step(
            &mut engine,
            Event::SessionFound {
                session,
                state: Box::new(state),
                deadline,
                ending_told: true,
            },
        );
    }
    refuses(&engine, run(limit::SESSIONS as u64, Asking::Never));
    let sessions = vec![SessionId::from_bits(7)];
    step(&mut engine, Event::Forgotten { sessions });
    let effects = step(&mut engine, run(limit::SESSIONS as u64, Asking::Never));
    assert!(matches!(effects[0], Effect::Start { .. }), "{effects:?}");
}

#[test]
fn the_last_closed_questions_are_remembered() {
    let mut engine = Engine::new(1);
    let session = SessionId::from_bits(0);
    step(&mut engine, run(0, Asking::Here));
    step(&mut engine, Event::Started { session });
    let mut asked = Vec::new();
    let answer = |question| {
        let answer = Answer::Yes;
        let quiet_for = None;
        ask(
            1,
            Request::Answer {
                question,
                answer,
                quiet_for,
                because: None,
                key: None,
            },
        )
    };
    for turn in 1..=limit::CLOSED_QUESTIONS as u64 + 1 {
        let mono = Mono(turn);
        let now = Now {
            mono,
            ..Now::default()
        };
        let (bytes, quiet_since) = (0, Mono(0));
        let mut effects = Vec::new();
        engine.step(now, Event::Tick, &mut effects);
        let grew = Event::OutputGrew {
            session,
            bytes,
            quiet_since,
        };
        engine.step(now, grew, &mut effects);
        let question = engine.open_question_of(session).expect("a question");
        engine.step(now, answer(question), &mut effects);
        asked.push(question);
    }
    assert_eq!(engine.counts().closed, limit::CLOSED_QUESTIONS);
    let said = |engine: &mut Engine, question| match step(engine, answer(question)).pop() {
        Some(Effect::Reply { outcome, .. }) => outcome,
        other => panic!("no reply: {other:?}"),
    };
    let (oldest, next) = (asked[0], asked[1]);
    let unknown = Outcome::Refused(Refusal::QuestionNotFound(oldest));
    assert_eq!(said(&mut engine, oldest), unknown);
    let yes = Closing::Answered(Answer::Yes);
    let closed = Outcome::Refused(Refusal::QuestionClosed(next, yes));
    assert_eq!(said(&mut engine, next), closed);
}

//! Rules of a fleet that need no world: rights, versions, states of sessions, deadlines, and single steps of a member.

use std::collections::BTreeSet;

use abide_core::Millis;
use abide_core::fleet::clock::due;
use abide_core::fleet::rights::{
    Caller, Denied, Machines, Right, Rights, decide, introduce, signed_bytes,
};
use abide_core::fleet::row::Introduction;
use abide_core::fleet::session::{Home, Loss, Reach, reach};
use abide_core::fleet::version::{Program, Version, WriteRefusal, may_write};
use abide_core::fleet::{
    Answer, Claim, DatabaseClock, Effect, Event, Identity, MachineId, MachineRow, Member, Pace,
    RETURN_AFTER_DEFAULT, Standing, Statement,
};
use abide_core::time::{Boot, Steady};

use crate::database::Database;

fn named(names: &[&str]) -> Machines {
    Machines::Named(names.iter().map(|name| (*name).into()).collect())
}

#[test]
fn f59_a_machine_that_is_not_named_may_only_see() {
    let rights = Rights {
        type_: named(&["laptop", "phone"]),
        run: named(&["laptop"]),
    };
    let known = |name| Caller::Known { name };
    let not_named = |setting| Err(Denied::NotNamed { setting });
    assert_eq!(decide(&rights, Right::Run, &known("laptop")), Ok(()));
    assert_eq!(decide(&rights, Right::Type, &known("phone")), Ok(()));
    assert_eq!(
        decide(&rights, Right::Run, &known("phone")),
        not_named("fleet.run")
    );
    assert_eq!(
        decide(&rights, Right::Type, &known("devbox")),
        not_named("fleet.type")
    );
    assert_eq!(decide(&rights, Right::See, &known("devbox")), Ok(()));
    let nothing = Rights::default();
    assert_eq!(
        decide(&nothing, Right::Type, &known("laptop")),
        not_named("fleet.type")
    );
}

/// Stands for HMAC-SHA-256, which this crate does not have: a keyed sum.
fn code(secret: u8, bytes: &[u8]) -> [u8; 32] {
    let mut code = [secret; 32];
    for (at, byte) in bytes.iter().enumerate() {
        let slot = &mut code[at % 32];
        *slot = slot
            .wrapping_mul(31)
            .wrapping_add(*byte)
            .wrapping_add(secret);
    }
    code
}

fn introduction(secret: u8) -> Introduction {
    let mut introduction = Introduction {
        id: MachineId(7),
        name: "laptop".into(),
        key: [1; 32],
        mac: [0; 32],
    };
    introduction.mac = code(secret, &signed_bytes(&introduction));
    introduction
}

#[test]
fn f60_a_forged_row_gives_no_right() {
    let verify = |bytes: &[u8], mac: &[u8; 32]| code(9, bytes) == *mac;
    let all = Rights {
        type_: Machines::All,
        run: Machines::All,
    };
    let good = introduction(9);
    let caller = introduce(&good, Standing::Member, verify);
    assert_eq!(decide(&all, Right::Run, &caller), Ok(()));
    let mut forged = [good.clone(), good.clone(), good.clone(), introduction(8)];
    forged[0].name = "devbox".into();
    forged[1].key = [2; 32];
    forged[2].id = MachineId(8);
    for row in &forged {
        let caller = introduce(row, Standing::Member, verify);
        assert_eq!(caller, Caller::Unknown);
        assert_eq!(decide(&all, Right::See, &caller), Err(Denied::Unknown));
    }
}

#[test]
fn f62_a_revoked_machine_has_no_right() {
    let row = introduction(9);
    let caller = introduce(&row, Standing::Revoked, |_, _| true);
    for right in [Right::See, Right::Type, Right::Run] {
        assert_eq!(
            decide(&Rights::default(), right, &caller),
            Err(Denied::Expelled)
        );
    }
}

#[test]
fn signed_bytes_differ_where_parts_differ() {
    let row = |name: &str, key: u8| Introduction {
        id: MachineId(1),
        name: name.into(),
        key: [key; 32],
        mac: [0; 32],
    };
    let rows = [row("a", 1), row("aa", 1), row("", 1), row("a", 2)];
    let bytes: BTreeSet<_> = rows.iter().map(signed_bytes).collect();
    assert_eq!(bytes.len(), rows.len());
}

#[test]
fn f31_a_program_writes_unless_the_fleet_needs_a_newer_one() {
    let mut fleet = Database::new(None).rows.fleet;
    let program = |patch, schema| Program {
        version: Version(0, 1, patch),
        schema,
    };
    fleet.oldest_writer = Version(0, 1, 2);
    fleet.schema = 4;
    let too_old = WriteRefusal::TooOld {
        needed: Version(0, 1, 2),
    };
    assert_eq!(may_write(program(1, 4), &fleet), Err(too_old));
    // Migrations only add, so the newer schema is no reason.
    assert_eq!(may_write(program(2, 3), &fleet), Ok(()));
    let migrate = WriteRefusal::Migrate { from: 4, to: 5 };
    assert_eq!(may_write(program(3, 5), &fleet), Err(migrate));
}

fn row() -> MachineRow {
    MachineRow {
        id: MachineId(1),
        claim: Claim(1),
        boot: 5,
        standing: Standing::Member,
        heartbeat: 10,
        pace: Pace::Slow,
        fleet_time: Some(Steady(1_000)),
        written: DatabaseClock(1_000),
        lost_after: None,
    }
}

fn home(row: Option<&MachineRow>, is_dead: bool) -> Home<'_> {
    Home {
        row,
        dead_for: is_dead.then_some(Millis(60_000)),
        declared_lost: false,
    }
}

#[test]
fn a_session_of_a_silent_machine_is_unreachable_until_its_loss_is_sure() {
    let mut row = row();
    let now = Some(Steady(100_000_000));
    let unreachable = Reach::Unreachable {
        as_of: Some(Steady(1_000)),
    };
    assert_eq!(reach(5, home(Some(&row), false), now), Reach::Known);
    assert_eq!(reach(5, home(Some(&row), true), now), unreachable);
    assert_eq!(
        reach(4, home(Some(&row), false), now),
        Reach::Lost(Loss::Rebooted)
    );
    assert_eq!(
        reach(5, home(None, true), now),
        Reach::Unreachable { as_of: None }
    );
    let declared = Home {
        declared_lost: true,
        ..home(Some(&row), true)
    };
    assert_eq!(reach(5, declared, now), Reach::Lost(Loss::Person));
    row.lost_after = Some(Millis(60_000));
    assert_eq!(
        reach(5, home(Some(&row), true), Some(Steady(60_999))),
        unreachable
    );
    assert_eq!(
        reach(5, home(Some(&row), true), Some(Steady(61_000))),
        Reach::Lost(Loss::Ephemeral)
    );
    // It died before its first heartbeat: only what was seen counts.
    row.fleet_time = None;
    let never_beat = |seen| Home {
        dead_for: Some(Millis(seen)),
        ..home(Some(&row), true)
    };
    let unknown = Reach::Unreachable { as_of: None };
    assert_eq!(reach(5, never_beat(59_999), now), unknown);
    assert_eq!(
        reach(5, never_beat(60_000), now),
        Reach::Lost(Loss::Ephemeral)
    );
    row.fleet_time = Some(Steady(1_000));
    // Old by the clock, but not observed to be dead: the database may have been away.
    assert_eq!(reach(5, home(Some(&row), false), now), Reach::Known);
    row.standing = Standing::Forgotten;
    assert_eq!(
        reach(5, home(Some(&row), true), now),
        Reach::Lost(Loss::Person)
    );
}

#[test]
fn deadline_counts_from_the_later_clock_and_is_refused_where_they_differ() {
    let due = |machine, database| due(Steady(machine), Steady(database), Millis(500));
    assert_eq!(due(10_000, 10_000), Some(Steady(10_500)));
    assert_eq!(due(10_000, 12_000), Some(Steady(12_500)));
    assert_eq!(due(10_900, 10_000), Some(Steady(11_400)));
    assert_eq!(due(11_001, 10_000), None);
    assert_eq!(due(10_000, 16_001), None);
}

/// Member that has sent its first look.
fn joining(random: u64) -> (Member, u64) {
    let mut member = Member::new(Identity {
        machine: MachineId(random),
        boot: 1,
        is_locked: true,
        program: Program {
            version: Version(0, 1, 0),
            schema: 1,
        },
        lost_after: None,
        return_after: RETURN_AFTER_DEFAULT,
        random,
        boot_offset: None,
    });
    let request = step(&mut member, 0, Event::Join);
    (member, request.expect("a look"))
}

/// Number of the statement that a step sends.
fn step(member: &mut Member, boot: u64, event: Event) -> Option<u64> {
    let mut effects = Vec::new();
    member.step(Boot(boot), event, &mut effects);
    effects.into_iter().find_map(|effect| match effect {
        Effect::Send { request, .. } => Some(request),
        _ => None,
    })
}

#[test]
fn f66_daemons_reconnect_at_different_times() {
    let times: BTreeSet<_> = (1..=100)
        .map(|random| {
            let (mut member, mut request) = joining(random);
            let mut now = 0;
            for _ in 0..8 {
                assert_eq!(step(&mut member, now, Event::Failed { request }), None);
                now = member.alarm().expect("an alarm").0;
                request = step(&mut member, now, Event::Tick).expect("another look");
            }
            now
        })
        .collect();
    assert!(times.len() > 90, "{times:?}");
    let spread = times
        .last()
        .zip(times.first())
        .map(|(last, first)| last - first);
    assert!(spread.is_some_and(|spread| spread > 4_000), "{times:?}");
}

#[test]
fn f48_a_statement_without_an_answer_is_given_up_and_its_answer_ignored() {
    let (mut member, request) = joining(1);
    assert_eq!(member.alarm(), Some(Boot(5_000)));
    assert_eq!(step(&mut member, 5_000, Event::Tick), None);
    let again = member.alarm().expect("an alarm").0;
    let second = step(&mut member, again, Event::Tick).expect("another look");
    assert_ne!(second, request);
    let mut database = Database::new(None);
    let answer = database.execute(again, MachineId(1), &Statement::Look);
    let late = Event::Answered { request, answer };
    assert_eq!(step(&mut member, again, late), None);
    let answer = database.execute(again, MachineId(1), &Statement::Look);
    assert!(matches!(answer, Answer::Looked(_)));
    let event = Event::Answered {
        request: second,
        answer,
    };
    assert!(step(&mut member, again, event).is_some(), "it enters");
}

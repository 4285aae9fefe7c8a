//! Few members on a database that answers at once: what they conclude about each other.

use abide_core::fleet::version::{Program, Version};
use abide_core::fleet::{
    Effect, Event, Identity, MachineId, Member, RETURN_AFTER_DEFAULT, Standing, Statement,
};
use abide_core::time::Boot;

use crate::database::Database;

/// Daemon that runs, and what it was told to do.
struct Daemon {
    id: MachineId,
    member: Member,
    effects: Vec<Effect>,
    is_killed: bool,
}

impl Daemon {
    /// Daemon of a machine. All machines of these tests run on one kernel.
    fn new(id: u64, random: u64) -> Self {
        let id = MachineId(id);
        let member = Member::new(Identity {
            machine: id,
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
        Daemon {
            id,
            member,
            effects: Vec::new(),
            is_killed: false,
        }
    }

    /// Takes an event, and has the database answer each statement at once.
    fn step(&mut self, now: u64, event: Event, database: &mut Database) {
        let mut event = Some(event);
        while let Some(next) = event.take() {
            let mut effects = Vec::new();
            self.member.step(Boot(now), next, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Send { request, statement } => {
                        let answer = database.execute(now, self.id, &statement);
                        event = Some(Event::Answered { request, answer });
                    }
                    effect => self.effects.push(effect),
                }
            }
        }
    }

    /// Takes an event. Returns the statement that is sent.
    fn sent(&mut self, now: u64, event: Event) -> Option<(u64, Statement)> {
        let mut effects = Vec::new();
        self.member.step(Boot(now), event, &mut effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Send { request, statement } => Some((request, statement)),
            _ => None,
        })
    }

    fn count(&self, is_it: impl Fn(&Effect) -> bool) -> usize {
        self.effects.iter().filter(|effect| is_it(effect)).count()
    }
}

/// Lets time pass. A daemon that takes a new identity runs no more.
fn pass(daemons: &mut [Daemon], database: &mut Database, until: u64) {
    loop {
        let alive = daemons.iter_mut().filter(|daemon| !daemon.is_killed);
        let next = alive.filter_map(|daemon| Some((daemon.member.alarm()?.0, daemon)));
        let Some((at, daemon)) = next.min_by_key(|(at, _)| *at) else {
            return;
        };
        if at > until {
            return;
        }
        daemon.step(at, Event::Tick, database);
        daemon.is_killed = daemon.count(|effect| *effect == Effect::TakeNewIdentity) > 0;
    }
}

/// Two machines that know each other at the end of the first minute.
fn two_machines() -> (Vec<Daemon>, Database) {
    let mut database = Database::new(None);
    let mut daemons = vec![Daemon::new(1, 10), Daemon::new(2, 20)];
    for daemon in &mut daemons {
        daemon.step(0, Event::Join, &mut database);
    }
    pass(&mut daemons, &mut database, 60_000);
    assert!(daemons.iter().all(|daemon| daemon.member.is_joined()));
    (daemons, database)
}

#[test]
fn machine_that_joins_has_the_others_look_at_once() {
    let (_, mut database) = two_machines();
    let mut third = Daemon::new(3, 30);
    third.step(60_001, Event::Join, &mut database);
    let others = [MachineId(1), MachineId(2)];
    let notified =
        others.map(|machine| third.count(|effect| *effect == Effect::NotifyMachine { machine }));
    assert_eq!(
        (third.count(|effect| *effect == Effect::Joined), notified),
        (1, [1, 1])
    );
}

const UNANSWERED: Event = Event::Unanswered {
    machine: MachineId(2),
};

#[test]
fn machine_that_does_not_answer_a_call_is_reported_at_once_and_adopted_by_its_heartbeat_only() {
    let (mut daemons, mut database) = two_machines();
    daemons[1].is_killed = true;
    daemons[0].effects.clear();
    for now in [60_001, 60_002] {
        daemons[0].step(now, UNANSWERED, &mut database);
    }
    let machine = MachineId(2);
    let reported = |effect: &Effect| *effect == Effect::MachineUnanswered { machine };
    let notified = |effect: &Effect| *effect == Effect::NotifyMachine { machine };
    let adopted =
        |effect: &Effect| matches!(effect, Effect::Load { shard, .. } if shard.0 == machine);
    assert_eq!(daemons[0].count(reported), 1);
    assert_eq!(daemons[0].count(notified), 1);
    pass(&mut daemons, &mut database, 66_000);
    assert_eq!(daemons[0].count(adopted), 0);
    pass(&mut daemons, &mut database, 90_000);
    assert_eq!(daemons[0].count(adopted), 1);
    let back = |effect: &Effect| matches!(effect, Effect::MachineBack { .. });
    assert_eq!(daemons[0].count(back), 0);
}

#[test]
fn machine_that_did_not_answer_a_call_is_back_with_its_next_heartbeat() {
    let (mut daemons, mut database) = two_machines();
    daemons[0].step(60_001, UNANSWERED, &mut database);
    pass(&mut daemons, &mut database, 80_000);
    let machine = MachineId(2);
    let back = |effect: &Effect| *effect == Effect::MachineBack { machine };
    assert_eq!(daemons[0].count(back), 1);
}

#[test]
fn f29_of_two_copies_of_one_folder_on_one_kernel_the_first_keeps_the_id() {
    for (first, second) in [(10, 11), (11, 10), (7, 70)] {
        let mut database = Database::new(None);
        let mut daemons = vec![Daemon::new(1, first)];
        daemons[0].step(0, Event::Join, &mut database);
        pass(&mut daemons, &mut database, 30_000);
        daemons.push(Daemon::new(1, second));
        daemons[1].step(30_000, Event::Join, &mut database);
        pass(&mut daemons, &mut database, 120_000);
        let renewed = |effect: &Effect| *effect == Effect::TakeNewIdentity;
        assert_eq!(daemons[0].count(renewed), 0, "the original");
        assert_eq!(daemons[1].count(renewed), 1, "the copy");
        assert!(daemons[0].member.is_joined());
    }
}

#[test]
fn f29_two_copies_that_start_together_end_with_one_of_them() {
    for random in 1..40 {
        let mut database = Database::new(None);
        let mut daemons = vec![Daemon::new(1, random), Daemon::new(1, 100 + random)];
        for daemon in &mut daemons {
            daemon.step(0, Event::Join, &mut database);
        }
        pass(&mut daemons, &mut database, 120_000);
        let joined = daemons.iter().filter(|daemon| !daemon.is_killed).count();
        assert_eq!(joined, 1, "{random}");
    }
}

#[test]
fn daemon_that_is_started_again_keeps_its_id_though_the_database_loses_its_entry() {
    let (mut daemons, mut database) = two_machines();
    let machine = MachineId(2);
    daemons[1].is_killed = true;
    let before = database.rows.machines[&machine].clone();
    daemons.push(Daemon::new(2, 21));
    daemons[2].step(61_000, Event::Join, &mut database);
    pass(&mut daemons, &mut database, 62_000);
    assert!(daemons[2].member.is_joined());
    assert_ne!(database.rows.machines[&machine].claim, before.claim);
    database.rows.machines.insert(machine, before);
    pass(&mut daemons, &mut database, 120_000);
    assert!(daemons[2].member.is_joined() && !daemons[2].is_killed);
}

#[test]
fn f62_machine_that_is_revoked_while_it_joins_does_not_become_a_member_again() {
    let mut database = Database::new(None);
    let mut before = Daemon::new(1, 1);
    before.step(1_000, Event::Join, &mut database);
    // The next daemon of the same machine reads its row, and its attempt to enter fails.
    let mut daemon = Daemon::new(1, 2);
    let (request, look) = daemon.sent(2_000, Event::Join).expect("a look");
    let answer = database.execute(2_000, daemon.id, &look);
    let answered = Event::Answered { request, answer };
    let (request, enter) = daemon.sent(2_000, answered).expect("an attempt");
    assert!(matches!(enter, Statement::Enter { .. }));
    let row = database.rows.machines.get_mut(&daemon.id).expect("a row");
    row.standing = Standing::Revoked;
    assert_eq!(daemon.sent(2_100, Event::Failed { request }), None);
    let at = daemon.member.alarm().expect("a next look");
    daemon.step(at.0, Event::Tick, &mut database);
    assert_eq!(daemon.count(|effect| *effect == Effect::Expelled), 1);
    // One that is carried out late changes nothing either.
    database.execute(9_000, daemon.id, &enter);
    assert_eq!(
        database.rows.machines[&daemon.id].standing,
        Standing::Revoked
    );
}

//! The true state of one session, independent of the daemon.

use std::collections::VecDeque;

use abide_core::session::Phase;
use abide_core::{End, Ending, Event, Exit, Millis, Mono, Session, SessionId, StartError, Wall};

use super::Tally;
use super::random::Random;

/// Maximum delay of a report of a keeper.
pub const SLACK: Millis = Millis(500);

pub struct Keeper {
    pub id: SessionId,
    /// As given at the start; its phase is not updated.
    pub given: Session,
    pub truth: Truth,
    pub bytes: u64,
    pub quiet_since: Mono,
    /// Times of its output, newest last.
    pub wrote: Vec<Mono>,
    pub deadline: Option<Deadline>,
    /// Its command has stopped it: it does nothing until the daemon has killed the command.
    stopped: bool,
    was_stopped: bool,
    kill: Option<Kill>,
    watch: Option<u64>,
    looks: VecDeque<Mono>,
    /// Reports in flight to the daemon, in order.
    line: VecDeque<(Mono, Event)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Truth {
    Starting {
        ready: Mono,
        fails: bool,
    },
    Failed,
    Running,
    /// The leader has ended.
    Leftover {
        ending: Ending,
    },
    Gone {
        ending: Ending,
    },
}

#[derive(Clone, Copy)]
pub enum Deadline {
    AfterStart(Millis),
    At(Mono),
}

#[derive(Clone, Copy)]
struct Kill {
    end: End,
    leader: Mono,
    tree: Mono,
}

impl Keeper {
    pub fn new(
        id: SessionId,
        given: Session,
        deadline: Option<Millis>,
        now: Mono,
        random: &mut Random,
    ) -> Self {
        let ready = now + Millis(random.below(300));
        let fails = random.chance(6);
        Keeper {
            id,
            given,
            truth: Truth::Starting { ready, fails },
            bytes: 0,
            quiet_since: now,
            wrote: Vec::new(),
            deadline: deadline.map(Deadline::AfterStart),
            stopped: false,
            was_stopped: false,
            kill: None,
            watch: None,
            looks: VecDeque::new(),
            line: VecDeque::new(),
        }
    }

    pub fn ending(&self) -> Option<&Ending> {
        match &self.truth {
            Truth::Leftover { ending } | Truth::Gone { ending } => Some(ending),
            Truth::Starting { .. } | Truth::Failed | Truth::Running => None,
        }
    }

    /// Set if it ever left a request unanswered.
    pub fn was_stopped(&self) -> bool {
        self.was_stopped
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.truth, Truth::Gone { .. } | Truth::Failed)
    }

    /// Time of its hard limit, according to its directory.
    pub fn deadline_at(&self) -> Option<Mono> {
        match self.deadline {
            Some(Deadline::At(at)) => Some(at),
            Some(Deadline::AfterStart(_)) | None => None,
        }
    }

    /// The daemon reports that it should have ended.
    pub fn force(&mut self, end: End, now: Mono, random: &mut Random, tally: &mut Tally) {
        match end {
            End::Deadline => {
                let early = self.deadline_at().is_some_and(|at| at >= now + SLACK);
                assert!(!early, "{}: its limit is not reached", self.id);
            }
            _ if matches!(self.truth, Truth::Starting { .. }) => {}
            // The kill that follows from an answer waits for the disk.
            End::IdleDeclined => {}
            _ => assert!(self.kill.is_some(), "{} was not to be killed", self.id),
        }
        if std::mem::take(&mut self.stopped) {
            tally.count("forced");
            self.exit(now, Some(Exit::Signal(9)), end, false, random);
            self.empty(now, random);
        }
    }

    /// State that a new daemon finds.
    pub fn found(&self) -> Session {
        let phase = match self.truth.clone() {
            Truth::Starting { .. } => Phase::Starting,
            Truth::Failed => Phase::Failed {
                fault: "it failed".into(),
                error: StartError::Other,
                at: Wall(0),
            },
            Truth::Running => Phase::Running {
                quiet_since: self.quiet_since,
                ending: self.kill.map(|kill| kill.end),
            },
            Truth::Leftover { ending } => Phase::Leftover { ending },
            Truth::Gone { ending } => Phase::Ended { ending },
        };
        let bytes = self.bytes;
        Session {
            phase,
            bytes,
            ..self.given.clone()
        }
    }

    /// Time of the next action or arrival.
    pub fn next(&self) -> Option<Mono> {
        let own = match self.truth {
            _ if self.stopped => None,
            Truth::Starting { ready, .. } => Some(ready),
            Truth::Running => match (self.kill, self.deadline) {
                (Some(kill), _) => Some(kill.leader),
                (None, Some(Deadline::At(at))) => Some(at),
                (None, _) => None,
            },
            Truth::Leftover { .. } => self.kill.map(|kill| kill.tree),
            Truth::Failed | Truth::Gone { .. } => None,
        };
        let heard = self.line.front().map(|(at, _)| *at);
        own.into_iter()
            .chain(heard)
            .chain(self.looks.front().copied().filter(|_| !self.stopped))
            .min()
    }

    /// Performs the actions that are due, without deliveries.
    pub fn go_on(&mut self, now: Mono, random: &mut Random, tally: &mut Tally) {
        if self.stopped {
            return;
        }
        while self.looks.front().is_some_and(|at| *at <= now) {
            self.looks.pop_front();
            self.say_growth(now, random);
        }
        match (self.truth.clone(), self.kill, self.deadline) {
            (Truth::Starting { ready, fails }, _, _) if ready <= now => {
                self.start(now, fails, random)
            }
            (Truth::Running, Some(kill), _) if kill.leader <= now => {
                self.exit(
                    now,
                    Some(Exit::Signal(9)),
                    kill.end,
                    kill.tree > now,
                    random,
                );
            }
            (Truth::Running, None, Some(Deadline::At(at))) if at <= now => {
                tally.count("deadline");
                self.kill(End::Deadline, now, random);
            }
            (Truth::Leftover { .. }, Some(kill), _) if kill.tree <= now => self.empty(now, random),
            _ => {}
        }
    }

    /// The next report that arrives at the daemon.
    pub fn heard(&mut self, now: Mono) -> Option<Event> {
        let arrived = self.line.front().is_some_and(|(at, _)| *at <= now);
        arrived
            .then(|| self.line.pop_front())?
            .map(|(_, event)| event)
    }

    fn start(&mut self, now: Mono, fails: bool, random: &mut Random) {
        let session = self.id;
        if fails {
            self.truth = Truth::Failed;
            let failed = Event::StartFailed {
                session,
                fault: "it failed".into(),
                error: StartError::Other,
                at: Wall(0),
            };
            return self.say(failed, now, random);
        }
        self.truth = Truth::Running;
        self.quiet_since = now;
        if let Some(Deadline::AfterStart(time)) = self.deadline {
            self.deadline = Some(Deadline::At(now + time));
        }
        self.say(Event::Started { session }, now, random);
        if random.chance(5) {
            (self.stopped, self.was_stopped) = (true, true);
        } else if random.chance(12) {
            let leftover = random.chance(50);
            self.exit(now, Some(Exit::Code(0)), End::Exited, leftover, random);
        }
    }

    pub fn write(&mut self, now: Mono, bytes: u64, random: &mut Random) {
        if self.truth != Truth::Running || self.stopped {
            return;
        }
        self.bytes += bytes;
        self.quiet_since = now;
        self.wrote.push(now);
        self.growth_is_seen(now, random);
    }

    fn growth_is_seen(&mut self, now: Mono, random: &mut Random) {
        if self.watch.is_some_and(|beyond| self.bytes > beyond) {
            self.watch = None;
            self.say_growth(now, random);
        }
    }

    pub fn exit(
        &mut self,
        now: Mono,
        exit: Option<Exit>,
        end: End,
        leftover: bool,
        random: &mut Random,
    ) {
        if self.truth != Truth::Running || self.stopped {
            return;
        }
        let ending = Ending {
            exit,
            end,
            duration: Millis(1),
            bytes: self.bytes,
            dropped: 0,
        };
        let (session, empty) = (self.id, !leftover);
        self.truth = if empty {
            Truth::Gone {
                ending: ending.clone(),
            }
        } else {
            Truth::Leftover {
                ending: ending.clone(),
            }
        };
        if random.chance(20) {
            // The keeper has reconnected meanwhile, and reports only its current state.
            self.line.clear();
        }
        let exited = Event::Exited {
            session,
            ending,
            empty,
        };
        self.say(exited, now, random);
        self.vanish(now, random);
    }

    /// After the end a keeper exits, and a fast daemon takes it for lost.
    fn vanish(&mut self, now: Mono, random: &mut Random) {
        if let Truth::Gone { ending } = &self.truth
            && random.chance(10)
        {
            let lost = Ending {
                exit: None,
                end: End::Lost,
                ..ending.clone()
            };
            let exited = Event::Exited {
                session: self.id,
                ending: lost,
                empty: true,
            };
            self.say(exited, now, random);
        }
    }

    pub fn empty(&mut self, now: Mono, random: &mut Random) {
        if let Truth::Leftover { ending } = self.truth.clone() {
            self.truth = Truth::Gone { ending };
            self.say(Event::Emptied { session: self.id }, now, random);
            self.vanish(now, random);
        }
    }

    pub fn kill(&mut self, end: End, now: Mono, random: &mut Random) {
        if self.kill.is_none() {
            let leader = now + Millis(random.below(2_000));
            let tree = leader + Millis(random.below(2) * random.below(1_000));
            self.kill = Some(Kill { end, leader, tree });
        }
    }

    pub fn look(&mut self, now: Mono, random: &mut Random) {
        self.looks.push_back(now + Millis(random.below(100)));
    }

    pub fn watch(&mut self, beyond: u64, now: Mono, random: &mut Random) {
        self.watch = Some(beyond);
        self.growth_is_seen(now, random);
    }

    fn say_growth(&mut self, now: Mono, random: &mut Random) {
        let grew = Event::OutputGrew {
            session: self.id,
            bytes: self.bytes,
            quiet_since: self.quiet_since,
        };
        self.say(grew, now, random);
    }

    /// Sends a report; sometimes twice, like a keeper that reconnects.
    fn say(&mut self, event: Event, now: Mono, random: &mut Random) {
        let times = if random.chance(8) { 2 } else { 1 };
        for _ in 0..times {
            let last = self.line.back().map_or(now, |(at, _)| *at);
            let at = last.max(now + Millis(random.below(2) * random.below(200)));
            self.line.push_back((at, event.clone()));
        }
    }

    /// The daemon is gone, with all reports in flight and all its requests.
    pub fn cut_off(&mut self) {
        self.line.clear();
        self.looks.clear();
        self.watch = None;
    }

    /// A new daemon has started. It knows the state that it found; sometimes it is reported again.
    pub fn connect(&mut self, now: Mono, random: &mut Random) {
        let session = self.id;
        if self.stopped || random.chance(70) {
            return;
        }
        match self.truth.clone() {
            Truth::Starting { .. } | Truth::Failed => {}
            Truth::Running => self.say(Event::Started { session }, now, random),
            Truth::Leftover { ending } => {
                let empty = false;
                self.say(
                    Event::Exited {
                        session,
                        ending,
                        empty,
                    },
                    now,
                    random,
                );
            }
            Truth::Gone { ending } => {
                let empty = true;
                self.say(
                    Event::Exited {
                        session,
                        ending,
                        empty,
                    },
                    now,
                    random,
                );
            }
        }
    }

    pub fn end_for_good(&mut self, now: Mono, random: &mut Random) {
        self.stopped = false;
        self.exit(now, Some(Exit::Code(0)), End::Exited, false, random);
        self.empty(now, random);
        if let Truth::Starting { .. } = self.truth {
            self.kill(End::User, now, random);
        }
    }
}

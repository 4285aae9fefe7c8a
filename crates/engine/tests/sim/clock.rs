//! Simulated clocks. Monotonic time is the paused time of the runtime; the machine sleeps and the wall clock jumps on
//! demand.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::time::{Boot, Mono, Now, Wall};
use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Dice;
use crate::clock::{Alarm, AlarmCause, Clock, pause};

pub struct SimClock {
    began: Instant,
    offsets: Mutex<Offsets>,
    dice: Dice,
    set: Notify,
}

#[derive(Default)]
struct Offsets {
    asleep: u64,
    wall: i64,
}

impl SimClock {
    pub fn new(dice: Dice) -> Arc<Self> {
        Arc::new(SimClock {
            began: Instant::now(),
            offsets: Mutex::default(),
            dice,
            set: Notify::new(),
        })
    }

    pub fn now(&self) -> Now {
        let ran = u64::try_from(self.began.elapsed().as_millis()).expect("a short run");
        let offsets = self.offsets.lock().unwrap();
        let boot = 5_000_000 + ran + offsets.asleep;
        Now {
            wall: Wall((1_700_000_000_000 + boot).saturating_add_signed(offsets.wall)),
            boot: Boot(boot),
            mono: Mono(1_000_000 + ran),
        }
    }

    /// Time that cannot be set, including the sleep of the machine.
    pub fn truth(&self) -> u64 {
        self.now().boot.0
    }

    pub fn sleep_of_the_machine(&self, millis: u64) {
        self.offsets.lock().unwrap().asleep += millis;
        self.set.notify_one();
    }

    pub fn set_wall(&self, by: i64) {
        self.offsets.lock().unwrap().wall += by;
        self.set.notify_one();
    }
}

impl Clock for Arc<SimClock> {
    fn now(&self) -> Now {
        SimClock::now(self)
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(SimAlarm(self.clone())))
    }
}

struct SimAlarm(Arc<SimClock>);

/// Maximum delay of an alarm.
pub const LATE: u64 = 80;

impl Alarm for SimAlarm {
    fn wait(&mut self, mono: Option<Mono>, boot: Option<Boot>) -> BoxFuture<'_, AlarmCause> {
        Box::pin(async move {
            let now = self.0.now();
            let mono = mono.map(|at| at.since(now.mono).0);
            let boot = boot.map(|at| at.0.saturating_sub(now.boot.0));
            let left = mono.into_iter().chain(boot).min();
            let late = if self.0.dice.chance(10) {
                self.0.dice.below(LATE)
            } else {
                0
            };
            let time = async {
                match left {
                    Some(left) => pause(Duration::from_millis(left + late)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.0.set.notified() => AlarmCause::ClockSet,
                () = time => AlarmCause::Time,
            }
        })
    }
}

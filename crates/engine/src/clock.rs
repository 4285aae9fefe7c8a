//! Clocks and timers. No other module asks the system for the time.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use abide_core::time::{Boot, Mono, Now, Wall};
use futures_util::future::{BoxFuture, OptionFuture};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_fd;

/// Source of time. A simulation has one of its own.
pub trait Clock: Send + Sync {
    /// One reading of all clocks.
    fn now(&self) -> Now;

    /// Alarm of the event loop.
    fn alarm(&self) -> io::Result<Box<dyn Alarm>>;
}

pub trait Alarm: Send {
    /// Waits until monotonic time shows `mono`, boot time shows `boot`, or the wall clock is set. May return earlier.
    /// Can be cancelled and called again.
    fn wait(&mut self, mono: Option<Mono>, boot: Option<Boot>) -> BoxFuture<'_, AlarmCause>;
}

/// Reason why an alarm rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmCause {
    /// A time may be reached.
    Time,
    /// The wall clock was set.
    ClockSet,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// Monotonic time alone.
    pub fn mono(self) -> Mono {
        Mono(millis(ClockId::Monotonic))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now {
            wall: Wall(millis(ClockId::Realtime)),
            boot: Boot(millis(ClockId::Boottime)),
            mono: self.mono(),
        }
    }

    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(SystemAlarm {
            boot: TimerFd::at_boot_time()?,
            clock_set: TimerFd::on_clock_set().ok(),
        }))
    }
}

struct SystemAlarm {
    boot: TimerFd,
    clock_set: Option<TimerFd>,
}

impl Alarm for SystemAlarm {
    fn wait(&mut self, mono: Option<Mono>, boot: Option<Boot>) -> BoxFuture<'_, AlarmCause> {
        Box::pin(async move {
            let clock_set = self.clock_set.as_ref().map(TimerFd::clock_set);
            tokio::select! {
                biased;
                () = sleep_until(&SystemClock, mono) => AlarmCause::Time,
                () = self.boot.until(boot) => AlarmCause::Time,
                Some(()) = OptionFuture::from(clock_set) => AlarmCause::ClockSet,
            }
        })
    }
}

/// Monotonic time in microseconds, to measure short spans.
pub fn micros() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000
}

fn millis(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Waits until the monotonic clock shows `until`; for ever without one. The timers of the runtime use the same clock.
pub async fn sleep_until(clock: &dyn Clock, until: Option<Mono>) {
    let Some(until) = until else {
        return std::future::pending().await;
    };
    let left = until.since(clock.now().mono);
    // One millisecond more, because readings are rounded down and a timer must never fire early.
    pause(Duration::from_millis(left.0 + 1)).await;
}

/// Waits for a span of time; for back-off and for settling, never to let something happen.
pub async fn pause(span: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that waits for time"
    )]
    tokio::time::sleep(span).await;
}

/// Id of the current boot of the machine.
pub fn boot_id() -> u128 {
    u128::from_str_radix(&abide_session::boot_id().replace('-', ""), 16).unwrap_or(0)
}

/// Timer of the kernel (timerfd). The timers of the runtime stand still while the machine sleeps, and do not notice
/// when the wall clock is set.
pub struct TimerFd {
    fd: AsyncFd<OwnedFd>,
}

impl TimerFd {
    /// Timer that fires at a boot time.
    pub fn at_boot_time() -> io::Result<Self> {
        Self::new(TimerfdClockId::Boottime)
    }

    /// Timer that fires when the wall clock is set.
    pub fn on_clock_set() -> io::Result<Self> {
        let timer = Self::new(TimerfdClockId::Realtime)?;
        timer.arm_for_clock_set()?;
        Ok(timer)
    }

    fn new(clock: TimerfdClockId) -> io::Result<Self> {
        let fd = timerfd_create(clock, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let fd = async_fd::register(fd, Interest::READABLE)?;
        Ok(TimerFd { fd })
    }

    /// Waits until boot time shows `at`. Can be cancelled and called again.
    pub async fn until(&self, at: Option<Boot>) {
        let Some(at) = at else {
            return std::future::pending().await;
        };
        if let Err(fault) = self.set(at.0, TimerfdTimerFlags::ABSTIME) {
            tracing::error!("cannot set a timer: {fault}");
        }
        self.fired().await;
    }

    /// Waits until the wall clock is set.
    pub async fn clock_set(&self) {
        self.fired().await;
        let _ = self.arm_for_clock_set();
    }

    async fn fired(&self) {
        loop {
            let Ok(mut ready) = self.fd.readable().await else {
                return std::future::pending().await;
            };
            let mut count = [0; 8];
            match rustix::io::read(self.fd.get_ref(), &mut count) {
                Err(e) if e == rustix::io::Errno::AGAIN => ready.clear_ready(),
                // Either the timer has expired, or it was cancelled because the wall clock was set.
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn arm_for_clock_set(&self) -> io::Result<()> {
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        self.set(i64::MAX.cast_unsigned() / 1_000_000, flags)
    }

    fn set(&self, at_ms: u64, flags: TimerfdTimerFlags) -> io::Result<()> {
        // Zero would disarm the timer instead of firing it at once.
        let at_ms = at_ms.max(1);
        let time = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(at_ms / 1_000).unwrap_or(i64::MAX),
                tv_nsec: (at_ms % 1_000 * 1_000_000).cast_signed(),
            },
        };
        timerfd_settime(self.fd.get_ref(), flags, &time)?;
        Ok(())
    }
}

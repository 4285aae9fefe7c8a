//! Instants and durations as plain numbers. Nothing here reads a clock.

use core::fmt;
use core::ops::Add;

/// Duration in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Maximum duration in a request: a hundred years.
    pub const MAX: Millis = Millis(100 * 365 * 86_400 * 1_000);

    /// Duration in whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000
    }

    /// Duration of a whole number of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Millis(secs.saturating_mul(1_000))
    }

    /// Duration in seconds, as requests and results have it.
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000.0
    }

    /// Duration of this many seconds, without fractions of a millisecond.
    pub const fn from_secs_f64(secs: f64) -> Self {
        Millis((secs * 1_000.0) as u64)
    }
}

/// Prints as people write durations.
///
/// ```
/// use abide_core::Millis;
/// let shown = |millis| Millis(millis).to_string();
/// assert_eq!([shown(0), shown(450), shown(60_000)], ["0s", "450ms", "60s"]);
/// assert_eq!([shown(90_000), shown(7_200_000), shown(273_600_000)], ["1m30s", "2h", "3d4h"]);
/// assert_eq!([shown(1_500), shown(60_250), shown(90_001)], ["1.5s", "60.25s", "1m30.001s"]);
/// ```
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 && self.0 > 0 {
            return write!(f, "{}ms", self.0);
        }
        let (secs, rest) = (self.0 / 1_000, self.0 % 1_000);
        if secs <= 60 {
            return seconds(f, secs, rest);
        }
        let parts = [
            (secs / 86_400, 'd'),
            (secs / 3_600 % 24, 'h'),
            (secs / 60 % 60, 'm'),
        ];
        for (count, unit) in parts {
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        match (secs % 60, rest) {
            (0, 0) => Ok(()),
            (secs, rest) => seconds(f, secs, rest),
        }
    }
}

/// Writes seconds with no more decimals than needed.
fn seconds(f: &mut fmt::Formatter<'_>, secs: u64, millis: u64) -> fmt::Result {
    match millis {
        0 => write!(f, "{secs}s"),
        tenths if tenths % 100 == 0 => write!(f, "{secs}.{}s", tenths / 100),
        hundredths if hundredths % 10 == 0 => write!(f, "{secs}.{:02}s", hundredths / 10),
        millis => write!(f, "{secs}.{millis:03}s"),
    }
}

/// Time of the monotonic clock (`CLOCK_MONOTONIC`), which stops while the machine is suspended. Idle limits and
/// deadlines are measured on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

/// Wall-clock time in milliseconds since the Unix epoch, for records and for display.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub u64);

/// Time of the boot clock (`CLOCK_BOOTTIME`), which includes suspend. Timers are measured on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boot(pub u64);

/// Reading of all three clocks. Every decision in one step uses the same reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time.
    pub wall: Wall,
    /// Time since boot, including suspend.
    pub boot: Boot,
    /// Time since boot, excluding suspend.
    pub mono: Mono,
}

impl Add<Millis> for Mono {
    type Output = Mono;
    fn add(self, rhs: Millis) -> Mono {
        Mono(self.0.saturating_add(rhs.0))
    }
}

impl Add<Millis> for Boot {
    type Output = Boot;
    fn add(self, rhs: Millis) -> Boot {
        Boot(self.0.saturating_add(rhs.0))
    }
}

impl Boot {
    /// Time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Boot) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Mono {
    /// Time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Mono) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// Clock of the timers: it continues through suspend, restart and reboot, and setting the system clock does not move
/// it. See [`Anchor`](crate::timer::Anchor).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Steady(pub u64);

impl Add<Millis> for Steady {
    type Output = Steady;
    fn add(self, rhs: Millis) -> Steady {
        Steady(self.0.saturating_add(rhs.0))
    }
}

impl Steady {
    /// Time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Steady) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl Millis {
    /// Duration minus `other`; zero if `other` is longer.
    pub const fn saturating_sub(self, other: Millis) -> Millis {
        Millis(self.0.saturating_sub(other.0))
    }
}

impl Add for Millis {
    type Output = Millis;
    fn add(self, rhs: Millis) -> Millis {
        Millis(self.0.saturating_add(rhs.0))
    }
}

/// `left - right` of two clock readings, limited to the range of the result.
pub(crate) fn signed_difference(left: u64, right: u64) -> i64 {
    let difference = i128::from(left) - i128::from(right);
    i64::try_from(difference).unwrap_or(if difference > 0 { i64::MAX } else { i64::MIN })
}

//! What this process hands down to those it starts, besides its environment.

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, umask};

/// What may be limited, with the kernel's number for it.
const RESOURCES: [(Resource, u32); 16] = [
    (Resource::Cpu, 0),
    (Resource::Fsize, 1),
    (Resource::Data, 2),
    (Resource::Stack, 3),
    (Resource::Core, 4),
    (Resource::Rss, 5),
    (Resource::Nproc, 6),
    (Resource::Nofile, 7),
    (Resource::Memlock, 8),
    (Resource::As, 9),
    (Resource::Locks, 10),
    (Resource::Sigpending, 11),
    (Resource::Msgqueue, 12),
    (Resource::Nice, 13),
    (Resource::Rtprio, 14),
    (Resource::Rttime, 15),
];

/// One limit: of what, how much, and how far it may be raised. `None`: there is none.
pub type Limit = (u32, Option<u64>, Option<u64>);

/// The mask for new files. It cannot be looked at without being changed, so this is for a program that
/// makes none meanwhile.
pub fn mask() -> u32 {
    let mask = umask(Mode::RWXG | Mode::RWXO);
    umask(mask);
    mask.bits()
}

/// All limits.
pub fn limits() -> Vec<Limit> {
    let limit = |(of, number): &(Resource, u32)| {
        let limit = getrlimit(*of);
        (*number, limit.current, limit.maximum)
    };
    RESOURCES.iter().map(limit).collect()
}

//! umask and resource limits of this process, which commands that it asks for inherit.

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, umask};

/// Number of `RLIMIT_CORE`.
pub const CORE: u32 = 4;

/// Resources with the kernel's numbers.
const RESOURCES: [(Resource, u32); 16] = [
    (Resource::Cpu, 0),
    (Resource::Fsize, 1),
    (Resource::Data, 2),
    (Resource::Stack, 3),
    (Resource::Core, CORE),
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

/// Resource with this number; `None`: the kernel has none.
pub fn resource(number: u32) -> Option<Resource> {
    let found = RESOURCES.iter().find(|(_, known)| *known == number);
    found.map(|(resource, _)| *resource)
}

/// A limit: resource, soft limit, hard limit. `None`: unlimited.
pub type Limit = (u32, Option<u64>, Option<u64>);

/// umask. It can only be read by setting it, so this is for a process that creates no file meanwhile.
pub fn mask() -> u32 {
    let mask = umask(Mode::RWXG | Mode::RWXO);
    umask(mask);
    mask.bits()
}

/// All resource limits.
pub fn limits() -> Vec<Limit> {
    let limit = |(of, number): &(Resource, u32)| {
        let limit = getrlimit(*of);
        (*number, limit.current, limit.maximum)
    };
    RESOURCES.iter().map(limit).collect()
}

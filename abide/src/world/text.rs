//! Where this program's own text lies in memory.

/// Has it lie in large pages, where that can be. A daemon sleeps most of the time, and finds the processor's
/// tables full of others' pages whenever it wakes: with eight pages instead of four thousand, it is sooner
/// done. That takes as much memory as the text is long.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub fn in_large_pages() {
    match large::lay_out() {
        Ok(bytes) => tracing::debug!("{bytes} bytes of text lie in large pages"),
        Err(why) => tracing::debug!("the text does not lie in large pages: {why}"),
    }
}

/// Other processors must be told of text that has moved.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn in_large_pages() {}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod large {
    use std::ffi::c_void;
    use std::io;
    use std::ops::Range;
    use std::ptr;

    use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};

    /// The size of a large page, where pages are as large as they are on this processor.
    const LARGE: usize = 2 << 20;
    /// With less memory than this in all, it is worth more than time.
    const MEMORY: u64 = 2 << 30;
    /// A longer text is not that of a program as it is handed out.
    const LONGEST: usize = 32 << 20;

    /// Copies all of the text that fills large pages, and puts the copy in its place. How much that is.
    pub fn lay_out() -> io::Result<usize> {
        let offered = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")?;
        if offered.contains("[never]") {
            return Err(io::Error::other("there are none"));
        }
        let machine = rustix::system::sysinfo();
        if u64::from(machine.mem_unit) * machine.totalram < MEMORY {
            return Err(io::Error::other("there is little memory"));
        }
        let text = text(&std::fs::read_to_string("/proc/self/maps")?)
            .ok_or_else(|| io::Error::other("nobody knows where it is"))?;
        let whole = whole_pages(text);
        if whole.is_empty() || whole.len() > LONGEST {
            return Err(io::Error::other("it has not the length for that"));
        }
        move_to(&whole)?;
        Ok(whole.len())
    }

    /// Where this very code is.
    fn text(maps: &str) -> Option<Range<usize>> {
        let here = lay_out as *const () as usize;
        maps.lines()
            .filter_map(executable)
            .find(|text| text.contains(&here))
    }

    /// The part of memory that a line tells of, where it is executed and backed by a file.
    pub fn executable(line: &str) -> Option<Range<usize>> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let executed = words.next()? == "r-xp";
        let from_file = words.nth(3).is_some();
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        (executed && from_file).then_some(number(start)?..number(end)?)
    }

    pub fn whole_pages(part: Range<usize>) -> Range<usize> {
        part.start.next_multiple_of(LARGE)..part.end / LARGE * LARGE
    }

    /// Puts a copy of the text in large pages in its place.
    fn move_to(text: &Range<usize>) -> io::Result<()> {
        let room = Room::new(text.len() + LARGE)?;
        let copy = room.at.map_addr(|at| at.next_multiple_of(LARGE));
        // SAFETY: the copy lies within the room, which nobody else knows of. It takes the place of the text
        // in one step, with the same bytes in it: whoever executes them meanwhile sees no difference. What
        // is left of the room goes with it.
        unsafe {
            rustix::mm::madvise(copy, text.len(), Advice::LinuxHugepage)?;
            ptr::copy_nonoverlapping(
                ptr::with_exposed_provenance::<u8>(text.start),
                copy.cast(),
                text.len(),
            );
            let executed = MprotectFlags::READ | MprotectFlags::EXEC;
            rustix::mm::mprotect(copy, text.len(), executed)?;
            let place = ptr::with_exposed_provenance_mut(text.start);
            let length = text.len();
            rustix::mm::mremap_fixed(copy, length, length, MremapFlags::MAYMOVE, place)?;
        }
        Ok(())
    }

    /// Memory of its own, which is given back.
    struct Room {
        at: *mut c_void,
        length: usize,
    }

    impl Room {
        fn new(length: usize) -> io::Result<Self> {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the system chooses where.
            let at = unsafe {
                rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE)?
            };
            Ok(Room { at, length })
        }
    }

    impl Drop for Room {
        fn drop(&mut self) {
            // SAFETY: nobody refers to it any more. Where a part of it has moved away, nothing is there:
            // there is no second thread yet that could have taken its place.
            let _ = unsafe { rustix::mm::munmap(self.at, self.length) };
        }
    }
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use super::large::{executable, whole_pages};

    #[test]
    fn only_what_is_executed_from_a_file_is_moved() {
        let line = "55d0c0a7a000-55d0c19eb000 r-xp 00479000 fe:00 1234  /usr/bin/abide";
        assert_eq!(executable(line), Some(0x55d0_c0a7_a000..0x55d0_c19e_b000));
        for other in [
            "55d0c0a7a000-55d0c19eb000 r--p 00479000 fe:00 1234  /usr/bin/abide",
            "55d0c0a7a000-55d0c19eb000 r-xp 00000000 00:00 0",
            "",
            "x-y r-xp 0 0 0 f",
        ] {
            assert_eq!(executable(other), None, "{other}");
        }
    }

    #[test]
    fn large_pages_are_filled_whole_or_not_at_all() {
        let mega = 1 << 20;
        assert_eq!(whole_pages(mega..9 * mega), 2 * mega..8 * mega);
        assert_eq!(whole_pages(2 * mega..4 * mega), 2 * mega..4 * mega);
        assert!(whole_pages(3 * mega..5 * mega).is_empty());
        assert!(whole_pages(mega..mega + 1).is_empty());
    }
}

//! The page that a front and the daemon share while the daemon reads a client's input itself.
//!
//! Whoever is killed in the midst of it must not take a request with him: the daemon reads straight into
//! this memory, so that what it took from the client is there for the front whatever becomes of the
//! daemon. Beside it stand marks: which requests the daemon has answered, and what it has asked.
//!
//! There are two halves. When one is full, and the front has seen what is in it, what is still needed goes
//! over into the other. Behind the last byte that was read a half holds nothing but zeros, and no message
//! ends with one: so even bytes are found that the daemon had no time to count.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::keeper::crash_point;

/// Bytes of input that a half holds.
const INPUT: usize = 32 << 10;
/// Marks that a half holds.
const MARKS: usize = 512;
/// How large the memory is.
const SIZE: usize = size_of::<Shared>();
/// It can neither shrink under its readers nor be made to.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

#[repr(C)]
struct Shared {
    /// Counts the changes from one half to the other.
    generation: AtomicU32,
    halves: [Half; 2],
}

#[repr(C)]
struct Half {
    /// Bytes that were read.
    read: AtomicU32,
    /// Those of them that the daemon has taken up.
    taken: AtomicU32,
    /// How many marks there are.
    marked: AtomicU32,
    marks: [AtomicU64; MARKS],
    input: [AtomicU8; INPUT],
}

/// What the daemon has done with the client's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It has answered the request with this number.
    Answered(u64),
    /// It has asked the client something, under this id.
    Asked(u64),
}

impl Mark {
    fn packed(self) -> u64 {
        match self {
            Mark::Answered(number) => number << 1,
            Mark::Asked(id) => id << 1 | 1,
        }
    }

    fn unpacked(mark: u64) -> Self {
        match mark & 1 {
            0 => Mark::Answered(mark >> 1),
            _ => Mark::Asked(mark >> 1),
        }
    }
}

/// How far the front has seen the half that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of input.
    pub bytes: usize,
    /// Marks.
    pub marks: usize,
}

/// The memory itself.
struct Ledger(NonNull<Shared>);

// SAFETY: everything in it is atomic, whichever thread or process looks at it.
unsafe impl Send for Ledger {}
// SAFETY: as above.
unsafe impl Sync for Ledger {}

impl Ledger {
    fn map(memory: &OwnedFd) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                SIZE,
                access,
                MapFlags::SHARED,
                memory,
                0,
            )?
        };
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ledger(at))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped until the drop, large enough, and of types that any bytes are values of.
        unsafe { self.0.as_ref() }
    }

    fn half(&self, generation: u32) -> &Half {
        &self.shared().halves[(generation % 2) as usize]
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: nobody else has it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

impl Half {
    fn bytes(&self, range: Range<usize>) -> impl Iterator<Item = u8> + '_ {
        let byte = |byte: &AtomicU8| byte.load(Ordering::Relaxed);
        self.input[range].iter().map(byte)
    }

    fn clear(&self) {
        self.read.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.marked.store(0, Ordering::Relaxed);
        for byte in &self.input {
            byte.store(0, Ordering::Relaxed);
        }
    }
}

/// The daemon's side.
pub struct Writer {
    ledger: Arc<Ledger>,
    /// What stands in the memory as well, where the other side could change it.
    generation: u32,
    read: usize,
    taken: usize,
    marked: usize,
}

impl Writer {
    /// Takes over the memory that a front has made. It must be what it should be.
    pub fn open(memory: &OwnedFd) -> io::Result<Self> {
        let refuse = || io::Error::from(io::ErrorKind::InvalidInput);
        let seals = rustix::fs::fcntl_get_seals(memory)?;
        let size = rustix::fs::fstat(memory)?.st_size;
        if !seals.contains(SEALS) || usize::try_from(size) != Ok(SIZE) {
            return Err(refuse());
        }
        let ledger = Arc::new(Ledger::map(memory)?);
        ledger.shared().halves.iter().for_each(Half::clear);
        ledger.shared().generation.store(0, Ordering::Release);
        Ok(Writer {
            ledger,
            generation: 0,
            read: 0,
            taken: 0,
            marked: 0,
        })
    }

    fn half(&self) -> &Half {
        self.ledger.half(self.generation)
    }

    /// Bytes that can still be read.
    pub fn room(&self) -> usize {
        INPUT - self.read
    }

    /// Whether there is nothing that a change of halves would make room by.
    pub fn is_all_needed(&self) -> bool {
        self.taken == 0
    }

    /// Reads once, with `read`, and puts the same bytes behind `into`. None: the end.
    pub fn read(
        &mut self,
        read: impl FnOnce(&mut [std::mem::MaybeUninit<u8>]) -> io::Result<usize>,
        into: &mut bytes::BytesMut,
    ) -> io::Result<usize> {
        let from = self.read;
        let free = &self.half().input[from..];
        // SAFETY: bytes of the mapping that nobody needs; the front only looks at them.
        let free =
            unsafe { std::slice::from_raw_parts_mut(free.as_ptr().cast_mut().cast(), free.len()) };
        let count = read(free)?;
        crash_point("loan.read");
        self.read = (from + count).min(INPUT);
        self.half().read.store(self.read as u32, Ordering::Release);
        let half = self.ledger.half(self.generation);
        into.extend(half.bytes(from..self.read));
        Ok(count)
    }

    /// Notes that all but so many bytes at the end have been taken up.
    pub fn took_all_but(&mut self, left: usize) {
        self.taken = self.read.saturating_sub(left);
        self.half()
            .taken
            .store(self.taken as u32, Ordering::Release);
        crash_point("loan.taken");
    }

    /// Whether one more mark can be made.
    pub fn can_mark(&self) -> bool {
        self.marked < MARKS
    }

    /// Makes a mark, where there is room for it.
    pub fn mark(&mut self, mark: Mark) {
        if let Some(free) = self.half().marks.get(self.marked) {
            free.store(mark.packed(), Ordering::Relaxed);
            self.marked += 1;
            let marked = self.marked as u32;
            self.half().marked.store(marked, Ordering::Release);
        }
    }

    /// Takes the last mark back.
    pub fn unmark(&mut self) {
        self.marked = self.marked.saturating_sub(1);
        let marked = self.marked as u32;
        self.half().marked.store(marked, Ordering::Release);
    }

    /// Whether it is time to let the front see what is here, so that there is room again.
    pub fn is_nearly_full(&self) -> bool {
        self.room() < INPUT / 4 || self.marked > MARKS / 4 * 3
    }

    /// Goes over to the other half with all that the front has not seen. It can have seen only what
    /// is there.
    pub fn turn(&mut self, seen: Seen) {
        let (bytes, marks) = (seen.bytes.min(self.taken), seen.marks.min(self.marked));
        let (old, new) = (self.half(), self.ledger.half(self.generation + 1));
        new.clear();
        for (to, byte) in new.input.iter().zip(old.bytes(bytes..self.read)) {
            to.store(byte, Ordering::Relaxed);
        }
        for (to, mark) in new.marks.iter().zip(&old.marks[marks..self.marked]) {
            to.store(mark.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let (read, taken, marked) = (self.read - bytes, self.taken - bytes, self.marked - marks);
        new.read.store(read as u32, Ordering::Relaxed);
        new.taken.store(taken as u32, Ordering::Relaxed);
        new.marked.store(marked as u32, Ordering::Relaxed);
        (self.read, self.taken, self.marked) = (read, taken, marked);
        self.generation += 1;
        let shared = self.ledger.shared();
        shared.generation.store(self.generation, Ordering::Release);
    }
}

/// The front's side.
pub struct Reader {
    ledger: Ledger,
    generation: u32,
    seen: Seen,
}

impl Reader {
    /// Makes the memory; the descriptor is for the daemon.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("abide-front", flags)?;
        rustix::fs::ftruncate(memory.as_fd(), SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&memory, SEALS)?;
        let reader = Reader {
            ledger: Ledger::map(&memory)?,
            generation: 0,
            seen: Seen::default(),
        };
        Ok((reader, memory))
    }

    fn half(&mut self) -> &Half {
        let generation = self.ledger.shared().generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.seen = Seen::default();
        }
        self.ledger.half(generation)
    }

    /// What was marked and taken up since the last look: whole lines.
    pub fn look(&mut self) -> (Vec<Mark>, Vec<u8>) {
        self.half();
        let half = self.ledger.half(self.generation);
        // The marks first: a request is taken up before it is answered, so that whatever is marked as
        // answered is among the lines.
        let marked = (half.marked.load(Ordering::Acquire) as usize).min(MARKS);
        let taken = (half.taken.load(Ordering::Acquire) as usize).min(INPUT);
        let Seen { bytes, marks } = self.seen;
        let mark = |mark: &AtomicU64| Mark::unpacked(mark.load(Ordering::Relaxed));
        let new = half.marks[marks.min(marked)..marked].iter().map(mark);
        let found = (new.collect(), half.bytes(bytes.min(taken)..taken).collect());
        self.seen = Seen {
            bytes: taken,
            marks: marked,
        };
        found
    }

    /// How far that went.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// What was read from the client and not taken up, at the end of the loan.
    pub fn rest(mut self) -> Vec<u8> {
        let from = self.seen.bytes;
        let half = self.half();
        let read = (half.read.load(Ordering::Acquire) as usize).min(INPUT);
        // Not up to the first zero: a client may have sent one.
        let last = half
            .bytes(read..INPUT)
            .enumerate()
            .filter(|(_, byte)| *byte != 0);
        let end = last.last().map_or(read, |(at, _)| read + at + 1);
        half.bytes(from.min(end)..end).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use std::mem::MaybeUninit;

    fn both() -> (Writer, Reader) {
        let (reader, memory) = Reader::create().unwrap();
        (Writer::open(&memory).unwrap(), reader)
    }

    fn put(text: &[u8]) -> impl FnOnce(&mut [MaybeUninit<u8>]) -> io::Result<usize> + '_ {
        |free| {
            let count = text.len().min(free.len());
            free[..count].write_copy_of_slice(&text[..count]);
            Ok(count)
        }
    }

    fn say(writer: &mut Writer, text: &str) -> BytesMut {
        let mut heard = BytesMut::new();
        writer.read(put(text.as_bytes()), &mut heard).unwrap();
        heard
    }

    #[test]
    fn what_was_taken_is_seen_once_and_the_rest_at_the_end() {
        let (mut writer, mut reader) = both();
        assert_eq!(&say(&mut writer, "one\ntwo\nth")[..], b"one\ntwo\nth");
        writer.took_all_but(6);
        writer.mark(Mark::Asked(7));
        assert_eq!(reader.look(), (vec![Mark::Asked(7)], b"one\n".to_vec()));
        assert_eq!(reader.look(), (vec![], vec![]));
        writer.took_all_but(2);
        writer.mark(Mark::Answered(1));
        assert_eq!(reader.look(), (vec![Mark::Answered(1)], b"two\n".to_vec()));
        assert_eq!(reader.rest(), b"th");
    }

    #[test]
    fn bytes_that_were_read_and_not_counted_are_found() {
        let (mut writer, mut reader) = both();
        say(&mut writer, "one\n");
        writer.took_all_but(0);
        let read = |free: &mut [MaybeUninit<u8>]| {
            put(b"two\n")(free)?;
            Err(io::Error::other("killed"))
        };
        assert!(writer.read(read, &mut BytesMut::new()).is_err());
        assert_eq!(reader.look().1, b"one\n");
        assert_eq!(reader.rest(), b"two\n");
    }

    #[test]
    fn bytes_behind_a_zero_byte_that_were_not_counted_are_found() {
        let (mut writer, reader) = both();
        let read = |free: &mut [MaybeUninit<u8>]| {
            put(b"\0one\0\n\0\0two\n")(free)?;
            Err(io::Error::other("killed"))
        };
        assert!(writer.read(read, &mut BytesMut::new()).is_err());
        assert_eq!(reader.rest(), b"\0one\0\n\0\0two\n");
    }

    #[test]
    fn nothing_is_lost_or_doubled_from_one_half_to_the_other() {
        let (mut writer, mut reader) = both();
        let (mut said, mut seen, mut marks) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..10_000_u64 {
            let line = format!("{number}\n");
            said.extend_from_slice(line.as_bytes());
            say(&mut writer, &line);
            writer.took_all_but(0);
            writer.mark(Mark::Answered(number));
            if number % 97 == 0 {
                let (new, lines) = reader.look();
                marks.extend(new);
                seen.extend(lines);
                let so_far = reader.seen();
                // More comes before the daemon hears of it.
                say(&mut writer, "x");
                writer.mark(Mark::Asked(number));
                writer.turn(so_far);
                say(&mut writer, "\n");
                writer.took_all_but(0);
                said.extend_from_slice(b"x\n");
            }
        }
        let (new, lines) = reader.look();
        marks.extend(new);
        seen.extend(lines);
        assert_eq!(seen, said);
        let answered = marks
            .iter()
            .filter(|mark| matches!(mark, Mark::Answered(_)));
        assert!(answered.copied().eq((0..10_000).map(Mark::Answered)));
        assert_eq!(marks.len(), 10_000 + 104);
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn a_full_half_takes_no_more() {
        let (mut writer, mut reader) = both();
        let long = "x".repeat(INPUT + 10);
        assert_eq!(say(&mut writer, &long).len(), INPUT);
        assert_eq!((writer.room(), writer.is_all_needed()), (0, true));
        for number in 0..MARKS as u64 {
            assert!(writer.can_mark());
            writer.mark(Mark::Answered(number));
        }
        assert!(!writer.can_mark());
        assert_eq!(reader.look().0.len(), MARKS);
        assert_eq!(reader.rest().len(), INPUT);
    }

    #[test]
    fn memory_that_could_shrink_is_not_taken() {
        let memory = rustix::fs::memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Writer::open(&memory).is_err());
        rustix::fs::ftruncate(&memory, SIZE as u64).unwrap();
        assert!(Writer::open(&memory).is_err());
        rustix::fs::fcntl_add_seals(&memory, SEALS).unwrap();
        assert!(Writer::open(&memory).is_ok());
        let (file, _other) = rustix::pipe::pipe().unwrap();
        assert!(Writer::open(&file).is_err());
    }
}

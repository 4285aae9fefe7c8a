//! Check of the WAL (`abide.db-wal`) before SQLite opens it: SQLite takes as many valid commits as it finds and
//! reports nothing about the others.

use std::path::Path;

/// Bytes before the first frame, and before the page in each frame.
const HEADER: usize = 32;
const FRAME: usize = 24;
/// Magic number of a WAL; the last bit is the byte order of its checksums.
const MAGIC: u32 = 0x377f_0682;
/// Largest WAL that is checked: the daemon keeps its own far smaller.
const MAX_SIZE: u64 = 256 << 20;

/// True if the WAL contains commits that SQLite will ignore. A commit that was being written when the machine stopped
/// cannot be told from one that was damaged later.
pub(super) fn is_damaged(path: &Path) -> bool {
    let short = std::fs::metadata(path).is_ok_and(|found| found.len() <= MAX_SIZE);
    let bytes = short.then(|| std::fs::read(path).ok()).flatten();
    bytes.is_some_and(|bytes| has_lost_frames(&bytes))
}

/// True if a commit follows a frame with a wrong checksum, or the header is not valid.
fn has_lost_frames(bytes: &[u8]) -> bool {
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER) else {
        return !bytes.is_empty();
    };
    let (magic, page) = (read_u32(header, 0), read_u32(header, 8) as usize);
    let big_endian = magic & 1 == 1;
    let mut sum = checksum((0, 0), &header[..24], big_endian);
    let whole = magic & !1 == MAGIC && sum == (read_u32(header, 24), read_u32(header, 28));
    if !whole || !page.is_power_of_two() || !(512..=65_536).contains(&page) {
        return !rest.is_empty();
    }
    let salts = &header[16..24];
    let mut broken = false;
    while let Some((frame, after)) = rest.split_at_checked(FRAME + page) {
        rest = after;
        // Frames of an earlier use of the WAL follow those of this one.
        if &frame[8..16] != salts {
            break;
        }
        sum = checksum(sum, &frame[..8], big_endian);
        sum = checksum(sum, &frame[FRAME..], big_endian);
        broken |= sum != (read_u32(frame, 16), read_u32(frame, 20));
        let commits = read_u32(frame, 4) != 0;
        if broken && commits {
            return true;
        }
    }
    false
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

/// Checksum over more bytes, a multiple of eight.
fn checksum((mut one, mut two): (u32, u32), bytes: &[u8], big_endian: bool) -> (u32, u32) {
    let (words, _) = bytes.as_chunks::<4>();
    let read = |word: [u8; 4]| match big_endian {
        true => u32::from_be_bytes(word),
        false => u32::from_le_bytes(word),
    };
    for pair in words.chunks_exact(2) {
        one = one.wrapping_add(read(pair[0])).wrapping_add(two);
        two = two.wrapping_add(read(pair[1])).wrapping_add(one);
    }
    (one, two)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::connect;

    /// WAL of a few commits that were not checkpointed.
    fn wal() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let db = connect(&path).unwrap();
        db.execute_batch("CREATE TABLE t (x TEXT)").unwrap();
        for _ in 0..5 {
            db.execute("INSERT INTO t VALUES ('text')", []).unwrap();
        }
        std::fs::read(folder.path().join("abide.db-wal")).unwrap()
    }

    #[test]
    fn valid_truncated_or_missing_wal_is_not_damaged() {
        let bytes = wal();
        assert!(!has_lost_frames(&bytes));
        assert!(!has_lost_frames(&[]));
        // A commit that was not written completely was never committed.
        assert!(!has_lost_frames(&bytes[..bytes.len() - 1]));
    }

    #[test]
    fn wal_with_a_changed_byte_is_damaged() {
        let bytes = wal();
        let last = bytes.len() - 100;
        for at in [0, 20, HEADER + 100, HEADER + FRAME + 4_096 + 200, last] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(has_lost_frames(&bytes), "at {at}");
        }
    }
}

//! How far the readers of a session have read, in a small file beside its log: it outlives the daemon,
//! and costs no more than the read itself. Where it is lost, everything counts as unread again.
//!
//! Whoever has read gets the answer first; that it has read is put off until the answer has left. A daemon
//! that dies in between tells the same once more, which is better than never. What is put off is known
//! to everybody in this daemon who asks.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{crash_point, folder};

const FILE: &str = "read";
/// Most cursors are shorter. All are written at this length, so that the same readers' lines lie one
/// over the other: to cut the file first would send it to the disk each time.
const WIDTH: usize = 80;
/// What the file of a few readers has room in.
const ROOM: usize = 1 << 10;
/// It is never longer than this.
const LONGEST: usize = 1 << 20;

/// Who has read how far: names and cursors, as they are written down.
pub type Marks = Vec<(String, String)>;

/// A change that is not made yet.
type Change = Box<dyn FnOnce(&mut Marks) + Send>;

/// The records of the sessions that somebody reads from now. There is one of each, however many read.
#[derive(Default)]
pub struct Records(Mutex<HashMap<PathBuf, Shared>>);

struct Shared {
    record: Arc<Mutex<Record>>,
    holders: usize,
}

impl Records {
    /// That of the session whose folder this is. Nobody may have read yet.
    pub fn of(self: &Arc<Self>, session_folder: &Path) -> Unread {
        let mut all = self.0.lock().expect("no holder panics");
        let shared = all
            .entry(session_folder.to_owned())
            .or_insert_with(|| Shared {
                record: Arc::new(Mutex::new(Record::load(session_folder))),
                holders: 0,
            });
        shared.holders += 1;
        Unread {
            records: self.clone(),
            folder: session_folder.to_owned(),
            record: shared.record.clone(),
        }
    }
}

/// The readers of one session. Once it is let go of, whatever was put off is written down.
pub struct Unread {
    records: Arc<Records>,
    folder: PathBuf,
    record: Arc<Mutex<Record>>,
}

impl Unread {
    /// Looks who has read how far.
    pub fn look<T>(&self, see: impl FnOnce(&Marks) -> T) -> T {
        let mut record = self.record.lock().expect("no holder panics");
        record.make_changes();
        see(&record.marks)
    }

    /// Somebody has read. It is noted when somebody else wants to know, and at the latest when this is let go of.
    pub fn put_off(&self, change: impl FnOnce(&mut Marks) + Send + 'static) {
        let mut record = self.record.lock().expect("no holder panics");
        record.changes.push(Box::new(change));
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // Whoever comes next finds it in memory or on the disk, and nothing between.
        let mut all = self.records.0.lock().expect("no holder panics");
        self.record.lock().expect("no holder panics").write_down();
        if let Some(shared) = all.get_mut(&self.folder) {
            shared.holders -= 1;
            if shared.holders == 0 {
                all.remove(&self.folder);
            }
        }
    }
}

/// What is known of one session. Its file stays open, so that it has only to be written to.
struct Record {
    path: PathBuf,
    file: Option<File>,
    marks: Marks,
    changes: Vec<Change>,
    /// The file does not say yet what is known.
    unwritten: bool,
    /// Bytes of the file.
    length: usize,
}

impl Record {
    fn load(session_folder: &Path) -> Self {
        let path = session_folder.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(folder::PLAIN);
        let file = options.open(&path).ok();
        let bytes = file.as_ref().and_then(|file| whole(file).ok());
        let bytes = bytes.unwrap_or_default();
        let length = bytes.len();
        let text = String::from_utf8(bytes).unwrap_or_default();
        let pair = |line: &str| {
            let (name, cursor) = line.split_once(' ')?;
            Some((name.to_owned(), cursor.trim_end().to_owned()))
        };
        Record {
            path,
            file,
            marks: text.lines().filter_map(pair).collect(),
            changes: Vec::new(),
            unwritten: false,
            length,
        }
    }

    fn make_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let before = self.marks.clone();
        for change in std::mem::take(&mut self.changes) {
            change(&mut self.marks);
        }
        self.unwritten |= self.marks != before;
    }

    /// Brings the file up to date.
    fn write_down(&mut self) {
        self.make_changes();
        if !std::mem::take(&mut self.unwritten) {
            return;
        }
        crash_point("read.told");
        let mut text = String::new();
        for (name, cursor) in &self.marks {
            // Who has a name that is none is left out.
            if !name.is_empty() && !name.contains(char::is_whitespace) {
                text.push_str(&format!("{name} {cursor:<WIDTH$}\n"));
            }
        }
        if let Err(fault) = self.write(&text) {
            let path = self.path.display();
            tracing::warn!("cannot write down in {path} how far it was read: {fault}");
        }
        crash_point("read.noted");
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            file @ None => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                options.custom_flags(folder::PLAIN);
                file.insert(options.mode(0o600).open(&self.path)?)
            }
        };
        file.write_all_at(text.as_bytes(), 0)?;
        if self.length > text.len() {
            file.set_len(text.len() as u64)?;
        }
        self.length = text.len();
        Ok(())
    }
}

/// All of a file that is mostly small. What is far too long for one is not read.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; ROOM];
    let mut length = 0;
    loop {
        length += file.read_at(&mut bytes[length..], length as u64)?;
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        if length >= LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        bytes.resize(2 * length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(marks: &[(&str, &str)]) -> Marks {
        let owned = |(name, cursor): &(&str, &str)| ((*name).to_owned(), (*cursor).to_owned());
        marks.iter().map(owned).collect()
    }

    #[test]
    fn what_is_written_takes_the_place_of_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let records = Arc::new(Records::default());
        assert_eq!(records.of(folder.path()).look(Marks::clone), []);
        for written in [
            marks(&[("a", "1")]),
            marks(&[("a", "123456o100E99p"), ("b", "7")]),
            marks(&[("a", "8")]),
        ] {
            let unread = records.of(folder.path());
            let new = written.clone();
            unread.put_off(|known| *known = new);
            drop(unread);
            let found = Arc::new(Records::default()).of(folder.path());
            assert_eq!(found.look(Marks::clone), written);
        }
    }

    /// A mark that is put off is known at once to whoever reads in this daemon, and to the next daemon
    /// when its reader has let go, whoever reads on.
    #[test]
    fn what_is_put_off_is_known_here_and_written_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let here = Arc::new(Records::default());
        let elsewhere = || Arc::new(Records::default()).of(folder.path());
        let (one, other) = (here.of(folder.path()), here.of(folder.path()));
        one.put_off(|known| known.push(("a".into(), "5".into())));
        assert_eq!(other.look(Marks::clone), marks(&[("a", "5")]));
        assert_eq!(elsewhere().look(Marks::clone), []);
        drop(one);
        assert_eq!(elsewhere().look(Marks::clone), marks(&[("a", "5")]));
        other.put_off(|known| known.push(("b".into(), "7".into())));
        drop(other);
        let both = marks(&[("a", "5"), ("b", "7")]);
        assert_eq!(elsewhere().look(Marks::clone), both);
        assert!(here.0.lock().unwrap().is_empty());
    }
}

//! Record of what the sandbox of a session has refused: a file in the session's directory. Its first line has the mode, the
//! network and the number of refusals; each further line has a kind, how often it happened, and a text. The keeper writes
//! it, with lines of the network gate, and the daemon reads it.

/// File in the session's directory, made only if there is something to tell.
pub const FILE: &str = "refused";

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A path that could not be written.
    Write,
    /// A path that could not be removed.
    Remove,
    /// A protected path that could not be written.
    Protected,
    /// A protected name that could not be made.
    Make,
    /// A host and port that the network gate refused, and its reason.
    Name,
    /// The same, where no permission would help.
    Unreachable,
    /// An address and port that were connected to directly.
    Address,
    /// An address and port to which UDP was sent.
    Udp,
    /// A system call, with what to do instead.
    Call,
    /// A host that is allowed and could not be reached, and the reason.
    Failed,
    /// A name that the command has made, and that other programs run or obey.
    Planted,
    /// The folder of the layers, whose disk is full.
    Full,
    /// Bytes of the layers, and their limit, for which the command was ended.
    Limit,
    /// A path for which the command was ended, and which was removed.
    Removed,
}

impl RefusalKind {
    const ALL: [Self; 14] = [
        RefusalKind::Write,
        RefusalKind::Remove,
        RefusalKind::Protected,
        RefusalKind::Make,
        RefusalKind::Name,
        RefusalKind::Unreachable,
        RefusalKind::Address,
        RefusalKind::Udp,
        RefusalKind::Call,
        RefusalKind::Failed,
        RefusalKind::Planted,
        RefusalKind::Full,
        RefusalKind::Limit,
        RefusalKind::Removed,
    ];

    /// Word in the record.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalKind::Write => "write",
            RefusalKind::Remove => "remove",
            RefusalKind::Protected => "protected",
            RefusalKind::Make => "make",
            RefusalKind::Name => "name",
            RefusalKind::Unreachable => "unreachable",
            RefusalKind::Address => "address",
            RefusalKind::Udp => "udp",
            RefusalKind::Call => "call",
            RefusalKind::Failed => "failed",
            RefusalKind::Planted => "planted",
            RefusalKind::Full => "full",
            RefusalKind::Limit => "limit",
            RefusalKind::Removed => "removed",
        }
    }

    /// Appends the line of an entry to a record or a part of one.
    pub fn append(self, times: u64, text: &[u8], record: &mut Vec<u8>) {
        record.extend_from_slice(format!("{} {times} ", self.as_str()).as_bytes());
        for byte in text {
            match byte {
                b'\n' => record.extend_from_slice(br"\n"),
                b'\\' => record.extend_from_slice(br"\\"),
                byte => record.push(*byte),
            }
        }
        record.push(b'\n');
    }
}

/// Record of a session, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalRecord {
    /// Mode of the sandbox, such as `workspace-write`.
    pub mode: String,
    /// Network of the sandbox, such as `off`.
    pub network: String,
    /// Number of refusals, also of those that are not among the entries.
    pub count: u64,
    /// Entries in the order of the file.
    pub entries: Vec<RefusalEntry>,
}

/// Entry of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalEntry {
    /// Kind of what was refused, or is told besides.
    pub kind: RefusalKind,
    /// Number of times that it happened.
    pub times: u64,
    /// Path or name, and the reason where there is one.
    pub text: String,
}

impl RefusalRecord {
    /// Reads a record. `None`: the first line is damaged.
    pub fn parse(record: &str) -> Option<Self> {
        let (head, lines) = record.split_once('\n')?;
        let [mode, network, count] = *head.split(' ').collect::<Vec<_>>() else {
            return None;
        };
        let entry = |line: &str| {
            let (word, rest) = line.split_once(' ')?;
            let (times, text) = rest.split_once(' ')?;
            let kind = RefusalKind::ALL
                .into_iter()
                .find(|kind| kind.as_str() == word)?;
            Some(RefusalEntry {
                kind,
                times: times.parse().ok()?,
                text: unescaped(text),
            })
        };
        Some(RefusalRecord {
            mode: mode.to_owned(),
            network: network.to_owned(),
            count: count.parse().ok()?,
            entries: lines.lines().filter_map(entry).collect(),
        })
    }

    /// Part of the record that is newer than an earlier state of it.
    pub fn since(&self, earlier: &RefusalRecord) -> RefusalRecord {
        let new = |entry: &RefusalEntry| {
            let mut known = earlier.entries.iter();
            let is_same =
                |known: &&RefusalEntry| known.kind == entry.kind && known.text == entry.text;
            let before = known.find(is_same).map_or(0, |known| known.times);
            let times = entry.times.saturating_sub(before);
            (times > 0).then(|| RefusalEntry {
                times,
                ..entry.clone()
            })
        };
        RefusalRecord {
            count: self.count.saturating_sub(earlier.count),
            entries: self.entries.iter().filter_map(new).collect(),
            ..self.clone()
        }
    }

    /// All entries of a kind.
    pub fn of_kind(&self, kind: RefusalKind) -> impl Iterator<Item = &RefusalEntry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}

/// Text of an entry, whose lines and backslashes are escaped in the record.
fn unescaped(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        all.push(match letter {
            '\\' if letters.next() == Some('n') => '\n',
            letter => letter,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_are_read_as_they_were_written() {
        let mut bytes = b"read-only allowlist 12\n".to_vec();
        for kind in RefusalKind::ALL {
            kind.append(2, b"/a b\nc\\n", &mut bytes);
        }
        let record = RefusalRecord::parse(str::from_utf8(&bytes).unwrap()).unwrap();
        assert_eq!(
            (&*record.mode, &*record.network),
            ("read-only", "allowlist")
        );
        assert_eq!(record.count, 12);
        let expected = RefusalKind::ALL.map(|kind| RefusalEntry {
            kind,
            times: 2,
            text: "/a b\nc\\n".to_owned(),
        });
        assert_eq!(record.entries, expected);
        let made = record.of_kind(RefusalKind::Make);
        assert!(made.map(|entry| &*entry.text).eq(["/a b\nc\\n"]));
    }

    #[test]
    fn part_since_an_earlier_record_has_only_what_is_new() {
        let read = |text| RefusalRecord::parse(text).unwrap();
        let earlier = read("read-only off 3\nwrite 2 /x\nmake 1 /y\n");
        let now = read("read-only off 7\nwrite 3 /x\nmake 1 /y\nwrite 2 /y\n");
        let expected = read("read-only off 4\nwrite 1 /x\nwrite 2 /y\n");
        assert_eq!(now.since(&earlier), expected);
        assert_eq!(now.since(&now), read("read-only off 0\n"));
    }

    #[test]
    fn damaged_first_line_is_refused_and_unknown_lines_are_left_out() {
        for damaged in [
            "",
            "nonsense",
            "read-only off\n",
            "read-only off x\n",
            "read-only off 1 2\n",
        ] {
            assert_eq!(RefusalRecord::parse(damaged), None, "{damaged}");
        }
        let text = "read-only off 1\nother 1 x\nwrite\nwrite /x\nwrite 1 /x";
        let record = RefusalRecord::parse(text).unwrap();
        let [entry] = &*record.entries else {
            panic!("{record:?}");
        };
        assert_eq!((entry.kind, &*entry.text), (RefusalKind::Write, "/x"));
    }
}

//! Record of what the sandbox of a session has refused: a file in the session's directory. Its first line has the mode, the
//! network and the number of refusals; each further line has a kind, how often it happened, and a text. The keeper writes
//! it, with lines of the network gate, and the daemon reads it.

/// File in the session's directory, made only if there is something to tell.
pub const FILE: &str = "refused";

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// A path that could not be written.
    Write,
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
    const ALL: [Self; 13] = [
        RefusalKind::Write,
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

    /// Appends the line of an entry to a record or a part of one. A text that has several lines becomes one.
    pub fn append(self, times: u64, text: &[u8], record: &mut Vec<u8>) {
        record.extend_from_slice(format!("{} {times} ", self.as_str()).as_bytes());
        record.extend(text.iter().map(|byte| match byte {
            b'\n' => b'?',
            byte => *byte,
        }));
        record.push(b'\n');
    }
}

/// Record of a session, as it is read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
                text: text.to_owned(),
            })
        };
        Some(RefusalRecord {
            mode: mode.to_owned(),
            network: network.to_owned(),
            count: count.parse().ok()?,
            entries: lines.lines().filter_map(entry).collect(),
        })
    }

    /// All entries of a kind.
    pub fn of_kind(&self, kind: RefusalKind) -> impl Iterator<Item = &RefusalEntry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_are_read_as_they_were_written() {
        let mut bytes = b"read-only allowlist 12\n".to_vec();
        for kind in RefusalKind::ALL {
            kind.append(2, b"/a b\nc", &mut bytes);
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
            text: "/a b?c".to_owned(),
        });
        assert_eq!(record.entries, expected);
        let made = record.of_kind(RefusalKind::Make);
        assert!(made.map(|entry| &*entry.text).eq(["/a b?c"]));
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

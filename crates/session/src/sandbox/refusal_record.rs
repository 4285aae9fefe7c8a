//! Record of what the sandbox of a session has refused: a file in the session's directory. Its first line has the mode, the
//! network and the number of refusals; each further line has a kind and a text. The keeper writes it, with lines of the
//! network gate, and the daemon reads it.

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
    /// An address and port that were connected to directly.
    Address,
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
    const ALL: [Self; 10] = [
        RefusalKind::Write,
        RefusalKind::Protected,
        RefusalKind::Make,
        RefusalKind::Name,
        RefusalKind::Address,
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
            RefusalKind::Address => "address",
            RefusalKind::Failed => "failed",
            RefusalKind::Planted => "planted",
            RefusalKind::Full => "full",
            RefusalKind::Limit => "limit",
            RefusalKind::Removed => "removed",
        }
    }

    /// Appends the line of an entry to a record or a part of one. A text that has several lines becomes one.
    pub fn append(self, text: &[u8], record: &mut Vec<u8>) {
        record.extend_from_slice(self.as_str().as_bytes());
        record.push(b' ');
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
    pub entries: Vec<(RefusalKind, String)>,
}

impl RefusalRecord {
    /// Reads a record. `None`: the first line is damaged.
    pub fn parse(record: &str) -> Option<Self> {
        let (head, lines) = record.split_once('\n')?;
        let [mode, network, count] = *head.split(' ').collect::<Vec<_>>() else {
            return None;
        };
        let entry = |line: &str| {
            let (word, text) = line.split_once(' ')?;
            let kind = RefusalKind::ALL
                .into_iter()
                .find(|kind| kind.as_str() == word)?;
            Some((kind, text.to_owned()))
        };
        Some(RefusalRecord {
            mode: mode.to_owned(),
            network: network.to_owned(),
            count: count.parse().ok()?,
            entries: lines.lines().filter_map(entry).collect(),
        })
    }

    /// Texts of all entries of a kind.
    pub fn of_kind(&self, kind: RefusalKind) -> impl Iterator<Item = &str> {
        let same = self.entries.iter().filter(move |entry| entry.0 == kind);
        same.map(|(_, text)| text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_are_read_as_they_were_written() {
        let mut bytes = b"read-only allowlist 12\n".to_vec();
        for kind in RefusalKind::ALL {
            kind.append(b"/a b\nc", &mut bytes);
        }
        let record = RefusalRecord::parse(str::from_utf8(&bytes).unwrap()).unwrap();
        assert_eq!(
            (&*record.mode, &*record.network),
            ("read-only", "allowlist")
        );
        assert_eq!(record.count, 12);
        let expected = RefusalKind::ALL.map(|kind| (kind, "/a b?c".to_owned()));
        assert_eq!(record.entries, expected);
        assert!(record.of_kind(RefusalKind::Make).eq(["/a b?c"]));
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
        let record = RefusalRecord::parse("read-only off 1\nother x\nwrite\nwrite /x").unwrap();
        assert_eq!(record.entries, [(RefusalKind::Write, "/x".to_owned())]);
    }
}

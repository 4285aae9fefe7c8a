//! Random bytes in the files of a session, and random frames: a reader reports damage, and never panics or returns
//! another record than the one that was written. `PROPTEST_CASES` sets the number of cases.

use proptest::prelude::*;

use abide_core::{Containment, End, Exit, Sandboxed};

use crate::daemon_record::DaemonRecord;
use crate::frame::{Exited, FromKeeper, LaunchRecord, Size, StartFailure, ToKeeper};
use crate::keeper_record::{self, KeeperIdentity, Meta, MetaState, RecordedEnding};
use crate::log::{self, ENTRY_SIZE, IndexEntry, LOG_FOLDER, Log, Stream};

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        prop_oneof![
            4 => any::<u8>(),
            2 => prop::sample::select(b"\n=%0\0".to_vec()),
        ],
        0..40,
    )
}

prop_compose! {
    fn meta()(
        words in ("[a-z0-9_]{1,12}", ".{0,12}", ".{0,12}"),
        command in bytes(),
        cwd in bytes(),
        pty in any::<Option<(u16, u16)>>(),
        limits in any::<(Option<u64>, Option<u64>, Option<u64>, u64, u64)>(),
        optional in (any::<Option<String>>(), any::<Option<u32>>(), prop::option::of(bytes())),
        keeper in any::<(u32, u64)>(),
        secret_fingerprints in bytes(),
    ) -> Meta {
        Meta {
            launch: LaunchRecord {
                session: words.0,
                agent: words.1,
                command,
                cwd,
                pty: pty.map(|(cols, rows)| Size { cols, rows }),
                deadline_ms: limits.0,
                idle_ms: limits.1,
                inactivity_ms: limits.2,
                log_quota: limits.3,
                created_wall_ms: limits.4,
                keys: optional.0.iter().flat_map(|key| [key.clone(), key.repeat(2)]).collect(),
                conversation: optional.0.clone(),
                name: optional.0,
                started_by: None,
                grace_ms: keeper.0,
                secret_fingerprints,
            },
            contained_by: Containment::PidNamespace,
            sandboxed: Sandboxed::OFF,
            cgroup: optional.2,
            init: optional.1,
            keeper: KeeperIdentity {
                pid: keeper.0,
                start_ticks: keeper.1,
                boot_id: words.2,
            },
        }
    }
}

prop_compose! {
    fn ending()(
        exit in prop_oneof![
            Just(None),
            any::<i32>().prop_map(|code| Some(Exit::Code(code))),
            any::<i32>().prop_map(|signal| Some(Exit::Signal(signal))),
        ],
        numbers in any::<(u64, u64, u64)>(),
        flags in any::<(bool, bool)>(),
        failed in prop::option::of((any::<i32>(), ".{0,20}")),
    ) -> RecordedEnding {
        match failed {
            Some((errno, sentence)) => RecordedEnding::Failed(StartFailure { errno, sentence, at_wall_ms: numbers.0 }),
            None => RecordedEnding::Ended(Exited {
                exit,
                end: End::Deadline,
                duration_ms: numbers.0,
                bytes: numbers.1,
                dropped: numbers.2,
                empty: flags.0,
                closed: flags.1,
            }),
        }
    }
}

/// Changes the byte at a place of a text.
fn damaged(text: &str, place: prop::sample::Index, to: u8) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    let at = place.index(text.len());
    text[at] = to;
    text
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_meta_is_read_back(meta in meta()) {
        prop_assert_eq!(Meta::from_text(meta.to_text().as_bytes()), Some(meta));
    }

    #[test]
    fn random_ending_is_read_back(ending in ending()) {
        prop_assert_eq!(RecordedEnding::from_text(ending.to_text().as_bytes()), Some(ending));
    }

    #[test]
    fn random_daemon_record_is_read_and_read_back(
        lines in prop::collection::vec(
            prop_oneof![
                "(name|size|limits|interrupted|request|cursor|cursor_removed)=[a-z0-9 ]{0,12}",
                "size=[0-9]{1,6} [0-9]{1,6}",
                "limits=([0-9]{1,22}|none) none [0-9]{1,4} [0-9]{1,4}",
                ".{0,12}",
            ],
            0..90,
        ),
    ) {
        let record = DaemonRecord::decode(lines.join("\n").as_bytes());
        prop_assert_eq!(DaemonRecord::decode(record.encode().as_bytes()), record);
    }

    #[test]
    fn changed_byte_never_makes_another_record(
        meta in meta(),
        ending in ending(),
        place in any::<prop::sample::Index>(),
        to in any::<u8>(),
    ) {
        let text = damaged(&meta.to_text(), place, to);
        prop_assert!(Meta::from_text(&text).is_none_or(|read| read == meta));
        // The lines after the checksum are appended later, and say only that the tree is empty.
        let body = ending.to_text().replace("emptied=1\n", "");
        let whole = RecordedEnding::from_text(body.as_bytes());
        let read = RecordedEnding::from_text(&damaged(&body, place, to));
        prop_assert!(read.is_none() || read == whole);
    }

    #[test]
    fn record_that_is_cut_off_is_damaged_or_whole(
        meta in meta(),
        ending in ending(),
        cut in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let first = meta.to_text();
        let text = format!("{first}{}", ending.to_text());
        let cut = cut.index(text.len());
        std::fs::write(folder.path().join(keeper_record::META), &text.as_bytes()[..cut]).expect("a file");
        let record = keeper_record::read_all(folder.path());
        if let MetaState::Whole(read) = record.meta {
            prop_assert_eq!(read, meta);
        } else {
            prop_assert!(cut < first.len(), "{} of {}", cut, first.len());
        }
    }

    #[test]
    fn random_record_file_is_read_without_a_panic(text in bytes(), head in any::<bool>()) {
        let folder = tempfile::tempdir().expect("a folder");
        let begin: &[u8] = if head { b"abide meta " } else { b"" };
        std::fs::write(folder.path().join(keeper_record::META), [begin, &text].concat()).expect("a file");
        std::fs::write(folder.path().join(keeper_record::ENDING), &text).expect("a file");
        let record = keeper_record::read_all(folder.path());
        prop_assert!(!matches!(record.meta, MetaState::Whole(_)));
    }

    #[test]
    fn random_log_is_read_to_its_end(
        entries in prop::collection::vec((0..300u64, any::<u64>(), 0..300u32, 0..3u8, 0..300u64), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..3 * ENTRY_SIZE),
        data in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let segments = folder.path().join(LOG_FOLDER);
        std::fs::create_dir(&segments).expect("a folder");
        let mut index = Vec::new();
        for (offset, at_wall_ms, len, stream, dropped) in entries {
            let stream = [Stream::Stdout, Stream::Stderr, Stream::Pty][usize::from(stream)];
            let entry = IndexEntry { offset, at_wall_ms, len, stream, dropped };
            prop_assert_eq!(IndexEntry::from_bytes(&entry.to_bytes()), Some(entry));
            index.extend(entry.to_bytes());
        }
        index.extend(noise);
        std::fs::write(segments.join(log::data_name(0)), &data).expect("a file");
        std::fs::write(segments.join(log::index_name(0)), &index).expect("a file");
        let log = Log::open(folder.path());
        let _ = (log.extent(), log.first_at(), log.gaps());
        let (mut pieces, mut before) = (log.pieces(0, None), 0);
        while let Ok(Some(_)) = pieces.next_within(64) {
            prop_assert!(pieces.at() > before, "no progress at {}", before);
            before = pieces.at();
        }
    }

    #[test]
    fn random_frames_are_decoded_or_refused(
        frames in prop::collection::vec((0..16u8, prop::collection::vec(any::<u8>(), 0..60)), 0..4),
        noise in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut stream = Vec::new();
        for (kind, payload) in frames {
            stream.extend((payload.len() as u32 + 1).to_le_bytes());
            stream.push(kind);
            stream.extend(payload);
        }
        stream.extend(noise);
        let mut copy = stream.clone();
        while let Ok(Some(_)) = ToKeeper::take_from(&mut stream) {}
        while let Ok(Some(_)) = FromKeeper::take_from(&mut copy) {}
    }
}

//! Stored output, and the report of omitted output.

use abide_core::Exit;
use abide_session::log::{Log, Piece, Stream};

use crate::harness::{ForkServer, input, output};

/// Pieces of a log from an offset on with at most this many bytes, and the offset behind them.
fn read(log: &Log, from: u64, max: usize) -> (Vec<Piece>, u64) {
    let (mut pieces, mut found, mut left) = (log.pieces(from, None), Vec::new(), max);
    while left > 0
        && let Some(piece) = pieces.next_within(left).unwrap()
    {
        if let Piece::Chunk(chunk) = &piece {
            left -= chunk.bytes.len();
        }
        found.push(piece);
    }
    (found, pieces.at())
}

#[test]
fn c13_streams_are_kept_apart_and_in_order_of_arrival() {
    let fork_server = ForkServer::new();
    let mut keeper = fork_server.started_with("cat; echo err >&2; cat /nope; echo out", |launch| {
        launch.stdin = abide_session::frame::Stdin::Open
    });
    keeper.send(&input("in\n"));
    keeper.expect_growth(2);
    keeper.send(&abide_session::frame::ToKeeper::CloseInput);
    let ran = keeper.finish();
    assert_eq!(ran.output(Stream::Stdout), b"in\nout\n");
    let stderr = ran.output(Stream::Stderr);
    assert!(stderr.starts_with(b"err\n"));
    let (pieces, next) = read(&Log::open(&ran.folder), 0, usize::MAX);
    let Some(Piece::Chunk(first)) = pieces.first() else {
        panic!("{pieces:?}");
    };
    assert_eq!((first.offset, first.stream), (0, Stream::Stdout));
    assert!(first.bytes.starts_with(b"in\n"));
    assert_eq!(next, ran.exited.bytes);
    assert_eq!(Log::open(&ran.folder).end().unwrap(), ran.exited.bytes);
}

#[test]
fn a_page_begins_and_ends_anywhere() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("seq 1 1000");
    let log = Log::open(&ran.folder);
    let all = output(&ran.folder, None);
    for from in [
        0,
        1,
        17,
        1_000,
        all.len() as u64 - 1,
        all.len() as u64,
        1 << 40,
    ] {
        for max in [1, 7, 100_000] {
            let (pieces, next) = read(&log, from, max);
            let mut bytes = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Chunk(chunk) => bytes.extend(chunk.bytes),
                    Piece::Gap { .. } => panic!("a gap"),
                }
            }
            let start = (from as usize).min(all.len());
            let end = (start + max).min(all.len());
            assert_eq!(bytes, &all[start..end]);
            assert_eq!(next, from.max(end as u64));
        }
    }
}

#[test]
fn beyond_the_quota_head_and_tail_are_kept_and_the_gap_is_counted() {
    let fork_server = ForkServer::new();
    let quota = 1 << 20;
    let keeper =
        fork_server.started_with("seq -w 1 1000000", |launch| launch.record.log_quota = quota);
    let ran = keeper.finish();
    assert_eq!(ran.exited.bytes, 8_000_000);
    let log = Log::open(&ran.folder);
    let gaps = log.gaps().unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let (from, to) = gaps[0];
    assert_eq!(to - from, ran.exited.dropped);
    assert_eq!(log.extent().unwrap(), (8_000_000, ran.exited.dropped));
    assert!(from > quota / 5 && from <= quota / 4, "{from}");
    assert!(8_000_000 - to > quota / 2, "{to}");
    let mut kept = Vec::new();
    for piece in log.pieces(0, None) {
        match piece.unwrap() {
            Piece::Chunk(chunk) => kept.extend(chunk.bytes),
            Piece::Gap { from, to } => kept.resize(kept.len() + (to - from) as usize, 0),
        }
    }
    let expected: String = (1..=1_000_000).map(|line| format!("{line:07}\n")).collect();
    assert_eq!(kept.len(), expected.len());
    let (from, to) = (from as usize, to as usize);
    assert!(kept[..from] == expected.as_bytes()[..from]);
    assert!(kept[to..] == expected.as_bytes()[to..]);
    let on_disk: u64 = std::fs::read_dir(ran.folder.join("log"))
        .unwrap()
        .map(|item| item.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= quota, "{on_disk}");
}

#[test]
fn many_small_chunks_do_not_outgrow_the_quota_by_their_index() {
    let fork_server = ForkServer::new();
    let quota = 64 << 10;
    let keeper = fork_server.started_with(
        "i=0; while [ $i -lt 20000 ]; do echo a; echo b >&2; i=$((i+1)); done",
        |launch| launch.record.log_quota = quota,
    );
    let ran = keeper.finish();
    assert_eq!(ran.exited.bytes, 80_000);
    let on_disk: u64 = std::fs::read_dir(ran.folder.join("log"))
        .unwrap()
        .map(|item| item.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= quota, "{on_disk}");
    let missing: u64 = Log::open(&ran.folder)
        .gaps()
        .unwrap()
        .iter()
        .map(|(from, to)| to - from)
        .sum();
    assert_eq!(missing, ran.exited.dropped);
    let extent = Log::open(&ran.folder).extent().unwrap();
    assert_eq!(extent, (80_000, missing));
}

#[test]
fn m4_failed_log_write_does_not_block_the_child() {
    let fork_server = ForkServer::with_file_limit(100_000);
    let keeper = fork_server.started("seq -w 1 100000 | cat; exit 2");
    let ran = keeper.finish();
    assert_eq!(ran.exited.exit, Some(Exit::Code(2)));
    assert_eq!(ran.exited.bytes, 700_000);
    assert_eq!(ran.exited.dropped, 600_000);
    let (_, next) = read(&Log::open(&ran.folder), 0, 200_000);
    assert_eq!(next, 100_000);
}

#[test]
fn c7_flood_of_output_is_complete() {
    let fork_server = ForkServer::new();
    let ran = fork_server.run("head -c 100000000 /dev/zero");
    assert_eq!(ran.exited.bytes, 100_000_000);
    assert_eq!(ran.exited.dropped, 0);
    assert_eq!(Log::open(&ran.folder).end().unwrap(), 100_000_000);
}

#[test]
fn a_reader_follows_the_writer_without_a_gap() {
    let fork_server = ForkServer::new();
    let mut keeper =
        fork_server.started("for i in 1 2 3 4 5 6 7 8; do seq 1 50000; echo x >&2; done");
    let mut pieces = Log::open(&keeper.folder).pieces(0, None);
    let mut read = 0;
    let exited = loop {
        keeper.send(&abide_session::frame::ToKeeper::Watch { beyond: read });
        let received = keeper.next();
        for piece in pieces.by_ref() {
            match piece.unwrap() {
                Piece::Chunk(chunk) => {
                    assert_eq!(chunk.offset, read);
                    read += chunk.bytes.len() as u64;
                }
                Piece::Gap { from, to } => panic!("{from} to {to}"),
            }
        }
        if let abide_session::frame::FromKeeper::Exited(exited) = received {
            break exited;
        }
    };
    assert_eq!(read, exited.bytes);
    keeper.finish_after(exited);
}

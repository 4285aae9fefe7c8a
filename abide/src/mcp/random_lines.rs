//! Random streams for the readers of MCP lines. `PROPTEST_CASES` sets the number of cases.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::decode;
use super::line_splitter::{LineSplitter, SplitLine};
use super::outline::{MessageKind, Outline};

/// Limit of a line in these tests.
const LIMIT: usize = 48;

/// Text made of pieces of messages, valid and invalid.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"",
        b"\\",
        b"\\u",
        b"\\ud800",
        b" ",
        b"\n",
        b"\r\n",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\0",
        b"1",
        b"-1e999",
        b"0.0",
        b"null",
        b"true",
        b"\"id\"",
        b"\"id\":",
        b"\"method\":",
        b"\"tools/call\"",
        b"\"jsonrpc\":\"2.0\"",
        b"\"params\":",
        b"\"name\":\"shell\"",
        b"\"arguments\":{",
        b"\"command\":\"true\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{",
    ];
    let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|all| all.concat())
}

/// Line, or the outline of a line that is too long.
type Split = Result<Vec<u8>, Outline>;

/// Lines of a stream, found without a splitter.
fn lines(stream: &[u8]) -> Vec<Split> {
    let mut lines = Vec::new();
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        let is_short = line.len() <= LIMIT;
        let mut line = line.to_vec();
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        lines.push(match is_short {
            true => Ok(line),
            false => Err(Outline::of(&line)),
        });
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_do_not_depend_on_how_the_stream_is_read(stream in text(), cut in any::<prop::sample::Index>()) {
        let (first, second) = stream.split_at(cut.index(stream.len() + 1));
        let (rest, mut writer) = std::io::pipe().expect("a pipe");
        writer.write_all(second).expect("room in the pipe");
        drop(writer);
        let rest = File::from(OwnedFd::from(rest));
        let mut splitter = LineSplitter::new(LIMIT);
        splitter.put(first);
        let (mut found, mut more) = (Vec::new(), true);
        loop {
            match splitter.next(!more) {
                Some(SplitLine::Line(line)) => found.push(Ok(line.to_vec())),
                Some(SplitLine::TooLong) => found.push(Err(splitter.skip_line(&rest).expect("a line"))),
                None if more => more = splitter.fill(&rest).expect("the rest"),
                None => break,
            }
        }
        prop_assert_eq!(found, lines(&stream));
    }

    #[test]
    fn random_line_is_decoded_or_refused(line in text()) {
        let _ = decode::message(&line, &Outline::of(&line));
    }

    #[test]
    fn outline_has_the_id_and_the_method_of_a_request(
        id in prop_oneof![any::<i64>().prop_map(Value::from), ".{0,20}".prop_map(Value::from)],
        method in "[a-z/]{1,20}",
        other in ".{0,20}",
    ) {
        let inner = json!({"id": 7, "method": "inner", &other: [{"id": null}, other]});
        let request = json!({"params": inner, "id": id, "method": method, "jsonrpc": "2.0"});
        let outline = Outline::of(request.to_string().as_bytes());
        prop_assert_eq!(outline.kind(), MessageKind::Request);
        let found: Value = serde_json::from_slice(&outline.id.expect("an id")).expect("JSON");
        prop_assert_eq!(found, id);
        prop_assert_eq!(outline.method, Some(method));
    }
}

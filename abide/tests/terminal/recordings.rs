//! Recorded terminal output of real programs, and the screen that another emulator (tmux) showed.
//!
//! A `.screen` file begins with columns, rows, the cursor's row and column, and whether it is visible
//! and the alternate screen is on; the rows follow.

use std::path::PathBuf;

use abide_engine::screen::{Screen, Size};

struct Recording {
    name: String,
    bytes: Vec<u8>,
    size: Size,
    cursor: (u16, u16),
    visible: bool,
    alternate: bool,
    lines: Vec<String>,
}

fn recordings() -> Vec<Recording> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/terminal/recordings");
    let entries = std::fs::read_dir(folder).expect("recordings");
    let mut all: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "screen"))
        .map(read)
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() >= 9);
    all
}

fn read(path: PathBuf) -> Recording {
    let text = std::fs::read_to_string(&path).expect("a screen");
    let mut lines = text.lines();
    let head: Vec<u16> = lines
        .next()
        .expect("a head")
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.resize(head[1].into(), String::new());
    Recording {
        name: path.file_stem().unwrap().to_string_lossy().into_owned(),
        bytes: std::fs::read(path.with_extension("bytes")).expect("bytes"),
        size: Size {
            cols: head[0],
            rows: head[1],
        },
        cursor: (head[2], head[3].min(head[0] - 1)),
        visible: head[4] == 1,
        alternate: head[5] == 1,
        lines,
    }
}

fn check(recording: &Recording, screen: &Screen) {
    let seen = screen.snapshot();
    let name = &recording.name;
    assert_eq!(seen.lines, recording.lines, "{name}");
    let cursor = (seen.cursor.row, seen.cursor.col);
    assert_eq!(cursor, recording.cursor, "{name}");
    assert_eq!(seen.cursor.visible, recording.visible, "{name}");
    assert_eq!(seen.alternate, recording.alternate, "{name}");
}

#[test]
fn recorded_output_gives_the_recorded_screen() {
    for recording in recordings() {
        let mut screen = Screen::new(recording.size);
        screen.feed(&recording.bytes);
        check(&recording, &screen);
    }
}

#[test]
fn screen_does_not_depend_on_chunks_or_folding() {
    for recording in recordings() {
        for portion in [1, 7, 100, 4_096] {
            let mut screen = Screen::new(recording.size);
            for (at, bytes) in recording.bytes.chunks(portion).enumerate() {
                screen.feed(bytes);
                if at % 50 == 49 {
                    screen = screen.compact().expand();
                }
            }
            check(&recording, &screen);
        }
    }
}

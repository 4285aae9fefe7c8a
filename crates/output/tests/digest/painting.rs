//! Cursor movements, repainted screens and control characters.

use super::text;

#[test]
fn line_that_is_redrawn_appears_once() {
    assert_eq!(text("10%\r20%\r100% done\n"), "100% done");
    assert_eq!(text("loading|\x08/\x08-\x08ok\n"), "loadingok");
    assert_eq!(text("a long line\r\x1b[Kshort\n"), "short");
    assert_eq!(text("abcdef\x1b[3Gxy\n"), "abxyef");
    assert_eq!(text("one\r\ntwo\r\n"), "one\ntwo");
    assert_eq!(text("進捗 10%\r進捗 20%\n"), "進捗 20%");
}

#[test]
fn lines_that_are_redrawn_appear_once() {
    let mut log = String::from("Pulling web\n");
    let layers = ["4f4fb700ef54", "a2abf6c4d29d", "c5108cbab6b8"];
    for layer in layers {
        log += &format!("{layer}: Pulling fs layer\n");
    }
    for step in 1..=50 {
        for (at, layer) in layers.iter().enumerate() {
            let up = layers.len() - at;
            log += &format!(
                "\x1b[{up}A\x1b[2K\r{layer}: Downloading [{}>] {step}MB/50MB\x1b[{up}B\r",
                "=".repeat(step / 5)
            );
        }
    }
    for (at, layer) in layers.iter().enumerate() {
        let up = layers.len() - at;
        log += &format!("\x1b[{up}A\x1b[2K\r{layer}: Pull complete\x1b[{up}B\r");
    }
    log += "Status: Downloaded newer image for web:latest\n";
    assert_eq!(
        text(log),
        "Pulling web\n4f4fb700ef54: Pull complete\na2abf6c4d29d: Pull complete\n\
         c5108cbab6b8: Pull complete\nStatus: Downloaded newer image for web:latest"
    );
    assert_eq!(text("a\nb\n\x1b[1A\x1b[Kc\n"), "a\nc");
}

#[test]
fn screen_that_is_repainted_leaves_its_last_picture() {
    let mut log = String::from("$ watch\n");
    for n in 1..=30 {
        log += &format!("\x1b[H\x1b[2Jframe {n}\nload {n}\n");
    }
    assert_eq!(text(log), "$ watch\nframe 30\nload 30");
}

#[test]
fn alternate_screen_leaves_its_last_picture() {
    let log = "before\n\x1b[?1049h\x1b[Hold\x1b[2J\x1b[Hmenu\r\n> open\x1b[?1049lafter\n";
    assert_eq!(text(log), "before\nmenu\n> open\nafter");
}

#[test]
fn status_line_is_not_part_of_the_text() {
    let mut log = String::from("\x1b[1;39r");
    for n in 1..=100 {
        log += &format!(
            "Unpacking {}\r\n\x1b7\x1b[40;0fProgress: [{n:3}%]\x1b8",
            ["tar", "sed", "vim"][n % 3]
        );
    }
    log += "\x1b[1;40r";
    assert!(!text(&log).contains("Progress"));
}

#[test]
fn c11_nothing_can_reprogram_a_terminal() {
    assert_eq!(
        text("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"),
        "alink"
    );
    assert_eq!(
        text(
            "\x1bP0;1q#0~~\n-q\x1b\\\x1bP1$tq\x1b\\a\x1b_x\x1b\\b\x1b^y\x1b\\c\x1bXz\x1b\\d\x1b(Be\n"
        ),
        "abcde"
    );
    assert_eq!(text("a\u{9b}31mb\u{9d}0;t\u{9c}c\u{84}\n"), "abc");
    assert_eq!(text("a\x00\x01\x07\x0e\x7fb\n"), "ab");
    // A form feed and a vertical tab end a line, but not one more at its begin.
    assert_eq!(text("a\x0cb\x0bc\n\x0c\nd\n"), "a\nb\nc\n\nd");
    assert_eq!(
        text("admin\u{202e}txt.exe\u{2066}\u{e0041}\n"),
        "admin\u{fffd}txt.exe\u{fffd}\u{fffd}"
    );
    // A byte order mark says nothing at the start of a line.
    assert_eq!(
        text("\u{feff}name\n\u{feff}va\u{feff}lue\n"),
        "name\nva\u{fffd}lue"
    );
    // An unterminated sequence does not swallow the rest.
    assert_eq!(text("a\x1b]0;never closed\nb\x1b[12\nc\n"), "a\nb\nc");
    assert_eq!(text("a\x1bPnever closed\nb\nc\n"), "a\nb\nc");
    assert_eq!(text("a\x1bP1$tnever closed\nb\n"), "a\nb");
    // A real image spans several lines, but not lines that paint nothing.
    assert_eq!(
        text("a\x1bPq#1~~\n??\nerror: it broke\nb\n"),
        "a: it broke\nb"
    );
}

#[test]
fn c9_invalid_utf8_becomes_replacement_characters() {
    assert_eq!(
        text(b"a\xff\xfeb\xe2\x82\nc\xe2\x82\xac\n"),
        "a\u{fffd}\u{fffd}b\u{fffd}\nc€"
    );
}

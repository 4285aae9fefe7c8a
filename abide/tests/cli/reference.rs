//! The reference in the guide is generated from the program.

use std::path::Path;

use crate::harness::{Abide, text};

fn is_kept_in(page: &str, words: &[&str]) {
    let output = Abide::new().output(words);
    assert!(output.status.success(), "{output:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guide/src/reference");
    let kept = std::fs::read_to_string(path.join(page)).expect("a page of the guide");
    assert!(
        kept == text(&output.stdout),
        "guide/src/reference/{page} is not what `abide {}` prints; `make reference` writes it again",
        words.join(" ")
    );
}

#[test]
fn guide_reference_of_tools_is_current() {
    is_kept_in("tools.md", &["tools", "--format", "markdown"]);
}

#[test]
fn guide_reference_of_commands_is_current() {
    is_kept_in("cli.md", &["man", "--markdown"]);
}

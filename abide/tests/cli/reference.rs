//! The guide's reference is what the program says of itself.

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
fn the_guide_tells_of_the_tools_as_they_are() {
    is_kept_in("tools.md", &["tools", "--format", "markdown"]);
}

#[test]
fn the_guide_tells_of_the_commands_as_they_are() {
    is_kept_in("cli.md", &["man", "--markdown"]);
}

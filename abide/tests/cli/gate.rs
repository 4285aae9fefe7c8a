//! `abide gate` as a person would start it. What the gate does for a sandbox is tested in `tests/sandbox`.

use std::process::{Command, Stdio};

fn command(program: &str) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test is in the place of the keeper"
    )]
    Command::new(program)
}

#[test]
fn gate_without_sockets_says_who_starts_it() {
    let output = command(env!("CARGO_BIN_EXE_abide"))
        .arg("gate")
        .stdin(Stdio::null())
        .output()
        .expect("the gate");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        text.trim(),
        "the network gate cannot receive its sockets: Socket operation on non-socket (os error 88). \
         `abide gate` is started by abide itself."
    );
}

//! `shell`, sentence by sentence.

use serde_json::{Value, json};

use super::with_engine;

#[test]
fn the_text_has_the_contracts_layout() {
    with_engine(async |engine| {
        let result = engine.call("shell", json!({"command": "echo hello"})).await;
        assert_eq!(
            result.text,
            "COMMAND: echo hello\nSTATUS: SUCCESS\nRETURN_CODE: 0\nSTDOUT:\nhello\nSTDERR:"
        );
        assert_eq!(result.facts["text"], Value::String(result.text.clone()));
        assert!(!result.is_error);
    });
}

#[test]
fn an_exit_code_that_is_not_0_is_an_error_status() {
    with_engine(async |engine| {
        let result = engine.call("shell", json!({"command": "echo bad >&2; exit 3"})).await;
        assert_eq!(
            result.text,
            "COMMAND: echo bad >&2; exit 3\nSTATUS: ERROR\nRETURN_CODE: 3\nSTDOUT:\n\nSTDERR:\nbad"
        );
        assert_eq!(result.facts["exit_code"], 3);
        assert_eq!(result.facts["end"], "exited");
        assert!(!result.is_error);
    });
}

//! Random text for the reader of XML blocks. `PROPTEST_CASES` sets the number of cases.

use proptest::prelude::*;

use super::parse;

/// Text made of pieces of blocks, valid and invalid.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "<",
        ">",
        "</",
        "/>",
        "\"",
        "'",
        "=",
        " ",
        "\n",
        "&",
        ";",
        "&lt;",
        "&#",
        "&#x110000;",
        "&#0;",
        "]]>",
        "<![CDATA[",
        "<!--",
        "-->",
        "<tool",
        "<tool name=\"shell\">",
        "<tool name='timer'>",
        "<tool name=\"none\">",
        "</tool>",
        "<command>",
        "</command>",
        "<timeout>",
        "</timeout>",
        "<env>",
        "</env>",
        "true",
        "-1",
        "{\"a\":",
        "é",
        "\u{0}",
        "\u{feff}",
        "text",
    ];
    let pieces: Vec<String> = pieces.iter().map(|piece| (*piece).to_owned()).collect();
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_is_parsed_or_refused_with_its_line(text in text()) {
        let lines = text.split('\n').count();
        match parse(&text) {
            Ok(parsed) => {
                prop_assert!(parsed.blocks.iter().all(|block| block.line <= lines));
            }
            Err(error) => prop_assert!((1..=lines).contains(&error.line), "{}", error),
        }
    }

    #[test]
    fn command_in_a_block_arrives_unchanged(command in "[!-~é][ -~é\n]{0,40}[!-~é]") {
        let escaped = command.replace('&', "&amp;").replace('<', "&lt;");
        let text = format!("Before.\n<tool name=\"shell\">\n<command>{escaped}</command>\n</tool>");
        let blocks = parse(&text).expect("a block").blocks;
        prop_assert_eq!(blocks.len(), 1);
        prop_assert_eq!(blocks[0].arguments["command"].as_str(), Some(command.as_str()));
    }
}

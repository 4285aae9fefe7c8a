//! Random shell text for the reader of command lines. `PROPTEST_CASES` sets the number of cases.

use abide_core::policy::Parsed;
use proptest::prelude::*;

use super::{Surroundings, parse};

const WORK: Surroundings<'_> = Surroundings {
    folder: "/work",
    home: "/home",
    env: &[],
    stdin: None,
};

/// Text made of pieces of shell scripts, valid and invalid.
fn text() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "rm -rf x",
        "sudo ",
        "sh -c ",
        "eval ",
        "'",
        "\"",
        "`",
        "$(",
        ")",
        "(",
        "{ ",
        " }",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "\n",
        " ",
        "\\",
        "#",
        "<<E\n",
        "E\n",
        "<(",
        ">",
        "2>&1",
        "$",
        "${x:-",
        "}",
        "$((",
        "))",
        "if ",
        "then ",
        "fi",
        "for x in ",
        "do ",
        "done",
        "case x in ",
        "esac",
        "f() ",
        "[[ ",
        " ]]",
        "*",
        "~",
        "x=1 ",
        "!",
        "é",
        "\0",
    ];
    let pieces: Vec<String> = pieces.iter().map(|piece| (*piece).to_owned()).collect();
    prop::collection::vec(prop::sample::select(pieces), 0..40).prop_map(|all| all.concat())
}

/// Script with known programs, in constructs that run all of them.
fn script() -> impl Strategy<Value = (String, Vec<String>)> {
    let program = "p_[a-z]{1,6}".prop_map(|name| (name.clone(), vec![name]));
    program.prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            (
                inner.clone(),
                inner.clone(),
                prop::sample::select(vec![" ; ", " && ", " || ", " | ", "\n", " & "])
            )
                .prop_map(|((a, mut names), (b, more), between)| {
                    names.extend(more);
                    (format!("{a}{between}{b}"), names)
                }),
            (
                inner.clone(),
                prop::sample::select(vec![
                    ("( ", " )"),
                    ("{ ", "; }"),
                    ("if ", "; then :; fi"),
                    ("while ", "; do :; done"),
                    ("echo $( ", " )"),
                    ("echo \"x $( ", " )\""),
                    ("x=$( ", " ) :"),
                    ("cat <( ", " )"),
                    ("! { ", "; }"),
                ])
            )
                .prop_map(|((script, names), (before, after))| (
                    format!("{before}{script}{after}"),
                    names
                )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_text_is_parsed_or_reported_as_unparsed(text in text()) {
        let line = parse(&text, WORK);
        prop_assert_eq!(&line.text, &text);
        if text.contains('\0') {
            prop_assert!(matches!(line.parsed, Parsed::Unparsed(_)));
        }
    }

    #[test]
    fn every_program_of_a_script_is_found((script, names) in script()) {
        match parse(&script, WORK).parsed {
            // Reported as such, so a person is asked.
            Parsed::Unparsed(_) => {}
            Parsed::Commands(commands) => {
                let found: Vec<String> = (commands.iter())
                    .filter_map(|command| command.words.first()?.text())
                    .collect();
                for name in names {
                    prop_assert!(found.contains(&name), "{} is missing in {:?} of {}", name, found, script);
                }
            }
        }
    }
}

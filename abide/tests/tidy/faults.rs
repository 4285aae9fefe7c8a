//! The list of faults of fleets says which tests play each of them.

use std::collections::BTreeSet;

use super::{root, sources};

/// Numbers of the faults that the tests in these folders play.
fn played(folders: &[&str]) -> BTreeSet<u32> {
    let all = folders.iter().flat_map(|folder| sources(folder));
    let lines: Vec<String> = all.flat_map(|(_, text)| lines(&text)).collect();
    lines.iter().filter_map(|line| number(line)).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Number in a line such as `fn f21_daemon_stopped()`.
fn number(line: &str) -> Option<u32> {
    let name = line.strip_prefix("fn f")?;
    name.split_once('_')?.0.parse().ok()
}

#[test]
fn list_of_faults_names_the_tests_of_each() {
    let simulated = played(&["crates/core/tests/fleet"]);
    let real = played(&[
        "abide/tests/postgres",
        "abide/tests/fleet",
        "abide/tests/faults",
    ]);
    let list = std::fs::read_to_string(root().join("FAULTS.md")).expect("the list");
    let mut listed = BTreeSet::new();
    for row in list.lines().filter_map(|line| line.strip_prefix("| F")) {
        let cells: Vec<&str> = row
            .trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let Some(number) = cells.first().and_then(|cell| cell.parse().ok()) else {
            continue;
        };
        let kinds = [("simulated", &simulated), ("real", &real)];
        let kinds = kinds
            .iter()
            .filter(|(_, numbers)| numbers.contains(&number));
        let kinds: Vec<&str> = kinds.map(|(kind, _)| *kind).collect();
        assert!(!kinds.is_empty(), "F{number} has no test");
        let said = cells.last().copied();
        assert_eq!(
            said,
            Some(&*kinds.join(", ")),
            "tests of F{number} in FAULTS.md"
        );
        listed.insert(number);
    }
    let unlisted: Vec<&u32> = simulated
        .union(&real)
        .filter(|n| !listed.contains(n))
        .collect();
    assert!(unlisted.is_empty(), "not in FAULTS.md: {unlisted:?}");
}

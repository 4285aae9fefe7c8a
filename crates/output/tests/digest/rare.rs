//! Lines that differ from many similar ones.

use super::signals::{assert_shown, name, request, within};

#[test]
fn key_with_a_mark_that_it_has_nowhere_else_is_shown() {
    let resource = |n: usize| {
        let (of, replicas) = (name(n), n % 5 + 2);
        format!(
            "shop, {of}, Deployment has changed:\n  kind: Deployment\n    name: {of}\n      app: {of}\n        id: {of}\n\
             -   image: shop:1\n+   image: shop:2\n    replicas: {replicas}\n    cpu: 500m\n"
        )
    };
    let odd = "shop, ledger, Deployment has changed:\n  kind: Deployment\n-   image: shop:1\n+   image: shop:2\n\
               -   replicas: 6\n+   replicas: 4\n    cpu: 500m\n";
    assert_shown(
        &within(resource, odd),
        &["shop, ledger", "-   replicas: 6", "+   replicas: 4"],
    );
}

#[test]
fn rare_cell_of_a_drawn_table_is_shown_whatever_the_number_of_words() {
    let row = |n: usize, severity: &str| {
        let title = "word ".repeat(n % 20 + 1);
        format!(
            "│ {:<9} │ CVE-2020-{n:04} │ {severity:<8} │ {title:<100} │\n",
            name(n)
        )
    };
    let usual = |n: usize| row(n, if n.is_multiple_of(3) { "MEDIUM" } else { "LOW" });
    let odd = row(9_001, "HIGH") + &usual(9_002) + &row(9_004, "HIGH") + &row(9_006, "HIGH");
    assert_shown(
        &within(usual, &odd),
        &["CVE-2020-9001", "CVE-2020-9004", "CVE-2020-9006"],
    );
}

#[test]
fn each_of_few_lines_with_a_rare_begin_is_shown() {
    let odd: String = [
        (547, 16, "the statement"),
        (8_152, 16, "text is longer"),
        (1_205, 13, "chosen as victim"),
    ]
    .into_iter()
    .map(|(code, level, said)| {
        format!(
            "Msg {code}, Level {level}, Line {}\n{said}\n{}",
            code * 3,
            request(code)
        )
    })
    .collect();
    assert_shown(&within(request, &odd), &["Msg 547", "Msg 8152", "Msg 1205"]);
}

#[test]
fn each_line_with_a_level_at_its_end_is_a_kind_of_its_own() {
    let usual = |n: usize| {
        format!(
            "  - Checking {:<20} [ OK ]\n  * Not a problem of {}: there is not enough of it and it does not matter\n",
            name(n),
            name(n + 5)
        )
    };
    let warning = |of: &str| format!("  - {of:<30} [ WARNING ]\n");
    let odd: String = (1..4)
        .map(|n| {
            usual(n)
                + &warning(
                    [
                        "Checking packages",
                        "Permissions of homes",
                        "Running log daemon",
                    ][n - 1],
                )
        })
        .collect();
    assert_shown(
        &within(usual, &odd),
        &[
            "Checking packages",
            "Permissions of homes",
            "Running log daemon",
        ],
    );
}

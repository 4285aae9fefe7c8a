//! Rules: which of them decides, built-in ones, and the rules that "always" offers.

use abide_core::policy::{Action, Choice, Place, Policy, Rule, builtin_rules, offers};

use super::{WORK, all, builtin, decide, open, parse, place};

#[test]
fn p164_denied_command_is_found_after_fifty_others() {
    let text = format!("{}rm -rf /x", "true && ".repeat(50));
    assert_eq!(decide(&open(), &text), Action::Deny);
    all(
        &open(),
        Action::Deny,
        &[
            "rm -r -f /x",
            "rm -fr /x",
            "rm -rf //x/",
            "rm -rf /y/../x",
            "rm -rfv /x",
            "rm -Rf /x",
            "rm --recursive --force /x",
            "rm -R --forc /x",
            "rm -r? -f /x",
            "cd / && rm -rf x/../x || rm -rf /x",
        ],
    );
    all(
        &open(),
        Action::Allow,
        &["rm -rf /y", "rm -r /x", "rm -rf x", "rm --recursive /x"],
    );
}

#[test]
fn p165_deny_wins_then_the_more_specific_rule() {
    let rule = |action, run: &[&str]| Rule::new("", action, run);
    let decide_by = |rules: &[Rule]| {
        let policy = Policy {
            rules: rules.to_vec(),
            ..open()
        };
        decide(&policy, "git push origin")
    };
    let (deny, ask, allow) = (Action::Deny, Action::Ask, Action::Allow);
    for (rules, expected) in [
        (
            vec![
                rule(deny, &["git"]),
                rule(allow, &["git", "push", "origin"]),
            ],
            deny,
        ),
        (
            vec![rule(ask, &["git"]), rule(allow, &["git", "push"])],
            allow,
        ),
        (
            vec![rule(allow, &["git"]), rule(ask, &["git", "push"])],
            ask,
        ),
        (
            vec![rule(allow, &["git", "push"]), rule(ask, &["git", "push"])],
            ask,
        ),
        (
            vec![rule(ask, &["git", "push"]), rule(allow, &["git", "push"])],
            ask,
        ),
        (
            vec![rule(ask, &["git", "*"]), rule(allow, &["git", "push"])],
            allow,
        ),
        // `agent = "*"` is the default.
        (
            vec![
                rule(ask, &["git", "push"]),
                Rule {
                    agent: Some("*".into()),
                    ..rule(allow, &["git", "push"])
                },
            ],
            ask,
        ),
    ] {
        assert_eq!(decide_by(&rules), expected, "{rules:?}");
        let mut turned = rules;
        turned.reverse();
        assert_eq!(decide_by(&turned), expected, "{turned:?}");
    }
}

#[test]
fn p166_folder_of_a_rule_is_the_one_the_command_runs_in() {
    let mut policy = open();
    policy.rules = vec![Rule {
        folders: vec!["/other".into()],
        ..Rule::new("", Action::Ask, &["git", "push"])
    }];
    all(
        &policy,
        Action::Ask,
        &[
            "cd /other && git push",
            "cd /other/deep; git push",
            "pushd /other && git push",
            "git -C /other push",
            "(cd /other; git push)",
            "cd \"$X\" && git push",
            "if x; then cd y; fi; git push",
        ],
    );
    all(
        &policy,
        Action::Allow,
        &[
            "git push",
            "(cd /other); git push",
            "cd /others && git push",
            "cd /other & git push",
        ],
    );
}

#[test]
fn p167_agent_of_a_rule_is_a_pattern_of_the_whole_name() {
    let mut policy = open();
    policy.rules = vec![Rule {
        agent: Some("rev*".into()),
        ..Rule::new("", Action::Ask, &["git", "push"])
    }];
    for (agent, expected) in [
        ("reviewer", Action::Ask),
        ("rev", Action::Ask),
        ("re", Action::Allow),
        ("r\u{435}viewer", Action::Allow),
        ("", Action::Allow),
        ("*", Action::Allow),
    ] {
        let place = Place { agent, ..place() };
        let found = policy.decide(&parse("git push", WORK), &place).action;
        assert_eq!(found, expected, "{agent:?}");
    }
}

#[test]
fn p168_paths_in_rules_are_compared_without_detours() {
    let mut policy = open();
    policy.rules = vec![Rule::new("", Action::Ask, &["cat", "~/.ssh/id"])];
    all(
        &policy,
        Action::Ask,
        &[
            "cat ~/.ssh/id",
            "cat $HOME/.ssh/id",
            "cat /home/u//.ssh/x/../id",
            "cat ../../.ssh/id",
            "cat ~other/.ssh/id",
            "cat /home/u/.ssh/id/",
        ],
    );
    all(&policy, Action::Allow, &["cat .ssh/id"]);
}

#[test]
fn p170_recursive_deletes_of_roots() {
    all(
        &builtin(),
        Action::Deny,
        &[
            "rm -rf /",
            "rm -rf /*",
            "rm -rf ~",
            "rm -rf ~/",
            "rm -rf $HOME",
            "rm -rf \"$HOME\"/*",
            "rm -rf \"${HOME:?}\"",
            "rm -rf \"${HOME:?}\"/*",
            "rm -rf \"${HOME-}\"",
            "rm -rf ~/{*,.*}",
            "rm -rf \"$HOME/\"{*,.*}",
            "rm -rf \"${PWD:?}\"",
            "rm -rf .",
            "rm -rf ./",
            "rm -rf /home/u/src/work",
            "rm -r --no-preserve-root /",
            "sudo rm -rf /",
            "cd / && rm -rf .",
            "[ -d / ] && rm -rf /",
            "[[ -d / ]] && rm -rf /",
            "if [ \"$x\" = / ]; then rm -rf /; fi",
        ],
    );
    all(
        &builtin(),
        Action::Ask,
        &[
            "rm -rf \"$X\"/*",
            "rm -rf $X/",
            "rm -rf ..",
            "rm -rf *",
            "rm -rf ./*",
            "rm -rf {*,.*}",
            "rm -rf /home",
            "rm -rf .git",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "rm -rf target",
            "rm -rf \"$TMP\"",
            "rm -rf /tmp/x",
            "rm -f *",
            "rm -rf build/*",
            "rm -rf build/{*,.*}",
            "rm -rf {a,b}",
            "rm -rf \"${HOME:?}/.cache/pip\"",
            "rm x",
            "rm -rf /home/u/other",
        ],
    );
}

#[test]
fn default_of_an_expansion_counts_as_one_possible_value() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "rm ${O:--rf} /",
            "rm ${O--rf} /",
            "rm ${O:=-rf} /",
            "rm ${O:+-rf} /",
            "rm -rf ${D:-/}",
            "git push ${F:---force}",
            "git push \"${F:---force}\"",
            "git ${C:-push} --force",
            "git ${A:-${B:-push}} --force",
            "git ${1:-push} --force",
            "${P:-sudo} ls",
            "sh -c \"${C:-sudo ls}\"",
            "sh -c 'git ${C:-push} --force'",
            "npm ${A:-publish}",
            "c=${C:-push}; git $c --force",
            ": \"${O:=-rf}\"; rm $O /",
            "for x in ${L:-push}; do git $x --force; done",
            "[ -d / ] && git push ${F:---force}",
        ],
    );
    all(&builtin(), Action::Deny, &["rm -rf / ${X:-build}"]);
    all(
        &builtin(),
        Action::Allow,
        &[
            "rm ${O:--f} file",
            "rm -rf \"${X:-}/tmp/x\"",
            "rm -rf \"${OUT:-build}\"",
            "git push ${R:-origin} \"${B:-main}\"",
            "git push ${F:+--force-with-lease}",
            "npm ${A:-test}",
            "echo \"${X:-git push --force; sudo ls}\"",
            "cd ${DIR:-src} && make",
            "mv \"$f\" \"${f%.txt}.md\"",
            "echo ${X: -3} ${#X} ${X:1:2} ${X:?not set}",
        ],
    );
}

#[test]
fn unknown_word_asks_only_if_the_text_has_the_words_of_a_rule() {
    all(
        &builtin(),
        Action::Ask,
        &["read x <<< push; git $x --force"],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "git push $F",
            "git $x --force",
            "rm -f $FILE",
            "echo $X",
            "cd $DIR && make",
        ],
    );
}

#[test]
fn built_in_rules_ask_before_what_cannot_be_undone() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "git push --force",
            "git push -uf origin main",
            "git push origin +main",
            "git push origin :old",
            "npm publish",
            "cargo publish",
            "kubectl -n x delete pod y",
            "terraform apply",
            "aws ec2 terminate-instances --ids x",
            "gcloud compute instances delete x",
            "gh pr merge 5",
            "sudo true",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "git push",
            "git push --force-with-lease",
            "git commit -m 'rm -rf /; git push --force'",
            "npm install",
            "kubectl get pods",
            "terraform plan",
            "aws s3 ls",
            "echo sudo",
            "true",
        ],
    );
    assert!(
        builtin_rules()
            .iter()
            .all(|rule| !rule.why.is_empty() && !rule.name.is_empty())
    );
}

#[test]
fn p171_always_is_offered_only_with_a_rule_that_answers() {
    let offered = |policy: &Policy, text: &str| {
        let line = parse(text, WORK);
        assert_eq!(policy.decide(&line, &place()).action, Action::Ask, "{text}");
        let always = offers(policy, &line, &place()).into_iter();
        let mut always = always.filter(|offer| offer.choice == Choice::Always);
        let rules = always.next()?.rules;
        let mut proven = policy.clone();
        proven.rules.extend(rules.clone());
        assert_eq!(
            proven.decide(&line, &place()).action,
            Action::Allow,
            "{text}"
        );
        Some(
            rules
                .iter()
                .map(|rule| rule.run.join(" "))
                .collect::<Vec<_>>(),
        )
    };
    let asking = |runs: &[&[&str]]| Policy {
        rules: runs
            .iter()
            .map(|run| Rule::new("", Action::Ask, run))
            .collect(),
        ..open()
    };
    let npm = asking(&[&["npm"], &["python"], &["bash"]]);
    assert_eq!(
        offered(&npm, "npm run build"),
        Some(vec!["npm run build".into()])
    );
    assert_eq!(
        offered(&npm, "npm test -- x"),
        Some(vec!["npm test".into()])
    );
    assert_eq!(offered(&npm, "python -c 'x'"), None);
    assert_eq!(offered(&npm, "bash -lc x"), None);
    assert_eq!(
        offered(&npm, "cd x && npm test"),
        Some(vec!["npm test".into()])
    );
    assert_eq!(
        offered(&npm, "npm test && npm run build"),
        Some(vec!["npm test".into(), "npm run build".into()])
    );
    assert_eq!(offered(&npm, "npm test > out"), None);
    assert_eq!(offered(&npm, "npm test $X"), None);
    assert_eq!(
        offered(&builtin(), "sudo systemctl restart nginx"),
        Some(vec!["sudo systemctl restart nginx".into()])
    );
    for never in [
        "sudo bash",
        "sudo -u x true",
        "sudo make install",
        "sudo ./true",
        "sudo A=1 true",
        "sudo python3 x.py",
        "sudo tee /etc/x",
        "sudo",
        "sudo ls $X",
    ] {
        assert_eq!(offered(&builtin(), never), None, "{never}");
    }
    assert_eq!(
        offered(&builtin(), "git push --force"),
        Some(vec!["git push".into()])
    );
    assert_eq!(
        offered(&builtin(), "git -C x push --force"),
        Some(vec!["git -C x push --force".into()])
    );
    let line = parse("FOO=1 npm test", WORK);
    let always = offers(&npm, &line, &place()).into_iter();
    let rule = always
        .filter(|offer| offer.choice == Choice::Always)
        .find_map(|mut offer| offer.rules.pop());
    assert_eq!(rule.map(|rule| rule.env), Some(vec!["FOO=1".to_owned()]));
}

#[test]
fn always_for_a_command_as_root_allows_exactly_that_command() {
    let line = parse("sudo systemctl restart nginx", WORK);
    let always = offers(&builtin(), &line, &place()).into_iter();
    let always = always.filter(|offer| offer.choice == Choice::Always);
    let mut policy = builtin();
    policy.rules.extend(always.flat_map(|offer| offer.rules));
    all(&policy, Action::Allow, &["sudo systemctl restart nginx"]);
    all(
        &policy,
        Action::Ask,
        &[
            "sudo systemctl restart nginx ssh",
            "sudo systemctl restart",
            "sudo -E systemctl restart nginx",
            "PATH=. sudo systemctl restart nginx",
            "sudo systemctl restart nginx > /etc/x",
        ],
    );
}

#[test]
fn always_allows_no_more_than_the_call_that_it_was_made_from() {
    let asking = |program: &str| Policy {
        rules: vec![Rule::new("", Action::Ask, &[program])],
        ..open()
    };
    for (program, text, others) in [
        (
            "rm",
            "rm -v x",
            &["rm -v y", "rm x", "rm -v x y", "rm -rf x"][..],
        ),
        ("rm", "rm 'a*'", &["rm ab", "rm a*"]),
        ("touch", "touch 'a*' b", &["touch ab b"]),
        ("tool", "tool '...'", &["tool x"]),
        ("git", "git push origin '+*'", &["git pull"]),
        ("npm", "npm ru\\\nn build", &["npm ru", "npm run deploy"]),
        ("touch", "touch 'a\nb'", &["touch a"]),
        ("touch", "touch 'a\u{9b}b'", &["touch a"]),
    ] {
        let policy = asking(program);
        let line = parse(text, WORK);
        for offer in offers(&policy, &line, &place()) {
            let mut wider = policy.clone();
            wider.rules.extend(offer.rules);
            all(&wider, Action::Ask, others);
        }
    }
    let line = parse("rm -r build /etc/x", WORK);
    for offer in offers(&builtin(), &line, &place()) {
        let mut wider = builtin();
        wider.rules.extend(offer.rules);
        all(
            &wider,
            Action::Ask,
            &["rm -r build /etc/x /etc/y", "rm -r build /etc"],
        );
    }
    let shown = |policy: &Policy, text: &str| {
        let all = offers(policy, &parse(text, WORK), &place()).into_iter();
        let always = all.filter(|offer| offer.choice == Choice::Always);
        let mut rules = always.flat_map(|offer| offer.rules);
        rules.next().map(|rule| (rule.run.join(" "), rule.exact))
    };
    assert_eq!(
        shown(&asking("rm"), "rm -v x"),
        Some(("rm -v x".into(), true))
    );
    assert_eq!(
        shown(&asking("git"), "git push origin '+*'"),
        Some(("git push".into(), false))
    );
    assert_eq!(shown(&builtin(), "git push origin '+*'"), None);
    assert_eq!(shown(&asking("touch"), "touch 'a*' b"), None);
    assert_eq!(
        shown(&asking("npm"), "npm \\\n test"),
        Some(("npm test".into(), false))
    );
}

#[test]
fn always_for_a_program_of_the_directory_holds_there_only() {
    let policy = Policy {
        rules: vec![Rule::new("", Action::Ask, &["./deploy.sh"])],
        ..open()
    };
    let line = parse("./deploy.sh", WORK);
    let choices: Vec<&str> = (offers(&policy, &line, &place()).iter())
        .map(|offer| offer.choice.as_str())
        .collect();
    assert_eq!(choices, ["once", "this agent", "always here", "no"]);
}

#[test]
fn always_here_and_this_agent_hold_nowhere_else() {
    let line = parse("git push --force", WORK);
    let offers = offers(&builtin(), &line, &place());
    let choices: Vec<&str> = offers.iter().map(|offer| offer.choice.as_str()).collect();
    assert_eq!(
        choices,
        ["once", "this agent", "always here", "always", "no"]
    );
    for offer in offers {
        let mut policy = builtin();
        policy.rules.extend(offer.rules);
        let elsewhere = policy
            .decide(&parse("git push --force", "/srv"), &place())
            .action;
        let other = Place {
            agent: "other",
            ..place()
        };
        let by_other = policy.decide(&line, &other).action;
        let expected = match offer.choice {
            Choice::Once | Choice::No => (Action::Ask, Action::Ask),
            Choice::ThisAgent => (Action::Allow, Action::Ask),
            Choice::AlwaysHere => (Action::Ask, Action::Allow),
            Choice::Always => (Action::Allow, Action::Allow),
        };
        assert_eq!((elsewhere, by_other), expected, "{:?}", offer.choice);
        assert_eq!(
            policy
                .decide(&parse("git push origin +x", WORK), &place())
                .action,
            Action::Ask,
            "{:?}",
            offer.choice
        );
    }
}

#[test]
fn hostile_text_never_panics() {
    let pieces = [
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "<<E\n",
        "E\n",
        "{",
        "}",
        ";",
        "&&",
        "|",
        "git push",
        "rm -rf /",
        "$x",
        "~",
        "\\",
        "=",
        "bash -c ",
        "eval ",
        "env ",
        "find . -exec ",
        "((",
        "[[",
        "\u{202e}",
        "-",
        "--",
        "sudo -u",
        "git -c alias.",
        "#",
    ];
    let mut seed = 7_u64;
    for _ in 0..3_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[usize::try_from(seed >> 33).unwrap_or(0) % pieces.len()]);
            if seed >> 60 > 8 {
                text.push(' ');
            }
        }
        let line = parse(&text, WORK);
        let decision = builtin().decide(&line, &place());
        assert!(
            decision.action != Action::Ask || decision.reason.is_some(),
            "{text:?}"
        );
        offers(&builtin(), &line, &place());
    }
}

#[test]
fn builtin_rules_ask_before_work_and_data_are_lost() {
    all(
        &builtin(),
        Action::Ask,
        &[
            "git reset --hard",
            "git reset -q --hard origin/main",
            "git clean -fdx",
            "git clean -d --force",
            "git checkout -- .",
            "git checkout .",
            "git checkout HEAD -- .",
            "git restore .",
            "git -C sub restore --source=HEAD .",
            "git stash drop",
            "git stash clear",
            "psql -c 'DROP TABLE users'",
            "psql -h db app -c 'begin; drop  schema public cascade; commit'",
            "psql --command='truncate users'",
            "psql app <<E\nDROP DATABASE app;\nE",
            "echo 'drop database app' | mysql -u root",
            "mysql -e 'Drop Table users' app",
            "mysql -e'DROP TABLE users'",
            "sqlite3 app.db 'DROP TABLE users;'",
            "docker compose exec db psql -c 'DROP TABLE users'",
            "dropdb app",
            "redis-cli -h cache FLUSHALL",
            "docker volume rm data",
            "podman volume prune -f",
            "docker system prune -af --volumes",
            "docker compose down -v",
            "docker compose -f dev.yml down --volumes",
        ],
    );
    all(
        &builtin(),
        Action::Allow,
        &[
            "git reset HEAD~1",
            "git reset --soft HEAD~1",
            "git reset file",
            "git clean -nd",
            "git clean --dry-run -fd",
            "git checkout main",
            "git checkout -b topic",
            "git checkout -- src/main.rs",
            "git restore --staged .",
            "git restore src/main.rs",
            "git stash pop",
            "git branch -D topic",
            "psql -c 'SELECT * FROM users'",
            "psql -c \"SELECT * FROM users WHERE id = $id\"",
            "psql -c 'DROP INDEX a'",
            "psql -c \"SELECT 'drop table x'\"",
            "psql -f drop.sql",
            "mysql -u root -p app",
            "redis-cli get a",
            "docker volume ls",
            "docker system prune -f",
            "docker compose down",
            "docker run -v data:/x a",
        ],
    );
}

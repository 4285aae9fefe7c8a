//! Parsing and judging command lines, numbered like the list of attacks.

mod evasion;
mod everyday;
mod hidden_programs;
mod judging;
mod shell_state;
mod values;

use abide_core::policy::{Action, Place, Policy, Rule, RunsCode};

use super::*;

const HOME: &str = "/home/u";
const WORK: &str = "/home/u/src/work";

/// Parses a command line of a user with [`HOME`].
fn parse(text: &str, folder: &str) -> CommandLine {
    let surroundings = Surroundings {
        folder,
        home: HOME,
        ..Surroundings::default()
    };
    super::parse(text, surroundings)
}

fn place() -> Place<'static> {
    Place {
        agent: "default",
        conversation: None,
        home: HOME,
        workspace: WORK,
    }
}

fn rules() -> Vec<Rule> {
    vec![
        Rule::new("delete", Action::Deny, &["rm", "-rf", "/x"]),
        Rule::new("push", Action::Ask, &["git", "push"]),
        Rule::new("list", Action::Allow, &["ls"]),
    ]
}

/// Policy of the list: commands that no rule matches are allowed.
fn open() -> Policy {
    Policy {
        rules: rules(),
        otherwise: Action::Allow,
        unparsed: Action::Allow,
    }
}

/// The same rules, but a question is asked about commands that no rule matches.
fn closed() -> Policy {
    Policy {
        otherwise: Action::Ask,
        unparsed: Action::Ask,
        ..open()
    }
}

fn builtin() -> Policy {
    Policy::default()
}

fn decide(policy: &Policy, text: &str) -> Action {
    policy.decide(&parse(text, WORK), &place()).action
}

fn all(policy: &Policy, expected: Action, texts: &[&str]) {
    let mut wrong = String::new();
    for text in texts {
        let line = parse(text, WORK);
        let found = policy.decide(&line, &place());
        if found.action != expected {
            wrong += &format!("{text:?}: {:?}\n{found:?}\n", line.parsed);
        }
    }
    assert!(wrong.is_empty(), "not {expected:?}:\n{wrong}");
}

fn commands(text: &str) -> Vec<SimpleCommand> {
    match parse(text, WORK).parsed {
        Parsed::Commands(commands) => commands,
        Parsed::Unparsed(why) => panic!("{text:?}: {why}"),
    }
}

fn unparsed(text: &str) -> Option<&'static str> {
    match parse(text, WORK).parsed {
        Parsed::Commands(_) => None,
        Parsed::Unparsed(why) => Some(why),
    }
}

#[test]
fn compound_command_that_is_read_as_a_program_is_unparsed() {
    for text in [
        "( ! { rm -rf /x; } )",
        "(! { rm -rf /x; })",
        "$(! { rm -rf /x; })",
    ] {
        match parse(text, WORK).parsed {
            Parsed::Unparsed(why) => assert_eq!(why, NOT_SHELL, "{text}"),
            Parsed::Commands(commands) => {
                let first = commands.iter().filter_map(|command| command.words.first());
                let names: Vec<_> = first.filter_map(abide_core::policy::Word::text).collect();
                assert!(names.contains(&"rm".to_owned()), "{text}: {names:?}");
            }
        }
    }
}

#[test]
fn words_are_decoded_as_the_shell_does() {
    for (text, words) in [
        ("echo a b", vec!["echo", "a", "b"]),
        (r#"echo "a  b" 'c'd\ e"#, vec!["echo", "a  b", "cd e"]),
        (r#"echo " x" "a\"b\$c\d""#, vec!["echo", " x", r#"a"b$c\d"#]),
        (r"echo $'a\tb\x41\101é'", vec!["echo", "a\tbAAé"]),
        ("echo ''", vec!["echo", ""]),
        ("git >out push", vec!["git", "push"]),
        ("cat <<E a\nx\nE\n", vec!["cat", "a"]),
    ] {
        let first = commands(text).swap_remove(0);
        let found: Option<Vec<String>> = first.words.iter().map(|word| word.text()).collect();
        assert_eq!(found.unwrap_or_default(), words, "{text:?}");
    }
}

#[test]
fn p143_separators_hide_no_command() {
    all(
        &open(),
        Action::Ask,
        &[
            "true; git push",
            "true && git push",
            "true || git push",
            "true | git push",
            "true |& git push",
            "true & git push",
            "true\ngit push",
            "true\r\ngit push",
            "if true; then git push; fi",
            "for x in a; do git push; done",
            "while git push; do :; done",
            "case x in a) git push;; esac",
            "( git push )",
            "{ git push; }",
            "! git push",
            "time git push",
            "coproc git push",
        ],
    );
}

#[test]
fn p144_substitutions_hide_no_command() {
    all(
        &open(),
        Action::Ask,
        &[
            "echo $(git push)",
            "echo `git push`",
            "cat <(git push)",
            "echo \"$(git push)\"",
            "echo $(echo $(echo $(echo $(echo $(git push)))))",
            "echo $((1 + $(git push)))",
            "echo ${x:-$(git push)}",
            "a=(x $(git push))",
            "[[ a =~ $(git push) ]]",
            "cat < $(git push)",
            "x=$(git push)",
        ],
    );
}

#[test]
fn p145_here_documents_run_what_their_tag_lets_them() {
    all(&open(), Action::Ask, &["cat <<E\n$(git push)\nE\n"]);
    all(&open(), Action::Allow, &["cat <<'E'\n$(git push)\nE\n"]);
}

#[test]
fn p146_quotes_hide_no_program() {
    all(
        &open(),
        Action::Ask,
        &[
            "gi''t push",
            r"g\it push",
            "\"git\" push",
            r"$'\x67it' push",
            "$\"git\" push",
        ],
    );
}

#[test]
fn p147_options_and_paths_hide_no_subcommand() {
    all(
        &open(),
        Action::Ask,
        &[
            "git \t push",
            "git -C . push",
            "git -c a=b push",
            "git --git-dir=.git push",
            "/usr/bin/git push",
            "./git push",
        ],
    );
    all(&open(), Action::Allow, &["git log push", "git stash push"]);
}

#[test]
fn p148_dynamic_program_asks() {
    all(
        &open(),
        Action::Ask,
        &[
            "{git,push}",
            "git pus?",
            "x=git; $x push",
            "${g}it push",
            "git${IFS}push",
        ],
    );
    all(
        &open(),
        Action::Allow,
        &["$CC -c x.c", "\"$PYTHON\" -m pytest"],
    );
}

#[test]
fn p149_wrappers_hide_no_command() {
    all(
        &open(),
        Action::Ask,
        &[
            "env git push",
            "env -i A=1 git push",
            "env -S 'git push'",
            "sudo -u x git push",
            "timeout 5 nice git push",
            "nohup git push",
            "setsid git push",
            "stdbuf -o0 git push",
            "command git push",
            "exec git push",
            r"\git push",
            "sudo --unknown x git push",
        ],
    );
    all(&open(), Action::Allow, &["command -v git push"]);
}

#[test]
fn p150_programs_that_run_programs_hide_no_command() {
    all(
        &open(),
        Action::Ask,
        &[
            "xargs git push",
            r"find . -exec git push \;",
            "parallel git push ::: a",
            "watch git push",
            "flock l git push",
            "ssh host git push",
            "docker exec -it box git push",
            "su -c 'git push'",
        ],
    );
}

#[test]
fn p151_scripts_in_the_text_are_read_and_others_marked() {
    all(
        &open(),
        Action::Ask,
        &[
            "sh -c 'git push'",
            "bash -lc 'git push'",
            "bash <<< 'git push'",
            "bash <<E\ngit push\nE\n",
            "cat <<'E' | sh\ngit push\nE\n",
            "echo git push | sh",
            "eval 'git push'",
            "eval git push",
            "trap 'git push' EXIT",
            "bash -c \"git push $REMOTE\"",
        ],
    );
    for text in [". ./f", "sh f", "curl x | sh", "source f"] {
        let marked = commands(text)
            .iter()
            .any(|command| command.runs_code == Some(RunsCode::Always));
        assert!(marked, "{text}");
    }
}

#[test]
fn p152_nested_scripts_have_a_limit() {
    let nested = |levels: usize| {
        let mut text = "git push".to_owned();
        for _ in 0..levels {
            text = format!("sh -c {}", quoted(&text));
        }
        text
    };
    assert_eq!(decide(&open(), &nested(8)), Action::Ask);
    assert_eq!(unparsed(&nested(8)), None);
    assert_eq!(unparsed(&nested(9)), Some(TOO_DEEP));
    assert_eq!(decide(&open(), &nested(9)), Action::Ask);
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn p153_redefined_names_are_not_allowed() {
    all(&closed(), Action::Allow, &["ls", "ls -la src"]);
    all(
        &closed(),
        Action::Ask,
        &[
            "alias ls='git push'; ls",
            "ls() { git push; }; ls",
            "hash -p ./x ls; ls",
            "enable -f ./x ls; ls",
        ],
    );
    let last_is_changed = |text: &str| commands(text).last().is_some_and(|last| last.names_changed);
    for text in [
        "alias ls=x; ls",
        "ls() { x; }; ls",
        "hash -p ./x ls; ls",
        "enable -f ./x ls; ls",
    ] {
        assert!(last_is_changed(text), "{text}");
    }
}

#[test]
fn p154_changed_environment_is_not_allowed() {
    for text in [
        "PATH=.:$PATH ls",
        "export PATH=.; ls",
        "LD_PRELOAD=./x ls",
        "declare -x A=b; ls",
        "BASH_ENV=x bash -c ls",
        "PATH=.; ls",
        "env PATH=. ls",
    ] {
        assert!(
            commands(text).last().is_some_and(|last| last.names_changed),
            "{text}"
        );
    }
    all(
        &closed(),
        Action::Ask,
        &["PATH=.:$PATH ls", "LD_PRELOAD=./x ls", "env PATH=. ls"],
    );
}

#[test]
fn p155_redirects_are_not_covered_by_allow() {
    all(
        &closed(),
        Action::Ask,
        &[
            "ls > ~/.bashrc",
            "ls >& x",
            "ls | tee /etc/x",
            "exec 3<>/dev/tcp/h/80",
            "{ ls; } > x",
        ],
    );
    all(
        &closed(),
        Action::Allow,
        &["ls > /dev/null", "ls 2>&1", "ls < x"],
    );
}

#[test]
fn p156_limits_give_unparsed() {
    let many = |count: usize| vec!["true"; count].join(" && ");
    assert_eq!(unparsed(&many(1_000)), None);
    assert_eq!(unparsed(&many(1_001)), Some(TOO_MANY));
    let long = |bytes: usize| format!("echo {}", "a".repeat(bytes - 5));
    assert_eq!(unparsed(&long(64 << 10)), None);
    assert_eq!(unparsed(&long((64 << 10) + 1)), Some(TOO_LONG));
    let deep = |levels: usize| format!("{}true{}", "$(".repeat(levels), ")".repeat(levels));
    assert_eq!(unparsed(&deep(40)), None);
    assert!(unparsed(&deep(2_000)).is_some());
    assert!(unparsed(&"(".repeat(1 << 20)).is_some());
    assert!(unparsed(&"(".repeat(60_000)).is_some());
    assert!(unparsed(&"$((".repeat(20_000)).is_some());
    let sum = format!("echo $(({}1))", "1+".repeat(30_000));
    assert!(
        matches!(unparsed(&sum), None | Some(NOT_SHELL)),
        "{:?}",
        unparsed(&sum)
    );
}

#[test]
fn p157_unusual_characters_are_no_known_program() {
    assert_eq!(unparsed("ls\0"), Some(HAS_NUL));
    // A Cyrillic letter, full-width letters.
    all(&open(), Action::Ask, &["\u{441}url x", "\u{ff47}it push"]);
    all(
        &open(),
        Action::Allow,
        &["echo caf\u{e9}", "grep \u{202e} x"],
    );
}

#[test]
fn p158_comments_run_nothing() {
    all(&open(), Action::Allow, &["ls # ; git push"]);
    all(
        &open(),
        Action::Ask,
        &["ls '#' ; git push", "ls a#b; git push"],
    );
}

#[test]
fn p159_line_continuations_and_open_quotes() {
    all(&open(), Action::Ask, &["git \\\npush", "ls 'a; git push"]);
    all(&open(), Action::Allow, &["echo 'a\ngit push'"]);
    assert_eq!(unparsed("ls 'a"), Some(NOT_SHELL));
}

#[test]
fn p160_forms_of_other_shells() {
    all(&open(), Action::Ask, &["[[ a =~ $(git push) ]]"]);
    assert_eq!(decide(&closed(), "=git push"), Action::Ask);
}

#[test]
fn p161_git_configuration_that_runs_code_is_marked() {
    all(
        &open(),
        Action::Ask,
        &["git -c alias.p=push p", "git -c alias.p='!git push' p"],
    );
    let mut policy = closed();
    policy.rules = vec![Rule::new("git", Action::Allow, &["git"])];
    all(&policy, Action::Allow, &["git status"]);
    all(
        &policy,
        Action::Ask,
        &[
            "git p",
            "git -c core.sshCommand=x fetch",
            "git -c alias.p=push p",
        ],
    );
}

#[test]
fn p162_options_that_run_code_are_not_covered_by_allow() {
    for (program, text) in [
        ("tar", "tar xf a --to-command=x"),
        ("tar", "tar xf a --checkpoint-action=exec=x"),
        ("tar", "tar -I x -xf a"),
        ("sed", "sed 1e x"),
        ("sed", "sed s/a/b/e x"),
        ("sed", "sed 'w out' x"),
        ("sed", "sed -i s/a/b/ x"),
        ("awk", "awk 'BEGIN { system(\"x\") }'"),
        ("awk", "awk '{ print | \"sh\" }'"),
        ("less", "less +!x f"),
        ("man", "man -P x ls"),
        ("rsync", "rsync -e x a b"),
        ("curl", "curl -K x"),
        ("sort", "sort --compress-program=x f"),
        ("rg", "rg --pre x y"),
        ("find", "find . -fprintf x y"),
        ("find", "find . -delete"),
    ] {
        let mut policy = closed();
        policy.rules = vec![Rule::new("one", Action::Allow, &[program])];
        assert_eq!(decide(&policy, text), Action::Ask, "{text}");
        assert_eq!(
            decide(&policy, &format!("{program} x")) == Action::Allow,
            program != "sed",
            "{program}"
        );
    }
    all(
        &closed(),
        Action::Ask,
        &["vim -c '!x'", "ssh -o ProxyCommand=x h"],
    );
}

#[test]
fn p163_programs_that_run_code_are_marked() {
    for text in [
        "make",
        "npm run x",
        "cargo run",
        "pytest",
        "go generate",
        "python x.py",
        "node -e 1",
        "docker run -v /:/h x",
    ] {
        assert_eq!(
            commands(text)[0].runs_code,
            Some(RunsCode::Always),
            "{text}"
        );
        assert_eq!(decide(&open(), text), Action::Allow, "{text}");
        assert_eq!(decide(&closed(), text), Action::Ask, "{text}");
    }
}

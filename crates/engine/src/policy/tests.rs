//! Files of rules: read whole or not at all, changed by "always", and the audit log.

use std::os::unix::fs::PermissionsExt;

use abide_api::AuditLine;

use super::*;
use crate::clock::Clock;

struct Installation {
    folder: tempfile::TempDir,
    store: PolicyStore,
}

impl Installation {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = PolicyStore {
            home: "/home/u".into(),
            ..PolicyStore::new(&folder.path().join("config.toml"))
        };
        Installation { folder, store }
    }

    fn write(&self, text: &str) {
        let path = self.folder.path().join("config.toml");
        private_file::write(&path, text).expect("a file");
    }

    fn judge_as(
        &self,
        agent: &str,
        conversation: Option<&Conversation>,
        text: &str,
    ) -> Result<PolicyEvaluation, BrokenPolicy> {
        let (agent, work) = (Agent(agent.into()), self.folder.path());
        self.store.judge(JudgedCommand {
            agent: &agent,
            conversation,
            folder: work,
            workspace: work,
            command: text,
            env: &[],
            stdin: None,
        })
    }

    fn judge(&self, text: &str) -> Result<Action, String> {
        let judged = self.judge_as("default", None, text);
        judged
            .map(|judged| judged.decision.action)
            .map_err(|broken| broken.0.to_string())
    }

    fn offer(&self, text: &str, choice: Choice) -> Vec<Rule> {
        let judged = self.judge_as("default", None, text);
        let offers = judged.expect("a policy").offers.into_iter();
        let mut offers = offers.filter(|offer| offer.choice == choice);
        offers.next().expect("an offer").rules
    }
}

const PUSH: &str =
    "[[policy.rule]]\nrun = [\"git\", \"push\"]\ndo = \"ask\"\nwhy = \"others see it\"\n";

#[test]
fn missing_file_gives_the_built_in_rules() {
    let made = Installation::new();
    assert_eq!(made.judge("git push --force"), Ok(Action::Ask));
    assert_eq!(made.judge("rm -rf /"), Ok(Action::Deny));
    assert_eq!(made.judge("cargo build"), Ok(Action::Allow));
}

#[test]
fn built_in_rules_can_be_removed_and_replaced() {
    let made = Installation::new();
    made.write("[policy]\nwithout = [\"force-push\", \"delete-root\"]\n");
    assert_eq!(made.judge("git push --force"), Ok(Action::Allow));
    assert_eq!(made.judge("sudo true"), Ok(Action::Ask));
    made.write("[[policy.rule]]\nname = \"root-user\"\nrun = [\"sudo\", \"apt\"]\ndo = \"deny\"\n");
    assert_eq!(made.judge("sudo apt update"), Ok(Action::Deny));
    assert_eq!(made.judge("sudo true"), Ok(Action::Allow));
    made.write(
        "[[policy.rule]]\nrun = [\"git\", \"push\"]\nwith = [\"--force\"]\ndo = \"allow\"\n",
    );
    assert_eq!(made.judge("git push --force"), Ok(Action::Allow));
}

#[test]
fn p169_changed_file_is_read_whole_and_broken_file_refuses() {
    let made = Installation::new();
    made.write(PUSH);
    assert_eq!(made.judge("git push"), Ok(Action::Ask));
    for (text, why) in [
        ("[policy", "config.toml: line 1: "),
        (
            "[policy]\nunknown = 1\n",
            "config.toml: line 2: unknown field `unknown`",
        ),
        (
            "[[policy.rule]]\nrun = [\"a\"]\ndo = \"perhaps\"\n",
            "line 3: unknown variant `perhaps`",
        ),
        (
            "# rules\n\n[[policy.rule]]\nrun = []\ndo = \"ask\"\n",
            "config.toml: line 3: rule \"rule-1\": `run` needs words",
        ),
        (
            "[[policy.rule]]\nrun = [\"a\"]\ndo = \"ask\"\nfolder = \"src\"\n",
            "`folder` must be",
        ),
        (
            "[[policy.rule]]\nrun = [\"a\"]\ndo = \"ask\"\nnot_a_key = 1\n",
            "line 4: unknown field `not_a_key`",
        ),
        (
            "[policy]\nwithout = [\"x\"]\n",
            "line 2: `policy.without` names \"x\", which is no built-in rule; these are delete-root",
        ),
        (
            "[[policy.rule]]\nrun = [\"git\", \"push\"]\ndo = \"ask\"\nmatches = [\"git pull\"]\n",
            "it does not match its example \"git pull\"",
        ),
        (
            "[[policy.rule]]\nrun = [\"git\", \"push\"]\ndo = \"ask\"\nmatches_not = [\"true; git push\"]\n",
            "it matches its example \"true; git push\"",
        ),
    ] {
        made.write(text);
        let refused = made.judge("true").unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    made.write(PUSH);
    assert_eq!(made.judge("git push"), Ok(Action::Ask));
    let path = made.folder.path().join("config.toml");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("a mode");
    assert!(
        made.judge("true")
            .unwrap_err()
            .contains("can be written by other users")
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    made.write(&"#".repeat(2 << 20));
    assert!(
        made.judge("true")
            .unwrap_err()
            .contains("larger than 1 MiB")
    );
    std::fs::remove_file(&path).expect("removed");
    std::fs::create_dir(&path).expect("a folder");
    assert!(made.judge("true").unwrap_err().contains("config.toml: "));
}

#[test]
fn p168_folder_of_a_rule_is_found_through_symbolic_links() {
    let made = Installation::new();
    let work = made.folder.path().canonicalize().expect("a path");
    let link = made.folder.path().join("link");
    std::os::unix::fs::symlink(&work, &link).expect("a link");
    for folder in [work.join("x/.."), link] {
        made.write(&format!("{PUSH}folder = \"{}/\"\n", folder.display()));
        assert_eq!(made.judge("git push"), Ok(Action::Ask), "{folder:?}");
        assert_eq!(
            made.judge("cd / && git push"),
            Ok(Action::Allow),
            "{folder:?}"
        );
    }
}

#[test]
fn p172_rule_of_always_is_read_back_listed_and_removed() {
    let made = Installation::new();
    made.write(PUSH);
    let rules = made.offer("git push origin", Choice::Always);
    made.store
        .remember(Choice::Always, &rules)
        .expect("written");
    assert_eq!(made.judge("git push origin"), Ok(Action::Allow));
    let again = PolicyStore::new(&made.folder.path().join("config.toml"));
    let kept: Vec<Rule> = again.policy().expect("rules").rules.clone();
    let kept: Vec<&Rule> = kept
        .iter()
        .filter(|rule| rule.source == Source::Remembered)
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].name, "always-1");
    let mode = std::fs::metadata(again.remembered_file())
        .expect("the file")
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(again.remove("always-1").expect("removed"));
    assert!(!again.remove("always-1").expect("removed"));
    assert_eq!(made.judge("git push origin"), Ok(Action::Ask));
}

#[test]
fn rule_that_always_has_added_before_is_not_added_again() {
    let made = Installation::new();
    let text = "[[rule]]\nrun = [\"git\", \"push\"]\ndo = \"allow\"\n";
    for _ in 0..2 {
        let kept = made.store.remember_text(Choice::Always, text, None);
        kept.expect("written");
    }
    let kept = made.store.remembered().expect("rules").rules;
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[test]
fn rule_beyond_the_maximum_is_refused_and_rules_can_be_removed() {
    let made = Installation::new();
    let rules = |count: usize| {
        let rules = (0..count).map(|n| format!("[[rule]]\nrun = [\"a{n}\"]\ndo = \"allow\"\n"));
        rules.collect::<String>()
    };
    let always = |text: &str| made.store.remember_text(Choice::Always, text, None);
    always(&rules(MAX_REMEMBERED)).expect("written");
    let one_more = "[[rule]]\nrun = [\"more\"]\ndo = \"allow\"\n";
    let refused = always(one_more).expect_err("no room").to_string();
    assert!(
        refused.contains("policy.toml is full; remove rules"),
        "{refused}"
    );
    let host = |host: &str| {
        let (agent, work) = (Agent("default".into()), made.folder.path());
        let store = &made.store;
        store.remember_host(Choice::AlwaysHere, host, &agent, None, work)
    };
    host("allowed.test:443").expect_err("no room");
    assert_eq!(made.judge("true"), Ok(Action::Allow));
    assert!(made.store.remove("always-7").expect("removed"));
    always(one_more).expect("written");
    // A file that a person has written may have more.
    let path = made.store.remembered_file();
    private_file::write(path, &rules(MAX_REMEMBERED + 2)).expect("a file");
    assert_eq!(made.judge("true"), Ok(Action::Allow));
    assert!(made.store.remove("always-7").expect("removed"));
}

#[test]
fn rules_that_do_not_fit_the_file_are_refused() {
    let made = Installation::new();
    let long = "x".repeat(MAX_FILE as usize);
    let text = format!("[[rule]]\nrun = [\"{long}\"]\ndo = \"allow\"\n");
    let refused = made.store.remember_text(Choice::Always, &text, None);
    refused.expect_err("too large");
    assert_eq!(made.judge("true"), Ok(Action::Allow));
}

#[test]
fn file_that_is_empty_for_a_moment_leaves_its_rules_in_force() {
    let made = Installation::new();
    made.write(PUSH);
    assert_eq!(made.judge("git push"), Ok(Action::Ask));
    made.write("");
    assert_eq!(made.judge("git push"), Ok(Action::Ask));
    std::fs::remove_file(made.folder.path().join("config.toml")).expect("removed");
    assert_eq!(made.judge("git push"), Ok(Action::Ask));
    made.write("# no rules");
    assert_eq!(made.judge("git push"), Ok(Action::Allow));
}

#[test]
fn this_agent_holds_for_its_conversation_only() {
    let made = Installation::new();
    let rules = made.offer("git push --force", Choice::ThisAgent);
    made.store
        .remember(Choice::ThisAgent, &rules)
        .expect("kept");
    assert_eq!(made.judge("git push --force"), Ok(Action::Allow));
    let judge_as = |agent: &str, conversation: Option<&Conversation>| {
        let judged = made.judge_as(agent, conversation, "git push --force");
        judged.expect("a policy").decision.action
    };
    assert_eq!(judge_as("other", None), Action::Ask);
    assert_eq!(
        judge_as("default", Some(&Conversation("c".into()))),
        Action::Ask
    );
}

#[test]
fn audit_log_keeps_entries_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = three_lines(&folder.path().join("audit"));
    let commands = |most| {
        let entries = log.read(0, most).into_iter();
        entries.map(|entry| entry.command).collect::<Vec<_>>()
    };
    assert_eq!(commands(10), ["a", "b", "c"]);
    assert_eq!(commands(2), ["b", "c"]);
    assert!(log.read(u64::MAX, 10).is_empty());
}

fn three_lines(folder: &Path) -> audit::AuditLog {
    let log = audit::AuditLog::new(folder.to_owned());
    for command in ["a", "b", "c"] {
        append(&log, command);
    }
    log
}

fn append(log: &audit::AuditLog, command: &str) {
    log.append(AuditLine {
        event: "deny".into(),
        command: command.into(),
        ..AuditLine::default()
    });
}

#[test]
fn audit_log_is_made_again_after_its_folder_was_removed() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("audit");
    let log = three_lines(&folder);
    std::fs::remove_dir_all(&folder).expect("the log is removed");
    append(&log, "d");
    let lines = log.read(0, 10);
    let commands: Vec<&str> = lines.iter().map(|line| &*line.command).collect();
    assert_eq!(commands, ["d"]);
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).expect("a folder");
    files.next().expect("a file").expect("an entry").path()
}

#[test]
fn audit_chain_holds_over_writers_interrupted_lines_and_days() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = three_lines(folder.path());
    // Another process, and then the first one again.
    append(&audit::AuditLog::new(folder.path().to_owned()), "d");
    append(&log, &"long ".repeat(100_000));
    append(&log, "f");
    let found = log.verify().expect("a chain");
    assert_eq!(
        (found.lines, found.torn, found.older_removed),
        (6, 0, false)
    );
    let file = only_file(folder.path());
    let text = std::fs::read(&file).expect("a file");
    std::fs::write(&file, &text[..text.len() - 5]).expect("a file");
    assert!(matches!(
        log.verify(),
        Err(audit::VerifyFault::Unreadable { line: 6, .. })
    ));
    append(&log, "g");
    let found = log.verify().expect("a chain");
    assert_eq!((found.lines, found.torn), (7, 1));
    std::fs::rename(&file, folder.path().join("2020-01-01.jsonl")).expect("an older file");
    let later = audit::AuditLog::new(folder.path().to_owned());
    later.append(AuditLine::default());
    // The file of another day is older than 90 days and is removed: the chain begins later.
    let found = later.verify().expect("a chain");
    assert_eq!((found.lines, found.older_removed), (1, false));
}

#[test]
fn audit_chain_goes_on_in_the_file_of_the_next_day() {
    let folder = tempfile::tempdir().expect("a folder");
    three_lines(folder.path());
    let file = only_file(folder.path());
    let before = SystemClock.now().wall.0 - 2 * 86_400_000;
    let before = crate::timestamp::rfc3339(before);
    let name = format!("{}.jsonl", &before[..10]);
    std::fs::rename(&file, folder.path().join(name)).expect("an older file");
    let later = audit::AuditLog::new(folder.path().to_owned());
    append(&later, "d");
    assert_eq!(later.verify().expect("a chain").lines, 4);
}

#[test]
fn audit_chain_breaks_where_a_line_is_changed_removed_or_inserted() {
    for change in [
        |lines: &mut Vec<String>| lines[0] = lines[0].replace("\"a\"", "\"x\""),
        |lines: &mut Vec<String>| drop(lines.remove(1)),
        |lines: &mut Vec<String>| lines.insert(1, lines[0].clone()),
        |lines: &mut Vec<String>| lines.swap(0, 1),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let log = three_lines(folder.path());
        let file = only_file(folder.path());
        let text = std::fs::read_to_string(&file).expect("a file");
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        change(&mut lines);
        std::fs::write(&file, lines.concat()).expect("a file");
        let fault = log.verify().expect_err("a break");
        assert!(
            matches!(fault, audit::VerifyFault::Broken { line: 2, .. }),
            "{fault}"
        );
    }
}

#[test]
fn audit_pages_are_newest_first_and_filtered() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = three_lines(folder.path());
    let page = |after: Option<&audit::AuditPlace>, most, word: &str| {
        let page = log.page(after, most, |entry| entry.command != word);
        let commands: Vec<String> = page
            .entries
            .into_iter()
            .map(|entry| entry.command)
            .collect();
        (commands.concat(), page.next)
    };
    let (first, next) = page(None, 2, "");
    assert_eq!(first, "cb");
    let next = next.expect("another page").to_string();
    let next = next.parse().expect("a place");
    assert_eq!(page(Some(&next), 2, ""), ("a".to_owned(), None));
    assert_eq!(page(None, 2, "b"), ("ca".to_owned(), None));
    assert!("x".parse::<audit::AuditPlace>().is_err());
    assert!("../../etcc.1".parse::<audit::AuditPlace>().is_err());
}

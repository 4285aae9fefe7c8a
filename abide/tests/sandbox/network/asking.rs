//! Attacks 124 and 125: questions about names that no rule knows.

use serde_json::{Value, json};

use super::{Person, as_agent, configure, said};
use crate::agents::{call, text};
use crate::harness::User;
use crate::outside::with_outside;

/// Runs a program as an agent while a person answers.
fn asked(user: &User, program: &str, person: impl FnOnce() + Send) -> Value {
    std::thread::scope(|scope| {
        let person = scope.spawn(person);
        let result = as_agent(user, program);
        person.join().expect("no panic");
        result
    })
}

#[test]
fn five_processes_put_one_question_and_once_holds_for_the_session() {
    with_outside(|user, outside| {
        configure(user, &["allowed.test"], "");
        let mut person = Person::watch(user);
        let program = r#"
import multiprocessing
with multiprocessing.Pool(5) as pool: say(pool.map(web, ["new.test"] * 5).count("outside / new.test"))
say(web("new.test"))
"#;
        let result = asked(user, program, || {
            let question = person.next();
            let text = question["text"].as_str().expect("text");
            let first = "Allow this command to connect to new.test (port 80)?\n  command: /usr/bin/python3 program.py\n  agent codex in ";
            assert!(text.starts_with(first), "124: {text}");
            assert!(
                outside.log().is_empty(),
                "nothing is looked up before the answer"
            );
            person.answer(&question, &["once"]);
            assert_eq!(person.next()["event"], "closed");
        });
        assert_eq!(
            said(&result).0,
            ["5", "outside / new.test"],
            "124: {result}"
        );
        let result = asked(user, "say(attempt(web, 'new.test'))", || {
            let question = person.next();
            assert_eq!(
                question["about"], "connection",
                "125: another session asks again"
            );
            person.answer(&question, &["no,", "because", "not", "today"]);
            assert_eq!(person.next()["event"], "closed");
        });
        let (lines, rest) = said(&result);
        assert_eq!(lines, ["reset"], "125");
        let told = "  name   new.test:80  the question was answered \"no\": not today\n\
                    To ask for more, call again with needs={\"network\":[\"new.test:80\"]}";
        assert!(rest.contains(told), "{rest}");
    });
}

#[test]
fn this_agent_and_always_here_allow_the_name_in_later_sessions() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let mut person = Person::watch(user);
        for (answer, name) in [("this agent", "one.test"), ("always here", "two.test")] {
            let program = format!("say(web('{name}'))");
            let expected = [format!("outside / {name}")];
            let result = asked(user, &program, || {
                let question = person.next();
                person.answer(&question, &answer.split(' ').collect::<Vec<_>>());
                assert_eq!(person.next()["event"], "closed");
            });
            assert_eq!(said(&result).0, expected, "{answer}: {result}");
            let again = as_agent(user, &program);
            assert_eq!(said(&again).0, expected, "{answer}: {again}");
        }
        drop(person);
        user.stop();
        let mut person = Person::watch(user);
        let kept = user.read("state/policy.toml");
        assert!(
            kept.contains("host = \"two.test:80\"") && !kept.contains("one.test"),
            "{kept}"
        );
        let listed = user.abide(&["policy", "list"]).text;
        assert!(
            listed.contains("allow connections to two.test:80 in "),
            "{listed}"
        );
        let program = "say(web('two.test'), attempt(web, 'one.test'))";
        let result = asked(user, program, || person.refuse());
        assert_eq!(said(&result).0, ["outside / two.test reset"], "{result}");
        let removed = user.abide(&["policy", "remove", "always-1"]);
        assert_eq!(removed.code, 0, "{removed:?}");
        let program = "say(attempt(web, 'two.test'))";
        let result = asked(user, program, || person.refuse());
        assert_eq!(said(&result).0, ["reset"], "{result}");
    });
}

#[test]
fn answer_that_holds_for_longer_closes_the_equal_questions_of_other_sessions() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let mut person = Person::watch(user);
        let fetch = |name: &str| {
            let command = format!("curl -s http://{name}/");
            let start = json!({"action": "start", "command": command});
            call(user, "terminal_session", &start);
        };
        for answer in ["this agent", "always here"] {
            let name = format!("{}.test", answer.replace(' ', "-"));
            fetch("other.test");
            let other = person.next();
            fetch(&name);
            fetch(&name);
            let questions = [person.next(), person.next()];
            person.answer(&questions[0], &answer.split(' ').collect::<Vec<_>>());
            let mut closed = [person.next(), person.next()].map(|closed| {
                assert_eq!(closed["event"], "closed", "{answer}: {closed}");
                assert_eq!(closed["closing"], "yes", "{answer}: {closed}");
                closed["question_id"].to_string()
            });
            let mut asked = questions.map(|question| question["question_id"].to_string());
            closed.sort();
            asked.sort();
            assert_eq!(closed, asked, "{answer}");
            // A question about another name stays open.
            person.answer(&other, &["no"]);
            assert_eq!(person.next()["question_id"], other["question_id"]);
        }
    });
}

#[test]
fn question_is_put_though_nobody_follows() {
    with_outside(|user, outside| {
        configure(user, &["allowed.test"], "");
        let result = asked(user, "say(web('new.test'))", || {
            let open = || {
                let listed = user.abide(&["answer", "--json"]).text;
                let listed: Value = serde_json::from_str(&listed).ok()?;
                let id = listed["questions"][0]["question_id"].as_str()?;
                Some(id.to_owned())
            };
            let id = std::iter::repeat_with(open).flatten().next();
            let id = id.expect("a question");
            assert!(outside.log().is_empty());
            let answered = user.abide(&["answer", &id, "once"]);
            assert_eq!(answered.code, 0, "{answered:?}");
        });
        assert_eq!(said(&result).0, ["outside / new.test"], "{result}");
    });
}

#[test]
fn names_of_the_file_of_hosts_are_resolved_outside() {
    with_outside(|user, outside| {
        for name in ["gone.known.test", "gone.asked.test"] {
            outside.add_host(&format!("93.184.216.34 {name}"));
        }
        outside.add_host("127.0.0.1 own.dev.test");
        configure(user, &["gone.known.test"], "");
        let mut person = Person::watch(user);
        let program = "import socket\n\
                       say(web('gone.known.test'))\n\
                       say(web('gone.asked.test'))\n\
                       say([socket.gethostbyname(name) for name in ['localhost', 'own.dev.test', socket.gethostname()]])";
        let result = asked(user, program, || {
            let question = person.next();
            let text = question["text"].as_str().expect("text");
            assert!(text.contains("gone.asked.test (port 80)"), "{text}");
            person.answer(&question, &["once"]);
        });
        let expected = [
            "outside / gone.known.test",
            "outside / gone.asked.test",
            "['127.0.0.1', '127.0.0.1', '127.0.0.1']",
        ];
        assert_eq!(said(&result).0, expected, "{result}");
    });
}

#[test]
fn question_is_withdrawn_when_the_command_ends() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        let mut person = Person::watch(user);
        let serve = json!({"action": "start", "command": "curl -s http://new.test/"});
        let started = call(user, "terminal_session", &serve);
        let question = person.next();
        assert_eq!(question["about"], "connection");
        let id = started["result"]["session_id"].as_str().expect("an id");
        let act = |action: &str| {
            let fields = json!({"action": action, "session_id": id});
            text(&call(user, "terminal_session", &fields))
        };
        let told = act("kill") + &act("read_output");
        assert_eq!(told.matches("name   new.test:80  ").count(), 1, "{told}");
        assert!(
            told.contains(r#"needs={\"network\":[\"new.test:80"#),
            "{told}"
        );
        let closed = person.next();
        assert_eq!(
            (&closed["event"], &closed["closing"]),
            (&json!("closed"), &json!("withdrawn")),
            "124"
        );
        assert_eq!(closed["question_id"], question["question_id"]);
    });
}

#[test]
fn connection_that_is_given_up_while_it_waits_is_told() {
    with_outside(|user, _| {
        configure(user, &["allowed.test"], "");
        user.outside("mkfifo go");
        let mut person = Person::watch(user);
        let program = "with connect('new.test', 80) as s: open('go').read()\nsay('over')";
        let result = asked(user, program, || {
            let question = person.next();
            assert_eq!(question["about"], "connection");
            user.outside("echo > go");
        });
        let (lines, rest) = said(&result);
        assert_eq!(lines, ["over"], "{result}");
        assert_eq!(rest.matches("name   new.test:80  ").count(), 1, "{rest}");
        assert!(
            rest.contains("needs={\"network\":[\"new.test:80\"]}"),
            "{rest}"
        );
    });
}

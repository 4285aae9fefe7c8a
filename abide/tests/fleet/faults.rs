//! Faults of links, and of questions that travel over them. Tests have the numbers of the list of faults of fleets.

use super::*;

#[test]
fn f57_answer_while_the_machine_is_away_is_not_taken() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    let path = answer_path(&question);
    pair.build.kill_daemon();
    drop(begun);
    let refused = pair.desk.post(&path, &json!({"answer": "no"}));
    let refused = refused.expect("an answer");
    assert_ne!(refused.status, 200, "{}", refused.body);
    assert!(
        refused.body["detail"]
            .to_string()
            .contains("build cannot be reached"),
        "{}",
        refused.body
    );
    // Nothing was decided without the machine of the session.
    let taken = "SELECT count(*) FROM abide.question WHERE closing IS NOT NULL";
    assert_eq!(pair.server().sql(taken), "0");
    // The question is either asked again there under its id, or closed because another one has replaced it.
    pair.build.start();
    let open = format!(
        "SELECT count(*) FROM abide.question WHERE closing IS NULL AND id = {}",
        question.to_string().replace('"', "'")
    );
    look_for("the question at home, or its end", || {
        let listed = pair.build.get("/v1/questions");
        let mut listed = listed["questions"].as_array()?.iter();
        let is_asked = listed.any(|listed| listed["question_id"] == question);
        (is_asked || pair.server().sql(&open) == "0").then_some(())
    });
}

#[test]
fn f56_of_two_answers_at_once_one_counts() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let (begun, question) = pair.asked_on_build();
    let path = answer_path(&question);
    let statuses = std::thread::scope(|scope| {
        let answers = [(&pair.desk, "yes"), (&pair.build, "no")].map(|(machine, word)| {
            let path = &path;
            scope.spawn(move || {
                let answer = machine.post(path, &json!({"answer": word}));
                answer.expect("an answer").status
            })
        });
        answers.map(|answer| answer.join().expect("an answer"))
    });
    let mut sorted = statuses;
    sorted.sort_unstable();
    assert_eq!(sorted, [200, 409]);
    drop(begun);
}

#[test]
fn f61_altered_frame_ends_the_link_and_the_next_call_has_a_new_one() {
    let pair = Pair::with("");
    let id = pair.cat();
    let read = json!({"action": "read_output", "session_id": id, "since": "0"});
    assert_eq!(call(&pair.desk, &read).body["machine"], "build");
    // Every frame of the links that are open now is changed on its way.
    pair.server().sql(
        "CREATE TABLE fresh AS SELECT ''::text AS link WHERE false; \
         CREATE FUNCTION alter_frame() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF NEW.seq = 0 AND NEW.link LIKE '%>' THEN INSERT INTO public.fresh VALUES (left(NEW.link, 32)); END IF; \
         IF NOT EXISTS (SELECT 1 FROM public.fresh AS f WHERE f.link = left(NEW.link, 32)) AND length(NEW.bytes) > 10 THEN \
         NEW.bytes := set_byte(NEW.bytes, length(NEW.bytes) - 1, 255 - get_byte(NEW.bytes, length(NEW.bytes) - 1)); \
         END IF; RETURN NEW; END $$; \
         CREATE TRIGGER alter_frame BEFORE INSERT ON abide.frame FOR EACH ROW EXECUTE FUNCTION alter_frame()",
    );
    let answer = call(&pair.desk, &read);
    assert_eq!(answer.body["machine"], "build", "{}", answer.body);
    assert_eq!(answer.body["is_error"], false, "{}", answer.body);
}

//! Formatting of effects.

use abide_core::held::{self, NotStarted, WhyHeld};
use abide_core::message::{self, About};
use abide_core::session::Phase;
use abide_core::{
    Answer, Closing, Effect, Ending, Engine, Exit, Millis, Outcome, QuestionId, Record, Refusal,
    SessionId, Subject, Update, WhyRunning,
};

use super::Stage;

pub fn effect(effect: &Effect, stage: &mut Stage) -> String {
    match effect {
        Effect::Record(Record::Asked { question, state }) => {
            let about = match &state.subject {
                Subject::Idle { session, idle } => format!("{} idle={idle}", name(*session)),
                Subject::Command { session, held } => {
                    let keys = (held.keys.iter())
                        .map(|key| format!(" key={}", key.0.replace("\n000000000000000", "/")));
                    let keys: String = keys.collect();
                    format!("{} command={:?}{keys}", name(*session), held.command)
                }
                Subject::Connection {
                    session,
                    connection,
                } => {
                    let (host, port) = (&connection.name, connection.port);
                    format!("{} connection={host}:{port}", name(*session))
                }
            };
            format!("record asked {} about {about}", named(*question, stage))
        }
        Effect::Record(Record::Held { question, record }) => {
            let record = match record {
                held::Record::Approved { session } => format!("approved {}", name(*session)),
                held::Record::Declined { because } => format!("declined {because:?}"),
                held::Record::Refused { because } => format!("refused {because:?}"),
                held::Record::Started => "started".into(),
            };
            format!("record {} {record}", named(*question, stage))
        }
        Effect::Record(Record::Closed {
            question,
            closing,
            key,
            ..
        }) => {
            let key = key.as_ref();
            let key = key.map_or(String::new(), |key| format!(" key={}", key.0));
            let question = named(*question, stage);
            format!("record {question} {}{key}", closed(*closing))
        }
        Effect::Record(Record::Message(message::Record::Posted {
            agent, content: of, ..
        })) => {
            let about = subject(of.about, stage);
            let of = of.conversation.as_ref();
            let of = of.map_or(String::new(), |of| format!(" in {}", of.0));
            format!("record a message to {}{of} about {about}", agent.0)
        }
        Effect::Posted { agent, .. } => format!("post to {}", agent.0),
        Effect::Record(Record::Timer(_) | Record::Message(_))
        | Effect::Probe { .. }
        | Effect::PauseProbe { .. }
        | Effect::StopProbe { .. }
        | Effect::PublishTimer { .. }
        | Effect::PublishSeen { .. } => panic!("timers have their own transcripts: {effect:?}"),
        Effect::Start {
            session,
            call,
            deadline,
        } => {
            let deadline = deadline.map_or(String::new(), |time| format!(" deadline={time}"));
            format!("start {} for {}{deadline}", name(*session), call.0)
        }
        Effect::StartHeld {
            session,
            held,
            calls,
        } => {
            let calls: Vec<u64> = calls.iter().map(|call| call.0).collect();
            format!(
                "start held {} {:?} for {calls:?}",
                name(*session),
                held.command
            )
        }
        Effect::Kill { session, end } => format!("kill {} end={}", name(*session), end.as_str()),
        Effect::ForceKill { session, end } => {
            format!("force {} end={}", name(*session), end.as_str())
        }
        Effect::Remove { session } => format!("remove {}", name(*session)),
        Effect::SetDeadline { session, deadline } => {
            format!("deadline of {} in {deadline}", name(*session))
        }
        Effect::StoreLimits {
            session,
            idle,
            inactivity,
            unasked_until,
        } => {
            let limit = |name: &str, limit: &Option<Millis>| {
                limit.map_or(String::new(), |time| format!(" {name}={time}"))
            };
            let (idle, inactivity) = (limit("idle", idle), limit("inactivity", inactivity));
            let unasked = match unasked_until.since(stage.now.mono) {
                Millis(0) => String::new(),
                time => format!(" unasked={time}"),
            };
            format!(
                "keep limits of {}{idle}{inactivity}{unasked}",
                name(*session)
            )
        }
        Effect::QueryOutput { session } => format!("look at {}", name(*session)),
        Effect::AnswerConnection {
            session,
            number,
            answer,
        } => format!(
            "answer connection {number} of {}: {answer:?}",
            name(*session)
        ),
        Effect::WatchOutput { session, beyond } => {
            format!("watch {} beyond {beyond}", name(*session))
        }
        Effect::Ask { question } => format!("ask {}", named(*question, stage)),
        Effect::Close { question, closing } => {
            format!("close {} {}", named(*question, stage), closed(*closing))
        }
        Effect::Publish { session } => format!("publish {}", name(*session)),
        Effect::MarkEndingDelivered { session } => format!("mark {} delivered", name(*session)),
        Effect::Tell { call, update } => format!("tell {} {}", call.0, told(*update, stage)),
        Effect::Reply {
            call,
            outcome,
            tells_owner,
        } => {
            let other = match outcome.reports_ending() && tells_owner.is_none() {
                true => " (no report to the owner)",
                false => "",
            };
            format!("reply {} {}{other}", call.0, answered(outcome, stage))
        }
    }
}

/// Public state of a session on one line.
pub fn session(engine: &Engine, id: SessionId, stage: &Stage) -> String {
    let Some(session) = engine.session(id) else {
        return format!("{} is unknown", name(id));
    };
    let phase = match &session.phase {
        Phase::Starting => "starting".into(),
        Phase::Running {
            quiet_since,
            ending,
        } => {
            let quiet = stage.now.mono.since(*quiet_since);
            let ending = ending.map_or(String::new(), |end| format!(" end={}", end.as_str()));
            format!("running quiet={quiet}{ending}")
        }
        Phase::Leftover { ending } => format!("leftover {}", ended(ending)),
        Phase::Ended { ending } => format!("ended {}", ended(ending)),
        Phase::Failed { fault, .. } => format!("failed: {fault}"),
    };
    let question = engine.open_question_of(id).map_or("", |_| " asked");
    format!("{} {phase} bytes={}{question}", name(id), session.bytes)
}

fn ended(ending: &Ending) -> String {
    let exit = match ending.exit {
        Some(Exit::Code(code)) => format!("code={code}"),
        Some(Exit::Signal(signal)) => format!("signal={signal}"),
        None => "unseen".into(),
    };
    format!("{exit} end={}", ending.end.as_str())
}

fn name(session: SessionId) -> String {
    let known = (0..1_000).find(|n| SessionId::from_bits(*n) == session);
    known.map_or(session.to_string(), |n| format!("s{n}"))
}

fn subject(about: About, stage: &mut Stage) -> String {
    match about {
        About::Session(session) => name(session),
        About::Timer(timer) => timer.to_string(),
        About::Question(question) => named(question, stage),
    }
}

fn named(question: QuestionId, stage: &mut Stage) -> String {
    if question == QuestionId::from_bits(12345) {
        return "that".into();
    }
    format!("q{}", stage.name_of(question))
}

fn closed(closing: Closing) -> &'static str {
    match closing {
        Closing::Answered(Answer::Yes) => "answered yes",
        Closing::Answered(Answer::No) => "answered no",
        Closing::Answered(Answer::Refused) => "answered refused",
        Closing::Withdrawn => "withdrawn",
        Closing::Expired => "expired",
    }
}

fn told(update: Update, stage: &mut Stage) -> String {
    match update {
        Update::Accepted(session) => format!("accepted {}", name(session)),
        Update::Asked(question) => format!("asked {}", named(question, stage)),
        Update::Closed(question, _) => format!("closed {}", named(question, stage)),
    }
}

fn answered(outcome: &Outcome, stage: &mut Stage) -> String {
    match outcome {
        Outcome::Started(session) => format!("started {}", name(*session)),
        Outcome::Ended(session) => format!("ended {}", name(*session)),
        Outcome::Running(session, WhyRunning::Standby) => {
            format!("running {}: standby is over", name(*session))
        }
        Outcome::Running(session, WhyRunning::NobodyToAsk) => {
            format!("running {}: nobody to ask", name(*session))
        }
        Outcome::Running(session, WhyRunning::SurvivesKill) => {
            format!("running {}: it does not die", name(*session))
        }
        Outcome::Declined(session, idle) => format!("declined {} idle={idle}", name(*session)),
        Outcome::Cancelled(session) => format!("cancelled {}", name(*session)),
        Outcome::Failed(session) => format!("failed {}", name(*session)),
        Outcome::NotStarted(session, question, why) => {
            let why = match why {
                NotStarted::Held(WhyHeld::NobodyToAsk) => "held, nobody to ask".into(),
                NotStarted::Held(WhyHeld::Standby) => "held, standby is over".into(),
                NotStarted::Declined(because) => format!("declined {because:?}"),
                NotStarted::Refused(why) => format!("refused {why:?}"),
                NotStarted::Expired => "expired".into(),
                NotStarted::Withdrawn => "withdrawn".into(),
                NotStarted::Killed => "killed".into(),
                NotStarted::NotStored => "not stored".into(),
            };
            format!(
                "not started {} {}: {why}",
                name(*session),
                named(*question, stage)
            )
        }
        Outcome::Done => "done".into(),
        Outcome::Timer(..)
        | Outcome::Timers(_)
        | Outcome::TimersMade(_)
        | Outcome::TimersObserved(_)
        | Outcome::TimersCounted(_)
        | Outcome::Messages(..) => panic!("timers have their own transcripts: {outcome:?}"),
        Outcome::Refused(refusal) => format!("refused: {}", refused(refusal, stage)),
    }
}

fn refused(refusal: &Refusal, stage: &mut Stage) -> String {
    match refusal {
        Refusal::SessionNotFound(session) => format!("{} not found", name(*session)),
        Refusal::QuestionNotFound(question) => format!("{} not found", named(*question, stage)),
        Refusal::QuestionClosed(question, closing) => {
            format!("{} was {}", named(*question, stage), closed(*closing))
        }
        Refusal::SessionEnded(session) => format!("{} has ended", name(*session)),
        Refusal::KeyReused(key) => format!("key {} was used for another command", key.0),
        Refusal::Timer(_)
        | Refusal::NotRecorded
        | Refusal::DatabaseAway(_)
        | Refusal::ChangedElsewhere(_)
        | Refusal::OutcomeUnknown(_) => {
            panic!("not of sessions: {refusal:?}")
        }
        Refusal::TooMany(sentence) => format!("too many: {sentence}"),
    }
}

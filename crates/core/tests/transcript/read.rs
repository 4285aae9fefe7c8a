//! Parser of the lines.

use std::sync::Arc;

use abide_core::held::{Approval, HeldCommand};
use abide_core::request::Caller;
use abide_core::session::{Phase, StartedBy};
use abide_core::{
    Agent, Answer, Asking, Conversation, End, Ending, Event, Exit, HeldConnection, Key, Millis,
    Mono, Question, QuestionId, Request, Run, Session, SessionId, StartError, Subject, Try, Wall,
};

use super::Stage;
use crate::words::{Words, duration, parse};

pub enum Line {
    Event(Event),
    Pass(Millis),
    /// Time passes, with one tick at the end.
    Late(Millis),
    Suspend(Millis),
    Wall(i64),
    /// The commit of the next records fails.
    Fail,
    Show(SessionId),
    Alarm,
}

pub fn line(text: &str, stage: &mut Stage) -> Result<Line, String> {
    let mut words = Words::new(text);
    let verb = words.next()?;
    let line = if let Some(time) = verb.strip_prefix('+') {
        Line::Pass(duration(time)?)
    } else {
        match verb.as_str() {
            "late" => Line::Late(duration(&words.next()?)?),
            "suspend" => Line::Suspend(duration(&words.next()?)?),
            "wall" => {
                let by = words.next()?;
                let size = i64::try_from(duration(&by[1..])?.0).map_err(|e| e.to_string())?;
                Line::Wall(if by.starts_with('-') { -size } else { size })
            }
            "fail" => Line::Fail,
            "show" => Line::Show(words.session()?),
            "alarm" => Line::Alarm,
            _ => Line::Event(event(&verb, &mut words, stage)?),
        }
    };
    words.end_of_line()?;
    Ok(line)
}

fn event(verb: &str, words: &mut Words, stage: &mut Stage) -> Result<Event, String> {
    let mono = stage.now.mono;
    Ok(match verb {
        "call" => call(words, stage)?,
        "lost" => Event::AnswerLost {
            session: words.session()?,
        },
        "gone" => Event::CallerGone {
            call: words.call()?,
        },
        "interrupt" => Event::Interrupted {
            call: words.call()?,
        },
        "nobody" => Event::PersonUnreachable {
            call: words.call()?,
        },
        "connected" => Event::Connected {
            agent: Agent("ann".into()),
            conversation: Conversation(words.next()?.into()),
        },
        "disconnected" => Event::Disconnected {
            agent: Agent("ann".into()),
            conversation: Conversation(words.next()?.into()),
        },
        "watchers" => Event::Watchers {
            count: words.number()? as u32,
        },
        "started" => Event::Started {
            session: words.session()?,
        },
        "failed" => Event::StartFailed {
            session: words.session()?,
            fault: words.next()?.into(),
            error: StartError::Other,
            at: stage.now.wall,
        },
        "grew" => Event::OutputGrew {
            session: words.session()?,
            bytes: words.count("bytes")?.ok_or("bytes= is missing")?,
            quiet_since: ago(mono, words.time("quiet")?),
        },
        "exited" => Event::Exited {
            session: words.session()?,
            empty: !words.flag("leftover"),
            ending: ending(words)?,
        },
        "connection" => Event::ConnectionHeld {
            session: words.session()?,
            connection: Arc::new(HeldConnection {
                number: words.number()?,
                name: words.next()?.into(),
                port: 443,
                folder: "/src".into(),
                offers: Vec::new(),
            }),
        },
        "released" => Event::ConnectionReleased {
            session: words.session()?,
            number: words.count("number")?,
        },
        "ports" => Event::PortsChanged {
            session: words.session()?,
        },
        "emptied" => Event::Emptied {
            session: words.session()?,
        },
        "survives_kill" => Event::SurvivesKill {
            session: words.session()?,
        },
        "found" => found(words, stage)?,
        "reopened" => {
            let name = words.next()?;
            let number: u64 = parse(name.strip_prefix('q').unwrap_or_default())?;
            let question = QuestionId::from_bits(900 + number);
            stage.name_of(question);
            let session = words.session()?;
            let asked = ago_wall(stage.now.wall, words.time("ago")?);
            let subject = match (words.time("idle")?, words.value("connection")) {
                (Some(idle), _) => Subject::Idle { session, idle },
                (None, Some(name)) => Subject::Connection {
                    session,
                    connection: Arc::new(HeldConnection {
                        number: 0,
                        name: name.into(),
                        port: 0,
                        folder: "".into(),
                        offers: Vec::new(),
                    }),
                },
                (None, None) => Subject::Command {
                    session,
                    held: Arc::new(held(words)?),
                },
            };
            let state = Question { subject, asked };
            Event::Reopened { question, state }
        }
        "approved" => {
            let name = words.next()?;
            let number: u64 = parse(name.strip_prefix('q').unwrap_or_default())?;
            let question = QuestionId::from_bits(900 + number);
            stage.name_of(question);
            let refused = words.value("refused").map(Into::into);
            Event::Approved {
                question,
                session: words.session()?,
                held: Arc::new(held(words)?),
                refused,
            }
        }
        "recovered" => Event::Recovered,
        "forgotten" => Event::Forgotten {
            sessions: vec![words.session()?],
        },
        _ => return Err("an unknown verb".into()),
    })
}

fn call(words: &mut Words, stage: &Stage) -> Result<Event, String> {
    let call = words.call()?;
    let agent = match words.value("by").as_deref() {
        Some("person") => None,
        Some(name) => Some(Agent(name.into())),
        None => Some(Agent("ann".into())),
    };
    let conversation = words.conversation();
    let request = match words.next()?.as_str() {
        "run" => Request::Run(Run {
            command: words.next()?.into(),
            deadline: words.time("deadline")?,
            idle: words.time("idle")?,
            inactivity: words.time("inactivity")?,
            asking: words.asking()?,
            standby: words.time("standby")?,
            detach: words.flag("detach"),
            key: words.start_key()?,
            approval: words.approval()?,
        }),
        "try" => Request::Try(Try {
            command: words.next()?.into(),
            started_by: StartedBy::Wait,
            key: Key::of_try("wait_1", 0),
            deadline: Millis::from_secs(60),
        }),
        "join" => Request::Join {
            session: words.session()?,
            asking: words.asking()?,
            standby: words.time("standby")?,
        },
        "join_start" => Request::JoinStart {
            session: words.session()?,
            asking: words.asking()?,
            standby: words.time("standby")?,
        },
        "kill" => Request::Kill {
            session: words.session()?,
            end: words.end()?.unwrap_or(End::Agent),
        },
        "extend" => Request::Extend {
            session: words.session()?,
            deadline: words.time("deadline")?,
            idle: words.time("idle")?,
            inactivity: words.time("inactivity")?,
        },
        "answer" => {
            let name = words.next()?;
            let number: usize = parse(name.strip_prefix('q').unwrap_or_default())?;
            let known = number.checked_sub(1).and_then(|n| stage.questions.get(n));
            Request::Answer {
                question: known.copied().unwrap_or(QuestionId::from_bits(12345)),
                answer: match words.next()?.as_str() {
                    "yes" => Answer::Yes,
                    "no" => Answer::No,
                    "refused" => Answer::Refused,
                    other => return Err(format!("neither yes nor no: {other}")),
                },
                quiet_for: words.time("quiet")?,
                because: words.value("because").map(Into::into),
                key: words.value("key").map(|key| Key(key.into())),
            }
        }
        other => return Err(format!("no such request: {other}")),
    };
    Ok(Event::Called {
        call,
        caller: Caller {
            agent,
            conversation,
        },
        reserved: Some(SessionId::from_bits(call.0)),
        request,
    })
}

fn found(words: &mut Words, stage: &Stage) -> Result<Event, String> {
    let session = words.session()?;
    let phase = match words.next()?.as_str() {
        "starting" => Phase::Starting,
        "running" => Phase::Running {
            quiet_since: ago(stage.now.mono, words.time("quiet")?),
            ending: words.end()?,
        },
        "leftover" => Phase::Leftover {
            ending: ending(words)?,
        },
        "ended" => Phase::Ended {
            ending: ending(words)?,
        },
        other => return Err(format!("no such phase: {other}")),
    };
    let by = words.value("by").unwrap_or("ann".into());
    let deadline = words.time("deadline")?.map(|time| stage.now.mono + time);
    let state = Session {
        agent: Agent(by.into()),
        conversation: words.conversation(),
        command: words.next()?.into(),
        keys: words
            .value("key")
            .map(|key| Key(key.into()))
            .into_iter()
            .collect(),
        started_by: StartedBy::from_name(words.value("started").as_deref()),
        created: stage.now.wall,
        idle: words.time("idle")?,
        inactivity: words.time("inactivity")?,
        unasked_until: match words.time("unasked")? {
            Some(time) => stage.now.mono + time,
            None => Mono::default(),
        },
        bytes: words.count("bytes")?.unwrap_or(0),
        unattended: false,
        interrupted: words.flag("interrupted"),
        end_heard: None,
        phase,
    };
    Ok(Event::SessionFound {
        session,
        state: Box::new(state),
        deadline,
        ending_told: !words.flag("untold"),
    })
}

/// Held command of an earlier daemon.
fn held(words: &mut Words) -> Result<HeldCommand, String> {
    let approval = words.approval()?.ok_or("approve= is missing")?;
    Ok(HeldCommand {
        agent: Agent("ann".into()),
        conversation: None,
        started_by: StartedBy::Call,
        command: words.next()?.into(),
        deadline: None,
        idle: None,
        inactivity: None,
        keys: words
            .value("key")
            .map(|key| Key(key.into()))
            .into_iter()
            .collect(),
        approval,
    })
}

fn ago_wall(wall: Wall, time: Option<Millis>) -> Wall {
    Wall(wall.0 - time.unwrap_or_default().0)
}

fn ending(words: &mut Words) -> Result<Ending, String> {
    let code = words.value("code").map(|code| parse(&code)).transpose()?;
    let signal = words.value("signal").map(|n| parse(&n)).transpose()?;
    let exit = code.map(Exit::Code).or(signal.map(Exit::Signal));
    Ok(Ending {
        exit,
        end: words.end()?.unwrap_or(End::Exited),
        duration: Millis::from_secs(1),
        bytes: words.count("bytes")?.unwrap_or(0),
        dropped: 0,
    })
}

fn ago(mono: Mono, time: Option<Millis>) -> Mono {
    Mono(mono.0 - time.unwrap_or_default().0)
}

/// Words that only sessions have.
trait SessionWords {
    fn asking(&mut self) -> Result<Asking, String>;
    fn approval(&mut self) -> Result<Option<Arc<Approval>>, String>;
    fn start_key(&mut self) -> Result<Option<Key>, String>;
    fn end(&mut self) -> Result<Option<End>, String>;
}

impl SessionWords for Words {
    fn asking(&mut self) -> Result<Asking, String> {
        match self.value("asking").as_deref() {
            Some("here") => Ok(Asking::Here),
            Some("returning") => Ok(Asking::ByReturning),
            Some("elsewhere") => Ok(Asking::Elsewhere),
            None => Ok(Asking::Never),
            Some(other) => Err(format!("no such asking: {other}")),
        }
    }

    /// Key of a start: `key=k`, and `fingerprint=1` for one of its arguments.
    fn start_key(&mut self) -> Result<Option<Key>, String> {
        let key = self.value("key").map(|key| Key(key.into()));
        let fingerprint = self.value("fingerprint").map(|number| parse(&number));
        Ok(match (key, fingerprint.transpose()?) {
            (Some(key), Some(fingerprint)) => Some(key.with_fingerprint(fingerprint)),
            (key, _) => key,
        })
    }

    /// Approval that a command needs: `approve=here`, or `approve=person` for one that only a person can give.
    fn approval(&mut self) -> Result<Option<Arc<Approval>>, String> {
        let Some(way) = self.value("approve") else {
            return Ok(None);
        };
        let asking = match way.as_str() {
            "here" | "person" => Asking::Here,
            "returning" => Asking::ByReturning,
            "elsewhere" => Asking::Elsewhere,
            other => return Err(format!("no such approval: {other}")),
        };
        let launch = self.value("launch").unwrap_or_default();
        Ok(Some(Arc::new(Approval {
            launch: launch.into_bytes().into(),
            asking,
            folder: "/".into(),
            part: "".into(),
            rule: "".into(),
            why: "".into(),
            offers: Vec::new(),
            person_only: way == "person",
        })))
    }

    fn end(&mut self) -> Result<Option<End>, String> {
        let Some(name) = self.value("end") else {
            return Ok(None);
        };
        let end = End::of_word(&name);
        end.map(Some).ok_or(format!("no such end: {name}"))
    }
}

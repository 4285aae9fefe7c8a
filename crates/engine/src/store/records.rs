//! Records as rows. They are described once; each store says how it writes a row ([`RecordRows`]).

use abide_core::message::{self, About};
use abide_core::question::{Answer, Closing};
use abide_core::timer::{self, Change, Countdown, Status, WaitMode};
use abide_core::{Record, Wall, held as held_core};

use super::deliveries::{Delivery, WakerRecord};
use super::{closing_word, held};

/// Kind of statement. A column is a number unless its name ends with `$` (text) or `#` (bytes). The first column is
/// the key.
pub(super) struct Kind {
    pub table: &'static str,
    pub form: Form,
    pub columns: &'static [&'static str],
}

pub(super) enum Form {
    /// New rows. A row that exists is a conflict, unless the batch may have been committed before.
    Insert,
    /// New or replaced rows, by this key.
    Put(&'static str),
    /// Changed rows, under this condition.
    Update(&'static str),
    /// Changed rows, each of which must be there.
    UpdateEvery,
    /// Any other statement. Its first three parameters are the stamp.
    Sql(&'static str),
}

/// Value of a column.
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Some(number).into()
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        Value::Int(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(Some(number))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Int(Some(flag.into()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(Some(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Some(text).into()
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        // PostgreSQL has no zero bytes in texts; one would make every record of the batch fail.
        Value::Text(text.map(|text| text.replace('\0', "\u{fffd}")))
    }
}

impl From<Option<&[u8]>> for Value {
    fn from(bytes: Option<&[u8]>) -> Self {
        Value::Bytes(bytes.map(<[u8]>::to_vec))
    }
}

impl Value {
    /// Bytes, approximately.
    pub fn size(&self) -> usize {
        match self {
            Value::Int(_) => 16,
            Value::Text(text) => 24 + text.as_ref().map_or(0, String::len),
            Value::Bytes(bytes) => 24 + bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

/// State of the delivery of a message, as the column `told_ms` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nobody was told.
    No,
    /// The answer of a waiting call carries it. If that answer arrives, no other call needs the message; if it does not,
    /// the message is told again and gets the time.
    InAnswer,
    /// Told at this time, maybe by an answer that did not arrive.
    At(Wall),
}

impl Told {
    /// Value of the column for [`Told::InAnswer`].
    pub const IN_ANSWER: u64 = 0;

    pub fn column(self) -> Option<u64> {
        match self {
            Told::No => None,
            Told::InAnswer => Some(Self::IN_ANSWER),
            Told::At(time) => Some(time.0),
        }
    }

    pub fn from_column(value: Option<u64>) -> Self {
        match value {
            None => Told::No,
            Some(Self::IN_ANSWER) => Told::InAnswer,
            Some(time) => Told::At(Wall(time)),
        }
    }
}

static ASKED: Kind = Kind {
    table: "question",
    form: Form::Put("shard, id"),
    columns: &[
        "id$", "session$", "idle_ms", "asked_ms", "command$", "launch#", "closing$",
    ],
};
static CLOSED: Kind = Kind {
    table: "question",
    form: Form::Update("t.closing IS NULL"),
    columns: &["id$", "closing$", "closed_ms"],
};
static QUESTION_SESSION: Kind = Kind {
    table: "question",
    form: Form::Update("true"),
    columns: &["id$", "session$"],
};
static BECAUSE: Kind = Kind {
    table: "question",
    form: Form::Update("true"),
    columns: &["id$", "because$"],
};
static LAUNCH: Kind = Kind {
    table: "question",
    form: Form::Update("true"),
    columns: &["id$", "launch#"],
};
static CREATED: Kind = Kind {
    table: "timer",
    form: Form::Insert,
    columns: &[
        "number",
        "id$",
        "agent$",
        "kind$",
        "purpose$",
        "condition$",
        "key$",
        "created_ms",
        "checked_ms",
        "total_ms",
        "standby_ms",
        "status$",
        "background",
        "due_ms",
        "conversation$",
    ],
};
static CHANGED: Kind = Kind {
    table: "timer",
    form: Form::Update("true"),
    columns: &[
        "number",
        "status$",
        "background",
        "total_ms",
        "due_ms",
        "pause_until_ms",
        "remaining_ms",
        "stop_reason$",
        "checked_ms",
    ],
};
static STANDBY: Kind = Kind {
    table: "timer",
    form: Form::Update("true"),
    columns: &["number", "standby_ms"],
};
static ENDED: Kind = Kind {
    table: "timer",
    form: Form::Update("t.ended_ms IS NULL"),
    columns: &[
        "number",
        "status$",
        "total_ms",
        "remaining_ms",
        "stop_reason$",
        "seen$",
        "completed_by$",
        "late_ms",
        "checked_ms",
        "ended_ms",
        "due_ms",
        "pause_until_ms",
    ],
};
static ACTED: Kind = Kind {
    table: "timer",
    form: Form::Update("true"),
    columns: &["number", "acted$"],
};
static HISTORY: Kind = Kind {
    table: "timer_change",
    form: Form::Insert,
    columns: &["position", "timer", "change$", "reason$", "at_ms"],
};
static POSTED: Kind = Kind {
    table: "message",
    form: Form::Insert,
    columns: &[
        "number",
        "id$",
        "agent$",
        "about$",
        "made_ms",
        "told_ms",
        "conversation$",
        "wakes",
    ],
};
static SEEN: Kind = Kind {
    table: "message",
    form: Form::Update("true"),
    columns: &["number", "seen_ms"],
};
static RELEASED: Kind = Kind {
    table: "message",
    form: Form::Update("true"),
    columns: &["number", "released"],
};
static DELIVERY: Kind = Kind {
    table: "delivery",
    form: Form::Put("message, waker"),
    columns: &[
        "message", "waker$", "name$", "attempts", "failures", "state$", "at_ms", "fault$",
        "next_ms", "hold_ms",
    ],
};
static WAKER_DISABLED: Kind = Kind {
    table: "waker",
    form: Form::Put("shard, id"),
    columns: &["id$", "ended_ms", "fault$"],
};
static CLIENT: Kind = Kind {
    table: "client",
    form: Form::Put("shard, agent, kind"),
    columns: &["agent$", "kind$", "facts$", "at_ms"],
};

/// Writer of rows.
pub(super) trait RecordRows {
    /// Writes a row. `key` tells it from the others of its table.
    fn put<const COLUMNS: usize>(
        &mut self,
        kind: &'static Kind,
        key: &str,
        values: [Value; COLUMNS],
    );

    /// Writes that these messages were told. `in_flight`: by an answer that may not arrive.
    fn delivery_begun(&mut self, numbers: &[u64], in_flight: bool, at: Wall);

    /// Removes the oldest changes of a timer beyond the limit.
    fn trim_history(&mut self, timer: u64);

    /// Removes the row that says that a waker is disabled.
    fn enable_waker(&mut self, waker: &str);

    /// Writes the relation of the clocks.
    fn anchored(&mut self, anchor: &timer::Anchor);

    /// Adds a record about wakers, other than deliveries.
    fn waker_record(&mut self, record: &WakerRecord) {
        match record {
            WakerRecord::Deliveries(_) => {}
            WakerRecord::Disabled {
                waker,
                at_ms,
                fault,
            } => self.put(
                &WAKER_DISABLED,
                waker,
                [
                    waker.as_str().into(),
                    (*at_ms).into(),
                    fault.as_str().into(),
                ],
            ),
            WakerRecord::Enabled(waker) => self.enable_waker(waker),
            WakerRecord::Client(client, at_ms) => self.put(
                &CLIENT,
                &format!("{} {}", client.kind, client.agent),
                [
                    client.agent.as_str().into(),
                    client.kind.as_str().into(),
                    client.facts.as_str().into(),
                    (*at_ms).into(),
                ],
            ),
        }
    }

    /// Adds a record. `position` is the number of the next change in the history of timers.
    fn record(&mut self, record: &Record, position: &mut i64) {
        match record {
            Record::Asked { question, state } => {
                let held = state.held();
                let id = question.to_string();
                self.put(
                    &ASKED,
                    &id,
                    [
                        id.as_str().into(),
                        state.session().to_string().into(),
                        state.idle().unwrap_or_default().0.into(),
                        state.asked.0.into(),
                        held.map(|held| held::text(held)).as_deref().into(),
                        held.map(|held| held.approval.launch.as_ref()).into(),
                        None::<&str>.into(),
                    ],
                );
            }
            Record::Closed {
                question,
                closing,
                at,
            } => {
                let id = question.to_string();
                let word = closing_word(*closing);
                self.put(&CLOSED, &id, [id.as_str().into(), word.into(), at.0.into()]);
                if *closing != Closing::Answered(Answer::Yes) {
                    self.put(&LAUNCH, &id, [id.as_str().into(), None::<&[u8]>.into()]);
                }
            }
            Record::Held { question, record } => {
                let id = question.to_string();
                let key: Value = id.as_str().into();
                match record {
                    held_core::Record::Approved { session } => {
                        self.put(&QUESTION_SESSION, &id, [key, session.to_string().into()]);
                    }
                    held_core::Record::Declined { because } => {
                        self.put(&BECAUSE, &id, [key, because.as_deref().into()]);
                    }
                    held_core::Record::Started => {
                        self.put(&LAUNCH, &id, [key, None::<&[u8]>.into()]);
                    }
                }
            }
            Record::Timer(record) => self.timer(record, position),
            Record::Message(record) => self.message(record),
        }
    }

    fn timer(&mut self, record: &timer::Record, position: &mut i64) {
        match record {
            timer::Record::Created {
                number,
                id,
                agent,
                conversation,
                kind,
                purpose,
                until,
                key,
                total,
                due,
                standby,
                at,
            } => self.put(
                &CREATED,
                &number.to_string(),
                [
                    (*number).into(),
                    id.to_string().into(),
                    agent.0.as_ref().into(),
                    kind.as_str().into(),
                    purpose.as_ref().into(),
                    until.as_deref().into(),
                    key.as_ref().map(|key| key.0.as_ref()).into(),
                    at.0.into(),
                    at.0.into(),
                    total.0.into(),
                    standby.map(|time| time.0).into(),
                    "running".into(),
                    false.into(),
                    due.0.into(),
                    conversation.as_ref().map(|of| of.0.as_ref()).into(),
                ],
            ),
            timer::Record::Changed {
                number,
                state,
                standby,
                change,
                reason,
                checked,
                at,
            } => {
                // A reason that was given with `resume_timer` is not the reason of a stop.
                let stop_reason = reason.as_deref().filter(|_| *change != Change::Resumed);
                let (status, due, pause_until, remaining) = match state.countdown {
                    Countdown::Running { due } => {
                        let status = Status::Running(state.wait_mode).as_str();
                        (status, Some(due.0), None, None)
                    }
                    Countdown::Paused { remaining, until } => {
                        ("paused", None, Some(until.0), Some(remaining.0))
                    }
                };
                let key = number.to_string();
                self.put(
                    &CHANGED,
                    &key,
                    [
                        (*number).into(),
                        status.into(),
                        (state.wait_mode == WaitMode::Background).into(),
                        state.total.0.into(),
                        due.into(),
                        pause_until.into(),
                        remaining.into(),
                        stop_reason.into(),
                        checked.0.into(),
                    ],
                );
                if let Some(standby) = standby {
                    self.put(&STANDBY, &key, [(*number).into(), standby.0.into()]);
                }
                // Calls that stand by again and again change nothing that a person would look for.
                if *change != Change::Continued {
                    self.put(
                        &HISTORY,
                        &key,
                        [
                            (*position).into(),
                            (*number).into(),
                            change.as_str().into(),
                            reason.as_deref().into(),
                            at.0.into(),
                        ],
                    );
                    *position += 1;
                    self.trim_history(*number);
                }
            }
            timer::Record::Ended {
                number,
                status,
                total,
                remaining,
                stop_reason,
                seen,
                checked,
                at,
                ..
            } => {
                let (by, late) = match status {
                    Status::Completed { by, late } => (Some(by.as_str()), Some(late.0)),
                    Status::Stopped | Status::Running(_) | Status::Paused { .. } => (None, None),
                };
                self.put(
                    &ENDED,
                    &number.to_string(),
                    [
                        (*number).into(),
                        status.as_str().into(),
                        total.0.into(),
                        remaining.0.into(),
                        stop_reason.as_deref().into(),
                        seen.as_deref().into(),
                        by.into(),
                        late.into(),
                        checked.0.into(),
                        at.0.into(),
                        None::<u64>.into(),
                        None::<u64>.into(),
                    ],
                );
            }
            timer::Record::Acted { number, key } => {
                let values = [(*number).into(), key.0.as_ref().into()];
                self.put(&ACTED, &number.to_string(), values);
            }
            timer::Record::Anchored(anchor) => self.anchored(anchor),
        }
    }

    fn message(&mut self, record: &message::Record) {
        match record {
            message::Record::Posted {
                number,
                id,
                agent,
                content,
                reported_by_call,
                at,
            } => {
                let about = match content.about {
                    About::Timer(timer) => timer.to_string(),
                    About::Session(session) => session.to_string(),
                    About::Question(question) => question.to_string(),
                };
                let conversation = content.conversation.as_ref();
                let told = match reported_by_call {
                    true => Told::InAnswer,
                    false => Told::No,
                };
                self.put(
                    &POSTED,
                    &number.to_string(),
                    [
                        (*number).into(),
                        id.to_string().into(),
                        agent.0.as_ref().into(),
                        about.into(),
                        at.0.into(),
                        told.column().into(),
                        conversation.map(|of| of.0.as_ref()).into(),
                        content.wakes.into(),
                    ],
                );
            }
            message::Record::DeliveryBegun {
                numbers,
                in_flight,
                at,
            } => self.delivery_begun(numbers, *in_flight, *at),
            message::Record::Seen { numbers, at } => {
                for number in numbers {
                    self.put(&SEEN, &number.to_string(), [(*number).into(), at.0.into()]);
                }
            }
            message::Record::Released { numbers } => {
                for number in numbers {
                    self.put(
                        &RELEASED,
                        &number.to_string(),
                        [(*number).into(), true.into()],
                    );
                }
            }
        }
    }

    /// Adds the delivery of a message.
    fn delivery(&mut self, message: u64, delivery: &Delivery) {
        self.put(
            &DELIVERY,
            &format!("{message} {}", delivery.waker),
            [
                message.into(),
                delivery.waker.as_str().into(),
                delivery.name.as_str().into(),
                delivery.attempts.into(),
                delivery.failures.into(),
                delivery.state.as_str().into(),
                delivery.at_ms.into(),
                delivery.fault.as_deref().into(),
                delivery.next_ms.into(),
                delivery.hold_ms.into(),
            ],
        );
    }
}

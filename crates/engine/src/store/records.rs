//! Records as rows. They are described once; each store says how it writes a row ([`RecordRows`]).

use abide_api::QuestionAbout;
use abide_core::message::{self, About};
use abide_core::question::{Answer, Closing, Question};
use abide_core::timer::{self, Change, Countdown, Status, WaitMode};
use abide_core::{QuestionId, Record, SessionId, Wall, held as held_core};

use super::deliveries::{Delivery, WakerRecord};
use super::held;
use super::seal::{RowSeal, SealedRow};

/// Way in which a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WriteForm {
    /// A new row. One that exists is a conflict, unless the batch may have been committed before.
    Insert,
    /// A new or replaced row. PostgreSQL finds it by these columns, SQLite by the keys of the table.
    Put(&'static str),
    /// A changed row, found by its first column, if this condition holds. The table is named `t` in it.
    Update(&'static str),
}

/// Value of a column, or parameter of a query.
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    /// List of integers, for [`Dialect::is_among`](super::query::Dialect::is_among). No column has it.
    Ints(Vec<i64>),
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

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        (number as u64).into()
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Int(Some(flag.into()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        text.as_str().into()
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
            Value::Ints(numbers) => 24 + 8 * numbers.len(),
        }
    }
}

/// Value of `told_ms` for a message that the answer of a waiting call carries. If that answer arrives, no other call needs
/// the message; if it does not, the message is told again and gets the time. Without a value, nobody was told.
pub(super) const TOLD_IN_ANSWER: u64 = 0;

/// Writer of rows.
pub(super) trait RecordRows {
    /// Writes a row. The first column is the one that finds it. `row_key` tells it from the others of its table: rows with
    /// the same key are written in this order, others in any.
    fn put<const COLUMNS: usize>(
        &mut self,
        form: WriteForm,
        table: &'static str,
        row_key: &str,
        columns: [(&'static str, Value); COLUMNS],
    );

    /// Seal of the rows that make this machine run something.
    fn seal(&self) -> &RowSeal;

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
                WriteForm::Put("shard, id"),
                "waker",
                waker,
                [
                    ("id", waker.as_str().into()),
                    ("ended_ms", (*at_ms).into()),
                    ("fault", fault.as_str().into()),
                ],
            ),
            WakerRecord::Enabled(waker) => self.enable_waker(waker),
            WakerRecord::Client(client, at_ms) => self.put(
                WriteForm::Put("shard, agent, kind"),
                "client",
                &format!("{} {}", client.kind, client.agent),
                [
                    ("agent", client.agent.as_str().into()),
                    ("kind", client.kind.as_str().into()),
                    ("facts", client.facts.as_str().into()),
                    ("at_ms", (*at_ms).into()),
                    ("seal", Value::Bytes(self.seal().of(&client.sealed()))),
                ],
            ),
        }
    }

    /// Adds a record. `position` is the number of the next change in the history of timers.
    fn record(&mut self, record: &Record, position: &mut i64) {
        match record {
            Record::Asked { question, state } => self.asked(*question, state),
            Record::Closed {
                question,
                closing,
                key,
                at,
            } => {
                let id = question.to_string();
                let word = closing.as_str();
                self.put(
                    WriteForm::Update("t.closing IS NULL"),
                    "question",
                    &id,
                    [
                        ("id", id.as_str().into()),
                        ("closing", word.into()),
                        ("closed_ms", at.0.into()),
                        ("answer_key", key.as_ref().map(|key| key.0.as_ref()).into()),
                    ],
                );
                if *closing != Closing::Answered(Answer::Yes) {
                    self.change_question(&id, ("launch", None::<&[u8]>.into()));
                }
            }
            Record::Held { question, record } => {
                let changed = match record {
                    held_core::Record::Approved { session } => {
                        return self.approved(*question, *session);
                    }
                    held_core::Record::Declined { because } => {
                        ("because", because.as_deref().into())
                    }
                    held_core::Record::Refused { because } => {
                        return self.refused(&question.to_string(), because);
                    }
                    held_core::Record::Started => ("launch", None::<&[u8]>.into()),
                };
                self.change_question(&question.to_string(), changed);
            }
            Record::Timer(record) => self.timer(record, position),
            Record::Message(record) => self.message(record),
        }
    }

    fn asked(&mut self, question: QuestionId, state: &Question) {
        let id = question.to_string();
        let held = state.held();
        let command = held.map(|held| held::text(held));
        let launch = held.map(|held| held.approval.launch.as_ref());
        let sealed = command.as_deref().zip(launch);
        let sealed = sealed.map(|(command, launch)| SealedRow::Held(question, command, launch));
        let seal = sealed.and_then(|row| self.seal().of(&row));
        self.put(
            WriteForm::Put("shard, id"),
            "question",
            &id,
            [
                ("id", id.as_str().into()),
                ("session", state.session().to_string().into()),
                ("about", QuestionAbout::from(&state.subject).as_str().into()),
                ("idle_ms", state.idle().unwrap_or_default().0.into()),
                ("asked_ms", state.asked.0.into()),
                ("command", command.as_deref().into()),
                ("launch", launch.into()),
                ("closing", None::<&str>.into()),
                ("seal", Value::Bytes(seal)),
            ],
        );
    }

    /// Writes that a held command is to be started as this session.
    fn approved(&mut self, question: QuestionId, session: SessionId) {
        let seal = self.seal().of(&SealedRow::Approved(question, session));
        let id = question.to_string();
        self.put(
            WriteForm::Update("true"),
            "question",
            &id,
            [
                ("id", id.as_str().into()),
                ("session", session.to_string().into()),
                ("approval_seal", Value::Bytes(seal)),
            ],
        );
    }

    /// Writes that a command is refused although a person has approved it.
    fn refused(&mut self, id: &str, because: &str) {
        let word = Closing::Answered(Answer::Refused).as_str();
        let columns = [
            ("id", id.into()),
            ("closing", word.into()),
            ("because", because.into()),
            ("launch", None::<&[u8]>.into()),
        ];
        self.put(WriteForm::Update("true"), "question", id, columns);
    }

    fn change_question(&mut self, id: &str, column: (&'static str, Value)) {
        let columns = [("id", id.into()), column];
        self.put(WriteForm::Update("true"), "question", id, columns);
    }

    /// Changes one column of a timer or message.
    fn change_numbered(&mut self, table: &'static str, number: u64, column: (&'static str, Value)) {
        let columns = [("number", number.into()), column];
        let key = number.to_string();
        self.put(WriteForm::Update("true"), table, &key, columns);
    }

    fn timer(&mut self, record: &timer::Record, position: &mut i64) {
        match record {
            timer::Record::Created(created) => self.timer_created(created),
            timer::Record::Changed(changed) => self.timer_changed(changed, position),
            timer::Record::Ended(ended) => self.timer_ended(ended),
            timer::Record::Acted { number, key } => {
                self.change_numbered("timer", *number, ("acted", key.0.as_ref().into()));
            }
            timer::Record::Anchored(anchor) => self.anchored(anchor),
        }
    }

    fn timer_created(&mut self, timer: &timer::Created) {
        let conversation = timer.conversation.as_ref();
        let condition = timer.until.as_deref();
        let seal = condition.and_then(|condition| {
            let row = SealedRow::Condition(timer.number, &timer.agent, conversation, condition);
            self.seal().of(&row)
        });
        self.put(
            WriteForm::Insert,
            "timer",
            &timer.number.to_string(),
            [
                ("number", timer.number.into()),
                ("id", timer.id.to_string().into()),
                ("agent", timer.agent.0.as_ref().into()),
                ("kind", timer.kind.as_str().into()),
                ("purpose", timer.purpose.as_ref().into()),
                ("condition", condition.into()),
                ("seal", Value::Bytes(seal)),
                ("key", timer.key.as_ref().map(|key| key.0.as_ref()).into()),
                ("created_ms", timer.at.0.into()),
                ("checked_ms", timer.at.0.into()),
                ("total_ms", timer.total.0.into()),
                ("standby_ms", timer.standby.map(|time| time.0).into()),
                ("status", "running".into()),
                ("background", false.into()),
                ("due_ms", timer.due.0.into()),
                ("conversation", conversation.map(|of| of.0.as_ref()).into()),
            ],
        );
    }

    fn timer_changed(&mut self, timer: &timer::Changed, position: &mut i64) {
        let (number, change, state) = (timer.number, timer.change, &timer.state);
        let reason = timer.reason.as_deref();
        // A reason that was given with `resume_timer` is not the reason of a stop.
        let stop_reason = reason.filter(|_| change != Change::Resumed);
        let (status, due, pause_until, remaining) = match state.countdown {
            Countdown::Running { due } => {
                let status = Status::Running(state.wait_mode).as_str();
                (status, Some(due.0), None, None)
            }
            Countdown::Paused { remaining, until } => {
                ("paused", None, Some(until.0), Some(remaining.0))
            }
        };
        let is_background = state.wait_mode == WaitMode::Background;
        self.put(
            WriteForm::Update("true"),
            "timer",
            &number.to_string(),
            [
                ("number", number.into()),
                ("status", status.into()),
                ("background", is_background.into()),
                ("total_ms", state.total.0.into()),
                ("due_ms", due.into()),
                ("pause_until_ms", pause_until.into()),
                ("remaining_ms", remaining.into()),
                ("stop_reason", stop_reason.into()),
                ("checked_ms", timer.checked.0.into()),
            ],
        );
        if let Some(standby) = timer.standby {
            self.change_numbered("timer", number, ("standby_ms", standby.0.into()));
        }
        // Calls that stand by again and again change nothing that a person would look for.
        if change != Change::Continued {
            self.timer_change(number, change, reason, timer.at, position);
        }
    }

    fn timer_ended(&mut self, timer: &timer::Ended) {
        let (by, late) = match timer.status {
            Status::Completed { by, late } => (Some(by.as_str()), Some(late.0)),
            Status::Stopped | Status::Running(_) | Status::Paused { .. } => (None, None),
        };
        let seen = timer.seen.as_ref();
        self.put(
            WriteForm::Update("t.ended_ms IS NULL"),
            "timer",
            &timer.number.to_string(),
            [
                ("number", timer.number.into()),
                ("status", timer.status.as_str().into()),
                ("total_ms", timer.total.0.into()),
                ("remaining_ms", timer.remaining.0.into()),
                ("stop_reason", timer.stop_reason.as_deref().into()),
                ("seen", seen.map(|seen| seen.text.as_ref()).into()),
                ("ended_sessions", seen.map(ended_sessions).as_deref().into()),
                ("completed_by", by.into()),
                ("late_ms", late.into()),
                ("checked_ms", timer.checked.0.into()),
                ("ended_ms", timer.at.0.into()),
                ("due_ms", None::<u64>.into()),
                ("pause_until_ms", None::<u64>.into()),
            ],
        );
    }

    /// Adds a change to the history of a timer.
    fn timer_change(
        &mut self,
        number: u64,
        change: Change,
        reason: Option<&str>,
        at: Wall,
        position: &mut i64,
    ) {
        self.put(
            WriteForm::Insert,
            "timer_change",
            &number.to_string(),
            [
                ("position", (*position).into()),
                ("timer", number.into()),
                ("change", change.as_str().into()),
                ("reason", reason.into()),
                ("at_ms", at.0.into()),
            ],
        );
        *position += 1;
        self.trim_history(number);
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
                let told = reported_by_call.then_some(TOLD_IN_ANSWER);
                self.put(
                    WriteForm::Insert,
                    "message",
                    &number.to_string(),
                    [
                        ("number", (*number).into()),
                        ("id", id.to_string().into()),
                        ("agent", agent.0.as_ref().into()),
                        ("about", about.into()),
                        ("made_ms", at.0.into()),
                        ("told_ms", told.into()),
                        ("conversation", conversation.map(|of| of.0.as_ref()).into()),
                        ("wakes", content.wakes.into()),
                    ],
                );
            }
            message::Record::DeliveryStarted {
                numbers,
                in_flight,
                at,
            } => self.delivery_begun(numbers, *in_flight, *at),
            message::Record::Seen { numbers, at } => {
                for number in numbers {
                    self.change_numbered("message", *number, ("seen_ms", at.0.into()));
                }
            }
            message::Record::Released { numbers } => {
                for number in numbers {
                    self.change_numbered("message", *number, ("released", true.into()));
                }
            }
        }
    }

    /// Adds the delivery of a message.
    fn delivery(&mut self, message: u64, delivery: &Delivery) {
        self.put(
            WriteForm::Put("message, waker"),
            "delivery",
            &format!("{message} {}", delivery.waker),
            [
                ("message", message.into()),
                ("waker", delivery.waker.as_str().into()),
                ("name", delivery.name.as_str().into()),
                ("attempts", delivery.attempts.into()),
                ("failures", delivery.failures.into()),
                ("state", delivery.state.as_str().into()),
                ("at_ms", delivery.at_ms.into()),
                ("fault", delivery.fault.as_deref().into()),
                ("next_ms", delivery.next_ms.into()),
                ("hold_ms", delivery.hold_ms.into()),
            ],
        );
    }
}

/// Sessions whose end decided a condition, as the column has them.
fn ended_sessions(seen: &timer::Observation) -> String {
    let ids: Vec<String> = seen
        .ended_sessions
        .iter()
        .map(ToString::to_string)
        .collect();
    ids.join(" ")
}

//! The database: what must survive and is not in a session's own folder. One writer, one
//! transaction a turn, synced before anybody is told.

use std::path::Path;
use std::sync::mpsc as std_mpsc;

use abide_core::question::{Answer, Closing, Question};
use abide_core::time::{Millis, Wall};
use abide_core::{QuestionId, Record, SessionId};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

/// Keeps records. The loop awaits `commit` and nothing else.
pub trait Store: Send + Sync {
    /// Makes the records durable, all or none.
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>>;
}

/// The database failed.
#[derive(Debug, thiserror::Error)]
#[error("the database failed: {0}")]
pub struct StoreFault(String);

impl From<rusqlite::Error> for StoreFault {
    fn from(e: rusqlite::Error) -> Self {
        StoreFault(e.to_string())
    }
}

/// SQLite on a thread of its own.
pub struct Sqlite {
    jobs: std_mpsc::SyncSender<Job>,
}

struct Job {
    records: Vec<Record>,
    done: oneshot::Sender<Result<(), StoreFault>>,
}

/// Turns that may be queued for the writer; the loop awaits each, so this is never reached.
const QUEUE: usize = 16;

impl Sqlite {
    /// Opens the database, brings its tables up to date, and reads what is open.
    pub fn open(path: &Path) -> Result<(Self, Vec<(QuestionId, Question)>), StoreFault> {
        let mut db = connect(path)?;
        migrate(&mut db)?;
        let open = open_questions(&db)?;
        let (jobs, queue) = std_mpsc::sync_channel::<Job>(QUEUE);
        std::thread::Builder::new()
            .name("abide-store".into())
            .spawn(move || {
                while let Ok(job) = queue.recv() {
                    let _ = job.done.send(write(&mut db, &job.records));
                }
            })
            .map_err(|e| StoreFault(e.to_string()))?;
        Ok((Sqlite { jobs }, open))
    }
}

impl Store for Sqlite {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        let (done, answer) = oneshot::channel();
        // A full queue or a dead writer drops `done`, which the receiver sees as a failure.
        let _ = self.jobs.try_send(Job { records, done });
        answer
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that opens a database"
)]
fn connect(path: &Path) -> Result<Connection, StoreFault> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(db)
}

/// Each entry brings the tables from one version to the next. Old entries are never edited.
const MIGRATIONS: &[&str] = &["CREATE TABLE question (
        id TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        idle_ms INTEGER NOT NULL,
        asked_ms INTEGER NOT NULL,
        closing TEXT,
        closed_ms INTEGER
    ) STRICT;
    CREATE INDEX question_open ON question (asked_ms) WHERE closing IS NULL;"];

fn migrate(db: &mut Connection) -> Result<(), StoreFault> {
    let version: usize = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > MIGRATIONS.len() {
        return Err(StoreFault(format!(
            "it was written by a newer abide (tables of version {version}, this one knows {}); \
             install that version again",
            MIGRATIONS.len()
        )));
    }
    let steps = db.transaction()?;
    for step in &MIGRATIONS[version..] {
        steps.execute_batch(step)?;
    }
    steps.pragma_update(None, "user_version", MIGRATIONS.len())?;
    steps.commit()?;
    Ok(())
}

fn open_questions(db: &Connection) -> Result<Vec<(QuestionId, Question)>, StoreFault> {
    let mut rows =
        db.prepare("SELECT id, session, idle_ms, asked_ms FROM question WHERE closing IS NULL")?;
    let found = rows.query_map([], |row| {
        let (id, session): (String, String) = (row.get(0)?, row.get(1)?);
        let (idle, asked): (u64, u64) = (row.get(2)?, row.get(3)?);
        Ok((id, session, idle, asked))
    })?;
    let mut open = Vec::new();
    for row in found {
        let (id, session, idle, asked) = row?;
        if let (Ok(id), Ok(session)) = (id.parse(), session.parse::<SessionId>()) {
            open.push((
                id,
                Question {
                    session,
                    idle: Millis(idle),
                    asked: Wall(asked),
                },
            ));
        }
    }
    Ok(open)
}

fn write(db: &mut Connection, records: &[Record]) -> Result<(), StoreFault> {
    let turn = db.transaction()?;
    for record in records {
        match record {
            Record::Asked { question, state } => turn.execute(
                "INSERT OR REPLACE INTO question (id, session, idle_ms, asked_ms) VALUES (?, ?, ?, ?)",
                params![
                    question.to_string(),
                    state.session.to_string(),
                    state.idle.0,
                    state.asked.0
                ],
            )?,
            Record::Closed { question, closing, at } => turn.execute(
                "UPDATE question SET closing = ?, closed_ms = ? WHERE id = ? AND closing IS NULL",
                params![closing_word(*closing), at.0, question.to_string()],
            )?,
        };
    }
    turn.commit()?;
    Ok(())
}

/// How a question ended, in one word.
pub fn closing_word(closing: Closing) -> &'static str {
    match closing {
        Closing::Answered(Answer::Yes) => "yes",
        Closing::Answered(Answer::No) => "no",
        Closing::Withdrawn => "withdrawn",
    }
}

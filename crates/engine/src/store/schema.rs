//! The schema and its migrations.

use rusqlite::Connection;

use super::StoreFault;
use crate::entropy;
use abide_session::crash_point;

/// Migrations, each from one version to the next. Old entries are never edited.
const MIGRATIONS: &[&str] = &[
    // Times are wall time; due_ms and pause_until_ms are steady time, which the table clock relates to wall time.
    "CREATE TABLE question (
        id TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        idle_ms INTEGER NOT NULL,
        asked_ms INTEGER NOT NULL,
        closing TEXT,
        closed_ms INTEGER,
        command TEXT,
        launch BLOB,
        because TEXT
    ) STRICT;
    CREATE INDEX question_open ON question (asked_ms) WHERE closing IS NULL;
    CREATE TABLE timer (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        purpose TEXT NOT NULL,
        condition TEXT,
        key TEXT,
        created_ms INTEGER NOT NULL,
        checked_ms INTEGER NOT NULL,
        total_ms INTEGER NOT NULL,
        standby_ms INTEGER,
        status TEXT NOT NULL,
        background INTEGER NOT NULL,
        due_ms INTEGER,
        pause_until_ms INTEGER,
        remaining_ms INTEGER,
        stop_reason TEXT,
        seen TEXT,
        ended_sessions TEXT,
        completed_by TEXT,
        late_ms INTEGER,
        ended_ms INTEGER,
        acted TEXT,
        conversation TEXT
    ) STRICT;
    CREATE INDEX timer_ended ON timer (ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE INDEX timer_ended_of ON timer (agent, ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE timer_change (
        position INTEGER PRIMARY KEY,
        timer INTEGER NOT NULL,
        change TEXT NOT NULL,
        reason TEXT,
        at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX timer_change_of ON timer_change (timer);
    CREATE TRIGGER timer_deleted AFTER DELETE ON timer
        BEGIN DELETE FROM timer_change WHERE timer = old.number; END;
    CREATE TABLE message (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        about TEXT NOT NULL,
        made_ms INTEGER NOT NULL,
        told_ms INTEGER,
        seen_ms INTEGER,
        conversation TEXT,
        wakes INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX message_unseen ON message (number) WHERE seen_ms IS NULL;
    CREATE TABLE delivery (
        message INTEGER NOT NULL,
        waker TEXT NOT NULL,
        name TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        failures INTEGER NOT NULL,
        state TEXT NOT NULL,
        at_ms INTEGER,
        fault TEXT,
        next_ms INTEGER,
        hold_ms INTEGER,
        PRIMARY KEY (message, waker)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE waker (
        id TEXT PRIMARY KEY,
        ended_ms INTEGER NOT NULL,
        fault TEXT NOT NULL
    ) STRICT;
    CREATE TABLE client (
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        facts TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (agent, kind)
    ) STRICT;
    CREATE TABLE ids (key INTEGER NOT NULL) STRICT;
    CREATE TABLE clock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        boot_id TEXT NOT NULL,
        boot_offset_ms INTEGER NOT NULL,
        wall_offset_ms INTEGER NOT NULL,
        reached_ms INTEGER NOT NULL
    ) STRICT;",
    "ALTER TABLE question ADD COLUMN answer_key TEXT;",
    "ALTER TABLE question ADD COLUMN seal BLOB;
    ALTER TABLE question ADD COLUMN approval_seal BLOB;
    ALTER TABLE timer ADD COLUMN seal BLOB;
    ALTER TABLE client ADD COLUMN seal BLOB;",
    "ALTER TABLE question ADD COLUMN about TEXT NOT NULL DEFAULT 'idle';",
];

/// Applies the migrations that are missing. Refuses a schema of a later version.
pub(super) fn migrate(db: &mut Connection) -> Result<(), StoreFault> {
    let version: usize = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version > MIGRATIONS.len() {
        return Err(StoreFault::Newer(format!(
            "it has tables of version {version}, this one knows {}; install that version again",
            MIGRATIONS.len()
        )));
    }
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    let steps = db.transaction()?;
    for step in &MIGRATIONS[version..] {
        steps.execute_batch(step)?;
        crash_point("migrate.mid");
    }
    steps.execute(
        "INSERT INTO ids (key) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM ids)",
        [entropy::bits().cast_signed()],
    )?;
    steps.pragma_update(None, "user_version", MIGRATIONS.len())?;
    steps.commit()?;
    Ok(())
}

/// Key that ids are made with in this database.
pub(super) fn ids_key(db: &Connection) -> Result<u64, StoreFault> {
    let key: i64 = db.query_row("SELECT key FROM ids", [], |row| row.get(0))?;
    Ok(key.cast_unsigned())
}

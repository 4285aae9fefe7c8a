//! The schema and its migrations.

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::link::{Link, LinkFault};
use crate::entropy;
use crate::store::StoreFault;

/// Migrations, each from one version to the next. Old entries are never edited. Times are in milliseconds; what is an
/// integer in SQLite is a `BIGINT`. `epoch` and `batch` are the stamp of the batch that wrote the row last.
const MIGRATIONS: &[&str] = &["CREATE TABLE shard (
        id BIGINT PRIMARY KEY,
        owner TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        claim TEXT NOT NULL
    );
    CREATE TABLE question (
        id TEXT PRIMARY KEY,
        session TEXT NOT NULL,
        idle_ms BIGINT NOT NULL,
        asked_ms BIGINT NOT NULL,
        closing TEXT,
        closed_ms BIGINT,
        command TEXT,
        launch BYTEA,
        because TEXT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX question_open ON question (asked_ms) WHERE closing IS NULL;
    CREATE TABLE timer (
        number BIGINT PRIMARY KEY,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        purpose TEXT NOT NULL,
        condition TEXT,
        key TEXT,
        created_ms BIGINT NOT NULL,
        checked_ms BIGINT NOT NULL,
        total_ms BIGINT NOT NULL,
        standby_ms BIGINT,
        status TEXT NOT NULL,
        background BIGINT NOT NULL,
        due_ms BIGINT,
        pause_until_ms BIGINT,
        remaining_ms BIGINT,
        stop_reason TEXT,
        seen TEXT,
        completed_by TEXT,
        late_ms BIGINT,
        ended_ms BIGINT,
        acted TEXT,
        conversation TEXT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX timer_live ON timer (number) WHERE ended_ms IS NULL;
    CREATE INDEX timer_ended ON timer (ended_ms, number) WHERE ended_ms IS NOT NULL;
    CREATE INDEX timer_ended_of ON timer (agent, ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE timer_change (
        position BIGINT PRIMARY KEY,
        timer BIGINT NOT NULL,
        change TEXT NOT NULL,
        reason TEXT,
        at_ms BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX timer_change_of ON timer_change (timer, position);
    CREATE TABLE message (
        number BIGINT PRIMARY KEY,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        about TEXT NOT NULL,
        made_ms BIGINT NOT NULL,
        told_ms BIGINT,
        seen_ms BIGINT,
        woken_ms BIGINT,
        conversation TEXT,
        wakes BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX message_unseen ON message (number) WHERE seen_ms IS NULL;
    CREATE TABLE delivery (
        message BIGINT NOT NULL,
        waker TEXT NOT NULL,
        name TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        failures BIGINT NOT NULL,
        state TEXT NOT NULL,
        at_ms BIGINT,
        fault TEXT,
        next_ms BIGINT,
        hold_ms BIGINT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (message, waker)
    );
    CREATE TABLE waker (
        id TEXT PRIMARY KEY,
        ended_ms BIGINT NOT NULL,
        fault TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE TABLE client (
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        facts TEXT NOT NULL,
        at_ms BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (agent, kind)
    );
    CREATE TABLE clock (
        one BIGINT PRIMARY KEY CHECK (one = 1),
        boot_id TEXT NOT NULL,
        ahead_of_boot_ms BIGINT NOT NULL,
        wall_ahead_ms BIGINT NOT NULL,
        reached_ms BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    )"];

/// Attempts to create the schema while another daemon does the same.
const ATTEMPTS: usize = 20;

/// Creates the schema, or applies the migrations that are missing, in one transaction that holds the row of `fleet`.
/// Refuses a schema of a later version. Returns the key that ids are made with.
pub(super) async fn migrate(link: &Link, schema: &str) -> Result<u64, StoreFault> {
    let found = link.transact("SELECT to_regclass('fleet')", &[]).await?;
    if first_value(&found).is_none() {
        create(link, schema).await?;
    }
    let known = MIGRATIONS.len();
    let sql = "SELECT version, ids_key FROM fleet";
    let row = link.transact(sql, &[]).await?;
    let version = first_value(&row).and_then(|version| version.parse().ok());
    let version: usize = version.ok_or_else(|| StoreFault::Damaged("`fleet` has no row".into()))?;
    if version > known {
        return Err(StoreFault::Newer(format!(
            "it has tables of version {version}, this one knows {known}; install that version again"
        )));
    }
    if version < known {
        // A daemon that waited for the row finds another version, and nothing is done twice.
        let sql = format!(
            "SELECT 1 / count(*) FROM (SELECT 1 FROM fleet WHERE version = {version} FOR UPDATE) AS held; {}; \
             UPDATE fleet SET version = {known}",
            MIGRATIONS[version..].join(";")
        );
        match link.transact(&sql, &[]).await {
            Ok(_) => {}
            Err(LinkFault::Refused(code, _)) if code == SqlState::DIVISION_BY_ZERO => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    let key = value(&row, 1).and_then(|key| key.parse::<i64>().ok());
    let key = key.ok_or_else(|| StoreFault::Damaged("`fleet` has no key".into()))?;
    Ok(key.cast_unsigned())
}

async fn create(link: &Link, schema: &str) -> Result<(), StoreFault> {
    let key = entropy::bits().cast_signed();
    let sql = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE IF NOT EXISTS fleet (
            one BIGINT PRIMARY KEY CHECK (one = 1),
            version BIGINT NOT NULL,
            ids_key BIGINT NOT NULL
        ); INSERT INTO fleet VALUES (1, 0, {key}) ON CONFLICT DO NOTHING"
    );
    let mut result = link.transact(&sql, &[]).await;
    for _ in 1..ATTEMPTS {
        // Two that create at once collide in the server's own tables.
        let collided = |code: &SqlState| {
            [
                SqlState::UNIQUE_VIOLATION,
                SqlState::DUPLICATE_SCHEMA,
                SqlState::DUPLICATE_TABLE,
                SqlState::DUPLICATE_OBJECT,
                SqlState::INTERNAL_ERROR,
            ]
            .contains(code)
        };
        match &result {
            Err(LinkFault::Refused(code, _)) if collided(code) => {
                result = link.transact(&sql, &[]).await;
            }
            _ => break,
        }
    }
    result?;
    Ok(())
}

/// First value of the first row.
pub(super) fn first_value(answer: &[SimpleQueryMessage]) -> Option<&str> {
    value(answer, 0)
}

fn value(answer: &[SimpleQueryMessage], at: usize) -> Option<&str> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(at),
        _ => None,
    })
}

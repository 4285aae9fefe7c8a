//! The schema and its migrations.

use std::ops::Range;

use abide_core::id::NUMBER_BITS;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::link::{Link, LinkFault};
use crate::entropy;
use crate::store::StoreFault;

/// Migrations, each from one version to the next. Old entries are never edited. Times are in milliseconds; what is an
/// integer in SQLite is a `BIGINT`. `shard` is the machine on which a row was made; `epoch` and `batch` are the stamp of
/// the batch that wrote the row last. Rows of `machine` change with every heartbeat and no index has a column that does,
/// so the server replaces them in place.
const MIGRATIONS: &[&str] = &[
    "CREATE TABLE machine (
        id BIGINT PRIMARY KEY,
        name TEXT NOT NULL,
        labels TEXT NOT NULL,
        version TEXT NOT NULL,
        public_key BYTEA,
        mac BYTEA,
        boot TEXT NOT NULL,
        claim BIGINT NOT NULL,
        standing TEXT NOT NULL,
        heartbeat BIGINT NOT NULL,
        pace TEXT NOT NULL,
        fleet_time BIGINT,
        written BIGINT NOT NULL,
        lost_after BIGINT,
        declared_lost BIGINT NOT NULL DEFAULT 0,
        agents TEXT[] NOT NULL DEFAULT '{}'
    ) WITH (fillfactor = 40);
    CREATE UNIQUE INDEX machine_name ON machine (name) WHERE standing IN ('member', 'left');
    CREATE TABLE shard (
        id BIGINT PRIMARY KEY,
        owner BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        claim BIGINT,
        requested BIGINT NOT NULL DEFAULT 0
    );
    CREATE INDEX shard_owner ON shard (owner);
    CREATE UNLOGGED TABLE frame (
        link TEXT NOT NULL,
        seq BIGINT NOT NULL,
        recipient BIGINT NOT NULL,
        sent_ms BIGINT NOT NULL,
        bytes BYTEA NOT NULL,
        PRIMARY KEY (link, seq)
    );
    CREATE INDEX frame_for ON frame (recipient);
    CREATE TABLE session (
        machine BIGINT NOT NULL,
        id TEXT NOT NULL,
        boot TEXT NOT NULL,
        agent TEXT NOT NULL,
        name TEXT,
        command TEXT NOT NULL,
        state TEXT NOT NULL,
        facts TEXT NOT NULL,
        as_of BIGINT NOT NULL,
        PRIMARY KEY (machine, id)
    );
    CREATE INDEX session_id ON session (id);
    CREATE INDEX session_as_of ON session (as_of);
    CREATE TABLE question (
        shard BIGINT NOT NULL,
        id TEXT NOT NULL,
        session TEXT NOT NULL,
        idle_ms BIGINT NOT NULL,
        asked_ms BIGINT NOT NULL,
        closing TEXT,
        closed_ms BIGINT,
        command TEXT,
        launch BYTEA,
        because TEXT,
        over_ms BIGINT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (shard, id)
    );
    CREATE INDEX question_id ON question (id);
    CREATE INDEX question_open ON question (shard, asked_ms) WHERE closing IS NULL;
    CREATE TABLE timer (
        shard BIGINT NOT NULL,
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
        ended_sessions TEXT,
        completed_by TEXT,
        late_ms BIGINT,
        ended_ms BIGINT,
        acted TEXT,
        conversation TEXT,
        over_ms BIGINT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX timer_live ON timer (shard, number) WHERE ended_ms IS NULL;
    CREATE UNIQUE INDEX timer_key ON timer (agent, key) WHERE ended_ms IS NULL AND key IS NOT NULL;
    CREATE INDEX timer_key_ended ON timer (agent, key, number) WHERE ended_ms IS NOT NULL AND key IS NOT NULL;
    CREATE INDEX timer_ended ON timer (ended_ms, number) WHERE ended_ms IS NOT NULL;
    CREATE INDEX timer_ended_of ON timer (agent, ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE timer_change (
        shard BIGINT NOT NULL,
        position BIGINT NOT NULL,
        timer BIGINT NOT NULL,
        change TEXT NOT NULL,
        reason TEXT,
        at_ms BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (position, timer)
    );
    CREATE INDEX timer_change_of ON timer_change (timer, position);
    CREATE TABLE message (
        shard BIGINT NOT NULL,
        number BIGINT PRIMARY KEY,
        id TEXT NOT NULL,
        agent TEXT NOT NULL,
        about TEXT NOT NULL,
        made_ms BIGINT NOT NULL,
        told_ms BIGINT,
        told_by BIGINT,
        seen_ms BIGINT,
        conversation TEXT,
        wakes BIGINT NOT NULL,
        released BIGINT NOT NULL DEFAULT 0,
        over_ms BIGINT,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL
    );
    CREATE INDEX message_unseen ON message (shard, number) WHERE seen_ms IS NULL;
    CREATE INDEX message_seen ON message (shard, number) WHERE seen_ms IS NOT NULL;
    CREATE INDEX message_unseen_of ON message (agent, number) WHERE seen_ms IS NULL;
    CREATE TABLE delivery (
        shard BIGINT NOT NULL,
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
        shard BIGINT NOT NULL,
        id TEXT NOT NULL,
        ended_ms BIGINT NOT NULL,
        fault TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (shard, id)
    );
    CREATE TABLE client (
        shard BIGINT NOT NULL,
        agent TEXT NOT NULL,
        kind TEXT NOT NULL,
        facts TEXT NOT NULL,
        at_ms BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        batch BIGINT NOT NULL,
        PRIMARY KEY (shard, agent, kind)
    )",
    "ALTER TABLE question ADD COLUMN answer_key TEXT",
    "ALTER TABLE question ADD COLUMN seal BYTEA, ADD COLUMN approval_seal BYTEA;
    ALTER TABLE timer ADD COLUMN seal BYTEA;
    ALTER TABLE client ADD COLUMN seal BYTEA",
    "ALTER TABLE session ADD COLUMN ending TEXT",
    "ALTER TABLE question ADD COLUMN about TEXT NOT NULL DEFAULT 'idle'",
];

/// Version of the schema that this program writes.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Timeline of the server, which another one has after a failover.
pub(crate) const TIMELINE: &str =
    "('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint";

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
        match link.transact_again(&sql).await {
            Ok(_) => {}
            Err(LinkFault::Refused(code, _)) if code == SqlState::DIVISION_BY_ZERO => {}
            Err(fault) => return Err(fault.into()),
        }
    }
    let key = value(&row, 1).and_then(|key| key.parse::<i64>().ok());
    let key = key.ok_or_else(|| StoreFault::Damaged("`fleet` has no key".into()))?;
    Ok(key.cast_unsigned())
}

/// Numbers in one block. Half of it is left when the next is reserved.
const BLOCK: u64 = 1 << 18;

/// Reserves numbers for timers and messages.
pub(super) async fn reserve_numbers(link: &Link) -> Result<Range<u64>, StoreFault> {
    let sql = format!("UPDATE fleet SET next_number = next_number + {BLOCK} RETURNING next_number");
    let answer = link.transact_again(&sql).await;
    let answer = answer.map_err(super::unreachable)?;
    let end = first_value(&answer).and_then(|number| number.parse::<u64>().ok());
    let end = end.filter(|end| *end <= 1 << NUMBER_BITS);
    let end = end.ok_or_else(|| StoreFault::Damaged("`fleet` has no numbers".into()))?;
    Ok(end - BLOCK..end)
}

/// Keeps the numbers up to this one from being reserved again by a database that has lost the reservation.
pub(super) async fn keep_numbers(link: &Link, end: u64) -> Result<(), StoreFault> {
    let sql = format!("UPDATE fleet SET next_number = {end} WHERE next_number < {end}");
    link.transact_again(&sql)
        .await
        .map_err(super::unreachable)?;
    Ok(())
}

async fn create(link: &Link, schema: &str) -> Result<(), StoreFault> {
    let key = entropy::bits().cast_signed();
    let sql = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE IF NOT EXISTS fleet (
            one BIGINT PRIMARY KEY CHECK (one = 1),
            version BIGINT NOT NULL,
            ids_key BIGINT NOT NULL,
            row_version BIGINT NOT NULL,
            oldest_writer TEXT NOT NULL,
            clock_ahead_ms BIGINT NOT NULL,
            reached_ms BIGINT NOT NULL,
            members BIGINT NOT NULL,
            timeline BIGINT NOT NULL,
            went_back_ms BIGINT NOT NULL,
            next_number BIGINT NOT NULL
        ); INSERT INTO fleet SELECT 1, 0, {key}, 1, '0.1.0', 0, 0, 0, {TIMELINE}, 0, 0 ON CONFLICT DO NOTHING"
    );
    let mut result = link.transact_again(&sql).await;
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
                result = link.transact_again(&sql).await;
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

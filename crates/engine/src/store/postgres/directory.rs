//! Directory of the sessions of all machines. Each machine writes its own rows, late and together: nothing that happens
//! to a session waits for them. A machine that is asked about a session elsewhere finds its owner here.

use std::str::FromStr;

use abide_api::Process;
use abide_core::fleet::MachineId;
use abide_core::fleet::row::{Claim, Introduction, Standing};
use abide_core::timer::Kind;
use abide_core::{Agent, QuestionId, SessionId, TimerId};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::batch::Statement;
use super::frames::{FrameTable, NOW_MS};
use crate::machine_link::machines::IntroducedMachine;
use crate::store::StoreFault;

/// Rows that are written at once.
pub(crate) const MAX_ENTRIES: usize = 256;
/// Sessions of other machines that are listed.
const MAX_LISTED: usize = 1_000;

/// Session in the directory.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryRow {
    /// Machine that runs it.
    pub machine: MachineId,
    pub id: SessionId,
    /// Boot of the machine in which it was started.
    pub boot: u128,
    pub agent: String,
    /// Name of the session.
    pub name: Option<String>,
    pub command: String,
    /// The other facts.
    pub facts: DirectoryFacts,
    /// Clock of the database when this was written, in Unix milliseconds.
    pub as_of: u64,
    /// Clock of the database up to which this is known to be right: a machine that beats has told every change.
    pub told_until: u64,
}

/// Timer of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerElsewhere {
    pub owner: MachineId,
    pub id: TimerId,
    pub is_mission: bool,
}

/// Phase of a session in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectoryState {
    /// The leader runs, or is about to.
    Running,
    /// The leader has ended, and processes that it left run.
    Background,
    /// All processes have ended.
    Ended,
    /// The command could not be started.
    Failed,
}

/// Facts of a session that no statement searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectoryFacts {
    /// Phase.
    pub state: DirectoryState,
    /// Start, in Unix milliseconds.
    pub created_at: u64,
    /// End, in Unix milliseconds.
    pub ended_at: Option<u64>,
    /// Last output, in Unix milliseconds.
    pub last_activity: u64,
    /// Processes that the leader left and that run.
    pub left: Vec<Process>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Word for the cause of the end.
    pub end: Option<String>,
    /// Working directory.
    pub cwd: String,
    /// True if it has a terminal.
    pub pty: bool,
    /// Bytes of output.
    pub bytes: u64,
    /// Timer or wait whose condition has started it; `None`: a call.
    pub started_by: Option<String>,
    /// True if a person has started it at the command line.
    #[serde(default)]
    pub by_person: bool,
    /// Reason for a failure to start.
    pub error: Option<String>,
}

impl DirectoryState {
    fn word(self) -> &'static str {
        match self {
            DirectoryState::Running => "running",
            DirectoryState::Background => "background",
            DirectoryState::Ended => "ended",
            DirectoryState::Failed => "failed",
        }
    }
}

/// Reads the machines that have a key.
pub(super) const MACHINES: &str = "SELECT id, name, labels, standing, public_key, mac, claim FROM machine \
     WHERE public_key IS NOT NULL AND mac IS NOT NULL";

const COLUMNS: &str = "machine, id, boot, agent, name, command, facts, as_of";

impl FrameTable {
    /// Writes rows of this machine, each with the text about its end. Without a text, the one that is stored stays.
    pub async fn put_directory(
        &self,
        rows: &[(DirectoryRow, Option<String>)],
    ) -> Result<(), StoreFault> {
        let (rows, endings): (Vec<_>, Vec<_>) = (rows.iter())
            .map(|(row, ending)| (row, ending.as_deref()))
            .unzip();
        let plain = |text: &str| text.replace('\0', "\u{fffd}");
        let ids: Vec<String> = rows.iter().map(|row| row.id.to_string()).collect();
        let boots: Vec<String> = rows
            .iter()
            .map(|row| format!("{:032x}", row.boot))
            .collect();
        let agents: Vec<String> = rows.iter().map(|row| plain(&row.agent)).collect();
        let names: Vec<Option<String>> = (rows.iter())
            .map(|row| row.name.as_deref().map(plain))
            .collect();
        let commands: Vec<String> = rows.iter().map(|row| plain(&row.command)).collect();
        let states: Vec<&str> = rows.iter().map(|row| row.facts.state.word()).collect();
        let facts: Vec<String> = (rows.iter())
            .map(|row| serde_json::to_string(&row.facts).unwrap_or_default())
            .collect();
        let sql = format!(
            "INSERT INTO session (machine, id, boot, agent, name, command, state, facts, ending, as_of) \
             SELECT $1, u.*, {NOW_MS} FROM unnest($2, $3, $4, $5, $6, $7, $8, $9) \
             AS u(id, boot, agent, name, command, state, facts, ending) \
             ON CONFLICT (machine, id) DO UPDATE SET boot = excluded.boot, agent = excluded.agent, \
             name = excluded.name, command = excluded.command, state = excluded.state, \
             facts = excluded.facts, ending = coalesce(excluded.ending, session.ending), as_of = excluded.as_of"
        );
        let endings: Vec<Option<String>> = endings.iter().map(|text| text.map(plain)).collect();
        let texts: [Param<'_>; 8] = [
            &ids, &boots, &agents, &names, &commands, &states, &facts, &endings,
        ];
        let params = texts.map(|column| (column, Type::TEXT_ARRAY));
        self.execute(&sql, &params).await
    }

    /// Removes rows of this machine.
    pub async fn remove_directory(&self, ids: &[SessionId]) -> Result<(), StoreFault> {
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let sql = "DELETE FROM session WHERE machine = $1 AND id = ANY($2)";
        self.execute(sql, &[(&ids, Type::TEXT_ARRAY)]).await
    }

    /// Ids of the rows of this machine, and of those that have a text about the end.
    pub async fn own_directory(&self) -> Result<[Vec<SessionId>; 2], StoreFault> {
        let all = "SELECT id FROM session WHERE machine = $1";
        let ended = "SELECT id FROM session WHERE machine = $1 AND ending IS NOT NULL";
        let (all, ended) = (self.rows(all, &[]).await?, self.rows(ended, &[]).await?);
        Ok([ids(&all), ids(&ended)])
    }

    /// Text about the end of a session of another machine.
    pub async fn ending(&self, row: &DirectoryRow) -> Result<Option<String>, StoreFault> {
        let sql = "SELECT ending FROM session WHERE machine <> $1 AND machine = $2 AND id = $3";
        let (machine, id) = (row.machine.0.cast_signed(), row.id.to_string());
        let params: [(Param<'_>, Type); 2] = [(&machine, Type::INT8), (&id, Type::TEXT)];
        let rows = self.rows(sql, &params).await?;
        Ok(rows.first().and_then(|row| row.try_get(0).ok()))
    }

    /// Sessions that run on another machine, as far as it has said, and that have no text about the end.
    pub async fn unended(&self, machine: MachineId) -> Result<Vec<DirectoryRow>, StoreFault> {
        let sql = format!(
            "SELECT {COLUMNS} FROM session WHERE machine <> $1 AND machine = $2 AND state = 'running' \
             AND ending IS NULL LIMIT {MAX_LISTED}"
        );
        let id = machine.0.cast_signed();
        let rows = self.rows(&sql, &[(&id, Type::INT8)]).await?;
        Ok(rows.iter().filter_map(entry).collect())
    }

    /// Gives a session of another machine a text about the end, unless it has one.
    pub async fn set_ending(&self, row: &DirectoryRow, text: &str) -> Result<bool, StoreFault> {
        let sql = "UPDATE session SET ending = $4 WHERE machine <> $1 AND machine = $2 AND id = $3 \
             AND ending IS NULL RETURNING 1";
        let (machine, id) = (row.machine.0.cast_signed(), row.id.to_string());
        let params: [(Param<'_>, Type); 3] = [
            (&machine, Type::INT8),
            (&id, Type::TEXT),
            (&text, Type::TEXT),
        ];
        Ok(!self.rows(sql, &params).await?.is_empty())
    }

    /// Rows of other machines with this id.
    pub async fn directory_entry(&self, id: SessionId) -> Result<Vec<DirectoryRow>, StoreFault> {
        let sql = format!("SELECT {COLUMNS} FROM session WHERE machine <> $1 AND id = $2");
        let rows = self.rows(&sql, &[(&id.to_string(), Type::TEXT)]).await?;
        Ok(rows.iter().filter_map(entry).collect())
    }

    /// Rows of other machines, newest first. Without ended sessions, those are left out that are surely lost: they would
    /// take the places of ones that run.
    pub async fn directory(
        &self,
        agent: Option<&Agent>,
        include_ended: bool,
    ) -> Result<Vec<DirectoryRow>, StoreFault> {
        let living = match include_ended {
            true => "",
            false => {
                "AND state IN ('running', 'background') AND NOT EXISTS (SELECT 1 FROM machine AS m \
                 WHERE m.id = session.machine AND (m.declared_lost <> 0 OR m.boot <> session.boot))"
            }
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM session WHERE machine <> $1 AND ($2::text IS NULL OR agent = $2) {living} \
             ORDER BY as_of DESC LIMIT {MAX_LISTED}"
        );
        let rows = self.rows(&sql, &[(&name_of(agent), Type::TEXT)]).await?;
        Ok(rows.iter().filter_map(entry).collect())
    }

    /// Time of the database, and rows of other machines that were written after a time of it, oldest first.
    pub async fn changed_directory(
        &self,
        from: u64,
    ) -> Result<(u64, Vec<DirectoryRow>), StoreFault> {
        let clock = self.read(format!("SELECT {NOW_MS}"), Vec::new()).await?;
        let clock: Option<i64> = clock.first().and_then(|row| row.try_get(0).ok());
        let sql = format!(
            "SELECT * FROM (SELECT {COLUMNS} FROM session WHERE machine <> $1 AND as_of > $2 \
             ORDER BY as_of DESC LIMIT {MAX_LISTED}) AS newest ORDER BY as_of"
        );
        let params = [(&from.cast_signed() as Param<'_>, Type::INT8)];
        let rows = self.rows(&sql, &params).await?;
        let clock = clock.unwrap_or_default().cast_unsigned();
        Ok((clock, rows.iter().filter_map(entry).collect()))
    }

    /// Open questions of other machines.
    pub async fn open_questions(&self) -> Result<Vec<QuestionId>, StoreFault> {
        let sql = "SELECT id FROM question WHERE shard <> $1 AND closing IS NULL";
        Ok(ids(&self.rows(sql, &[]).await?))
    }

    /// Number of open questions of each other machine that has some, of one agent or all.
    pub async fn open_question_counts(
        &self,
        agent: Option<&Agent>,
    ) -> Result<Vec<(MachineId, usize)>, StoreFault> {
        let sql = "SELECT q.shard, count(*) FROM question AS q WHERE q.shard <> $1 AND q.closing IS NULL \
             AND ($2::text IS NULL OR EXISTS (SELECT 1 FROM session AS s WHERE s.machine = q.shard \
             AND s.id = q.session AND s.agent = $2)) GROUP BY q.shard";
        let rows = self.rows(sql, &[(&name_of(agent), Type::TEXT)]).await?;
        let counts = rows.iter().filter_map(|row| {
            let count: i64 = row.try_get(1).ok()?;
            Some((machine(row, 0)?, count as usize))
        });
        Ok(counts.collect())
    }

    /// Machine on which a question was asked, if that is another one.
    pub async fn question_owner(&self, id: QuestionId) -> Result<Option<MachineId>, StoreFault> {
        let sql = "SELECT shard FROM question WHERE shard <> $1 AND id = $2";
        let rows = self.rows(sql, &[(&id.to_string(), Type::TEXT)]).await?;
        Ok(rows.first().and_then(|row| machine(row, 0)))
    }

    /// Machine that holds the command of this session, if that is another one.
    pub async fn held_command_owner(
        &self,
        session: SessionId,
    ) -> Result<Option<MachineId>, StoreFault> {
        let sql = "SELECT shard FROM question WHERE shard <> $1 AND session = $2 AND command IS NOT NULL LIMIT 1";
        let rows = self
            .rows(sql, &[(&session.to_string(), Type::TEXT)])
            .await?;
        Ok(rows.first().and_then(|row| machine(row, 0)))
    }

    /// Machine that owns a timer, if that is another one. A timer that has ended needs none.
    pub async fn timer_owner(&self, number: u64) -> Result<Option<MachineId>, StoreFault> {
        let sql = "SELECT s.owner FROM timer AS t JOIN shard AS s ON s.id = t.shard \
             WHERE t.number = $2 AND t.ended_ms IS NULL AND s.owner <> $1";
        let params = [(&number.cast_signed() as Param<'_>, Type::INT8)];
        let rows = self.rows(sql, &params).await?;
        Ok(rows.first().and_then(|row| machine(row, 0)))
    }

    /// Timer of another machine that was made with this key, and its owner: the one that has not ended, else the newest.
    pub async fn timer_with_key(
        &self,
        agent: &Agent,
        key: &str,
    ) -> Result<Option<TimerElsewhere>, StoreFault> {
        // Each part uses an index of its own.
        let sql = "SELECT s.owner, t.id, t.kind FROM \
             ((SELECT shard, id, kind, 0 AS place FROM timer WHERE agent = $2 AND key = $3 AND ended_ms IS NULL) \
             UNION ALL (SELECT shard, id, kind, 1 FROM timer WHERE agent = $2 AND key = $3 \
             AND ended_ms IS NOT NULL ORDER BY number DESC LIMIT 1)) AS t JOIN shard AS s ON s.id = t.shard \
             WHERE s.owner <> $1 ORDER BY t.place LIMIT 1";
        let params: [Param<'_>; 2] = [&&*agent.0, &key];
        let rows = self
            .rows(sql, &params.map(|text| (text, Type::TEXT)))
            .await?;
        Ok(rows.first().and_then(|row| {
            Some(TimerElsewhere {
                owner: machine(row, 0)?,
                id: row.try_get::<_, &str>(1).ok()?.parse().ok()?,
                is_mission: row.try_get::<_, &str>(2).ok()? == Kind::Mission.as_str(),
            })
        }))
    }

    /// Other machines that have open questions.
    pub async fn question_machines(&self) -> Result<Vec<MachineId>, StoreFault> {
        let sql = "SELECT DISTINCT shard FROM question WHERE shard <> $1 AND closing IS NULL";
        let rows = self.rows(sql, &[]).await?;
        Ok(rows.iter().filter_map(|row| machine(row, 0)).collect())
    }

    /// Machines, as their rows introduce them. Rows without a key are left out.
    pub async fn machines(&self) -> Result<Vec<IntroducedMachine>, StoreFault> {
        let rows = self.read(MACHINES.into(), Vec::new()).await?;
        Ok(rows.iter().filter_map(introduced).collect())
    }

    /// Executes a statement, whose first parameter is this machine.
    async fn execute(&self, sql: &str, others: &[(Param<'_>, Type)]) -> Result<(), StoreFault> {
        let own = self.own();
        let mut params = vec![(&own as Param<'_>, Type::INT8)];
        params.extend_from_slice(others);
        let sql = sql.to_owned();
        self.link()
            .transact("SELECT 1", &[Statement { sql, params }])
            .await?;
        Ok(())
    }

    /// Rows of a query, whose first parameter is this machine.
    async fn rows(&self, sql: &str, others: &[(Param<'_>, Type)]) -> Result<Vec<Row>, StoreFault> {
        let own = self.own();
        let mut params = vec![(&own as Param<'_>, Type::INT8)];
        params.extend_from_slice(others);
        self.read(sql.to_owned(), params).await
    }

    async fn read(
        &self,
        sql: String,
        params: Vec<(Param<'_>, Type)>,
    ) -> Result<Vec<Row>, StoreFault> {
        Ok(self.link().read(&Statement { sql, params }).await?)
    }
}

/// Parameter of a statement.
type Param<'a> = &'a (dyn ToSql + Sync);

/// Ids in the first column.
fn ids<T: FromStr>(rows: &[Row]) -> Vec<T> {
    let texts = rows.iter().filter_map(|row| row.try_get::<_, &str>(0).ok());
    texts.filter_map(|id| id.parse().ok()).collect()
}

/// Machine in a column.
fn machine(row: &Row, at: usize) -> Option<MachineId> {
    let id: i64 = row.try_get(at).ok()?;
    Some(MachineId(id.cast_unsigned()))
}

fn name_of(agent: Option<&Agent>) -> Option<String> {
    agent.map(|agent| agent.0.to_string())
}

/// Session of a row; none if the row is not valid, as one that a newer program has written may be.
fn entry(row: &Row) -> Option<DirectoryRow> {
    let as_of = row.try_get::<_, i64>(7).ok()?.try_into().ok()?;
    Some(DirectoryRow {
        machine: machine(row, 0)?,
        id: row.try_get::<_, &str>(1).ok()?.parse().ok()?,
        boot: u128::from_str_radix(row.try_get(2).ok()?, 16).ok()?,
        agent: row.try_get(3).ok()?,
        name: row.try_get(4).ok()?,
        command: row.try_get(5).ok()?,
        facts: serde_json::from_str(row.try_get(6).ok()?).ok()?,
        as_of,
        told_until: as_of,
    })
}

/// Machine of a row of [`MACHINES`].
pub(super) fn introduced(row: &Row) -> Option<IntroducedMachine> {
    let standing = Standing::of_word(row.try_get(3).ok()?)?;
    let labels = row.try_get::<_, &str>(2).ok()?;
    Some(IntroducedMachine {
        introduction: Introduction {
            id: machine(row, 0)?,
            name: row.try_get(1).ok()?,
            key: row.try_get::<_, &[u8]>(4).ok()?.try_into().ok()?,
            mac: row.try_get::<_, &[u8]>(5).ok()?.try_into().ok()?,
        },
        standing,
        labels: labels.split_whitespace().map(str::to_owned).collect(),
        claim: Claim(row.try_get::<_, i64>(6).ok()?.cast_unsigned()),
    })
}

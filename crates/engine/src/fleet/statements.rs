//! Statements of the membership as SQL, and their answers. Each is one statement that is a transaction by itself. A
//! heartbeat is all that an idle daemon asks of the server, which parses and plans it once for a connection: this is most
//! of its work. In the others the values are part of the text, because they are numbers and names of a form that was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use abide_core::fleet::version::Version;
use abide_core::fleet::{
    Answer, Beat, Claim, DatabaseClock, FleetRow, Look, MachineId, MachineRow, Pace, Scope,
    ShardId, ShardRow, Standing, Statement,
};
use abide_core::time::{Boot, Millis, Steady};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::{Introduction, Machine, MachineIdentity};
use crate::secret;
use crate::store::{NOW_MS, TIMELINE, statement_guard};

/// Columns of a machine, in the order in which [`machine`] reads them.
const MACHINE: [&str; 15] = [
    "id",
    "claim",
    "boot",
    "standing",
    "heartbeat",
    "pace",
    "fleet_time",
    "written",
    "lost_after",
    "name",
    "labels",
    "version",
    "encode(public_key, 'hex')",
    "encode(mac, 'hex')",
    "declared_lost",
];

/// Columns of a shard, in the order in which [`shard`] reads them.
const SHARD: [&str; 5] = ["id", "owner", "epoch", "claim", "requested"];

/// Query of rows as text: their kind, and as many columns as a machine has, so that rows of all kinds are one answer.
fn query(kind: &str, columns: &[&str], from: &str) -> String {
    let columns = columns.iter().map(|column| format!("({column})::text"));
    let all = columns.chain(std::iter::repeat("NULL".to_owned()));
    let all: Vec<String> = all.take(MACHINE.len()).collect();
    format!("SELECT '{kind}'::text, {} FROM {from}", all.join(", "))
}

/// Statement as it is sent.
#[derive(Debug, Default)]
pub(super) struct Sql {
    pub text: String,
    params: Vec<Param>,
    /// True if the server is to keep its plan.
    pub is_repeated: bool,
}

#[derive(Debug)]
enum Param {
    Int(Option<i64>),
    Text(&'static str),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

impl Sql {
    /// Statement without parameters.
    fn of(text: String) -> Self {
        Sql {
            text,
            ..Sql::default()
        }
    }

    /// Adds a parameter. Returns its name.
    fn add(&mut self, param: Param) -> String {
        self.params.push(param);
        format!("${}", self.params.len())
    }

    /// Values of the parameters and their types.
    pub fn params(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let params = self.params.iter().map(|param| match param {
            Param::Int(value) => (value as &(dyn ToSql + Sync), Type::INT8),
            Param::Text(value) => (value as _, Type::TEXT),
            Param::Ints(value) => (value as _, Type::INT8_ARRAY),
            Param::Texts(value) => (value as _, Type::TEXT_ARRAY),
        });
        params.collect()
    }
}

/// SQL of a statement. `agents` are those that are connected to this machine, `waiting` those with a call that waits here.
pub(super) fn sql(
    schema: &str,
    (me, own): (&MachineIdentity, &Introduction),
    agents: BTreeSet<String>,
    waiting: BTreeSet<String>,
    statement: &Statement,
) -> Sql {
    let id = signed(me.id.0);
    Sql::of(match statement {
        Statement::Look => {
            let mut sql = Sql::default();
            let machines = format!("{schema}.machine");
            let readers = agents.union(&waiting).cloned().collect();
            sql.text = look(&mut sql, schema, &machines, id, &Scope::All, &[], readers);
            return sql;
        }
        Statement::Beat(beat) => return heartbeat(schema, id, beat, agents, &waiting),
        Statement::Enter {
            expected,
            claim,
            boot,
            heartbeat,
            lost_after,
        } => enter(
            schema,
            me,
            own,
            *expected,
            *claim,
            *boot,
            *heartbeat,
            *lost_after,
        ),
        Statement::Claim {
            shard,
            expected,
            silent,
            timeline,
            claim,
            epoch,
        } => claim_shard(
            schema, id, *shard, *expected, *silent, *timeline, *claim, *epoch,
        ),
        Statement::HandBack { shard, epoch, to } => format!(
            "UPDATE {schema}.shard SET owner = {}, epoch = epoch + 1, claim = NULL, requested = 0 WHERE id = {} \
             AND owner = {id} AND epoch = {epoch} RETURNING 'done'",
            signed(to.0),
            signed(shard.0.0)
        ),
        Statement::SetFleet { row, timeline } => format!(
            "UPDATE {schema}.fleet SET row_version = {}, clock_ahead_ms = {}, reached_ms = {}, timeline = {}, \
             went_back_ms = {} WHERE row_version = {} AND {TIMELINE} = {timeline} RETURNING 'done'",
            row.version,
            row.clock_ahead,
            row.reached.0,
            row.timeline,
            row.went_back.0,
            row.version - 1,
        ),
    })
}

/// Makes the row of this machine, or takes it from the process with the expected claim and heartbeat.
#[expect(clippy::too_many_arguments, reason = "the columns of a row")]
fn enter(
    schema: &str,
    me: &MachineIdentity,
    own: &Introduction,
    expected: Option<(Claim, u64)>,
    claim: Claim,
    boot: u128,
    heartbeat: u64,
    lost_after: Option<Millis>,
) -> String {
    let id = signed(me.id.0);
    let columns = "id, name, labels, version, public_key, mac, boot, claim, standing, heartbeat, pace, \
                   fleet_time, written, lost_after";
    let values = format!(
        "{id}, '{}', '{}', '{}', {}, {}, '{boot:032x}', {}, 'member', {heartbeat}, 'slow', NULL::bigint, \
         {NOW_MS}, {}::bigint",
        me.name,
        own.labels.join(" "),
        env!("CARGO_PKG_VERSION"),
        bytes(own.public_key),
        bytes(own.mac),
        signed(claim.0),
        number(lost_after.map(|time| time.0)),
    );
    let write = match expected {
        None => format!(
            "INSERT INTO {schema}.machine ({columns}) SELECT {values} ON CONFLICT DO NOTHING RETURNING 1"
        ),
        Some((claim, heartbeat)) => format!(
            "UPDATE {schema}.machine SET ({columns}) = (SELECT {values}) WHERE id = {id} AND claim = {} \
             AND heartbeat = {heartbeat} AND standing IN ('member', 'left') RETURNING 1",
            signed(claim.0)
        ),
    };
    format!(
        "WITH written AS ({write}) UPDATE {schema}.fleet SET members = members + 1 \
         WHERE EXISTS (SELECT 1 FROM written) RETURNING 'done'"
    )
}

/// Makes this machine the owner of a shard. `expected`: its owner and epoch before; `silent`: the claim and heartbeat of that
/// owner, if it has a row.
#[expect(clippy::too_many_arguments, reason = "the facts that are compared")]
fn claim_shard(
    schema: &str,
    id: i64,
    shard: ShardId,
    expected: Option<(MachineId, u64)>,
    silent: Option<(Claim, u64)>,
    timeline: u64,
    claim: Claim,
    epoch: u64,
) -> String {
    let (shard, claim) = (signed(shard.0.0), signed(claim.0));
    let Some((owner, before)) = expected else {
        return format!(
            "INSERT INTO {schema}.shard (id, owner, epoch, claim) SELECT {shard}, {id}, {epoch}, {claim} \
             WHERE {TIMELINE} = {timeline} ON CONFLICT DO NOTHING RETURNING 'done'"
        );
    };
    let owner = signed(owner.0);
    let is_silent = match silent {
        _ if owner == id => String::new(),
        Some((claim, heartbeat)) => format!(
            " AND EXISTS (SELECT 1 FROM {schema}.machine WHERE id = {owner} AND claim = {} AND heartbeat = {heartbeat})",
            signed(claim.0)
        ),
        None => format!(" AND NOT EXISTS (SELECT 1 FROM {schema}.machine WHERE id = {owner})"),
    };
    format!(
        "UPDATE {schema}.shard SET owner = {id}, epoch = {epoch}, claim = {claim}, requested = 0 WHERE id = {shard} \
         AND owner = {owner} AND epoch = {before} AND {TIMELINE} = {timeline}{is_silent} RETURNING 'done'"
    )
}

/// Asks the owner for the shard of this machine.
pub(super) fn request_hand_back(schema: &str, shard: ShardId, owner: MachineId) -> Sql {
    Sql::of(format!(
        "UPDATE {schema}.shard SET requested = 1 WHERE id = {} AND owner = {}",
        signed(shard.0.0),
        signed(owner.0)
    ))
}

/// Channel on which a machine is told to look soon.
pub(crate) fn bell(machine: MachineId) -> String {
    format!("abide_look_{:016x}", machine.0)
}

/// Writes the heartbeat of this machine and looks at the others. A heartbeat that a failing server loses is no loss, so its
/// commit is not synced.
fn heartbeat(
    schema: &str,
    id: i64,
    beat: &Beat,
    agents: BTreeSet<String>,
    waiting: &BTreeSet<String>,
) -> Sql {
    let mut sql = Sql::default();
    let readers = agents.union(waiting).cloned().collect();
    let claim = sql.add(Param::Int(Some(signed(beat.claim.0))));
    let number = sql.add(Param::Int(Some(signed(beat.heartbeat))));
    let pace = sql.add(Param::Text(beat.pace.as_str()));
    let standing = sql.add(Param::Text(beat.standing.as_str()));
    let time = sql.add(Param::Int(beat.fleet_time.map(|time| signed(time.0))));
    let agents = sql.add(Param::Texts(agents.into_iter().collect()));
    let beaten = format!(
        "UPDATE {schema}.machine SET heartbeat = {number}, pace = {pace}, standing = {standing}, fleet_time = {time}, \
         written = {NOW_MS}, agents = {agents} WHERE id = {id} AND claim = {claim} AND heartbeat < {number} \
         AND standing IN ('member', 'left') AND set_config('synchronous_commit', 'off', true) IS NOT NULL RETURNING *"
    );
    let looked = look(
        &mut sql,
        schema,
        "machines",
        id,
        &beat.scope,
        &beat.shards,
        readers,
    );
    // A statement reads the table as it was before. So the row of this machine comes from the update.
    sql.text = format!(
        "WITH beaten AS ({beaten}), machines AS (SELECT * FROM beaten UNION ALL SELECT * FROM {schema}.machine AS m \
         WHERE NOT EXISTS (SELECT 1 FROM beaten WHERE beaten.id = m.id)) {} UNION ALL {looked}",
        query("beaten", &[], "beaten"),
    );
    let mut hasher = DefaultHasher::new();
    sql.text.hash(&mut hasher);
    let hash = hasher.finish().cast_signed();
    let given = sql.add(Param::Int(Some(hash)));
    let guard = query(
        "guard",
        &[&statement_guard(&given, hash)],
        "(VALUES (1)) AS one",
    );
    sql.text = format!("{} UNION ALL {guard}", sql.text);
    sql.is_repeated = true;
    sql
}

/// Rows of the fleet, of `machines` and of shards. `readers`: agents whose messages are looked for.
fn look(
    sql: &mut Sql,
    schema: &str,
    machines: &str,
    id: i64,
    scope: &Scope,
    shards: &[ShardId],
    readers: Vec<String>,
) -> String {
    let readers = sql.add(Param::Texts(readers));
    let has_frame = format!("EXISTS (SELECT 1 FROM {schema}.frame WHERE recipient = {id})");
    let has_messages = format!(
        "EXISTS (SELECT 1 FROM {schema}.message AS m JOIN {schema}.shard AS s ON s.id = m.shard \
         WHERE m.agent = ANY({readers}) AND m.seen_ms IS NULL AND s.owner IS DISTINCT FROM {id})"
    );
    let fleet = [
        "row_version",
        "version",
        "oldest_writer",
        "clock_ahead_ms",
        "reached_ms",
        "members",
        "timeline",
        "went_back_ms",
        NOW_MS,
        TIMELINE,
        &has_frame,
        &has_messages,
    ];
    let (near, owners) = match scope {
        Scope::All => (String::new(), String::new()),
        Scope::Machines(ids) => {
            let near = ids.iter().map(|id| signed(id.0)).chain([id]).collect();
            let near = sql.add(Param::Ints(near));
            let shards = shards.iter().map(|shard| signed(shard.0.0)).collect();
            let shards = sql.add(Param::Ints(shards));
            (
                format!(" WHERE id = ANY({near})"),
                format!(" WHERE owner = ANY({near}) OR id = ANY({shards})"),
            )
        }
    };
    [
        query("fleet", &fleet, &format!("{schema}.fleet")),
        query("machine", &MACHINE, &format!("{machines}{near}")),
        query("shard", &SHARD, &format!("{schema}.shard{owners}")),
    ]
    .join(" UNION ALL ")
}

/// Answer with what only the daemon uses.
pub(super) struct Read {
    pub answer: Answer,
    /// Machines that were read, with their names.
    pub machines: Vec<Machine>,
    /// Shards that were asked for by the machines that made them.
    pub requested: Vec<ShardId>,
    /// True if a frame of another machine waits for this one.
    pub has_frame: bool,
    /// True if another machine has unread messages of agents that are connected or wait here.
    pub has_messages: bool,
    /// Rows that cannot be read, as they are shown.
    pub unreadable: Vec<String>,
}

/// Fault of an answer that does not have the expected form.
#[derive(Debug, thiserror::Error)]
#[error("the database has an invalid row of `{0}`")]
pub(super) struct Invalid(&'static str);

/// Reads the answer to a statement.
pub(super) fn read(
    me: MachineId,
    statement: &Statement,
    answer: &[Row],
    now: Boot,
) -> Result<Read, Invalid> {
    let mut rows: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in answer {
        if let Some(kind) = text(row, 0) {
            rows.entry(kind).or_default().push(row);
        }
    }
    let of = |kind: &str| rows.get(kind).map(Vec::as_slice).unwrap_or_default();
    let wide = match statement {
        Statement::Look => true,
        Statement::Beat(beat) => beat.scope == Scope::All,
        _ => {
            return Ok(Read {
                answer: Answer::Done(!of("done").is_empty()),
                machines: Vec::new(),
                requested: Vec::new(),
                has_frame: false,
                has_messages: false,
                unreadable: Vec::new(),
            });
        }
    };
    let fleet = of("fleet").first().ok_or(Invalid("fleet"))?;
    let mut unreadable = Vec::new();
    let machines = readable(of("machine"), &mut unreadable, |row| machine(row, now));
    let shards = readable(of("shard"), &mut unreadable, shard);
    // Without its own row a machine would count as removed.
    if unreadable.contains(&shown("machine", signed(me.0))) {
        return Err(Invalid("machine"));
    }
    let requested = shards
        .iter()
        .filter(|(row, requested)| *requested && row.owner == me && row.id.0 != me);
    let look = Look {
        fleet: fleet_row(fleet).ok_or(Invalid("fleet"))?,
        database_clock: value(fleet, 9).map(DatabaseClock).ok_or(Invalid("fleet"))?,
        timeline: value(fleet, 10).ok_or(Invalid("fleet"))?,
        heartbeat_written: !of("beaten").is_empty(),
        own: machines
            .iter()
            .find(|machine| machine.row.id == me)
            .map(|machine| machine.row.clone()),
        machines: machines
            .iter()
            .filter(|machine| machine.row.id != me)
            .map(|machine| machine.row.clone())
            .collect(),
        shards: shards.iter().map(|(row, _)| *row).collect(),
        wide,
    };
    Ok(Read {
        requested: requested.map(|(row, _)| row.id).collect(),
        has_frame: text(fleet, 11) == Some("true"),
        has_messages: text(fleet, 12) == Some("true"),
        answer: Answer::Looked(Box::new(look)),
        machines,
        unreadable,
    })
}

/// Rows that can be parsed. Others are logged and skipped, so that one damaged row does not stop the fleet.
fn readable<T>(
    rows: &[&Row],
    unreadable: &mut Vec<String>,
    read: impl Fn(&Row) -> Option<T>,
) -> Vec<T> {
    let read = rows.iter().filter_map(|row| {
        let found = read(row);
        if found.is_none() {
            let kind = text(row, 0).unwrap_or_default();
            unreadable.push(shown(kind, value(row, 1).unwrap_or_default()));
        }
        found
    });
    read.collect()
}

fn shown(kind: &str, id: i64) -> String {
    format!("row {id} of `{kind}`")
}

fn fleet_row(row: &Row) -> Option<FleetRow> {
    Some(FleetRow {
        version: value(row, 1)?,
        schema: value(row, 2)?,
        oldest_writer: version(text(row, 3)?)?,
        clock_ahead: value(row, 4)?,
        reached: Steady(value(row, 5)?),
        members: value(row, 6)?,
        timeline: value(row, 7)?,
        went_back: Steady(value(row, 8)?),
    })
}

fn machine(row: &Row, now: Boot) -> Option<Machine> {
    Some(Machine {
        row: MachineRow {
            id: MachineId(unsigned(row, 1)?),
            claim: Claim(unsigned(row, 2)?),
            boot: u128::from_str_radix(text(row, 3)?, 16).ok()?,
            standing: Standing::of_word(text(row, 4)?)?,
            heartbeat: value(row, 5)?,
            pace: Pace::of_word(text(row, 6)?)?,
            fleet_time: value(row, 7).map(Steady),
            written: DatabaseClock(value(row, 8)?),
            lost_after: value(row, 9).map(Millis),
        },
        name: text(row, 10)?.to_owned(),
        labels: text(row, 11)?
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        version: text(row, 12)?.to_owned(),
        public_key: from_hex(text(row, 13)),
        mac: from_hex(text(row, 14)),
        declared_lost: text(row, 15) != Some("0"),
        read: now,
        silent_since: None,
        is_unanswered: false,
    })
}

fn shard(row: &Row) -> Option<(ShardRow, bool)> {
    let shard = ShardRow {
        id: ShardId(MachineId(unsigned(row, 1)?)),
        owner: MachineId(unsigned(row, 2)?),
        epoch: value(row, 3)?,
        claim: unsigned(row, 4).map(Claim),
    };
    Some((shard, text(row, 5) != Some("0")))
}

/// Version of this program.
pub(super) fn own_version() -> Version {
    version(env!("CARGO_PKG_VERSION")).unwrap_or_default()
}

fn version(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(str::parse);
    let mut part = || parts.next()?.ok();
    Some(Version(part()?, part()?, part()?))
}

fn value<T: FromStr>(row: &Row, at: usize) -> Option<T> {
    text(row, at)?.parse().ok()
}

fn text(row: &Row, at: usize) -> Option<&str> {
    row.try_get(at).ok().flatten()
}

/// Number that has all 64 bits, as a signed column.
fn unsigned(row: &Row, at: usize) -> Option<u64> {
    value::<i64>(row, at).map(i64::cast_unsigned)
}

fn signed(number: u64) -> i64 {
    number.cast_signed()
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "NULL".into(), |number| number.to_string())
}

fn bytes(bytes: Option<[u8; 32]>) -> String {
    bytes.map_or_else(
        || "NULL::bytea".into(),
        |bytes| format!("decode('{}', 'hex')", secret::hex(&bytes)),
    )
}

fn from_hex(text: Option<&str>) -> Option<[u8; 32]> {
    secret::unhex(text?)?.try_into().ok()
}

//! Statements of the membership as SQL, and their answers. Each is one transaction in one network flight, as text: the
//! values are numbers and names of a form that was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use abide_core::fleet::version::Version;
use abide_core::fleet::{
    Answer, Beat, Claim, DatabaseClock, FleetRow, Look, MachineId, MachineRow, Pace, Scope,
    ShardId, ShardRow, Standing, Statement,
};
use abide_core::time::{Boot, Millis, Steady};
use tokio_postgres::{SimpleQueryMessage, SimpleQueryRow};

use super::{Introduction, Machine, MachineIdentity};
use crate::secret;
use crate::store::{NOW_MS, TIMELINE, text_array};

/// Columns of a machine, in the order in which [`machine`] reads them.
const MACHINE: &str = "'machine', id, claim, boot, standing, heartbeat, pace, fleet_time, written, lost_after, name, \
     labels, version, encode(public_key, 'hex'), encode(mac, 'hex'), declared_lost";

/// SQL of a statement. `agents` are those that are connected to this machine, `waiting` those with a call that waits here.
pub(super) fn sql(
    me: &MachineIdentity,
    own: &Introduction,
    agents: &BTreeSet<String>,
    waiting: &BTreeSet<String>,
    statement: &Statement,
) -> String {
    let id = signed(me.id.0);
    let readers = text_array(agents.union(waiting));
    match statement {
        Statement::Look => look(id, &Scope::All, &[], &readers),
        Statement::Beat(beat) => format!(
            "SET LOCAL synchronous_commit = off; {}; {}",
            heartbeat(id, beat, agents),
            look(id, &beat.scope, &beat.shards, &readers)
        ),
        Statement::Enter {
            expected,
            claim,
            boot,
            heartbeat,
            lost_after,
        } => enter(me, own, *expected, *claim, *boot, *heartbeat, *lost_after),
        Statement::Claim {
            shard,
            expected,
            silent,
            timeline,
            claim,
            epoch,
        } => claim_shard(id, *shard, *expected, *silent, *timeline, *claim, *epoch),
        Statement::HandBack { shard, epoch, to } => format!(
            "UPDATE shard SET owner = {}, epoch = epoch + 1, claim = NULL, requested = 0 WHERE id = {} \
             AND owner = {id} AND epoch = {epoch} RETURNING 'done'",
            signed(to.0),
            signed(shard.0.0)
        ),
        Statement::SetFleet { row, timeline } => format!(
            "UPDATE fleet SET row_version = {}, clock_ahead_ms = {}, reached_ms = {}, timeline = {}, \
             went_back_ms = {} WHERE row_version = {} AND {TIMELINE} = {timeline} RETURNING 'done'",
            row.version,
            row.clock_ahead,
            row.reached.0,
            row.timeline,
            row.went_back.0,
            row.version - 1,
        ),
    }
}

/// Makes the row of this machine, or takes it from the process with the expected claim and heartbeat.
fn enter(
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
            "INSERT INTO machine ({columns}) SELECT {values} ON CONFLICT DO NOTHING RETURNING 1"
        ),
        Some((claim, heartbeat)) => format!(
            "UPDATE machine SET ({columns}) = (SELECT {values}) WHERE id = {id} AND claim = {} \
             AND heartbeat = {heartbeat} AND standing IN ('member', 'left') RETURNING 1",
            signed(claim.0)
        ),
    };
    format!(
        "WITH written AS ({write}) UPDATE fleet SET members = members + 1 \
         WHERE EXISTS (SELECT 1 FROM written) RETURNING 'done'"
    )
}

/// Makes this machine the owner of a shard. `expected`: its owner and epoch before; `silent`: the claim and heartbeat of that
/// owner, if it has a row.
fn claim_shard(
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
            "INSERT INTO shard (id, owner, epoch, claim) SELECT {shard}, {id}, {epoch}, {claim} \
             WHERE {TIMELINE} = {timeline} ON CONFLICT DO NOTHING RETURNING 'done'"
        );
    };
    let owner = signed(owner.0);
    let is_silent = match silent {
        _ if owner == id => String::new(),
        Some((claim, heartbeat)) => format!(
            " AND EXISTS (SELECT 1 FROM machine WHERE id = {owner} AND claim = {} AND heartbeat = {heartbeat})",
            signed(claim.0)
        ),
        None => format!(" AND NOT EXISTS (SELECT 1 FROM machine WHERE id = {owner})"),
    };
    format!(
        "UPDATE shard SET owner = {id}, epoch = {epoch}, claim = {claim}, requested = 0 WHERE id = {shard} \
         AND owner = {owner} AND epoch = {before} AND {TIMELINE} = {timeline}{is_silent} RETURNING 'done'"
    )
}

/// Asks the owner for the shard of this machine.
pub(super) fn request_hand_back(shard: ShardId, owner: MachineId) -> String {
    format!(
        "UPDATE shard SET requested = 1 WHERE id = {} AND owner = {}",
        signed(shard.0.0),
        signed(owner.0)
    )
}

/// Channel on which a machine is told to look soon.
pub(crate) fn bell(machine: MachineId) -> String {
    format!("abide_look_{:016x}", machine.0)
}

fn heartbeat(id: i64, beat: &Beat, agents: &BTreeSet<String>) -> String {
    format!(
        "UPDATE machine SET heartbeat = {}, pace = '{}', standing = '{}', fleet_time = {}, written = {NOW_MS}, \
         agents = {} WHERE id = {id} AND claim = {} AND heartbeat < {} AND standing IN ('member', 'left') RETURNING 'beaten'",
        beat.heartbeat,
        beat.pace.as_str(),
        beat.standing.as_str(),
        number(beat.fleet_time.map(|time| time.0)),
        text_array(agents),
        signed(beat.claim.0),
        beat.heartbeat,
    )
}

fn look(id: i64, scope: &Scope, shards: &[ShardId], readers: &str) -> String {
    let fleet = format!(
        "SELECT 'fleet', row_version, version, oldest_writer, clock_ahead_ms, reached_ms, members, timeline, \
         went_back_ms, {NOW_MS}, {TIMELINE}, EXISTS (SELECT 1 FROM frame WHERE recipient = {id}), \
         EXISTS (SELECT 1 FROM message AS m JOIN shard AS s ON s.id = m.shard \
         WHERE m.agent = ANY({readers}) AND m.seen_ms IS NULL AND s.owner IS DISTINCT FROM {id}) FROM fleet"
    );
    let (machines, owners) = match scope {
        Scope::All => (String::new(), String::new()),
        Scope::Machines(ids) => {
            let near: Vec<i64> = ids.iter().map(|id| signed(id.0)).chain([id]).collect();
            let shards: Vec<i64> = shards.iter().map(|shard| signed(shard.0.0)).collect();
            (
                format!(" WHERE id = ANY(ARRAY{near:?}::bigint[])"),
                format!(
                    " WHERE owner = ANY(ARRAY{near:?}::bigint[]) OR id = ANY(ARRAY{shards:?}::bigint[])"
                ),
            )
        }
    };
    format!(
        "{fleet}; SELECT {MACHINE} FROM machine{machines}; \
         SELECT 'shard', id, owner, epoch, claim, requested FROM shard{owners}"
    )
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
    answer: &[SimpleQueryMessage],
    now: Boot,
) -> Result<Read, Invalid> {
    let mut rows: BTreeMap<&str, Vec<&SimpleQueryRow>> = BTreeMap::new();
    for message in answer {
        if let SimpleQueryMessage::Row(row) = message
            && let Some(kind) = row.get(0)
        {
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
        has_frame: fleet.get(11) == Some("t"),
        has_messages: fleet.get(12) == Some("t"),
        answer: Answer::Looked(Box::new(look)),
        machines,
        unreadable,
    })
}

/// Rows that can be parsed. Others are logged and skipped, so that one damaged row does not stop the fleet.
fn readable<T>(
    rows: &[&SimpleQueryRow],
    unreadable: &mut Vec<String>,
    read: impl Fn(&SimpleQueryRow) -> Option<T>,
) -> Vec<T> {
    let read = rows.iter().filter_map(|row| {
        let found = read(row);
        if found.is_none() {
            let kind = row.get(0).unwrap_or_default();
            unreadable.push(shown(kind, value(row, 1).unwrap_or_default()));
        }
        found
    });
    read.collect()
}

fn shown(kind: &str, id: i64) -> String {
    format!("row {id} of `{kind}`")
}

fn fleet_row(row: &SimpleQueryRow) -> Option<FleetRow> {
    Some(FleetRow {
        version: value(row, 1)?,
        schema: value(row, 2)?,
        oldest_writer: version(row.get(3)?)?,
        clock_ahead: value(row, 4)?,
        reached: Steady(value(row, 5)?),
        members: value(row, 6)?,
        timeline: value(row, 7)?,
        went_back: Steady(value(row, 8)?),
    })
}

fn machine(row: &SimpleQueryRow, now: Boot) -> Option<Machine> {
    Some(Machine {
        row: MachineRow {
            id: MachineId(unsigned(row, 1)?),
            claim: Claim(unsigned(row, 2)?),
            boot: u128::from_str_radix(row.get(3)?, 16).ok()?,
            standing: Standing::of_word(row.get(4)?)?,
            heartbeat: value(row, 5)?,
            pace: Pace::of_word(row.get(6)?)?,
            fleet_time: value(row, 7).map(Steady),
            written: DatabaseClock(value(row, 8)?),
            lost_after: value(row, 9).map(Millis),
        },
        name: row.get(10)?.to_owned(),
        labels: row.get(11)?.split_whitespace().map(str::to_owned).collect(),
        version: row.get(12)?.to_owned(),
        public_key: from_hex(row.get(13)),
        mac: from_hex(row.get(14)),
        declared_lost: row.get(15) != Some("0"),
        read: now,
        silent_since: None,
        is_unanswered: false,
    })
}

fn shard(row: &SimpleQueryRow) -> Option<(ShardRow, bool)> {
    let shard = ShardRow {
        id: ShardId(MachineId(unsigned(row, 1)?)),
        owner: MachineId(unsigned(row, 2)?),
        epoch: value(row, 3)?,
        claim: unsigned(row, 4).map(Claim),
    };
    Some((shard, row.get(5) != Some("0")))
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

fn value<T: FromStr>(row: &SimpleQueryRow, at: usize) -> Option<T> {
    row.get(at)?.parse().ok()
}

/// Number that has all 64 bits, as a signed column.
fn unsigned(row: &SimpleQueryRow, at: usize) -> Option<u64> {
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

//! Reads and writes of the command line: before a daemon joins a fleet, after it has left, and for `abide doctor`.

use std::sync::Arc;

use abide_core::fleet::MachineId;
use tokio::sync::Notify;
use tokio_postgres::SimpleQueryMessage;

use super::batch::Statement;
use super::directory::{MACHINES, introduced};
use super::frames::{NOW_MS, notified};
use super::link::{Address, Link};
use crate::entropy;
use crate::machine_link::machines::IntroducedMachine;
use crate::store::StoreFault;

/// Machines that have a key, as their rows introduce them. Empty if the schema is not there yet.
pub(crate) async fn introduced_machines(
    address: &Address,
) -> Result<Vec<IntroducedMachine>, StoreFault> {
    let link = address.connect().await?;
    if !has_table(&link, &address.schema).await? {
        return Ok(Vec::new());
    }
    let statement = Statement {
        sql: MACHINES.into(),
        params: Vec::new(),
    };
    let rows = link.read(&statement).await?;
    Ok(rows.iter().filter_map(introduced).collect())
}

/// Marks a machine as left, so that others take over its timers at once.
pub(crate) async fn leave(address: &Address, machine: MachineId) -> Result<(), StoreFault> {
    let link = address.connect().await?;
    if has_table(&link, &address.schema).await? {
        let id = machine.0.cast_signed();
        let sql = format!(
            "UPDATE machine SET standing = 'left', public_key = NULL, mac = NULL WHERE id = {id} \
             AND standing = 'member'; DELETE FROM session WHERE machine = {id}; \
             UPDATE fleet SET members = members + 1"
        );
        link.transact(&sql, &[]).await?;
    }
    Ok(())
}

async fn has_table(link: &Link, schema: &str) -> Result<bool, StoreFault> {
    let sql = format!("SELECT to_regclass('{schema}.machine')::text");
    let answer = link.transact(&sql, &[]).await?;
    Ok(answer
        .iter()
        .any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0).is_some())))
}

/// Settings of a server that matter to timers and links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Version of the server.
    pub version: String,
    /// Replicas that follow it, as far as this user may see them.
    pub replicas: u64,
    /// True if a commit waits for a replica.
    pub is_synchronous: bool,
    /// True if commits are on disk when they are answered.
    pub is_durable: bool,
    /// True if the server can notify this machine. A pooler in transaction mode cannot.
    pub notifies: bool,
    /// Clock of the server, in Unix milliseconds.
    pub clock: u64,
}

/// Reads the settings of a server.
pub(crate) async fn inspect(address: &Address) -> Result<ServerFacts, StoreFault> {
    let rung = Arc::new(Notify::new());
    let link = address.connect_notified(Some(rung.clone())).await?;
    let statement = Statement {
        sql: format!(
            "SELECT current_setting('server_version'), (SELECT count(*) FROM pg_stat_replication), \
             current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') \
             IN ('on', 'remote_apply', 'remote_write'), current_setting('fsync') = 'on' \
             AND current_setting('synchronous_commit') <> 'off', {NOW_MS}"
        ),
        params: Vec::new(),
    };
    let rows = link.read(&statement).await?;
    let unreadable =
        |fault: tokio_postgres::Error| StoreFault::Damaged(super::link::described(&fault));
    let row = rows
        .first()
        .ok_or_else(|| StoreFault::Damaged("the server has answered nothing".into()))?;
    let own = MachineId(entropy::bits());
    let notifies = notified(&link, own, &rung).await;
    Ok(ServerFacts {
        version: row.try_get(0).map_err(unreadable)?,
        replicas: row
            .try_get::<_, i64>(1)
            .map_err(unreadable)?
            .cast_unsigned(),
        is_synchronous: row.try_get(2).map_err(unreadable)?,
        is_durable: row.try_get(3).map_err(unreadable)?,
        clock: row
            .try_get::<_, i64>(4)
            .map_err(unreadable)?
            .cast_unsigned(),
        notifies,
    })
}

//! Reads and writes of the command line: before a daemon joins a fleet, after it has left, and for `abide doctor`.

use std::sync::Arc;

use abide_core::fleet::MachineId;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio_postgres::SimpleQueryMessage;

use super::batch::Statement;
use super::directory::{MACHINES, introduced};
use super::frames::{NOW_MS, notified};
use super::link::{Address, Link};
use crate::clock::{Clock, SystemClock};
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
    /// Clock of this machine at that time.
    pub own_clock: u64,
    /// True if the server removes old versions of rows by itself.
    pub vacuums: bool,
    /// Age of the oldest transaction that keeps old versions of rows, in milliseconds, as far as this user may see it.
    pub oldest_transaction: Option<u64>,
    /// Connections that are open.
    pub connections: u64,
    /// Connections that the server allows.
    pub max_connections: u64,
    /// Hosts of the address that accept writes.
    pub writers: usize,
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
             AND current_setting('synchronous_commit') <> 'off', {NOW_MS}, current_setting('autovacuum') = 'on', \
             (SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::bigint FROM pg_stat_activity \
             WHERE datname = current_database() AND backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), \
             (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
             current_setting('max_connections')::bigint"
        ),
        params: Vec::new(),
    };
    let rows = link.read(&statement).await?;
    let own_clock = SystemClock.now().wall.0;
    let unreadable =
        |fault: tokio_postgres::Error| StoreFault::Damaged(super::link::described(&fault));
    let row = rows
        .first()
        .ok_or_else(|| StoreFault::Damaged("the server has answered nothing".into()))?;
    let number = |at: usize| match row.try_get::<_, i64>(at) {
        Ok(number) => Ok(number.cast_unsigned()),
        Err(fault) => Err(unreadable(fault)),
    };
    let own = MachineId(entropy::bits());
    let notifies = notified(address, &link, own, &rung).await;
    Ok(ServerFacts {
        version: row.try_get(0).map_err(unreadable)?,
        replicas: number(1)?,
        is_synchronous: row.try_get(2).map_err(unreadable)?,
        is_durable: row.try_get(3).map_err(unreadable)?,
        clock: number(4)?,
        own_clock,
        vacuums: row.try_get(5).map_err(unreadable)?,
        oldest_transaction: row
            .try_get::<_, Option<i64>>(6)
            .map_err(unreadable)?
            .map(i64::cast_unsigned),
        connections: number(7)?,
        max_connections: number(8)?,
        notifies,
        writers: writers(address).await,
    })
}

/// Number of hosts of an address that accept writes.
async fn writers(address: &Address) -> usize {
    let hosts = address.hosts();
    if hosts.len() < 2 {
        return 1;
    }
    let connected = join_all(hosts.iter().map(Address::connect)).await;
    connected.iter().filter(|link| link.is_ok()).count()
}

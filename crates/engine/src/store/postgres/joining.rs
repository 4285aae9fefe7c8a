//! Reads and writes of the command line before a daemon joins a fleet, and after it has left.

use abide_core::fleet::MachineId;
use tokio_postgres::SimpleQueryMessage;

use super::batch::Statement;
use super::directory::{MACHINES, introduced};
use super::link::{Address, Link};
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

//! Transactions of the writer whose outcome is not known, or which a server that took over has lost.

use super::batch::WrittenBy;
use super::link::Link;
use super::schema::first_value;
use super::transaction::Transaction;
use super::writer::{Writer, no_connection, send_transaction, unreachable};
use crate::store::StoreFault;

/// State of the shards of a transaction whose outcome is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    /// One of them is not claimed again.
    NotYet,
    /// All are claimed again by this machine.
    Here,
    /// Another machine owns one.
    ByOther,
}

impl Writer {
    /// Writes the transactions again that a server which took over has lost, in their order.
    pub(super) async fn write_lost_transactions(&mut self) -> Result<(), StoreFault> {
        let Some(link) = &self.link else {
            return Err(no_connection());
        };
        // A server that has lost a transaction has lost all later ones.
        let (mut there, mut lost) = (0, self.recent.len());
        if let Some(newest) = lost.checked_sub(1).and_then(|at| self.recent.get(at))
            && is_written(link, newest, WrittenBy::ItOrLater).await?
        {
            return Ok(());
        }
        while there < lost {
            let middle = usize::midpoint(there, lost);
            let Some(transaction) = self.recent.get(middle) else {
                break;
            };
            match is_written(link, transaction, WrittenBy::ItOrLater).await? {
                true => there = middle + 1,
                false => lost = middle,
            }
        }
        if there < self.recent.len() {
            tracing::error!(
                "the database has lost {} commits that it had acknowledged; they are written again",
                self.recent.len() - there
            );
        }
        for transaction in self.recent.from(there) {
            let shards: Vec<i64> = transaction.shards().map(|(shard, _)| shard).collect();
            // What another machine owns by now is repaired there.
            if shards
                .iter()
                .all(|shard| self.owned.epoch(*shard).is_some())
            {
                let sent = send_transaction(link, &self.owned, None, transaction, true).await;
                sent.map_err(unreachable)?;
            }
        }
        Ok(())
    }

    /// Finds out whether the transaction of unknown outcome was written, and writes it if not. Waits for the new claims
    /// of its shards, which keep the old transaction from being written later.
    pub(super) async fn settle(&mut self) {
        let Some((transaction, Some(_))) = &self.unsettled else {
            return;
        };
        let state = self.settled_shards(transaction);
        let (Some(link), false) = (&self.link, state == Claimed::NotYet) else {
            return;
        };
        let looked = is_written(link, transaction, WrittenBy::It).await;
        let Some((transaction, Some(done))) = self.unsettled.take() else {
            return;
        };
        let settled = match looked {
            Ok(true) => Ok(()),
            Ok(false) if state == Claimed::ByOther => Err(StoreFault::NotOwned(
                "another machine has taken over the timers of this one; try again".into(),
            )),
            Ok(false) => self.send(&transaction, true).await,
            // The claim keeps the old transaction from being written, but it is not known whether it was.
            Err(fault) => {
                self.lost(&fault.to_string());
                Err(StoreFault::Unknown(fault.to_string()))
            }
        };
        match settled {
            Err(StoreFault::Unknown(_)) => self.unsettled = Some((transaction, Some(done))),
            Ok(()) => {
                self.recent.keep(transaction);
                let _ = done.send(Ok(()));
            }
            Err(fault) => drop(done.send(Err(fault))),
        }
    }

    fn settled_shards(&self, transaction: &Transaction) -> Claimed {
        let mut state = Claimed::Here;
        for (shard, epoch) in transaction.shards() {
            match self.owned.epoch(shard) {
                Some(claimed) if claimed > epoch => {}
                Some(_) => return Claimed::NotYet,
                None if self.owned.is_dropped(shard) => state = Claimed::ByOther,
                None => return Claimed::NotYet,
            }
        }
        state
    }
}

/// True if the rows of a transaction carry its stamp, or a later one if that counts.
async fn is_written(
    link: &Link,
    transaction: &Transaction,
    by: WrittenBy,
) -> Result<bool, StoreFault> {
    let Some(look) = transaction.look(by) else {
        return Ok(false);
    };
    let answer = link.transact(&look, &[]).await.map_err(unreachable)?;
    Ok(first_value(&answer).is_some_and(|count| count != "0"))
}

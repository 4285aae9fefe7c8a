//! Transactions of the writer whose outcome is not known, or which a server that took over has lost.

use tokio_postgres::error::SqlState;

use super::batch::WrittenBy;
use super::link::{Link, LinkFault};
use super::ownership::{Owned, refused};
use super::schema::first_value;
use super::transaction::Transaction;
use super::writer::{Writer, no_connection, send_transaction, unreachable};
use crate::store::{Done, StoreFault};

/// Transaction whose outcome is not known.
pub(super) struct Unsettled {
    pub transaction: Transaction,
    /// Shards that it changes, with the epochs in which it was sent last.
    pub sent_in: Vec<(i64, i64)>,
    /// Answer that waits for it.
    pub done: Option<Done>,
}

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
        // A server that has lost a transaction has lost all later ones. Those that only changed messages do not tell.
        let telling: Vec<usize> = (0..self.recent.len())
            .filter(|at| self.look_at(*at).is_some())
            .collect();
        let (mut there, mut lost) = (0, telling.len());
        // Most often all are there, so the newest is looked at first.
        let mut next = lost.checked_sub(1);
        while let Some(at) = next {
            let look = self.look_at(telling[at]).unwrap_or_default();
            match is_there(link, &look).await? {
                true => there = at + 1,
                false => lost = at,
            }
            next = (there < lost).then(|| usize::midpoint(there, lost));
        }
        if there < telling.len() {
            tracing::error!(
                "the database has lost {} commits that it had acknowledged; they are written again",
                telling.len() - there
            );
        }
        let first = there.checked_sub(1).map_or(0, |newest| telling[newest] + 1);
        for transaction in self.recent.from(first) {
            // What another machine owns by now is repaired there.
            if transaction
                .shards()
                .any(|(shard, _)| self.owned.epoch(shard).is_none())
            {
                continue;
            }
            match send_transaction(link, &self.owned, None, transaction, true).await {
                Err(LinkFault::Refused(code, why)) if is_refused_for_good(&code) => {
                    tracing::error!(
                        "a commit that the database has lost cannot be repeated: {why}"
                    );
                }
                sent => sent.map_err(unreachable)?,
            }
        }
        Ok(())
    }

    /// Query that tells whether this one of the recent transactions was written.
    fn look_at(&self, at: usize) -> Option<String> {
        self.recent.get(at)?.look(WrittenBy::ItOrLater)
    }

    /// Finds out whether the transaction of unknown outcome was written, and writes it if not. Waits for the new claims
    /// of its shards, which keep the old transaction from being written later.
    pub(super) async fn settle(&mut self) {
        let Some(Unsettled {
            transaction,
            sent_in,
            done: Some(_),
        }) = &self.unsettled
        else {
            return;
        };
        let state = claimed(&self.owned, sent_in);
        let (Some(link), false) = (&self.link, state == Claimed::NotYet) else {
            return;
        };
        let looked = match transaction.look(WrittenBy::It) {
            Some(look) => is_there(link, &look).await,
            None => Ok(false),
        };
        let Some(Unsettled {
            transaction,
            mut sent_in,
            done: Some(done),
        }) = self.unsettled.take()
        else {
            return;
        };
        let settled = match looked {
            Ok(true) => Ok(()),
            Ok(false) if state == Claimed::ByOther => Err(StoreFault::NotOwned(
                "another machine has taken over the timers of this one".into(),
            )),
            Ok(false) => {
                for (shard, epoch) in &mut sent_in {
                    *epoch = self.owned.epoch(*shard).unwrap_or(*epoch);
                }
                let sent = self.send(&transaction, true).await;
                if let Err(StoreFault::Unknown(_)) = &sent {
                    self.doubt(&sent_in).await;
                }
                sent
            }
            // The claim keeps the old transaction from being written, but it is not known whether it was.
            Err(fault) => {
                self.lost(&fault.to_string());
                Err(StoreFault::Unknown(fault.to_string()))
            }
        };
        match settled {
            Err(StoreFault::Unknown(_)) => {
                self.unsettled = Some(Unsettled {
                    transaction,
                    sent_in,
                    done: Some(done),
                });
            }
            Ok(()) => {
                self.recent.keep(transaction);
                let _ = done.send(Ok(()));
            }
            Err(fault) => drop(done.send(Err(fault))),
        }
    }
}

/// State of shards in which a transaction was sent in these epochs.
fn claimed(owned: &Owned, sent_in: &[(i64, i64)]) -> Claimed {
    let mut state = Claimed::Here;
    for (shard, epoch) in sent_in {
        match owned.epoch(*shard) {
            Some(claimed) if claimed > *epoch => {}
            Some(_) => return Claimed::NotYet,
            None if owned.is_dropped(*shard) => state = Claimed::ByOther,
            None => return Claimed::NotYet,
        }
    }
    state
}

/// True if the rows that this query looks for are there.
async fn is_there(link: &Link, look: &str) -> Result<bool, StoreFault> {
    let answer = link.transact(look, &[]).await.map_err(unreachable)?;
    Ok(first_value(&answer).is_some_and(|count| count != "0"))
}

/// True if the same transaction would be refused again: its values contradict the rows (classes 22 and 23).
fn is_refused_for_good(code: &SqlState) -> bool {
    *code != refused::BY_FENCE
        && ["22", "23"]
            .iter()
            .any(|class| code.code().starts_with(class))
}

#[cfg(test)]
mod tests {
    use abide_core::fleet::{MachineId, ShardId};
    use abide_core::id::IdPermutation;

    use super::*;
    use crate::store::seal::UNSEALED;

    #[test]
    fn transaction_is_settled_when_its_shard_is_claimed_after_it_was_sent_last() {
        let mut owned = Owned::new(ShardId(MachineId(1)), IdPermutation { key: 7 }, UNSEALED);
        assert_eq!(claimed(&owned, &[(1, 2)]), Claimed::ByOther);
        owned.load(1, 2, 1);
        assert_eq!(claimed(&owned, &[(1, 1)]), Claimed::Here);
        assert_eq!(claimed(&owned, &[(1, 2)]), Claimed::NotYet);
        owned.suspend(1);
        assert_eq!(claimed(&owned, &[(1, 1)]), Claimed::NotYet);
    }

    #[test]
    fn full_disk_and_another_owner_are_not_refusals_for_good() {
        assert!(is_refused_for_good(&SqlState::UNIQUE_VIOLATION));
        assert!(is_refused_for_good(&refused::BY_ROW));
        assert!(!is_refused_for_good(&refused::BY_FENCE));
        assert!(!is_refused_for_good(&SqlState::DISK_FULL));
    }
}

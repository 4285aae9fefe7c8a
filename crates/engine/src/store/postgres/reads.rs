//! Reads, on a thread and a connection of their own: neither the event loop nor a commit waits for them.

use std::cell::RefCell;
use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::batch::Statement;
use super::link::{Address, Link, LinkFault};
use crate::store::StoreFault;
use crate::store::query::{Columns, Dialect, Query};
use crate::store::records::Value;

/// Reads that may be queued.
const MAX_READS: usize = 1_024;

type Read = Box<dyn FnOnce(&dyn Query) + Send>;

/// Threads that read, each with a connection of its own: many rows delay no read of few.
#[derive(Clone)]
pub(in crate::store) struct Reads {
    pub few: Queue,
    pub many: Queue,
}

impl Reads {
    /// Starts the threads. They end when all senders are dropped.
    pub fn start(address: Address) -> Result<Self, StoreFault> {
        Ok(Reads {
            few: Queue::start(address.clone())?,
            many: Queue::start(address)?,
        })
    }
}

/// Queue of a thread that reads, and connects when it reads first.
#[derive(Clone)]
pub(in crate::store) struct Queue(mpsc::SyncSender<Read>);

impl Queue {
    fn start(address: Address) -> Result<Self, StoreFault> {
        let (sender, queue) = mpsc::sync_channel::<Read>(MAX_READS);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let thread = std::thread::Builder::new().name("abide-reads".into());
        let serve = move |runtime| {
            let server = Server {
                runtime,
                address,
                link: RefCell::new(None),
            };
            while let Ok(read) = queue.recv() {
                read(&server);
            }
        };
        runtime
            .and_then(|runtime| thread.spawn(move || serve(runtime)))
            .map_err(|e| StoreFault::Refused(format!("a thread for the database: {e}")))?;
        Ok(Queue(sender))
    }

    /// Result of a read.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Query) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreFault> {
        let (done, answer) = oneshot::channel();
        let read: Read = Box::new(move |db| drop(done.send(work(db))));
        let busy = || StoreFault::Unreadable("too many reads wait for the database".into());
        self.0.try_send(read).map_err(|_| busy())?;
        answer.await.unwrap_or_else(|_| Err(busy()))
    }
}

/// The server, as the thread reads from it.
struct Server {
    runtime: tokio::runtime::Runtime,
    address: Address,
    link: RefCell<Option<Link>>,
}

impl Server {
    fn rows(&self, statement: &Statement<'_>) -> Result<Vec<Row>, LinkFault> {
        // A connection that was closed while nothing was read is noticed now, so a read is tried twice.
        let kept = self
            .link
            .borrow_mut()
            .take()
            .filter(|link| !link.is_closed());
        self.runtime.block_on(async {
            if let Some(link) = kept {
                match link.read(statement).await {
                    Err(LinkFault::NotSent(_) | LinkFault::Unanswered(_)) if link.is_closed() => {}
                    answer => return self.keep(link, answer),
                }
            }
            let link = self.address.connect().await?;
            let answer = link.read(statement).await;
            self.keep(link, answer)
        })
    }

    /// Keeps a connection that can be used again.
    fn keep(&self, link: Link, answer: Result<Vec<Row>, LinkFault>) -> Result<Vec<Row>, LinkFault> {
        if let Ok(_) | Err(LinkFault::Refused(..)) = &answer {
            *self.link.borrow_mut() = Some(link);
        }
        answer
    }
}

impl Query for Server {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn for_each(
        &self,
        sql: &str,
        params: &[Value],
        each: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreFault>,
    ) -> Result<(), StoreFault> {
        let params = params.iter().map(|param| match param {
            Value::Int(number) => (number as &(dyn ToSql + Sync), Type::INT8),
            Value::Text(text) => (text as _, Type::TEXT),
            Value::Bytes(bytes) => (bytes as _, Type::BYTEA),
            Value::Ints(numbers) => (numbers as _, Type::INT8_ARRAY),
        });
        let statement = Statement {
            sql: sql.replace('?', "$"),
            params: params.collect(),
        };
        let rows = self.rows(&statement);
        let rows = rows.map_err(|fault| StoreFault::Unreadable(fault.reason()))?;
        rows.iter().try_for_each(|row| each(row))
    }
}

impl Columns for Row {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreFault> {
        self.try_get(at).map_err(|e| invalid(&e))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreFault> {
        self.try_get(at).map_err(|e| invalid(&e))
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, StoreFault> {
        self.try_get(at).map_err(|e| invalid(&e))
    }
}

fn invalid(fault: &tokio_postgres::Error) -> StoreFault {
    StoreFault::Damaged(super::link::described(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn read_of_few_rows_is_answered_during_a_read_of_many() {
        let address = Address::parse("postgres://nobody@localhost/none", None);
        let reads = Reads::start(address.expect("an address")).expect("threads");
        let (release, released) = mpsc::channel::<()>();
        let long = reads.many.read(move |_| Ok(released.recv().is_ok()));
        let short = async {
            let answer = reads.few.read(|_| Ok(1)).await;
            release.send(()).expect("a read that waits");
            answer
        };
        let (long, short) = tokio::join!(long, short);
        assert!(matches!((long, short), (Ok(true), Ok(1))));
    }
}

//! HTTP connections to other machines. A connection that has carried a call stays open for some time, so that the next
//! call to that machine needs no handshake.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::machines::{CannotCall, KnownMachine, OtherMachines};
use crate::clock::pause;
use crate::lock::lock;

/// Time for which an unused connection stays open.
const KEEP: Duration = Duration::from_secs(30);
/// Unused connections that stay open to one machine. One call uses a connection alone, and calls that wait are common.
const MAX_KEPT: usize = 2;

type Sender = SendRequest<Full<Bytes>>;

/// Unused connections.
#[derive(Default)]
pub(super) struct Connections(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    next: u64,
    unused: Vec<KeptConnection>,
}

struct KeptConnection {
    number: u64,
    machine: KnownMachine,
    sender: Sender,
}

impl Connections {
    /// Takes a connection to this daemon of a machine. A daemon that was started again, or has another key, has none.
    fn take(&self, machine: &KnownMachine) -> Option<Sender> {
        let mut kept = lock(&self.0);
        let same = |kept: &KeptConnection| {
            let known = &kept.machine;
            known.id == machine.id && known.key == machine.key && known.claim == machine.claim
        };
        let at = kept.unused.iter().rposition(same)?;
        Some(kept.unused.remove(at).sender)
    }

    /// Keeps a connection. The oldest one to the same machine is closed if there are too many.
    fn put(&self, machine: KnownMachine, sender: Sender) -> u64 {
        let mut kept = lock(&self.0);
        let number = kept.next;
        kept.next += 1;
        let to_machine = |kept: &&KeptConnection| kept.machine.id == machine.id;
        if kept.unused.iter().filter(to_machine).count() >= MAX_KEPT {
            let oldest = kept.unused.iter().position(|kept| to_machine(&kept));
            oldest.map(|oldest| kept.unused.remove(oldest));
        }
        kept.unused.push(KeptConnection {
            number,
            machine,
            sender,
        });
        number
    }

    /// Closes a connection that is still unused.
    fn close(&self, number: u64) {
        let mut kept = lock(&self.0);
        kept.unused.retain(|kept| kept.number != number);
    }

    /// Closes all connections to a machine, because one has failed.
    fn close_all(&self, machine: &KnownMachine) {
        let mut kept = lock(&self.0);
        kept.unused.retain(|kept| kept.machine.id != machine.id);
    }
}

impl OtherMachines {
    /// Sends a request and waits for the head of its response. A request that was sent is not sent again.
    pub async fn send(
        self: &Arc<Self>,
        machine: &KnownMachine,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, CannotCall> {
        let silent = || CannotCall::Silent(machine.name.clone());
        if self.is_silent(machine.id) {
            return Err(silent());
        }
        while let Some(mut sender) = self.connections().take(machine) {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    self.keep(machine.clone(), sender);
                    return Ok(response);
                }
                // A connection that was closed meanwhile gives the request back.
                Err(mut fault) => match fault.take_message() {
                    Some(unsent) => request = unsent,
                    None => {
                        self.connections().close_all(machine);
                        return Err(silent());
                    }
                },
            }
        }
        let stream = TokioIo::new(self.open(machine).await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|_| silent())?;
        tokio::spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        let response = sender.send_request(request).await.map_err(|_| silent())?;
        self.keep(machine.clone(), sender);
        Ok(response)
    }

    /// Keeps a connection once its response was read to the end. One that carries a terminal is never free again.
    fn keep(self: &Arc<Self>, machine: KnownMachine, mut sender: Sender) {
        let machines = self.clone();
        tokio::spawn(async move {
            if sender.ready().await.is_err() {
                return;
            }
            let number = machines.connections().put(machine, sender);
            pause(KEEP).await;
            machines.connections().close(number);
        });
    }
}

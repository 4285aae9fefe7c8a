//! Opens links to other machines and takes those that others open: in TLS, in which both sides prove their keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::CalledLink;
use super::machines::{CannotCall, KnownMachine, OtherMachines};
use super::tls;
use crate::clock::pause;

/// Time that a machine has to answer the first bytes of a link.
const HANDSHAKE: Duration = Duration::from_secs(15);

impl OtherMachines {
    /// Opens a link to a machine, which has proved that it has its key.
    pub(super) async fn open(
        &self,
        machine: &KnownMachine,
    ) -> Result<client::TlsStream<DuplexStream>, CannotCall> {
        let silent = || CannotCall::Silent(machine.name.clone());
        let refused = |why: String| CannotCall::Refused(machine.name.clone(), why);
        let config = tls::client(&self.key, machine.key).map_err(|e| refused(e.to_string()))?;
        let stream = self.carrier.open(machine.id);
        let connector = TlsConnector::from(Arc::new(config));
        tokio::select! {
            opened = connector.connect(tls::server_name(), stream) => {
                opened.map_err(|fault| match fault.kind() {
                    std::io::ErrorKind::InvalidData => refused(fault.to_string()),
                    _ => silent(),
                })
            }
            () = self.until_silent(machine.id) => Err(silent()),
            () = pause(HANDSHAKE) => Err(silent()),
        }
    }

    /// Takes a link that another machine has opened, once that has proved who it is.
    pub async fn accept(
        &self,
        called: CalledLink,
    ) -> Result<(KnownMachine, server::TlsStream<DuplexStream>), CannotCall> {
        let machine = self.known(called.opener).await?;
        let refused = |why: String| CannotCall::Refused(machine.name.clone(), why);
        let config = tls::server(&self.key, machine.key).map_err(|e| refused(e.to_string()))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepted = tokio::select! {
            accepted = acceptor.accept(called.stream) => accepted.map_err(|fault| match fault.kind() {
                std::io::ErrorKind::InvalidData => refused(fault.to_string()),
                _ => CannotCall::Silent(machine.name.clone()),
            }),
            () = pause(HANDSHAKE) => Err(CannotCall::Silent(machine.name.clone())),
        };
        Ok((machine, accepted?))
    }
}

//! Opens links to other machines, over ssh or through the database, and takes those that others open: in TLS, in which both
//! sides prove their keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::DuplexStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::CalledLink;
use super::machines::{CannotCall, KnownMachine, OtherMachines};
use super::{ssh, tls};
use crate::clock::pause;
use crate::fleet::Machine;

/// Time that a machine has to answer the first bytes of a link.
const HANDSHAKE: Duration = Duration::from_secs(15);

impl OtherMachines {
    /// Opens a link to a machine, which has proved that it has its key: over ssh where that is configured and works, else
    /// through the database.
    pub(super) async fn open(
        &self,
        machine: &KnownMachine,
    ) -> Result<client::TlsStream<DuplexStream>, CannotCall> {
        match self.open_over_ssh(machine).await {
            Some(opened) => Ok(opened),
            None => {
                let stream = self.carrier.open(machine.id);
                self.connect(machine, stream).await
            }
        }
    }

    async fn open_over_ssh(
        &self,
        machine: &KnownMachine,
    ) -> Option<client::TlsStream<DuplexStream>> {
        let destination = self.ssh_destination(&machine.name)?;
        let (own, slot) = (self.state().own?, self.ssh.slot(machine.id, &destination)?);
        let open = async {
            let stream = ssh::connect(&destination, own, slot).await?;
            let opened = self.connect(machine, stream).await;
            opened.map_err(|fault| match fault {
                CannotCall::Silent(_) => "the daemon there has closed the link".to_owned(),
                fault => fault.to_string(),
            })
        };
        let opened = tokio::select! {
            opened = open => opened,
            () = pause(ssh::PATIENCE) => Err("no answer".to_owned()),
        };
        // A machine that does not answer at all says nothing about ssh.
        if opened.is_ok() || !self.is_silent(machine.id) {
            let why = opened.as_ref().err().map(String::as_str);
            self.ssh.note(machine.id, &destination, why);
        }
        opened.ok()
    }

    /// Destination of ssh for calls to a machine, if one is configured.
    fn ssh_destination(&self, machine: &str) -> Option<String> {
        self.handle.config().fleet.ssh.get(machine).cloned()
    }

    /// Destination of ssh for calls to a machine, and the reason why ssh failed last.
    pub fn ssh_route(&self, machine: &Machine) -> Option<(String, Option<String>)> {
        let destination = self.ssh_destination(&machine.name)?;
        let fault = self.ssh.fault(machine.row.id, &destination);
        Some((destination, fault))
    }

    /// Makes a TLS stream of the bytes of a link.
    async fn connect(
        &self,
        machine: &KnownMachine,
        stream: DuplexStream,
    ) -> Result<client::TlsStream<DuplexStream>, CannotCall> {
        let silent = || CannotCall::Silent(machine.name.clone());
        let refused = |why: String| CannotCall::Refused(machine.name.clone(), why);
        let config = tls::client(&self.key, machine.key).map_err(|e| refused(e.to_string()))?;
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

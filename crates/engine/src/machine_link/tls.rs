//! TLS 1.3 between two machines that know each other's public key. There are no certificates: each side shows its raw
//! public key (RFC 7250), and only the pinned one is accepted.

use std::sync::Arc;

use tokio_rustls::rustls::client::AlwaysResolvesClientRawPublicKeys;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key,
};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use tokio_rustls::rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};

use super::key::{MachineKey, PUBLIC_HEAD};

/// Public key of the other machine.
pub type PublicKey = [u8; 32];

/// Configuration of the machine that opens a link to the one with `theirs`.
pub fn client(own: &MachineKey, theirs: PublicKey) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned::of(theirs)));
    let own = AlwaysResolvesClientRawPublicKeys::new(certified(own));
    let mut config = builder.with_client_cert_resolver(Arc::new(own));
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    Ok(config)
}

/// Configuration of the machine to which the one with `theirs` opens a link.
pub fn server(own: &MachineKey, theirs: PublicKey) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(Pinned::of(theirs)));
    let own = AlwaysResolvesServerRawPublicKeys::new(certified(own));
    let mut config = builder.with_cert_resolver(Arc::new(own));
    // Every link shows its key: without tickets a revoked machine cannot continue an earlier session.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Name that the client states. It says nothing: the key decides.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("machine").expect("a valid name")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certified(own: &MachineKey) -> Arc<CertifiedKey> {
    let shown = CertificateDer::from(info(&own.public()));
    Arc::new(CertifiedKey::new(vec![shown], own.signing()))
}

/// Public key in the form that TLS shows.
fn info(key: &PublicKey) -> Vec<u8> {
    [PUBLIC_HEAD.as_slice(), key].concat()
}

/// Verifier that accepts one key.
#[derive(Debug)]
struct Pinned {
    theirs: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn of(theirs: PublicKey) -> Self {
        Pinned {
            theirs: info(&theirs),
            algorithms: ring::default_provider().signature_verification_algorithms,
        }
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match shown.as_ref() == self.theirs {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
        }
    }
}

/// Methods that both verifiers have: signatures of TLS 1.3 with the raw key that was shown.
macro_rules! ed25519_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            // TLS 1.2 is not offered.
            Err(Error::PeerIncompatible(
                PeerIncompatible::Tls13RequiredForQuic,
            ))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    ed25519_signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    ed25519_signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    fn key(seed: u8) -> MachineKey {
        MachineKey::of_seed(&[seed; 32]).unwrap()
    }

    /// Text that the server reads, if both sides accept the other's key.
    async fn exchanged(client_pins: PublicKey, server_pins: PublicKey) -> Option<String> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let client = client(&key(1), client_pins).unwrap();
        let server = server(&key(2), server_pins).unwrap();
        let connect = async move {
            let connector = TlsConnector::from(Arc::new(client));
            let mut stream = connector.connect(server_name(), near).await.ok()?;
            stream.write_all(b"hello").await.ok()?;
            stream.shutdown().await.ok()?;
            // The server's refusal of a key arrives here.
            stream.read_to_end(&mut Vec::new()).await.ok()
        };
        let accept = async move {
            let acceptor = TlsAcceptor::from(Arc::new(server));
            let mut stream = acceptor.accept(far).await.ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.ok()?;
            stream.shutdown().await.ok()?;
            Some(text)
        };
        let (sent, text) = tokio::join!(connect, accept);
        sent.and(text)
    }

    #[tokio::test]
    async fn both_keys_as_pinned_exchange_bytes() {
        let text = exchanged(key(2).public(), key(1).public()).await;
        assert_eq!(text.as_deref(), Some("hello"));
    }

    #[tokio::test]
    async fn other_key_of_the_server_is_refused() {
        assert_eq!(exchanged(key(3).public(), key(1).public()).await, None);
    }

    #[tokio::test]
    async fn other_key_of_the_client_is_refused() {
        assert_eq!(exchanged(key(2).public(), key(3).public()).await, None);
    }
}

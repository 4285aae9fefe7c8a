//! HTTP client for probes and webhooks, with and without TLS. Servers are checked against the certificates that the
//! machine trusts, and those in `ca_file`. Follows no redirects and keeps no connections.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_util::task::AbortOnDropHandle;

use super::clock::pause;
use super::dns::{self, Permits};

pub const USER_AGENT: &str = concat!("abide/", env!("CARGO_PKG_VERSION"));
/// Characters of ASCII that a URL cannot have.
const UNSENDABLE: AsciiSet = CONTROLS.add(b' ');
/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Address of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// True for https.
    pub tls: bool,
    /// `name:password` for basic authentication.
    pub login: Option<String>,
    /// Host, without brackets.
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl Address {
    /// Parses `http://…` or `https://…`. `None`: it is neither, or has no valid host or port.
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = percent_encoded(text.trim()).parse().ok()?;
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => {
                let login = percent_decode_str(login).decode_utf8_lossy();
                (Some(login.into_owned()), place)
            }
            None => (None, authority),
        };
        // The library treats an invalid port like a missing one.
        let port = match place.strip_prefix(uri.host()?)?.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0)?,
            None if tls => 443,
            None => 80,
        };
        let host = uri.host()?.trim_matches(['[', ']']);
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let slash = if path.starts_with('/') { "" } else { "/" };
        (!host.is_empty()).then(|| Address {
            tls,
            login,
            host: host.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }

    /// Value of the header `host`.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.tls, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// Reason why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebFault {
    /// The request is not valid, or the answer is not HTTP.
    #[error("{0}")]
    Request(String),
    /// The server refused the connection.
    #[error("connection refused")]
    Refused,
    #[error("{0}")]
    Connect(String),
    /// The connection took too long.
    #[error("no connection within {}s", CONNECT.as_secs())]
    Timeout,
    /// The host cannot be checked against a certificate.
    #[error("{0:?} cannot be the name of a server")]
    ServerName(String),
    /// The TLS handshake failed.
    #[error("its certificate or TLS was refused: {0}")]
    Tls(String),
    /// The trusted certificates cannot be loaded.
    #[error("{0}")]
    Certificates(String),
}

/// HTTP client. Trusted certificates are read once, when they are first needed.
#[derive(Default)]
pub struct Web {
    ca_file: Option<PathBuf>,
    tls: OnceCell<Result<TlsConnector, WebFault>>,
}

/// Answer with its connection, which is closed when this is dropped.
pub struct Answer {
    pub response: Response<Incoming>,
    _line: AbortOnDropHandle<()>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Web {
    /// Client that also trusts the certificates in `ca_file`.
    pub fn new(ca_file: Option<PathBuf>) -> Self {
        Web {
            ca_file,
            tls: OnceCell::new(),
        }
    }

    /// Sends one request over a new connection, to an address of the host that is permitted.
    pub async fn send(
        &self,
        address: &Address,
        mut request: Request<Full<Bytes>>,
        permits: Permits<'_>,
    ) -> Result<Answer, WebFault> {
        if let Some(login) = &address.login {
            let basic = format!("Basic {}", BASE64_STANDARD.encode(login));
            let mut basic =
                HeaderValue::from_str(&basic).map_err(|e| WebFault::Request(e.to_string()))?;
            basic.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, basic);
        }
        let stream = TokioIo::new(self.open(address, permits).await?);
        let (mut sender, line) = hyper::client::conn::http1::handshake(stream)
            .await
            .map_err(|e| WebFault::Request(e.to_string()))?;
        let line = tokio::spawn(async move {
            let _ = line.await;
        });
        let line = AbortOnDropHandle::new(line);
        let response = sender
            .send_request(request)
            .await
            .map_err(|e| WebFault::Request(error_chain(&e)))?;
        Ok(Answer {
            response,
            _line: line,
        })
    }

    async fn open(
        &self,
        address: &Address,
        permits: Permits<'_>,
    ) -> Result<Box<dyn Stream>, WebFault> {
        let connected = tokio::select! {
            stream = dns::connect(&address.host, address.port, permits) => stream,
            () = pause(CONNECT) => return Err(WebFault::Timeout),
        };
        let stream = connected.map_err(|e| match e.kind() {
            std::io::ErrorKind::ConnectionRefused => WebFault::Refused,
            _ => WebFault::Connect(e.to_string()),
        })?;
        let _ = stream.set_nodelay(true);
        if !address.tls {
            return Ok(Box::new(stream));
        }
        let connector = self.connector().await?;
        let name = ServerName::try_from(address.host.clone())
            .map_err(|_| WebFault::ServerName(address.host.clone()))?;
        tokio::select! {
            stream = connector.connect(name, stream) => match stream {
                Ok(stream) => Ok(Box::new(stream)),
                Err(e) => Err(WebFault::Tls(e.to_string())),
            },
            () = pause(CONNECT) => Err(WebFault::Timeout),
        }
    }

    async fn connector(&self) -> Result<TlsConnector, WebFault> {
        let made = self.tls.get_or_init(async || {
            let ca_file = self.ca_file.clone();
            let made = tokio::task::spawn_blocking(move || connector(ca_file));
            made.await
                .unwrap_or_else(|e| Err(WebFault::Certificates(e.to_string())))
        });
        made.await.clone()
    }
}

/// TLS connector that trusts the machine's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others) and
/// `ca_file`.
pub(crate) fn connector(ca_file: Option<PathBuf>) -> Result<TlsConnector, WebFault> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if let Some(path) = ca_file {
        let bad = |why: String| {
            WebFault::Certificates(format!("cannot read `ca_file` {}: {why}", path.display()))
        };
        let more = CertificateDer::pem_file_iter(&path).map_err(|e| bad(e.to_string()))?;
        for certificate in more {
            let certificate = certificate.map_err(|e| bad(e.to_string()))?;
            roots.add(certificate).map_err(|e| bad(e.to_string()))?;
        }
    }
    if roots.is_empty() {
        return Err(WebFault::Certificates(
            "this machine trusts no certificates; install the package ca-certificates, \
             or name a file of them in `ca_file`"
                .into(),
        ));
    }
    let ring = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|e| WebFault::Certificates(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// URL with percent-encoding for what cannot be sent as it is, such as a space or `ü` in its path. The host is not
/// changed.
fn percent_encoded(text: &str) -> String {
    let host = text.find("://").map_or(0, |at| at + 3);
    let path = text[host..].find(['/', '?', '#']);
    let (host, path) = text.split_at(path.map_or(text.len(), |at| host + at));
    format!("{host}{}", utf8_percent_encode(path, &UNSENDABLE))
}

fn error_chain(fault: &dyn std::error::Error) -> String {
    match fault.source() {
        Some(cause) => format!("{fault}: {}", error_chain(cause)),
        None => fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed_and_invalid_ones_refused() {
        for (text, tls, host, port, path) in [
            (
                "http://localhost:3000/health",
                false,
                "localhost",
                3000,
                "/health",
            ),
            ("https://a.example", true, "a.example", 443, "/"),
            (
                "https://a.example:8443/x?y=1",
                true,
                "a.example",
                8443,
                "/x?y=1",
            ),
            ("http://[::1]:80/", false, "::1", 80, "/"),
            (
                "http://a.example:3000?x=1",
                false,
                "a.example",
                3000,
                "/?x=1",
            ),
        ] {
            let address = Address::parse(text).expect(text);
            assert_eq!((address.tls, address.host.as_str()), (tls, host), "{text}");
            assert_eq!(
                (address.port, address.path.as_str()),
                (port, path),
                "{text}"
            );
            assert_eq!(
                Address::parse(&address.to_string()),
                Some(address),
                "{text}"
            );
        }
        let known = Address::parse("http://ann:p%40ss%@a.example/x").expect("an address");
        assert_eq!(known.login.as_deref(), Some("ann:p@ss%"));
        assert_eq!(known.to_string(), "http://a.example/x", "it is not shown");
        let odd = Address::parse("http://[::1]:8080/grün %20?q=a b#c").expect("an address");
        assert_eq!((odd.host.as_str(), odd.port), ("::1", 8080));
        assert_eq!(odd.path, "/gr%C3%BCn%20%20?q=a%20b");
        for none in [
            "http://a:99999/",
            "http://a:0/",
            "http://a:b/",
            "http://a:/",
        ] {
            assert_eq!(Address::parse(none), None, "{none}");
        }
        for nonsense in ["", "localhost:80", "ftp://x", "https://", "http:///x", "/x"] {
            assert_eq!(Address::parse(nonsense), None, "{nonsense}");
        }
        assert_eq!(
            Address::parse("http://[::1]:80/").unwrap().authority(),
            "[::1]"
        );
    }
}

//! Simulated network of the tests: a table of host names, and addresses that lead to servers of the test.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use abide_gate::outside::{Outside, Pending};

/// A public address that stands for a server of the test.
pub const PUBLIC: &str = "93.184.216.34";

#[derive(Default)]
struct Facts {
    /// Answers of a name, one list for each look-up; the last one is repeated.
    names: HashMap<String, Vec<Vec<IpAddr>>>,
    servers: HashMap<SocketAddr, SocketAddr>,
    own: Vec<IpAddr>,
    /// Name whose look-up gets no answer.
    unanswered: Option<String>,
    looked_up: Vec<String>,
    dialled: Vec<SocketAddr>,
}

/// The table. Copies share it.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Facts>>);

impl World {
    /// The name has this address.
    pub fn name(self, name: &str, address: &str) -> Self {
        let address = address.parse().expect("an address");
        self.0
            .lock()
            .expect("facts")
            .names
            .entry(name.to_owned())
            .or_default()
            .push(vec![address]);
        self
    }

    /// Connections to [`PUBLIC`] and this port reach a server.
    pub fn server(self, port: u16, server: SocketAddr) -> Self {
        self.server_at(&format!("{PUBLIC}:{port}"), server)
    }

    /// Connections to this address and port reach a server.
    pub fn server_at(self, address: &str, server: SocketAddr) -> Self {
        let address = address.parse().expect("an address");
        self.0
            .lock()
            .expect("facts")
            .servers
            .insert(address, server);
        self
    }

    /// The address belongs to the host.
    pub fn own(self, address: &str) -> Self {
        self.0
            .lock()
            .expect("facts")
            .own
            .push(address.parse().expect("an address"));
        self
    }

    /// The look-up of this name gets no answer.
    pub fn unanswered(self, name: &str) -> Self {
        self.0.lock().expect("facts").unanswered = Some(name.to_owned());
        self
    }

    /// Names that were looked up.
    pub fn looked_up(&self) -> Vec<String> {
        self.0.lock().expect("facts").looked_up.clone()
    }

    /// Addresses that were dialled.
    pub fn dialled(&self) -> Vec<SocketAddr> {
        self.0.lock().expect("facts").dialled.clone()
    }
}

impl Outside for World {
    fn look_up<'a>(&'a self, name: &'a str) -> Pending<'a, Vec<IpAddr>> {
        let mut facts = self.0.lock().expect("facts");
        facts.looked_up.push(name.to_owned());
        if facts.unanswered.as_deref() == Some(name) {
            return Box::pin(std::future::ready(Err(io::ErrorKind::TimedOut.into())));
        }
        let answer = match facts.names.get_mut(name) {
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
            None => Err(io::Error::other("no such name outside")),
        };
        Box::pin(std::future::ready(answer))
    }

    fn connect(&self, address: SocketAddr) -> Pending<'_, tokio::net::TcpStream> {
        let mut facts = self.0.lock().expect("facts");
        facts.dialled.push(address);
        match facts.servers.get(&address) {
            Some(server) => Box::pin(tokio::net::TcpStream::connect(*server)),
            // Ports of the host are dialled as they are. Nothing else leaves a test.
            None if address.ip().is_loopback() => Box::pin(tokio::net::TcpStream::connect(address)),
            None => Box::pin(std::future::ready(Err(io::Error::other("no such server")))),
        }
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        self.0.lock().expect("facts").own.contains(&address)
    }
}

/// Starts a server that calls `serve` for each connection, in a thread.
pub fn server(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = Arc::clone(&serve);
            let stream = stream.expect("a connection");
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// A server that reads to the end and answers with the same text in capitals.
pub fn capitals() -> SocketAddr {
    server(|mut stream| {
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        stream.write_all(&text.to_ascii_uppercase())?;
        stream.shutdown(Shutdown::Write)
    })
}

/// A TLS server with its own certificate that answers HTTP requests with "secret" and other messages with the same
/// text in capitals.
pub fn tls_capitals() -> SocketAddr {
    let made =
        rcgen::generate_simple_self_signed(["allowed.test".to_owned()]).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a configuration");
    let config = Arc::new(config);
    server(move |stream| {
        let session =
            rustls::ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
        let mut stream = rustls::StreamOwned::new(session, stream);
        let mut buffer = [0; 4096];
        loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            if buffer.starts_with(b"GET ") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")?;
                continue;
            }
            stream.write_all(&buffer[..length].to_ascii_uppercase())?;
        }
    })
}

//! A minimal web server: it gives preset answers, one connection after the other, and passes requests to the test.
//! For TLS it has a self-signed certificate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Time limit for a request: a test that waits in vain fails.
const PATIENCE: Duration = Duration::from_secs(180);

pub struct Sink {
    pub address: SocketAddr,
    asked: Receiver<Asked>,
}

/// A request that it received.
#[derive(Debug)]
pub struct Asked {
    pub head: String,
    pub body: String,
}

impl Asked {
    /// One header.
    pub fn header(&self, name: &str) -> String {
        let lines = self.head.lines().skip(1).filter_map(|l| l.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let (_, value) = found.next().unwrap_or_else(|| panic!("{name}: {self:?}"));
        value.to_owned()
    }
}

/// A certificate for this machine and its key.
pub struct Identity {
    certified: rcgen::CertifiedKey<rcgen::KeyPair>,
}

impl Identity {
    pub fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
        Identity { certified }
    }

    pub fn pem(&self) -> String {
        self.certified.cert.pem()
    }

    fn config(&self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.certified.signing_key.serialize_der());
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![self.certified.cert.der().clone()], key.expect("a key"));
        Arc::new(config.expect("a server's side"))
    }
}

impl Sink {
    /// Gives these answers, the last one repeatedly: status line, further headers, body.
    pub fn new(answers: &[&str]) -> Self {
        Self::serve(answers, None)
    }

    pub fn over_tls(answers: &[&str], identity: &Identity) -> Self {
        Self::serve(answers, Some(identity.config()))
    }

    fn serve(answers: &[&str], tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let answers: Vec<String> = answers.iter().map(|&answer| answer.to_owned()).collect();
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            for turn in 0.. {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let answer = &answers[turn.min(answers.len() - 1)];
                let received = match &tls {
                    None => answered(stream, answer),
                    Some(config) => {
                        let session = ServerConnection::new(config.clone()).expect("a session");
                        answered(StreamOwned::new(session, stream), answer)
                    }
                };
                // A connection that was closed early sent no request.
                if let Some(received) = received
                    && tell.send(received).is_err()
                {
                    return;
                }
            }
        });
        Sink { address, asked }
    }

    /// Next request.
    pub fn next(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("it is asked")
    }

    /// Returns whether there is a request that the test has not taken.
    pub fn was_asked(&self) -> bool {
        self.asked.try_recv().is_ok()
    }
}

fn answered(mut stream: impl Read + Write, answer: &str) -> Option<Asked> {
    let mut bytes = Vec::new();
    let (head, mut body) = loop {
        let mut more = [0; 4096];
        let count = stream.read(&mut more).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&more[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            break (head.to_owned(), body.to_owned());
        }
    };
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, length)| length.parse().expect("a length"));
    while body.len() < length {
        let mut more = [0; 4096];
        let count = stream.read(&mut more).ok().filter(|count| *count > 0)?;
        body.push_str(&String::from_utf8_lossy(&more[..count]));
    }
    let (top, said) = answer.split_once("\n\n").unwrap_or((answer, ""));
    let (status, more) = top.split_once('\n').unwrap_or((top, ""));
    let more = more.lines().map(|line| format!("{line}\r\n"));
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{}\r\n{said}",
        said.len(),
        more.collect::<String>()
    );
    let _ = stream.flush();
    Some(Asked { head, body })
}

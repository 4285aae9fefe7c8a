//! The server name in the first message of a TLS client. Pure; reads bytes that an untrusted program wrote.

/// Bytes of a ClientHello that are looked at. Post-quantum key shares make it about 2 KiB.
pub const MAX_CLIENT_HELLO: usize = 16 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
const HOST_NAME: u8 = 0;

/// Result of reading the first bytes of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientHello {
    /// More bytes are needed.
    Incomplete,
    /// Not TLS, or longer than [`MAX_CLIENT_HELLO`].
    NotTls,
    /// TLS without a server name.
    NoServerName,
    /// TLS with an encrypted ClientHello, whose real server name cannot be seen.
    Encrypted,
    /// TLS to the server of this name.
    ServerName(Vec<u8>),
}

/// Reads the ClientHello at the start of these bytes.
pub fn read(bytes: &[u8]) -> ClientHello {
    match handshake_message(bytes) {
        Ok(Some(message)) => server_name(&message).unwrap_or(ClientHello::NotTls),
        Ok(None) if bytes.len() < MAX_CLIENT_HELLO => ClientHello::Incomplete,
        Ok(None) | Err(NotTls) => ClientHello::NotTls,
    }
}

struct NotTls;

/// Body of the first handshake message, which may be spread over several records. `None` if bytes are missing.
fn handshake_message(bytes: &[u8]) -> Result<Option<Vec<u8>>, NotTls> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let (kind, version) = (rest.first(), rest.get(1));
        if kind.is_some_and(|kind| *kind != HANDSHAKE) || version.is_some_and(|major| *major != 3) {
            return Err(NotTls);
        }
        let Some((header, after)) = rest.split_at_checked(5) else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 {
            return Err(NotTls);
        }
        let (fragment, whole) = match after.split_at_checked(length) {
            Some((fragment, next)) => {
                rest = next;
                (fragment, true)
            }
            None => (after, false),
        };
        message.extend_from_slice(fragment);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NotTls);
        }
        if let Some((header, body)) = message.split_at_checked(4) {
            let length = u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize;
            if length > MAX_CLIENT_HELLO {
                return Err(NotTls);
            }
            if let Some(body) = body.get(..length) {
                return Ok(Some(body.to_vec()));
            }
        }
        if !whole {
            return Ok(None);
        }
    }
}

/// The server name of a whole ClientHello. `None` if the message is malformed.
fn server_name(message: &[u8]) -> Option<ClientHello> {
    let mut hello = Fields(message);
    hello.take(2 + 32)?; // version and random
    hello.vector(1)?; // session id
    hello.vector(2)?; // cipher suites
    hello.vector(1)?; // compression methods
    if hello.0.is_empty() {
        return Some(ClientHello::NoServerName);
    }
    let mut extensions = Fields(hello.vector(2)?);
    let mut name = None;
    let mut encrypted = false;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let content = extensions.vector(2)?;
        match u16::try_from(kind).ok()? {
            ENCRYPTED_CLIENT_HELLO => encrypted = true,
            // A second list of names could be read differently by the server.
            SERVER_NAME if name.is_some() => return None,
            SERVER_NAME => {
                let mut list = Fields(Fields(content).vector(2)?);
                if list.number(1)? != usize::from(HOST_NAME) {
                    return None;
                }
                name = Some(list.vector(2)?.to_vec());
                if !list.0.is_empty() {
                    return None;
                }
            }
            _ => {}
        }
    }
    Some(match name {
        _ if encrypted => ClientHello::Encrypted,
        Some(name) => ClientHello::ServerName(name),
        None => ClientHello::NoServerName,
    })
}

/// Bytes from which length-prefixed fields are taken.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, the highest first.
    fn number(&mut self, size: usize) -> Option<usize> {
        let bytes = self.take(size)?;
        Some(
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    }

    /// Bytes whose length comes before them, in so many bytes.
    fn vector(&mut self, size: usize) -> Option<&'a [u8]> {
        let length = self.number(size)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u16).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, content].concat()
    }

    fn server_name_extension(name: &[u8]) -> Vec<u8> {
        let entry = [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
        extension(
            0,
            &[&(entry.len() as u16).to_be_bytes()[..], &entry].concat(),
        )
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let length = (body.len() as u32).to_be_bytes();
        [&[1][..], &length[1..], &body].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let record =
            |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        message.chunks(size).flat_map(record).collect()
    }

    #[test]
    fn g116_server_name_is_found_however_the_message_is_cut() {
        let hello = message(
            &[
                extension(43, &[2, 3, 4]),
                server_name_extension(b"a.example"),
            ]
            .concat(),
        );
        for size in [1, 3, 7, hello.len()] {
            let bytes = records(&hello, size);
            assert_eq!(read(&bytes), ClientHello::ServerName(b"a.example".to_vec()));
            for end in 0..bytes.len() {
                assert_eq!(
                    read(&bytes[..end]),
                    ClientHello::Incomplete,
                    "{end} of {}",
                    bytes.len()
                );
            }
        }
    }

    #[test]
    fn g116_missing_doubled_and_encrypted_names_are_told_apart() {
        let judge = |extensions: &[Vec<u8>]| read(&records(&message(&extensions.concat()), 4096));
        let name = server_name_extension(b"a.example");
        let other = server_name_extension(b"b.example");
        assert_eq!(judge(&[]), ClientHello::NoServerName);
        assert_eq!(judge(&[name.clone(), other]), ClientHello::NotTls);
        assert_eq!(
            judge(&[name, extension(0xfe0d, &[0])]),
            ClientHello::Encrypted
        );
    }

    #[test]
    fn g116_other_protocols_are_not_tls() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-x\r\n",
            b"\x16\x02\x01\0\x05",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\0\x01\x02",
        ] {
            assert_eq!(read(bytes), ClientHello::NotTls, "{bytes:?}");
        }
        let endless = records(
            &[&[1, 0, 0x3f, 0xff][..], &[0; MAX_CLIENT_HELLO]].concat()[..MAX_CLIENT_HELLO - 100],
            64,
        );
        assert_eq!(read(&endless), ClientHello::NotTls);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            read(&bytes);
            read(&[&[22, 3, 1][..], &bytes].concat());
        }

        #[test]
        fn a_damaged_client_hello_is_judged(at in 0usize..80, byte in any::<u8>()) {
            let mut bytes = records(&message(&server_name_extension(b"a.example")), 4096);
            let index = at % bytes.len();
            bytes[index] = byte;
            read(&bytes);
        }
    }
}

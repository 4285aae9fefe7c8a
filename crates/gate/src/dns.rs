//! DNS for the sandbox, on sockets that were made inside it. No query is ever forwarded: a name gets an address that
//! stands for it in this session, or it does not exist. A name that is allowed is looked up outside first, so that a
//! program sees an error of the name and not a connection that fails; without an answer there is a server failure. Other names are looked up after a person's yes.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use simple_dns::rdata::{A, RData};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::Gate;
use crate::allowlist::HostName;
use crate::clock;
use crate::refusals::Outcome;

/// Queries that are longer get no answer.
const MAX_QUERY: usize = 4096;
const MAX_TCP_CONNECTIONS: usize = 16;
/// Queries by UDP that are answered at the same time: each may wait for a look-up.
const MAX_UDP_QUERIES: usize = 32;
/// Pause after a failed `recvfrom`, which could fail again at once.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
const TCP_IDLE: Duration = Duration::from_secs(10);
/// Seconds that a program may keep an answer. Addresses stay the same, so this only limits how many queries come.
const TTL: u32 = 60;

/// Verdict about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// The name exists and has this address.
    Address(Ipv4Addr),
    /// The name does not exist.
    NoSuchName,
    /// The look-up outside got no answer: a program may try again.
    NoAnswer,
}

/// The answer to a query, or `None` for bytes that are not a query. `resolve` decides about host names.
pub fn answer(query: &[u8], resolve: impl FnOnce(&HostName) -> Resolved) -> Option<Vec<u8>> {
    let header = query.get(..12)?;
    if header[2] & 0x80 != 0 {
        return None; // an answer: two servers would otherwise talk to each other without end
    }
    let Ok(query) = Packet::parse(query) else {
        return empty_reply(
            u16::from_be_bytes([header[0], header[1]]),
            RCODE::FormatError,
        );
    };
    let [question] = query.questions.as_slice() else {
        return empty_reply(query.id(), RCODE::FormatError);
    };
    if query.opcode() != OPCODE::StandardQuery {
        return empty_reply(query.id(), RCODE::NotImplemented);
    }
    if question.qclass != QCLASS::CLASS(CLASS::IN) {
        return empty_reply(query.id(), RCODE::Refused);
    }
    let name = HostName::from_labels(
        question
            .qname
            .get_labels()
            .iter()
            .map(|label| label.as_ref()),
    );
    let resolved = name.as_ref().map_or(Resolved::NoSuchName, resolve);

    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    match resolved {
        Resolved::Address(address) if question.qtype == QTYPE::TYPE(TYPE::A) => {
            let data = RData::A(A::from(address));
            let owner: Name<'_> = question.qname.clone();
            reply
                .answers
                .push(ResourceRecord::new(owner, CLASS::IN, TTL, data));
        }
        // The name exists, without a record of this type.
        Resolved::Address(_) => {}
        Resolved::NoSuchName => *reply.rcode_mut() = RCODE::NameError,
        Resolved::NoAnswer => *reply.rcode_mut() = RCODE::ServerFailure,
    }
    reply.questions.push(question.clone());
    reply.build_bytes_vec_compressed().ok()
}

/// The name whose IPv4 address a query asks for.
fn asked_for_address(query: &[u8]) -> Option<HostName> {
    let query = Packet::parse(query).ok()?;
    let [question] = query.questions.as_slice() else {
        return None;
    };
    if question.qtype != QTYPE::TYPE(TYPE::A) {
        return None;
    }
    let labels = question.qname.get_labels().iter();
    HostName::from_labels(labels.map(|label| label.as_ref()))
}

fn empty_reply(id: u16, code: RCODE) -> Option<Vec<u8>> {
    let mut reply = Packet::new_reply(id);
    *reply.rcode_mut() = code;
    reply.build_bytes_vec().ok()
}

impl Gate {
    /// The answer to a query, or `None` for bytes that are not a query.
    async fn reply(&self, query: &[u8]) -> Option<Vec<u8>> {
        let name = asked_for_address(query).filter(|name| self.allow.knows(name));
        if let Some(name) = name
            && let Err(fault) = self.dialer.look_up_ahead(&name).await
        {
            let reason = fault.to_string();
            (self.refusals).record(Outcome::Failed, name.as_str(), None, &reason);
            let resolved = match fault.is_without_answer() {
                true => Resolved::NoAnswer,
                false => Resolved::NoSuchName,
            };
            return answer(query, |_| resolved);
        }
        answer(query, |name| self.resolve(name))
    }

    /// Decides about a name that was looked up: allowed names get an address, and so do names that a person can be
    /// asked about when something connects to them.
    fn resolve(&self, name: &HostName) -> Resolved {
        if name.is_localhost() {
            return Resolved::Address(Ipv4Addr::LOCALHOST);
        }
        if self.allow.knows(name) || self.can_ask_about(name) {
            return Resolved::Address(self.names().address(name));
        }
        let reverse = name.as_str().ends_with(".arpa");
        if !reverse {
            self.refusals.record(
                Outcome::Refused,
                name.as_str(),
                None,
                "the name is not allowed",
            );
        }
        Resolved::NoSuchName
    }
}

/// Answers queries that come by UDP.
pub async fn serve_udp(gate: Arc<Gate>, socket: UdpSocket) -> io::Result<()> {
    let socket = Arc::new(socket);
    let slots = Arc::new(Semaphore::new(MAX_UDP_QUERIES));
    let mut buffer = vec![0; MAX_QUERY];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "cannot receive a query");
                clock::pause(ERROR_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return Ok(());
        };
        let (gate, socket) = (Arc::clone(&gate), Arc::clone(&socket));
        let query = buffer[..length].to_vec();
        tokio::spawn(async move {
            if let Some(reply) = gate.reply(&query).await {
                // The program that asked may be gone.
                let _ = socket.send_to(&reply, from).await;
            }
            drop(slot);
        });
    }
}

/// Answers queries that come by TCP.
pub async fn serve_tcp(gate: Arc<Gate>, listener: TcpListener) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(MAX_TCP_CONNECTIONS));
    loop {
        let mut stream = crate::tcp::accept(&listener).await;
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return Ok(());
        };
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            while let Some(Ok(())) = clock::within(TCP_IDLE, exchange(&gate, &mut stream)).await {}
            drop(slot);
        });
    }
}

/// Reads one query, each of which comes after its length, and answers it.
async fn exchange(gate: &Gate, stream: &mut TcpStream) -> io::Result<()> {
    let length = usize::from(stream.read_u16().await?);
    if length > MAX_QUERY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut query = vec![0; length];
    stream.read_exact(&mut query).await?;
    let reply = gate.reply(&query).await;
    let reply = reply.ok_or(io::ErrorKind::InvalidData)?;
    let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
    stream
        .write_all(&[&length.to_be_bytes()[..], &reply].concat())
        .await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::Question;

    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);

    fn query(name: &str, kind: QTYPE) -> Vec<u8> {
        let mut packet = Packet::new_query(7);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new(name).expect("a name");
        packet
            .questions
            .push(Question::new(name, kind, QCLASS::CLASS(CLASS::IN), false));
        packet.build_bytes_vec().expect("a query")
    }

    fn known(name: &HostName) -> Resolved {
        match name.as_str() {
            "known.example" => Resolved::Address(ADDRESS),
            _ => Resolved::NoSuchName,
        }
    }

    #[test]
    fn a_known_name_has_one_address_and_nothing_else() {
        let reply = answer(&query("KNOWN.example", QTYPE::TYPE(TYPE::A)), known).expect("a reply");
        let reply = Packet::parse(&reply).expect("a packet");
        assert_eq!((reply.id(), reply.rcode()), (7, RCODE::NoError));
        assert!(reply.has_flags(PacketFlag::RECURSION_AVAILABLE | PacketFlag::RECURSION_DESIRED));
        assert_eq!(reply.questions.len(), 1);
        assert_eq!(reply.answers[0].rdata, RData::A(A::from(ADDRESS)));
        for kind in [
            QTYPE::TYPE(TYPE::AAAA),
            QTYPE::TYPE(TYPE::TXT),
            QTYPE::TYPE(TYPE::NULL),
            QTYPE::ANY,
        ] {
            let reply = answer(&query("known.example", kind), known).expect("a reply");
            let reply = Packet::parse(&reply).expect("a packet");
            assert_eq!(
                (reply.rcode(), reply.answers.len()),
                (RCODE::NoError, 0),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn only_a_query_for_an_ipv4_address_asks_for_one() {
        let asked = |kind| asked_for_address(&query("KNOWN.example", kind));
        let name = asked(QTYPE::TYPE(TYPE::A)).expect("a name");
        assert_eq!(name.as_str(), "known.example");
        assert_eq!(asked(QTYPE::TYPE(TYPE::AAAA)), None);
        assert_eq!(asked_for_address(b"\0"), None);
    }

    #[test]
    fn g114_unknown_names_do_not_exist_whatever_is_asked() {
        let data = format!("{0}.{0}.evil.example", "d".repeat(60));
        for kind in [
            TYPE::A,
            TYPE::AAAA,
            TYPE::TXT,
            TYPE::NULL,
            TYPE::MX,
            TYPE::SRV,
        ] {
            let reply = answer(&query(&data, QTYPE::TYPE(kind)), known).expect("a reply");
            let reply = Packet::parse(&reply).expect("a packet");
            assert_eq!((reply.rcode(), reply.answers.len()), (RCODE::NameError, 0));
        }
    }

    #[test]
    fn malformed_messages_and_answers_are_not_resolved() {
        let never = |_: &HostName| -> Resolved { panic!("resolved") };
        let good = query("known.example", QTYPE::TYPE(TYPE::A));
        assert_eq!(answer(&[], never), None);
        assert_eq!(answer(&good[..11], never), None);
        let mut response = good.clone();
        response[2] |= 0x80;
        assert_eq!(answer(&response, never), None);
        for (index, byte, code) in [
            (5, 2, RCODE::FormatError),
            (5, 0, RCODE::FormatError),
            (2, 0x28, RCODE::NotImplemented),
        ] {
            let mut wrong = good.clone();
            wrong[index] = byte;
            let reply = answer(&wrong, never).expect("a reply");
            assert_eq!(
                Packet::parse(&reply).expect("a packet").rcode(),
                code,
                "byte {index}"
            );
        }
        let cut = answer(&good[..20], never).expect("a reply");
        assert_eq!(
            Packet::parse(&cut).expect("a packet").rcode(),
            RCODE::FormatError
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_ignored(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            answer(&bytes, known);
        }

        #[test]
        fn damaged_queries_are_answered_or_ignored(
            damage in proptest::collection::vec((0usize..64, any::<u8>()), 1..6),
            tail in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = query("a.known.example", QTYPE::TYPE(TYPE::A));
            bytes.extend(tail);
            for (at, byte) in damage {
                let index = at % bytes.len();
                bytes[index] = byte;
            }
            if let Some(reply) = answer(&bytes, known) {
                prop_assert!(Packet::parse(&reply).is_ok());
            }
        }
    }
}

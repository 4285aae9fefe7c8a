//! `abide gate` as a keeper starts it. What the gate does for a sandbox is tested in `crates/gate`.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use abide_gate::process::{Config, send_config};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// A query for the address of `evil.test`.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04evil\x04test\0\0\x01\0\x01";
const NO_SUCH_NAME: u8 = 3;

fn command(program: &str) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test is in the place of the keeper"
    )]
    Command::new(program)
}

/// Sends a socket as the process inside the sandbox does.
fn send_socket(channel: &OwnedFd, socket: &UdpSocket) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    let sockets = [socket.as_fd()];
    assert!(message.push(SendAncillaryMessage::ScmRights(&sockets)));
    let text = [IoSlice::new(b"sockets")];
    rustix::net::sendmsg(channel, &text, &mut message, SendFlags::empty()).expect("sent");
}

#[test]
fn gate_serves_until_the_sandbox_ends_and_lists_what_it_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refusals = folder.path().join("refusals.jsonl");
    let mut sandbox = command("sleep").arg("1000").spawn().expect("a process");
    let (own, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a pair of sockets");
    let mut gate = command(env!("CARGO_BIN_EXE_abide"))
        .arg("gate")
        .stdin(Stdio::from(theirs))
        .spawn()
        .expect("the gate");
    let dns = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = dns.local_addr().expect("an address");
    send_socket(&own, &dns);
    drop(dns);
    let config = Config {
        pid: sandbox.id(),
        refusals: Some(refusals.clone()),
        ..Config::default()
    };
    send_config(own.as_fd(), &config, None).expect("sent");

    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    client.send_to(QUERY, address).expect("sent");
    let mut reply = [0; 512];
    client.recv_from(&mut reply).expect("an answer");
    assert_eq!((&reply[..2], reply[3] & 15), (&QUERY[..2], NO_SUCH_NAME));

    sandbox.kill().expect("ended");
    sandbox.wait().expect("ended");
    assert!(gate.wait().expect("the gate ends").success());
    assert_eq!(
        std::fs::read_to_string(refusals).expect("the list"),
        "{\"outcome\":\"refused\",\"name\":\"evil.test\",\"reason\":\"the name is not allowed\",\"count\":1}\n"
    );
}

#[test]
fn gate_without_sockets_says_who_starts_it() {
    let output = command(env!("CARGO_BIN_EXE_abide"))
        .arg("gate")
        .stdin(Stdio::null())
        .output()
        .expect("the gate");
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        text.trim(),
        "the network gate cannot receive its sockets: Socket operation on non-socket (os error 88). \
         `abide gate` is started by abide itself."
    );
}

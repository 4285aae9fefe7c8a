//! Network gate of a sandbox, from the side of the keeper: a channel to the process that serves the network from outside
//! (`abide gate`), which the fork server starts.
//!
//! 1. The keeper makes a channel. The init process of the sandbox opens the sockets of the gate in its network namespace
//!    and sends them over the channel.
//! 2. The keeper has the fork server start the gate with the other end of the channel, and sends it the configuration
//!    with the sockets for the daemon and for other gates.
//!    The keeper tells it what was connected to at other ports, since only the gate knows the name, and which ports the
//!    command is about to bind.
//! 3. The gate tells the keeper that it has refused something new, and the keeper asks for the list. It asks again when
//!    the command has ended.
//!
//! The sockets already listen before the gate runs, so nothing has to wait for it. If the gate cannot be started, or
//! ends early, the sockets are closed and every connection fails.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::gate_sockets;
use super::plan::GatePlan;
use super::refusal_record::RefusalKind;
use crate::fd_passing;
use crate::resources::{bind_datagrams, listen};

/// Socket in the session's directory on which the gate serves the daemon.
pub const SOCKET: &str = "gate";

/// Socket in the session's directory on which the gate takes connections from the gates of other sandboxes.
pub const PORTS_SOCKET: &str = "ports";

/// Request of the keeper for the list of refusals.
pub const LIST: &[u8] = b"list";

/// Message of the gate before it serves anything.
pub const READY: &[u8] = b"ready";

/// Message of the gate when its list has a new entry.
pub const REFUSED: &[u8] = b"refused";

/// Message of the keeper about an address that stands for a name, with a port on which the gate does not listen.
pub const NO_LISTENER: &[u8] = b"port ";

/// Message of the keeper about a port that the command is about to bind.
pub const BIND: &[u8] = b"bind ";

/// Answer of the gate: it does not listen at that port for another sandbox any more.
pub const RELEASED: &[u8] = b"released";

/// Longest message of the gate, but for the list.
const MESSAGE: usize = 16;
/// Longest list of refusals.
const LIST_LIMIT: usize = 32 << 10;

/// Time for the gate to answer. It has the list in memory, but may still be starting.
const ANSWER_DEADLINE: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Both ends of the channel to a gate that was not started yet.
pub(crate) struct GateChannel {
    keeper: OwnedFd,
    gate: OwnedFd,
}

/// A gate that was started.
pub(crate) struct Gate {
    channel: OwnedFd,
    state: GateState,
    /// True if it listens at ports of other sandboxes from the beginning.
    has_agent_ports: bool,
    /// True if its list has a new entry.
    pub has_refused: bool,
}

/// State of a gate, by the messages that it has sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateState {
    Starting,
    Ready,
    Ended,
}

/// Refusals as the gate lists them: their number, and one line for each, ready for the record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    pub count: u64,
    pub lines: Vec<u8>,
}

impl GateChannel {
    pub fn make() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (keeper, gate) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(GateChannel { keeper, gate })
    }

    /// Opens the sockets of the gate in the network namespace of this process, and sends them.
    pub fn open_sockets(&self, plan: &GatePlan) -> Result<(), gate_sockets::SetupError> {
        let sockets = gate_sockets::open_sockets(
            &plan.ports,
            &[&*plan.host_ports, &*plan.agent_ports].concat(),
        )?;
        gate_sockets::send(self.keeper.as_fd(), &sockets)
    }

    /// Has the fork server start the gate. `init` is the first process of the sandbox, `folder` the directory of the
    /// session.
    pub fn start(
        self,
        plan: &GatePlan,
        init: i32,
        folder: BorrowedFd<'_>,
        starter: BorrowedFd<'_>,
    ) -> io::Result<Gate> {
        let listener = listen(folder, SOCKET)?;
        let ports = bind_datagrams(folder, PORTS_SOCKET)?;
        let mut config = format!("{init}\n").into_bytes();
        config.extend_from_slice(&plan.config);
        fd_passing::send(&self.keeper, &config, &[listener.as_fd(), ports.as_fd()])?;
        fd_passing::send(starter, b"gate", &[self.gate.as_fd()])?;
        Ok(Gate {
            channel: self.keeper,
            state: GateState::Starting,
            has_agent_ports: !plan.agent_ports.is_empty(),
            has_refused: false,
        })
    }
}

impl Gate {
    /// Descriptor that becomes readable when the gate has something to tell. `None`: it has ended.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        (self.state != GateState::Ended).then(|| self.channel.as_fd())
    }

    /// Tells the gate that the command has connected to an address that stands for a name, at a port on which the gate does
    /// not listen. What a gate cannot take is only missing from the result.
    pub fn tell_no_listener(&self, address: SocketAddr) {
        let message = [NO_LISTENER, address.to_string().as_bytes()].concat();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::send(&self.channel, &message, flags);
    }

    /// Has the gate release a port that the command is about to bind, if it listens there for another sandbox.
    pub fn release(&mut self, port: u16) {
        let mut message = [0; MESSAGE];
        self.has_refused = self.take_messages();
        let may_listen = match self.state {
            GateState::Starting => self.has_agent_ports,
            GateState::Ready => true,
            GateState::Ended => false,
        };
        let request = [BIND, port.to_string().as_bytes()].concat();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if !may_listen || rustix::net::send(&self.channel, &request, flags).is_err() {
            return;
        }
        loop {
            let mut events = [PollFd::new(&self.channel, PollFlags::IN)];
            let waited = rustix::event::poll(&mut events, Some(&ANSWER_DEADLINE));
            if !matches!(waited, Ok(1..)) {
                return;
            }
            match rustix::net::recv(&self.channel, &mut message, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(_) => return,
                Ok((length, _)) if &message[..length] == RELEASED => return,
                Ok((length, _)) => self.note(&message[..length]),
            }
        }
    }

    /// Notes a message that is no answer.
    fn note(&mut self, message: &[u8]) {
        self.state = GateState::Ready;
        self.has_refused |= message == REFUSED;
    }

    /// Takes the messages of the gate. `true`: its list has a new entry.
    pub fn take_messages(&mut self) -> bool {
        let mut message = [0; MESSAGE];
        loop {
            match rustix::net::recv(&self.channel, &mut message, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Ok((0, _)) | Err(_) => {
                    self.state = GateState::Ended;
                    break;
                }
                Ok((length, _)) => self.note(&message[..length]),
            }
        }
        std::mem::take(&mut self.has_refused)
    }

    /// Refusals up to now. A gate that has ended, or does not answer, has lost its list: then this says so.
    pub fn listed(&mut self) -> Listed {
        self.ask().unwrap_or_else(|_| {
            let text = b"the network gate has ended early, so nothing outside could be reached";
            let mut lines = Vec::new();
            RefusalKind::Failed.append(1, text, &mut lines);
            Listed { count: 0, lines }
        })
    }

    fn ask(&mut self) -> io::Result<Listed> {
        self.take_messages();
        match self.state {
            // It has refused nothing yet, and a short command does not wait for it.
            GateState::Starting => return Ok(Listed::default()),
            GateState::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            GateState::Ready => {}
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&self.channel, LIST, flags)?;
        let mut text = vec![0; LIST_LIMIT];
        loop {
            let mut events = [PollFd::new(&self.channel, PollFlags::IN)];
            rustix::event::poll(&mut events, Some(&ANSWER_DEADLINE))?;
            let (length, _) = rustix::net::recv(&self.channel, &mut text, RecvFlags::DONTWAIT)?;
            // The list that follows has that entry.
            if &text[..length] != REFUSED {
                text.truncate(length);
                return listed(&text).ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
        }
    }
}

fn listed(text: &[u8]) -> Option<Listed> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let count = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some(Listed {
        count,
        lines: text[end + 1..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_a_gate_has_a_number_and_lines() {
        let read = listed(b"3\nname 3 evil.example:443 not allowed\n").unwrap();
        assert_eq!(read.count, 3);
        assert_eq!(read.lines, b"name 3 evil.example:443 not allowed\n");
        assert_eq!(listed(b""), None);
        assert_eq!(listed(b"x\n"), None);
    }
}

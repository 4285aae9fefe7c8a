//! Terminal of a session as the page sees it, over a WebSocket. Used by several test programs, each with its own
//! connection.

use std::io::{ErrorKind, Read, Write};

use serde_json::Value;
use tungstenite::handshake::client::Request;
use tungstenite::{Message, WebSocket};

pub struct TerminalPage<S> {
    socket: WebSocket<S>,
    /// Everything that was painted so far.
    pub painted: Vec<u8>,
    /// All control messages so far.
    pub events: Vec<Value>,
    close_code: Option<u16>,
}

impl<S: Read + Write> TerminalPage<S> {
    pub fn open(request: Request, stream: S) -> Self {
        let Ok((socket, _)) = tungstenite::client(request, stream) else {
            panic!("no channel");
        };
        TerminalPage {
            socket,
            painted: Vec::new(),
            events: Vec::new(),
            close_code: None,
        }
    }

    /// Reads the next message; `false`: the channel is closed.
    fn take(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.painted.extend_from_slice(&bytes),
            Ok(Message::Text(text)) => self.events.push(serde_json::from_str(&text).expect("JSON")),
            Ok(Message::Close(close)) => {
                self.close_code = close.map(|close| close.code.into());
                return false;
            }
            Err(tungstenite::Error::Io(fault)) if fault.kind() == ErrorKind::WouldBlock => {
                panic!("nothing came: {fault}")
            }
            Err(_) => return false,
            Ok(_) => {}
        }
        true
    }

    pub fn until_event(&mut self, kind: &str) -> Value {
        loop {
            if let Some(event) = self.events.iter().find(|event| event["type"] == kind) {
                return event.clone();
            }
            assert!(self.take(), "closed before {kind}");
        }
    }

    pub fn until_painted(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.painted).contains(text) {
            assert!(self.take(), "closed before {text}");
        }
    }

    /// Waits until the channel is closed. Returns the code that the daemon gave.
    pub fn until_closed(&mut self) -> Option<u16> {
        while self.take() {}
        self.close_code
    }

    pub fn send(&mut self, message: Message) {
        self.socket.send(message).expect("it is taken");
    }

    pub fn type_in(&mut self, text: &str) {
        self.send(Message::Binary(text.as_bytes().to_vec().into()));
    }
}

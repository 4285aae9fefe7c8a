//! Daemons come and go; whoever follows one goes on with the next. This says when that is in vain.

use std::time::Duration;

use abide_core::Millis;
use abide_core::time::Mono;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::client::{Client, Unanswered};
use super::trouble::Trouble;
use abide_engine::clock::{SystemClock, pause};

/// Streams in a row that may break without having brought anything.
const ATTEMPTS: u32 = 5;
/// A stream that stood for so long was not in vain, though nothing came.
const STOOD: Millis = Millis::from_secs(10);
/// How long a daemon is left alone that breaks off again and again, the first time; then longer.
const BREATH: Duration = Duration::from_millis(50);

/// How often a stream has been taken up in vain.
pub struct Patience {
    vain: u32,
    began: Mono,
}

impl Patience {
    /// None yet.
    pub fn new() -> Self {
        Patience {
            vain: 0,
            began: SystemClock.mono(),
        }
    }

    /// A stream broke, after something `came` or nothing did. Whether it is worth while to ask for it
    /// again; then at once, or a moment later where that was in vain before.
    pub async fn goes_on(&mut self, came: bool) -> bool {
        let stood = SystemClock.mono().since(self.began);
        self.vain = match came || stood >= STOOD {
            true => 0,
            false => self.vain + 1,
        };
        if self.vain > 1 {
            pause(BREATH * self.vain).await;
        }
        self.began = SystemClock.mono();
        self.vain <= ATTEMPTS
    }
}

/// What hears lines of JSON, whichever daemon tells them.
pub trait Listener {
    /// What to ask the next daemon for, so that nothing is told twice and nothing is missed.
    fn path(&self) -> String;

    /// The daemon that was asked answers, and its lines come.
    fn begun(&mut self) {}

    /// Takes a line. `false`: it wants no more.
    fn hear(&mut self, line: Value) -> Result<bool, Trouble>;
}

/// Follows a stream of lines for as long as the listener wants, over daemons that go away.
pub async fn follow(client: &Client, listener: &mut impl Listener) -> Result<(), Trouble> {
    let mut patience = Patience::new();
    loop {
        let mut came = false;
        let broken = match pass(client, listener, &mut came).await? {
            Ok(()) => return Ok(()),
            Err(Unanswered::Broken(why)) => Unanswered::Broken(why),
            Err(unanswered) => return Err(unanswered.into()),
        };
        if !patience.goes_on(came).await {
            return Err(broken.into());
        }
    }
}

/// One stream, to its end.
async fn pass(
    client: &Client,
    listener: &mut impl Listener,
    came: &mut bool,
) -> Result<Result<(), Unanswered>, Trouble> {
    let path = listener.path();
    let mut stream = match client.stream(Method::GET, &path, Bytes::new()).await {
        Ok(stream) => stream,
        Err(unanswered) => return Ok(Err(unanswered)),
    };
    listener.begun();
    loop {
        match stream.line().await {
            Ok(Some(line)) => {
                *came = true;
                if !listener.hear(line)? {
                    return Ok(Ok(()));
                }
            }
            Ok(None) => return Ok(Err(Unanswered::Broken("in the middle".into()))),
            Err(unanswered) => return Ok(Err(unanswered)),
        }
    }
}

//! Reconnects for streams from the daemon. The daemon may restart at any time, and a client then
//! resumes with the next one; this file decides when to give up.

use std::time::Duration;

use abide_core::Millis;
use abide_core::time::Mono;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::client::{Client, ClientError};
use super::trouble::Trouble;
use abide_engine::clock::{SystemClock, pause};

/// Consecutive streams that may break without any data; the client gives up at one more.
const ATTEMPTS: u32 = 5;
/// Lifetime after which a stream counts as successful, even without any data.
const STOOD: Millis = Millis::from_secs(10);
/// Unit of the back-off: it is multiplied by the number of failures, and used from the second failure on.
const BREATH: Duration = Duration::from_millis(50);

/// Back-off state of one stream: consecutive failures, and the start of the current attempt.
pub struct Patience {
    vain: u32,
    began: Mono,
}

impl Patience {
    /// Starts without failures.
    pub fn new() -> Self {
        Patience {
            vain: 0,
            began: SystemClock.mono(),
        }
    }

    /// Records that a stream broke; `came` says if it had delivered data. Waits for the back-off, then
    /// returns `true` if the caller should reconnect. There is no wait after the first failure in a row.
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

/// Consumer of a stream of JSON lines that survives a restart of the daemon.
pub trait Listener {
    /// Path for the next request. It contains the cursor, so that no line is lost or repeated after a reconnect.
    fn path(&self) -> String;

    /// Called when the daemon has accepted the request, before its first line.
    fn begun(&mut self) {}

    /// Handles a line. `false` ends the stream.
    fn hear(&mut self, line: Value) -> Result<bool, Trouble>;
}

/// Feeds lines to the listener until it wants no more, and reconnects when the daemon goes away.
pub async fn follow(client: &Client, listener: &mut impl Listener) -> Result<(), Trouble> {
    let mut patience = Patience::new();
    loop {
        let mut came = false;
        let broken = match pass(client, listener, &mut came).await? {
            Ok(()) => return Ok(()),
            Err(ClientError::Broken(why)) => ClientError::Broken(why),
            Err(error) => return Err(error.into()),
        };
        if !patience.goes_on(came).await {
            return Err(broken.into());
        }
    }
}

/// Reads one stream to its end. The inner result says if the stream broke; the outer error comes from
/// the listener.
async fn pass(
    client: &Client,
    listener: &mut impl Listener,
    came: &mut bool,
) -> Result<Result<(), ClientError>, Trouble> {
    let path = listener.path();
    let mut stream = match client.stream(Method::GET, &path, Bytes::new()).await {
        Ok(stream) => stream,
        Err(error) => return Ok(Err(error)),
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
            Ok(None) => return Ok(Err(ClientError::Broken("in the middle".into()))),
            Err(error) => return Ok(Err(error)),
        }
    }
}

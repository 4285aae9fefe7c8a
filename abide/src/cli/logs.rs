//! `abide logs` and `abide session read`: print the output of a session.

use abide_output::sanitizer::Sanitizer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::args::LogsArgs;
use super::client::{Client, ClientError, ResponseStream};
use super::error::CliError;
use super::reconnect::Reconnect;
use super::show::errln;
use crate::http::frame::{Frame, Stream};

pub async fn logs(client: Client, logs: LogsArgs) -> Result<u8, CliError> {
    let mut printer = LogPrinter {
        sanitizers: Default::default(),
        at: logs.from,
        time: 0,
        logs,
    };
    let mut reconnect = Reconnect::new();
    loop {
        let from = printer.at;
        match printer.print_stream(&client).await {
            Ok(()) => return Ok(0),
            Err(LogError::Client(ClientError::Broken(_)))
                if reconnect.should_retry(printer.at > from).await => {}
            Err(LogError::Client(error)) => return Err(error.into()),
            Err(LogError::Cli(error)) => return Err(error),
        }
    }
}

enum LogError {
    Client(ClientError),
    Cli(CliError),
}

impl From<ClientError> for LogError {
    fn from(error: ClientError) -> Self {
        LogError::Client(error)
    }
}

impl From<CliError> for LogError {
    fn from(error: CliError) -> Self {
        LogError::Cli(error)
    }
}

struct LogPrinter {
    logs: LogsArgs,
    at: u64,
    /// Arrival time of the output that is printed next, in Unix milliseconds.
    time: u64,
    /// One sanitizer per stream, because an escape sequence of one stream does not continue in another.
    sanitizers: [Sanitizer; 3],
}

impl LogPrinter {
    /// Prints from the current offset to the end, or until the daemon goes away.
    async fn print_stream(&mut self, client: &Client) -> Result<(), LogError> {
        let stream = match (self.logs.stdout, self.logs.stderr) {
            (true, _) => "stdout",
            (_, true) => "stderr",
            _ => "all",
        };
        let path = format!(
            "/v1/sessions/{}/log?format=frames&from={}&stream={stream}&follow={}",
            super::check_id(&self.logs.session)?,
            self.at,
            self.logs.follow
        );
        let mut answer: ResponseStream = client.stream(Method::GET, &path, Bytes::new()).await?;
        loop {
            match answer.frame().await? {
                Some(Frame::Output(stream, bytes)) => {
                    let printed = self.print(stream, &bytes)?;
                    self.at += bytes.len() as u64;
                    if !printed {
                        return Ok(());
                    }
                }
                Some(Frame::Offset(offset)) => self.at = offset,
                Some(Frame::Time(time)) => self.time = time,
                Some(Frame::Gap(bytes)) => self.gap(bytes)?,
                Some(Frame::Ended(_)) => return Ok(()),
                Some(Frame::Accepted(_) | Frame::Question(_) | Frame::Closed(_)) => {}
                None => return Err(ClientError::Broken("in the middle".into()).into()),
            }
        }
    }

    fn print(&mut self, stream: Stream, bytes: &[u8]) -> Result<bool, CliError> {
        if self.logs.json.json {
            return super::print(format!("{}\n", self.line(stream, bytes)).as_bytes());
        }
        if self.logs.raw {
            return super::print(bytes);
        }
        let sanitizer = &mut self.sanitizers[stream as usize];
        super::print(sanitizer.clean(bytes).as_bytes())
    }

    fn line(&self, stream: Stream, bytes: &[u8]) -> Value {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
            Stream::Pty => "pty",
        };
        let mut line = json!({"offset": self.at, "stream": stream, "time": self.time});
        match std::str::from_utf8(bytes) {
            Ok(text) => line["text"] = json!(text),
            Err(_) => line["base64"] = json!(STANDARD.encode(bytes)),
        }
        line
    }

    fn gap(&mut self, bytes: u64) -> Result<(), CliError> {
        if self.logs.json.json {
            super::print(format!("{}\n", json!({"gap": bytes})).as_bytes())?;
        } else {
            errln!("abide: {bytes} bytes were not kept: the log's quota or the disk was full");
        }
        Ok(())
    }
}

//! `abide run`: runs a command in a session of the daemon, with its input and output at the person's
//! terminal. The stream from the daemon may break at any byte; the client then reconnects and resumes
//! at the offset that was written last.

mod control;
pub(super) mod input;
mod outcome;
mod output;
pub(super) mod rerun;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::PathBuf;

use abide_api::RunEnded;
use abide_core::Millis;
use abide_core::limit::IDLE_DEFAULT;
use bytes::Bytes;
use rustix::io::Errno;

use super::args::RunArgs;
use super::client::{Client, ClientError, ResponseStream, public_type};
use super::duration::DurationLimit;
use super::error::{CliError, EXIT_ABIDE_ERROR};
use super::reconnect::Reconnect;
use super::show::BROKEN_PIPE;
use crate::cli::terminal::Terminal;
use crate::http::frame::Frame;
use crate::http::headers::{INHERITED_LIMITS_HEADER, InheritedLimits, ResourceLimit};
use crate::http::run_request::{OsText, PtySize, RunBody, StdinKind, quoted};
use abide_engine::config;
use abide_engine::secret;
use abide_session::inherited_limits;
use control::RunControl;
use output::{RunOutput, WriteError};

pub async fn run(client: Client, args: RunArgs) -> Result<u8, CliError> {
    let terminal = terminal();
    let mut body = body(&args, terminal.as_ref())?;
    let mut output = RunOutput::new(args.json, args.unfiltered);
    let mut control = RunControl::new(client.clone(), terminal, &body)?;
    let mut reconnect = Reconnect::new();
    let client = client.with_header(INHERITED_LIMITS_HEADER, &inherited_limits());
    let ended = loop {
        body.from = output.at;
        let request = serde_json::to_vec(&body).map_err(|fault| abide_error(fault.to_string()))?;
        let request = client.post_stream("/v1/runs", Bytes::from(request));
        let followed = match control.during(request).await {
            Ok(Ok(mut answer)) => follow(&mut answer, &mut control, &mut output).await,
            Ok(Err(ClientError::Broken(why))) => Err(StreamError::Broken(why)),
            Err(code) => Err(StreamError::GaveUp(code)),
            Ok(Err(error)) => return Err(CliError::from(error).code(EXIT_ABIDE_ERROR)),
        };
        match followed {
            Ok(ended) => break ended,
            Err(StreamError::GaveUp(code) | StreamError::Write(WriteError::GaveUp(code))) => {
                return Ok(code);
            }
            Err(StreamError::Write(WriteError::Closed)) => {
                control.end_command().await;
                return Ok(BROKEN_PIPE);
            }
            Err(StreamError::Write(WriteError::Fault(fault))) => {
                return Err(unwritable(&fault, control).await);
            }
            Err(StreamError::Broken(why)) => {
                let retry = reconnect.should_retry(output.at > body.from);
                match control.during(retry).await {
                    Ok(true) => {}
                    Ok(false) => {
                        return Err(abide_error(format!(
                            "the daemon stopped and does not restart: {why}"
                        )));
                    }
                    Err(code) => return Ok(code),
                }
            }
        }
    };
    control.stop();
    Ok(outcome::report(ended, control.cancelled(), &args, output))
}

/// Reason why a stream was not followed to its end.
enum StreamError {
    /// The connection to the daemon broke.
    Broken(String),
    /// Our output could not be written.
    Write(WriteError),
    /// The person gave up waiting; the exit code.
    GaveUp(u8),
}

impl From<ClientError> for StreamError {
    fn from(error: ClientError) -> Self {
        StreamError::Broken(match error {
            ClientError::Broken(why) => why,
            other => other.to_string(),
        })
    }
}

/// Follows one stream of frames up to the frame with the outcome.
async fn follow(
    answer: &mut ResponseStream,
    control: &mut RunControl,
    output: &mut RunOutput,
) -> Result<RunEnded, StreamError> {
    loop {
        let frame = tokio::select! {
            frame = answer.frame() => frame,
            event = control.next() => {
                match control.handle(event).await {
                    None => continue,
                    Some(code) => return Err(StreamError::GaveUp(code)),
                }
            }
        };
        match frame? {
            Frame::Accepted(accepted) => control.accepted(accepted.session_id.0),
            Frame::Output(stream, bytes) => {
                control.withdraw("new output: the question is withdrawn");
                let written = output.write(stream, &bytes, control).await;
                written.map_err(StreamError::Write)?;
            }
            Frame::Offset(offset) => output.at = offset,
            Frame::Time(_) => {}
            Frame::Gap(bytes) => output.gap(bytes),
            Frame::Question(question) => control.ask(&question),
            Frame::Closed(question) => control.closed(question),
            Frame::Ended(facts) => {
                control.withdraw("the command has ended: the question is withdrawn");
                return Ok(public_type(facts)?);
            }
        }
    }
}

/// Ends the command and says what became of it. If our terminal is gone, the command continues, as if this program had
/// received `SIGHUP` first.
async fn unwritable(fault: &std::io::Error, mut control: RunControl) -> CliError {
    let is_terminal_gone = fault.raw_os_error() == Some(Errno::IO.raw_os_error());
    let ended = !is_terminal_gone && control.end_command().await;
    let id = control.session().unwrap_or_default();
    let (state, next) = match ended {
        true => (
            "the command was ended",
            format!("`abide logs {id}` shows its output"),
        ),
        false => (
            "the command may still run",
            format!("`abide logs {id} --follow` shows its output, `abide kill {id}` ends it"),
        ),
    };
    abide_error(format!("cannot write the output: {fault}; {state}")).next(next)
}

/// Controlling terminal, if this process is in its foreground process group and at least one standard
/// stream is a terminal. Without the latter another program runs this one, and there is no person to ask.
fn terminal() -> Option<Terminal> {
    let has_terminal = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    has_terminal.then(Terminal::foreground).flatten()
}

fn body(args: &RunArgs, terminal: Option<&Terminal>) -> Result<RunBody, CliError> {
    let (command, argv) = command(&args.command)?;
    let idle = match (args.idle, args.pty) {
        (Some(limit), _) => limit,
        // A person at the command's own terminal sees if the command is idle.
        (None, true) => DurationLimit::Never,
        (None, false) => DurationLimit::After(IDLE_DEFAULT),
    };
    let pty = args.pty.then(|| {
        let (cols, rows) = terminal.map_or((80, 24), Terminal::size);
        PtySize { cols, rows }
    });
    let piped = !std::io::stdin().is_terminal();
    Ok(RunBody {
        command,
        argv,
        cwd: OsText::from(folder(args)?.as_os_str()),
        env: environment(&args.env),
        stdin: if piped || args.pty {
            StdinKind::Open
        } else {
            StdinKind::None
        },
        pty,
        timeout: args.timeout.map(Millis::as_secs_f64),
        idle: idle.seconds(),
        key: secret::random_hex::<16>(),
        sandbox: args.sandbox,
        network: args.network,
        name: args.name.as_ref().map(|name| name.as_str().to_owned()),
        terminal: terminal.is_some(),
        from: 0,
    })
}

/// Command line and argument vector: a single word is a command line for the shell; several words are
/// executed as they are.
pub(super) fn command(words: &[OsString]) -> Result<(String, Option<Vec<OsText>>), CliError> {
    if let [line] = words {
        let line = line.to_str().ok_or_else(|| {
            abide_error("a command line must be UTF-8".into())
                .next("pass the command as several words, which may be any bytes")
        })?;
        if line.trim().is_empty() {
            return Err(
                abide_error("the command is empty".into()).next("write the command after `--`")
            );
        }
        return Ok((line.to_owned(), None));
    }
    let written: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let argv = words
        .iter()
        .map(|word| OsText::from(word.as_os_str()))
        .collect();
    Ok((written.join(" "), Some(argv)))
}

fn folder(args: &RunArgs) -> Result<PathBuf, CliError> {
    let here = std::env::current_dir()
        .map_err(|fault| abide_error(format!("cannot use this directory: {fault}")))?;
    let folder = args
        .cwd
        .as_ref()
        .map_or_else(|| here.clone(), |cwd| here.join(cwd));
    if !folder.is_dir() {
        return Err(
            abide_error(format!("{} is not a directory", folder.display()))
                .next("--cwd needs an existing directory"),
        );
    }
    Ok(folder)
}

fn environment(given: &[(String, String)]) -> Vec<(OsText, OsText)> {
    let mut env = config::environment();
    for (name, value) in given {
        env.retain(|(known, _)| known != OsStr::new(name));
        env.push((name.into(), value.into()));
    }
    let text = |text: OsString| OsText::from(text.as_os_str());
    env.into_iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Umask and resource limits that a command started by a shell here would inherit.
pub(super) fn inherited_limits() -> InheritedLimits {
    let bound = |(resource, soft, hard)| ResourceLimit {
        resource,
        soft,
        hard,
    };
    InheritedLimits {
        umask: inherited_limits::mask(),
        limits: inherited_limits::limits().into_iter().map(bound).collect(),
    }
}

fn abide_error(sentence: String) -> CliError {
    CliError::new(sentence).code(EXIT_ABIDE_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["cargo", "test", "a b", "", "it's", "$HOME"].map(OsString::from);
        let (written, argv) = command(&words).unwrap();
        assert_eq!(written, r"cargo test 'a b' '' 'it'\''s' '$HOME'");
        assert_eq!(argv.unwrap().len(), 6);
        assert_eq!(
            command(&["a && b".into()]).unwrap(),
            ("a && b".into(), None)
        );
        assert!(command(&[" ".into()]).is_err());
    }

    #[test]
    fn given_variable_replaces_the_inherited_one() {
        let env = environment(&[("PATH".into(), "/x".into()), ("PATH".into(), "/y".into())]);
        let path: Vec<_> = env
            .iter()
            .filter(|(name, _)| *name == OsText::Text("PATH".into()))
            .collect();
        assert_eq!(
            path,
            [&(OsText::Text("PATH".into()), OsText::Text("/y".into()))]
        );
    }
}

//! `abide run`: runs a command in a session of the daemon, with its input and output at the person's
//! terminal. The stream from the daemon may break at any byte; the client then reconnects and resumes
//! at the offset that was written last.

mod control;
mod ending;
pub(super) mod input;
mod screen;

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use abide_core::limit::IDLE_DEFAULT;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;

use super::args::Run;
use super::client::{Client, ClientError, ResponseStream};
use super::patience::Patience;
use super::show::BROKEN_PIPE;
use super::span::Limit;
use super::trouble::{OWN, Trouble};
use crate::cli::terminal::Terminal;
use crate::http::frame::Frame;
use crate::http::headers::{INHERITED_LIMITS_HEADER, InheritedLimits, ResourceLimit};
use crate::http::run_request::{OsText, PtySize, RunBody, StdinKind};
use abide_engine::config;
use abide_engine::entropy;
use abide_session::inherited_limits;
use control::Control;
use screen::{Gone, Screen};

pub async fn run(client: Client, args: Run) -> Result<u8, Trouble> {
    let terminal = terminal();
    let mut body = body(&args, terminal.as_ref())?;
    let mut screen = Screen::new(args.json);
    let mut control = Control::new(client.clone(), terminal, &body)?;
    let mut patience = Patience::new();
    let client = client.with_header(INHERITED_LIMITS_HEADER, &inherited_limits());
    let ended = loop {
        body.from = screen.at;
        let request = serde_json::to_vec(&body).map_err(|fault| own(fault.to_string()))?;
        let answer = client
            .stream(Method::POST, "/v1/runs", Bytes::from(request))
            .await;
        let followed = match answer {
            Ok(mut answer) => follow(&mut answer, &mut control, &mut screen).await,
            Err(ClientError::Broken(why)) => Err(Stopped::Broken(why)),
            Err(error) => return Err(Trouble::from(error).code(OWN)),
        };
        match followed {
            Ok(ended) => break ended,
            Err(Stopped::Left) => return Ok(ending::INTERRUPTED),
            Err(Stopped::Gone(Gone::Nobody)) => return Ok(BROKEN_PIPE),
            Err(Stopped::Gone(Gone::Fault(fault))) => return Err(own(fault.to_string())),
            Err(Stopped::Broken(why)) => {
                if !patience.goes_on(screen.at > body.from).await {
                    return Err(own(format!(
                        "the daemon stopped and does not restart: {why}"
                    )));
                }
            }
        }
    };
    control.leave();
    Ok(ending::tell(&ended, control.cancelled(), &args, screen))
}

/// Reason why a stream was not followed to its end.
enum Stopped {
    /// The connection to the daemon broke.
    Broken(String),
    /// Our output could not be written.
    Gone(Gone),
    /// The person gave up waiting.
    Left,
}

/// Follows one stream of frames up to the frame with the outcome.
async fn follow(
    answer: &mut ResponseStream,
    control: &mut Control,
    screen: &mut Screen,
) -> Result<Value, Stopped> {
    loop {
        let frame = tokio::select! {
            frame = answer.frame() => frame,
            happened = control.next() => {
                if control.handle(happened).await {
                    continue;
                }
                return Err(Stopped::Left);
            }
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return Err(Stopped::Broken("in the middle".into())),
            Err(ClientError::Broken(why)) => return Err(Stopped::Broken(why)),
            Err(_) => return Err(Stopped::Broken("in the middle".into())),
        };
        match frame {
            Frame::Accepted(facts) => control.accepted(&facts),
            Frame::Output(stream, bytes) => {
                control.withdraw("new output: the question is withdrawn");
                let shown = screen.output(stream, &bytes, control).await;
                if let Err(Gone::Nobody) = shown {
                    control.nobody_reads().await;
                }
                shown.map_err(Stopped::Gone)?;
            }
            Frame::Offset(offset) => screen.at = offset,
            Frame::Time(_) => {}
            Frame::Gap(bytes) => screen.gap(bytes),
            Frame::Question(facts) => control.ask(&facts),
            Frame::Closed(facts) => control.closed(&facts),
            Frame::Ended(facts) => {
                control.withdraw("the command has ended: the question is withdrawn");
                return Ok(facts);
            }
        }
    }
}

/// Controlling terminal, if this process is in its foreground process group and at least one standard
/// stream is a terminal. Without the latter another program runs this one, and there is no person to ask.
fn terminal() -> Option<Terminal> {
    let seen = std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal();
    seen.then(Terminal::in_front).flatten()
}

fn body(args: &Run, terminal: Option<&Terminal>) -> Result<RunBody, Trouble> {
    let (command, argv) = command(&args.command)?;
    let idle = match (args.idle, args.pty) {
        (Some(limit), _) => limit,
        // A person at the command's own terminal sees if the command is idle.
        (None, true) => Limit::Never,
        (None, false) => Limit::After(IDLE_DEFAULT),
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
        timeout: args.timeout.map(|span| span.0 as f64 / 1_000.0),
        idle: idle.seconds(),
        key: format!("{:016x}{:016x}", entropy::bits(), entropy::bits()),
        inherited_limits: None,
        terminal: terminal.is_some(),
        from: 0,
    })
}

/// Command line and argument vector: a single word is a command line for the shell; several words are
/// executed as they are.
pub(super) fn command(words: &[OsString]) -> Result<(String, Option<Vec<OsText>>), Trouble> {
    if let [line] = words {
        let line = line.to_str().ok_or_else(|| {
            own("a command line must be UTF-8".into())
                .next("pass the command as several words, which may be any bytes")
        })?;
        if line.trim().is_empty() {
            return Err(own("the command is empty".into()).next("abide run -- COMMAND"));
        }
        return Ok((line.to_owned(), None));
    }
    let shown: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let argv = words
        .iter()
        .map(|word| OsText::from(word.as_os_str()))
        .collect();
    Ok((shown.join(" "), Some(argv)))
}

/// Word quoted for a shell.
fn quoted(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=+/.,:@%^".contains(byte);
    let text = word.to_string_lossy();
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn folder(args: &Run) -> Result<PathBuf, Trouble> {
    let here = std::env::current_dir()
        .map_err(|fault| own(format!("cannot use this directory: {fault}")))?;
    let folder = args
        .cwd
        .as_ref()
        .map_or_else(|| here.clone(), |cwd| here.join(cwd));
    if !folder.is_dir() {
        return Err(own(format!("{} is not a directory", folder.display()))
            .next("--cwd needs an existing directory"));
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

fn own(sentence: String) -> Trouble {
    Trouble::new(sentence).code(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_shown_as_one_would_type_them() {
        let words = ["cargo", "test", "a b", "", "it's", "$HOME"].map(OsString::from);
        let (shown, argv) = command(&words).unwrap();
        assert_eq!(shown, r"cargo test 'a b' '' 'it'\''s' '$HOME'");
        assert_eq!(argv.unwrap().len(), 6);
        assert_eq!(
            command(&["a && b".into()]).unwrap(),
            ("a && b".into(), None)
        );
        assert!(command(&[" ".into()]).is_err());
    }

    #[test]
    fn a_variable_that_is_given_takes_the_place_of_the_inherited_one() {
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

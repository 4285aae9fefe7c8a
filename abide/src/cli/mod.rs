//! Command-line interface: parses the command line and prints results. It talks to a running daemon
//! only over its socket.

mod answer;
mod args;
mod attach;
mod call;
mod complete;
mod daemon;
mod doctor;
mod duration;
pub(crate) mod error;
mod fleet;
mod hook;
mod ids;
mod layers;
mod logs;
mod manual;
mod messages;
mod number;
mod open;
mod policy;
mod process_exit;
mod prompt;
mod reconnect;
mod reference;
mod replace_file;
mod run;
mod schema;
mod sessions;
mod setup;
mod show;
mod status;
mod terminal;
mod terminal_session;
mod timers;
mod tools;
mod top;
mod usage;
mod wait;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use serde_json::json;

use crate::client;
use abide_engine::config::{self, Paths};
use args::{Cli, Command, FleetCommand, MachineCommand, RunArgs, SandboxCommand, SessionCommand};
use client::Client;
use error::{CliError, EXIT_ABIDE_ERROR};
use show::outln;

/// Parses the command line and runs the command.
pub fn main() -> ExitCode {
    let line = match Cli::try_parse_from(words(std::env::args_os())) {
        Ok(line) => line,
        Err(error) => {
            match usage::sentence(&error) {
                Some(sentence) => drop(writeln!(std::io::stderr(), "{sentence}")),
                None => drop(error.print()),
            }
            return ExitCode::from(usage::exit_code(&error, std::env::args_os().nth(1)));
        }
    };
    match run_command(line.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.code)
        }
    }
}

/// Words of a command line. `abide help WORDS` is `abide WORDS --help`.
fn words(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = typed.collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

fn run_command(command: Command) -> Result<u8, CliError> {
    match command {
        Command::Tools(tools) => tools::print(tools.format),
        Command::Completions(completions) => {
            print(&complete::script(completions.shell, Cli::command()))?;
        }
        Command::Complete(args) => {
            return Ok(u8::from(!complete::print(
                &paths()?,
                Cli::command(),
                &args.words,
            )));
        }
        Command::Man(man) => {
            if let Some(dir) = man.dir {
                manual::write(&dir, Cli::command())?;
            } else {
                outln!("{}", reference::commands(Cli::command()).trim_end());
            }
        }
        Command::Version(version) => {
            let number = env!("CARGO_PKG_VERSION");
            if version.json.json {
                show::json(&json!({"version": number}));
            } else {
                outln!("abide {number}");
            }
        }
        Command::Schema(args) => schema::schema(&args)?,
        Command::Setup(args) => return setup::setup(&args, &paths()?),
        Command::Doctor(args) => return doctor::doctor(args, Paths::from_env()),
        Command::Serve(serve) => daemon::serve(paths()?, serve.background)?,
        Command::Policy(command) => return policy::policy(&paths()?, command),
        Command::Audit(args) => return policy::audit(&paths()?, &args),
        Command::Stop(stop) => daemon::stop(&paths()?, stop.json.json)?,
        Command::Mcp(mcp) => {
            let agent = mcp.agent.name().unwrap_or_else(config::agent_from_env);
            daemon::mcp(&paths()?, &agent)?;
        }
        Command::Sandbox(SandboxCommand::Layers(args)) => return layers::layers(&paths()?, args),
        Command::Fleet(FleetCommand::Init(args)) => return fleet::init(&paths()?, args),
        Command::Fleet(FleetCommand::Join(args)) => return fleet::join(&paths()?, args),
        Command::Fleet(FleetCommand::Leave) => return fleet::leave(&paths()?),
        Command::Machine(MachineCommand::Label(args)) => return fleet::label(&paths()?, args),
        Command::Run(_)
        | Command::Sandbox(SandboxCommand::Shell(_))
        | Command::Answer(_)
        | Command::Session(_)
        | Command::Ps(_)
        | Command::Logs(_)
        | Command::Attach(_)
        | Command::Kill(_)
        | Command::Rm(_)
        | Command::Rerun(_)
        | Command::Timer(_)
        | Command::Wait(_)
        | Command::Messages(_)
        | Command::Call(_)
        | Command::Open(_)
        | Command::Top(_)
        | Command::Fleet(FleetCommand::Status(_))
        | Command::Machine(_)
        | Command::Status(_) => return run_with_daemon(command),
    }
    Ok(0)
}

/// Runs a command that needs the daemon.
fn run_with_daemon(command: Command) -> Result<u8, CliError> {
    let paths = paths()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(async {
        let client = |agent: args::AgentArg| Client::new(paths.clone(), agent.name());
        let person = || Client::new(paths.clone(), None);
        match command {
            Command::Run(mut run) => {
                let agent = std::mem::replace(&mut run.agent, args::AgentArg::none());
                run::run(client(agent), run).await
            }
            Command::Sandbox(SandboxCommand::Shell(shell)) => {
                let mut run = RunArgs::from(shell);
                let agent = std::mem::replace(&mut run.agent, args::AgentArg::none());
                run::run(client(agent), run).await
            }
            Command::Answer(answer) => answer::answer(person(), answer).await,
            Command::Open(open) => open::open(person(), open).await,
            Command::Top(args) => top::top(person(), args).await,
            Command::Fleet(FleetCommand::Status(args)) => {
                fleet::status(person(), args.json.json).await
            }
            Command::Machine(MachineCommand::List(args)) => {
                fleet::list(person(), args.json.json).await
            }
            Command::Machine(MachineCommand::Lost(args)) => {
                fleet::act(person(), "lost", args).await
            }
            Command::Machine(MachineCommand::Forget(args)) => {
                fleet::act(person(), "forget", args).await
            }
            Command::Machine(MachineCommand::Revoke(args)) => {
                fleet::act(person(), "revoke", args).await
            }
            Command::Status(status) => status::status(person(), status.json.json).await,
            Command::Logs(logs) | Command::Session(SessionCommand::Read(logs)) => {
                logs::logs(client(logs.agent.clone()), logs).await
            }
            Command::Session(SessionCommand::Start(start)) => {
                terminal_session::start(client(start.agent.clone()), start).await
            }
            Command::Attach(attach) | Command::Session(SessionCommand::Attach(attach)) => {
                attach::attach(client(attach.agent.clone()), attach).await
            }
            Command::Session(SessionCommand::Send(send)) => {
                terminal_session::send(client(send.agent.clone()), send).await
            }
            Command::Session(SessionCommand::Screen(screen)) => {
                terminal_session::screen(client(screen.agent.clone()), screen).await
            }
            Command::Session(SessionCommand::Search(search)) => {
                terminal_session::search(client(search.agent.clone()), search).await
            }
            Command::Session(SessionCommand::Resize(resize)) => {
                terminal_session::resize(client(resize.agent.clone()), resize).await
            }
            Command::Session(SessionCommand::Signal(signal)) => {
                terminal_session::signal(client(signal.agent.clone()), signal).await
            }
            Command::Ps(list) | Command::Session(SessionCommand::List(list)) => {
                sessions::list(client(list.agent.clone()), list).await
            }
            Command::Session(SessionCommand::Rename(rename)) => {
                sessions::rename(client(rename.agent.clone()), rename).await
            }
            Command::Rm(remove) | Command::Session(SessionCommand::Rm(remove)) => {
                sessions::remove(person(), remove).await
            }
            Command::Rerun(again) | Command::Session(SessionCommand::Rerun(again)) => {
                run::rerun::rerun(person(), again).await
            }
            Command::Kill(kill) | Command::Session(SessionCommand::Kill(kill)) => {
                sessions::kill(client(kill.agent.clone()), kill).await
            }
            Command::Session(SessionCommand::Extend(extend)) => {
                sessions::extend(client(extend.agent.clone()), extend).await
            }
            Command::Timer(timer) => timers::timer(&client, timer).await,
            Command::Wait(wait) => wait::wait(client(wait.agent.clone()), wait).await,
            Command::Messages(messages) => messages::messages(&client, &paths, messages).await,
            Command::Call(call) => {
                let agent = call
                    .agent
                    .clone()
                    .name()
                    .or_else(|| Some(config::agent_from_env()));
                call::call(Client::new(paths.clone(), agent), call).await
            }
            Command::Sandbox(SandboxCommand::Layers(_))
            | Command::Fleet(FleetCommand::Init(_) | FleetCommand::Join(_) | FleetCommand::Leave)
            | Command::Machine(MachineCommand::Label(_))
            | Command::Setup(_)
            | Command::Policy(_)
            | Command::Audit(_)
            | Command::Doctor(_)
            | Command::Stop(_)
            | Command::Serve(_)
            | Command::Mcp(_)
            | Command::Tools(_)
            | Command::Schema(_)
            | Command::Completions(_)
            | Command::Complete(_)
            | Command::Man(_)
            | Command::Version(_) => {
                unreachable!("`run_command` carries these out without a daemon")
            }
        }
    });
    // A blocking thread may still wait for input that is no longer needed.
    runtime.shutdown_background();
    done
}

fn paths() -> Result<Paths, CliError> {
    Paths::from_env().map_err(|fault| CliError::new(fault.to_string()).code(EXIT_ABIDE_ERROR))
}

/// Writes to standard output. `false`: the reader has closed the pipe, which is not an error.
fn print(bytes: &[u8]) -> Result<bool, CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(fault) if fault.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}

/// Returns `true` if standard output is a terminal.
fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Checks an id from the command line, which is inserted into a URL path without escaping.
fn check_id(id: &str) -> Result<&str, CliError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !id.is_empty() && id.chars().all(plain) {
        return Ok(id);
    }
    let shown = abide_output::printable::one_line(id);
    Err(CliError::new(format!("'{shown}' is not a valid id"))
        .next("ids look like message_k3v9x2bc; `abide messages` shows them"))
}

/// Agent of an `abide mcp` command line in its simple form; `None`: the full parser must read it.
pub fn mcp_agent(mut words: impl Iterator<Item = OsString>) -> Option<String> {
    let agent = match words.next() {
        None => return Some(config::agent_from_env()),
        Some(word) => match word.to_str()? {
            "--agent" => words.next()?.into_string().ok()?,
            word => word.strip_prefix("--agent=")?.to_owned(),
        },
    };
    (words.next().is_none() && !agent.is_empty()).then_some(agent)
}

/// Serves an MCP client as this agent.
pub fn front(agent: &str) -> ExitCode {
    match paths().and_then(|paths| daemon::mcp(&paths, agent)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.code)
        }
    }
}

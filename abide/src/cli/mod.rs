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
mod prompt;
mod reconnect;
mod reference;
mod relay;
mod replace_file;
mod run;
#[cfg(test)]
mod sample;
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

use abide_api::cli::Version;
use clap::{CommandFactory, Parser};

use crate::client;
use abide_engine::config::{self, Paths};
use args::{Cli, Command, FleetCommand, MachineCommand, SandboxCommand, SessionCommand};
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
            print(&complete::script(completions.shell, &Cli::command()))?;
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
            let fields = Version { version: number };
            show::result(version.json, &fields, format_args!("abide {number}"));
        }
        Command::Schema(args) => schema::schema(&args)?,
        Command::Setup(args) => return setup::setup(&args, &paths()?),
        Command::Doctor(args) => return doctor::doctor(args, Paths::from_env()),
        Command::Serve(serve) => daemon::serve(paths()?, serve.background)?,
        Command::Policy(command) => return policy::policy(&paths()?, command),
        Command::Audit(args) => return policy::audit(&paths()?, &args),
        Command::Stop(stop) => daemon::stop(&paths()?, stop.json)?,
        Command::Mcp(mcp) => {
            let agent = mcp.agent.name().unwrap_or_else(config::agent_from_env);
            daemon::mcp(&paths()?, &agent)?;
        }
        Command::Relay => relay::relay(&paths()?)?,
        Command::Run(run) => {
            let client = client(&run.agent)?;
            return block_on(run::run(client, run));
        }
        Command::Sandbox(SandboxCommand::Shell(shell)) => {
            let client = client(&shell.agent)?;
            return block_on(run::run(client, shell.into()));
        }
        Command::Sandbox(SandboxCommand::Layers(args)) => return layers::layers(&paths()?, args),
        Command::Answer(answer) => return block_on(answer::answer(person()?, answer)),
        Command::Open(open) => return block_on(open::open(person()?, open)),
        Command::Top(args) => return block_on(top::top(person()?, args)),
        Command::Status(status) => return block_on(status::status(person()?, status.json)),
        Command::Ps(list) => return session_command(SessionCommand::List(list)),
        Command::Logs(logs) => return session_command(SessionCommand::Read(logs)),
        Command::Attach(attach) => return session_command(SessionCommand::Attach(attach)),
        Command::Kill(kill) => return session_command(SessionCommand::Kill(kill)),
        Command::Rm(remove) => return session_command(SessionCommand::Rm(remove)),
        Command::Rerun(again) => return session_command(SessionCommand::Rerun(again)),
        Command::Session(command) => return session_command(command),
        Command::Fleet(command) => return fleet_command(command),
        Command::Machine(command) => return machine_command(command),
        Command::Timer(timer) => return block_on(timers::timer(timer)),
        Command::Wait(wait) => return block_on(wait::wait(client(&wait.agent)?, wait)),
        Command::Messages(args) => return block_on(messages::messages(&paths()?, args)),
        Command::Call(call) => {
            let agent = call.agent.name().unwrap_or_else(config::agent_from_env);
            return block_on(call::call(Client::new(paths()?, Some(agent)), call));
        }
    }
    Ok(0)
}

fn session_command(command: SessionCommand) -> Result<u8, CliError> {
    match command {
        SessionCommand::Start(args) => {
            block_on(terminal_session::start(client(&args.agent)?, args))
        }
        SessionCommand::Attach(args) => block_on(attach::attach(client(&args.agent)?, args)),
        SessionCommand::List(args) => block_on(sessions::list(client(&args.agent)?, args)),
        SessionCommand::Read(args) => block_on(logs::logs(client(&args.agent)?, args)),
        SessionCommand::Send(args) => block_on(terminal_session::send(client(&args.agent)?, args)),
        SessionCommand::Screen(args) => {
            block_on(terminal_session::screen(client(&args.agent)?, args))
        }
        SessionCommand::Search(args) => {
            block_on(terminal_session::search(client(&args.agent)?, args))
        }
        SessionCommand::Extend(args) => block_on(sessions::extend(client(&args.agent)?, args)),
        SessionCommand::Resize(args) => {
            block_on(terminal_session::resize(client(&args.agent)?, args))
        }
        SessionCommand::Signal(args) => {
            block_on(terminal_session::signal(client(&args.agent)?, args))
        }
        SessionCommand::Rename(args) => block_on(sessions::rename(client(&args.agent)?, args)),
        SessionCommand::Kill(args) => block_on(sessions::kill(client(&args.agent)?, args)),
        SessionCommand::Rm(args) => block_on(sessions::remove(person()?, args)),
        SessionCommand::Rerun(args) => block_on(run::rerun::rerun(person()?, args)),
    }
}

fn fleet_command(command: FleetCommand) -> Result<u8, CliError> {
    match command {
        FleetCommand::Init(args) => fleet::init(&paths()?, args),
        FleetCommand::Join(args) => fleet::join(&paths()?, args),
        FleetCommand::Leave => fleet::leave(&paths()?),
        FleetCommand::Status(args) => block_on(fleet::status(person()?, args.json)),
    }
}

fn machine_command(command: MachineCommand) -> Result<u8, CliError> {
    match command {
        MachineCommand::List(args) => block_on(fleet::list(person()?, args.json)),
        MachineCommand::Label(args) => fleet::label(&paths()?, args),
        MachineCommand::Lost(args) => block_on(fleet::act(person()?, "lost", args)),
        MachineCommand::Forget(args) => block_on(fleet::act(person()?, "forget", args)),
        MachineCommand::Revoke(args) => block_on(fleet::act(person()?, "revoke", args)),
    }
}

/// Client on behalf of the agent of the command line, or of a person.
fn client(agent: &args::AgentArg) -> Result<Client, CliError> {
    Ok(Client::new(paths()?, agent.name()))
}

/// Client on behalf of a person.
fn person() -> Result<Client, CliError> {
    Ok(Client::new(paths()?, None))
}

/// Runs a future to its end.
fn block_on<T, E: Into<CliError>>(
    command: impl Future<Output = Result<T, E>>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(command);
    // A blocking thread may still wait for input that is no longer needed.
    runtime.shutdown_background();
    done.map_err(Into::into)
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

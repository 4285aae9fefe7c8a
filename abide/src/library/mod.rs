//! abide as a Rust library: every tool as a call, to the daemon or to an engine inside the program. The calls
//! are the same either way, and the same as over MCP and HTTP.

mod calls;
mod embedded;
mod person;
mod session;

pub use calls::Call;
pub use embedded::EmbeddedEngine;
pub use person::{Person, Question, Questions};
pub use session::Session;

use std::path::{Path, PathBuf};

use abide_api::TimerIds;
use serde_json::{Map, Value, json};

use super::client::{Client, ClientError};
use super::xml;
use abide_engine::config::{self, Paths};

pub use super::client::ToolResult;

/// Reason why a call has no result.
pub use super::client::ClientError as Error;

/// Interface of an agent to abide. Cheap to clone; every clone is the same agent.
///
/// Dropping a call only ends the wait: the command, session or timer continues.
///
/// ```no_run
/// # async fn example() -> Result<(), abide::Error> {
/// use std::time::Duration;
///
/// let abide = abide::Abide::connect()?.of_agent("builder");
/// let built = abide.execute_command("cargo build").await?;
/// println!("{}", built.text);
///
/// let up = abide
///     .wait("the server starts", Duration::from_secs(300))
///     .with("until", serde_json::json!({"port": 3000}))
///     .await?;
/// assert_eq!(up.fact("completed_by"), "condition");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Abide {
    client: Client,
    agent: String,
}

impl Abide {
    /// Connects to the daemon of this user. If none runs, `abide` from the search path is started as one by
    /// the first call.
    pub fn connect() -> Result<Self, Error> {
        let program = config::program("abide").ok_or_else(|| {
            let why = "abide is not on the search path; install it or name it with `connect_with`";
            ClientError::NoDaemon(why.into())
        })?;
        let paths = Paths::from_env().map_err(|e| ClientError::NoDaemon(e.to_string()))?;
        Ok(Abide::at(paths, program))
    }

    /// Connects to the daemon whose files are under `folder`; if none runs, `program` is started as one.
    pub fn connect_with(folder: impl AsRef<Path>, program: impl Into<PathBuf>) -> Self {
        Abide::at(Paths::under(folder.as_ref()), program.into())
    }

    fn at(paths: Paths, program: PathBuf) -> Self {
        let agent = config::agent_from_env();
        let client = Client::with_program(paths, program, Some(agent.clone()));
        Abide { client, agent }
    }

    /// Interface of another agent, which sees only its own sessions, timers and messages.
    pub fn of_agent(&self, name: &str) -> Self {
        Abide {
            client: self.client.of_agent(name),
            agent: name.to_owned(),
        }
    }

    /// Name of the agent.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Calls any tool with the arguments of its schema.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolResult, Error> {
        let path = format!("/v1/tools/{tool}");
        let body = Value::Object(arguments);
        self.client.post(&path, &body).await
    }

    /// Runs the tool blocks in a text, in order, as an agent without function calling writes them. A refused
    /// block yields a result too, so that the author of the text can read the reason. A block with a tool of another host
    /// is passed over if the text has a block of abide's too; a misspelled name of a tool of abide is an error.
    ///
    /// ```no_run
    /// # async fn example(abide: abide::Abide) -> Result<(), abide::Error> {
    /// let said = "Let me look.\n<tool name=\"shell\">\n<command>ls</command>\n</tool>";
    /// for (tool, result) in abide.call_blocks(said).await? {
    ///     println!("{tool}: {}", result.text);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn call_blocks(&self, text: &str) -> Result<Vec<(String, ToolResult)>, Error> {
        let parsed = xml::parse(text).map_err(|fault| ClientError::invalid(fault.to_string()))?;
        let mut results = Vec::with_capacity(parsed.blocks.len());
        for block in parsed.blocks {
            let result = match self.call(block.tool, block.arguments).await {
                Err(ClientError::Refused { detail, .. }) => ToolResult::refused(detail),
                result => result?,
            };
            results.push((block.tool.to_owned(), result));
        }
        Ok(results)
    }

    /// Interface of a person to the same abide: to see questions and to answer them.
    pub fn person(&self) -> Person {
        Person::new(self.client.of_person())
    }

    /// Session of this id, running or ended.
    pub fn session(&self, id: impl Into<String>) -> Session {
        Session::new(self.clone(), id.into())
    }

    /// Creates many timers at once and waits for none; each is an object of `timer`'s fields. A single disk
    /// sync covers them all.
    pub async fn make_timers(&self, timers: Vec<Value>) -> Result<Vec<String>, Error> {
        let body = json!({"timers": timers});
        let made: TimerIds = self.client.post("/v1/timers", &body).await?;
        let ids = made.timer_ids.iter();
        Ok(ids.map(|id| id.0.to_string()).collect())
    }
}

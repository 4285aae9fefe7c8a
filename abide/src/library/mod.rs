//! abide for a program written in Rust: every tool as a call, with the daemon or with an engine held
//! within the program. The calls are the same either way, and the same as over MCP and HTTP.

mod calls;
mod held;
mod people;
mod session;

pub use calls::{
    Act, Call, Execute, List, Messages, Pause, Read, Reason, Search, Send, Shell, Start, Starts,
    Timer, Timers, Yields,
};
pub use held::Held;
pub use people::{Person, Question, Questions};
pub use session::Session;

use std::path::{Path, PathBuf};

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::client::{Client, Unanswered};
use super::xml;
use abide_engine::config::{self, Paths};

/// Why there is no result.
pub use super::client::Unanswered as Error;

/// An agent's way to abide. Cheap to clone; every clone is the same agent.
///
/// A call that is dropped has only stopped waiting: the command, session or timer goes on.
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
///     .until(serde_json::json!({"port": 3000}))
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
    /// The daemon of this user. Where there is none, `abide` from the search path is started as one
    /// with the first call.
    pub fn connect() -> Result<Self, Error> {
        let program = config::program("abide").ok_or_else(|| {
            let why = "abide is not on the search path; install it or name it with `connect_with`";
            Unanswered::NoDaemon(why.into())
        })?;
        let paths = Paths::from_env().map_err(|e| Unanswered::NoDaemon(e.to_string()))?;
        Ok(Abide::at(paths, program))
    }

    /// The daemon whose files are under `folder`, started with `program` where there is none.
    pub fn connect_with(folder: impl AsRef<Path>, program: impl Into<PathBuf>) -> Self {
        Abide::at(Paths::under(folder.as_ref()), program.into())
    }

    fn at(paths: Paths, program: PathBuf) -> Self {
        let agent = config::agent_from_env();
        let client = Client::starting(paths, program, Some(agent.clone()));
        Abide { client, agent }
    }

    /// The same abide for another agent, which sees only its own sessions, timers and messages.
    pub fn of_agent(&self, name: &str) -> Self {
        Abide {
            client: self.client.of_agent(name),
            agent: name.to_owned(),
        }
    }

    /// The agent's name.
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
        result(self.client.post(&path, &body).await?)
    }

    /// Runs the tool blocks that a text holds, in order, as an agent without function calling writes
    /// them. A block that is refused is a result too: it is for whoever wrote it.
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
        let malformed = |fault: xml::Malformed| Unanswered::Refused {
            status: StatusCode::BAD_REQUEST,
            detail: fault.to_string(),
        };
        let blocks = xml::parse(text).map_err(malformed)?;
        let mut results = Vec::with_capacity(blocks.len());
        for block in blocks {
            let result = match self.call(block.tool, block.arguments).await {
                Err(Unanswered::Refused { detail, .. }) => ToolResult::refused(detail),
                called => called?,
            };
            results.push((block.tool.to_owned(), result));
        }
        Ok(results)
    }

    /// A person's way to the same abide: to see questions and to answer them.
    pub fn person(&self) -> Person {
        Person::new(self.client.of_a_person())
    }

    /// A session by its id, running or ended.
    pub fn session(&self, id: impl Into<String>) -> Session {
        Session::new(self.clone(), id.into())
    }

    /// Makes many timers at once and stands by on none; each is an object of `timer`'s fields. One
    /// sync of the disk serves them all.
    pub async fn make_timers(&self, timers: Vec<Value>) -> Result<Vec<String>, Error> {
        let body = json!({"timers": timers});
        let made = self.client.post("/v1/timers", &body).await?;
        let ids = made["timer_ids"].as_array().into_iter().flatten();
        Ok(ids
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect())
    }
}

/// Result of a tool call, as the daemon sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The whole result as text.
    pub text: String,
    /// All fields by name, as the output schema of the tool says.
    pub facts: Map<String, Value>,
    /// Whether the call failed as a call (an exit code that is not 0 is no failure).
    pub is_error: bool,
}

fn result(answer: Value) -> Result<ToolResult, Error> {
    let Value::Object(mut facts) = answer else {
        return Err(Unanswered::Broken("the answer is no object".into()));
    };
    let is_error = facts.remove("is_error") == Some(Value::Bool(true));
    let text = facts.get("text").and_then(Value::as_str);
    Ok(ToolResult {
        text: text.unwrap_or_default().to_owned(),
        facts,
        is_error,
    })
}

impl ToolResult {
    fn refused(sentence: String) -> Self {
        let facts = Map::from_iter([("text".to_owned(), json!(sentence))]);
        ToolResult {
            text: sentence,
            facts,
            is_error: true,
        }
    }

    /// One of the facts; `null` where there is none of this name.
    pub fn fact(&self, name: &str) -> &Value {
        self.facts.get(name).unwrap_or(&Value::Null)
    }

    /// The status, such as `SUCCESS` or `running`.
    pub fn status(&self) -> Option<&str> {
        self.fact("status").as_str()
    }

    /// The session that this is about.
    pub fn session_id(&self) -> Option<&str> {
        self.fact("session_id").as_str()
    }

    /// The timer that this is about.
    pub fn timer_id(&self) -> Option<&str> {
        self.fact("timer_id").as_str()
    }

    /// The exit code, where somebody saw one.
    pub fn exit_code(&self) -> Option<i64> {
        self.fact("exit_code").as_i64()
    }
}

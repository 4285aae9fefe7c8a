//! Connections to the server: the address, and what became of statements.
//!
//! Only transactions are used, with settings that end with them, and statements without names, or with names that may
//! mean something else (`prepared.rs`): a pooler may give every transaction to another server process.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use abide_session::accelerator::Accelerator;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row, SimpleQueryMessage};

use super::batch::Statement;
use super::prepared::{Prepared, Shape, Text};
use super::tls::Tls;
use crate::clock::pause;
use crate::config::Config as FileConfig;
use crate::entropy;
use crate::lock::lock;
use crate::store::StoreFault;

/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of a transaction here. The server's own limits are shorter, but a server process that is stopped does not
/// keep them.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Limits of a statement and of waiting for a lock at the server, in milliseconds.
const STATEMENT_MS: u64 = 5_000;
pub(super) const LOCK_MS: u64 = 2_000;
/// Times that a transaction is sent that collided with another.
const ATTEMPTS: usize = 5;
/// Times that a statement is executed before it is prepared again: its plan was made for the tables of that time.
const MAX_USES: u32 = 4_096;
/// Schema, unless the address names one.
const DEFAULT_SCHEMA: &str = "abide";

/// Reason why a text is no address of a database.
#[derive(Debug, thiserror::Error)]
pub enum InvalidAddress {
    /// The name of the schema.
    #[error("the schema must be small letters, digits and `_`, and begin with a letter; got {0:?}")]
    Schema(String),
    /// Everything else, as the PostgreSQL library says it.
    #[error("{0}")]
    Url(String),
}

/// End of the sentence of the client library about a server without TLS, for which it has no code.
const NO_TLS: &str = "server does not support TLS";

/// Address of a database: server and schema.
#[derive(Clone)]
pub(crate) struct Address {
    config: Config,
    pub schema: String,
    ca_file: Option<PathBuf>,
    /// Configuration file, from which a changed password is read.
    file: Option<PathBuf>,
}

impl Address {
    /// Reads `postgres://user@host/db?schema=name`, of which everything but the schema is as libpq has it.
    pub fn parse(url: &str, ca_file: Option<PathBuf>) -> Result<Self, InvalidAddress> {
        let (before, options) = url.split_once('?').unwrap_or((url, ""));
        let mut schema = DEFAULT_SCHEMA.to_owned();
        let mut others = Vec::new();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.strip_prefix("schema=") {
                Some(name) => schema = name.to_owned(),
                None => others.push(option),
            }
        }
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !schema.starts_with(|c: char| c.is_ascii_lowercase())
            || !schema.chars().all(is_plain)
            || schema.len() > 63
        {
            return Err(InvalidAddress::Schema(schema));
        }
        let plain = format!("{before}?{}", others.join("&"));
        let invalid = |fault: Error| InvalidAddress::Url(described(&fault));
        let mut config: Config = plain.parse().map_err(invalid)?;
        config.application_name("abide");
        config.connect_timeout(CONNECT);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let local = config.get_hosts().iter().all(|host| match host {
            Host::Unix(_) => true,
            Host::Tcp(name) => {
                name == "localhost"
                    || name
                        .parse()
                        .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
            }
        });
        // Passwords and commands go to other machines encrypted, unless the address says otherwise.
        if !others.iter().any(|option| option.starts_with("sslmode=")) {
            config.ssl_mode(match local {
                true => SslMode::Disable,
                false => SslMode::Require,
            });
        }
        Ok(Address {
            config,
            schema,
            ca_file,
            file: None,
        })
    }

    /// The same address. Every connection takes the password that `store` of this file has then.
    pub fn following(self, file: PathBuf) -> Self {
        Address {
            file: Some(file),
            ..self
        }
    }

    /// True if two addresses differ in nothing but the password.
    pub fn is_same_place(one: &str, other: &str) -> bool {
        let parsed = [one, other].map(|url| Address::parse(url, None));
        let [Ok(one), Ok(other)] = parsed else {
            return one == other;
        };
        one.schema == other.schema && other.with_password_of(&one).config == one.config
    }

    fn with_password_of(&self, other: &Address) -> Self {
        let mut same = self.clone();
        if let Some(password) = other.config.get_password() {
            same.config.password(password);
        }
        same
    }

    /// Settings of the next connection.
    fn current(&self) -> Config {
        let loaded = self
            .file
            .as_ref()
            .and_then(|file| FileConfig::load(file).ok());
        let url = loaded.and_then(|loaded| loaded.store);
        let renewed = url.and_then(|url| Address::parse(&url, None).ok());
        match renewed {
            Some(renewed) if self.with_password_of(&renewed).config == renewed.config => {
                renewed.config
            }
            _ => self.config.clone(),
        }
    }

    /// Server and database, without the password.
    pub fn shown(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<String> = hosts.collect();
        let database = self.config.get_dbname().or(self.config.get_user());
        format!("{}/{}", hosts.join(","), database.unwrap_or_default())
    }

    /// One address for each of its hosts.
    pub(super) fn hosts(&self) -> Vec<Address> {
        let (hosts, ports) = (self.config.get_hosts(), self.config.get_ports());
        let each = hosts.iter().enumerate().map(|(at, host)| {
            let mut config = Config::new();
            match host {
                Host::Tcp(name) => config.host(name),
                Host::Unix(path) => config.host_path(path),
            };
            if let Some(port) = ports.get(at).or(ports.first()) {
                config.port(*port);
            }
            if let Some(user) = self.config.get_user() {
                config.user(user);
            }
            if let Some(password) = self.config.get_password() {
                config.password(password);
            }
            if let Some(name) = self.config.get_dbname() {
                config.dbname(name);
            }
            config.ssl_mode(self.config.get_ssl_mode());
            config.connect_timeout(CONNECT);
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            Address {
                config,
                file: None,
                ..self.clone()
            }
        });
        each.collect()
    }

    /// Connects. The connection runs as a task of the current runtime.
    pub(crate) async fn connect(&self) -> Result<Link, LinkFault> {
        self.connect_notified(None).await
    }

    /// Connects. `rung` is notified of every notification that the server sends.
    pub(crate) async fn connect_notified(
        &self,
        rung: Option<Arc<Notify>>,
    ) -> Result<Link, LinkFault> {
        let tls = Tls {
            ca_file: self.ca_file.clone(),
        };
        let config = self.current();
        let connected = tokio::select! {
            connected = config.connect(tls.clone()) => connected.map_err(|e| LinkFault::of_connecting(&e))?,
            () = pause(CONNECT) => return Err(LinkFault::NotSent("no answer to a connection".into())),
        };
        let (client, mut connection) = connected;
        let (closing, closed) = oneshot::channel::<()>();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let (AsyncMessage::Notification(_), Some(rung)) = (message, &rung) {
                    rung.notify_one();
                }
            }
            drop(closing);
        });
        Ok(Link {
            client,
            tls,
            closed,
            prepares: AtomicBool::new(Accelerator::PreparedStatements.is_on()),
            statements: Mutex::default(),
            repeated: Mutex::default(),
            schema: self.schema.clone(),
            limits: format!(
                "SET LOCAL search_path TO {}; SET LOCAL statement_timeout = {STATEMENT_MS}; \
                 SET LOCAL lock_timeout = {LOCK_MS}; SET LOCAL idle_in_transaction_session_timeout = {STATEMENT_MS}",
                self.schema
            ),
        })
    }
}

/// Connection.
pub(crate) struct Link {
    client: Client,
    /// Certificates that it trusts, also when it asks the server to give up a statement.
    tls: Tls,
    /// Closed when the connection is.
    closed: oneshot::Receiver<()>,
    /// Settings of every transaction.
    limits: String,
    schema: String,
    /// False if the server process is not the one that prepared a statement.
    prepares: AtomicBool,
    /// Prepared statements of transactions, with their hashes.
    statements: Mutex<HashMap<Shape, (KnownStatement, i64)>>,
    /// Other prepared statements, by their texts.
    repeated: Mutex<HashMap<String, KnownStatement>>,
}

/// Statement that the server has prepared.
#[derive(Clone)]
struct KnownStatement {
    statement: tokio_postgres::Statement,
    uses_left: u32,
}

/// Fault of a transaction.
#[derive(Debug)]
pub(crate) enum LinkFault {
    /// Nothing was sent.
    NotSent(String),
    /// The server has refused it, so nothing was written.
    Refused(SqlState, String),
    /// The server has not answered.
    Unanswered(String),
}

impl LinkFault {
    /// Fault of a statement. `commits`: it was the commit.
    fn of(fault: &Error, commits: bool) -> Self {
        let described = described(fault);
        match fault.code() {
            Some(code) if *code == SqlState::QUERY_CANCELED => {
                let seconds = STATEMENT_MS / 1_000;
                let why =
                    format!("the server was not done within {seconds} s; a table may be locked");
                LinkFault::Refused(code.clone(), why)
            }
            // A server that stops, or a pooler that has lost it, may have written the commit.
            Some(code) if !(commits && ends_connection(fault)) => {
                LinkFault::Refused(code.clone(), described)
            }
            _ => LinkFault::Unanswered(described),
        }
    }

    /// Fault of a connection that was not made, so that nothing was sent over it.
    fn of_connecting(fault: &Error) -> Self {
        match LinkFault::of(fault, false) {
            LinkFault::Unanswered(why) if why.ends_with(NO_TLS) => LinkFault::NotSent(format!(
                "{why}; set it up there, or add `sslmode=disable` to the address if the network is private"
            )),
            LinkFault::Unanswered(why) => LinkFault::NotSent(why),
            fault => fault,
        }
    }

    /// Sentence.
    pub fn reason(self) -> String {
        match self {
            LinkFault::NotSent(why) | LinkFault::Unanswered(why) | LinkFault::Refused(_, why) => {
                why
            }
        }
    }

    /// True if the same transaction may succeed when it is sent again.
    fn is_transient(&self) -> bool {
        matches!(self, LinkFault::Refused(code, _) if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ].contains(code))
            || self.is_about_names()
    }

    /// True if the server process knows another statement by a name, or none.
    fn is_about_names(&self) -> bool {
        matches!(self, LinkFault::Refused(code, _) if [
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::DUPLICATE_PSTATEMENT,
            SqlState::PROTOCOL_VIOLATION,
            SqlState::INVALID_BINARY_REPRESENTATION,
            SqlState::INVALID_PARAMETER_VALUE,
        ].contains(code))
    }
}

impl From<LinkFault> for StoreFault {
    fn from(fault: LinkFault) -> Self {
        match fault {
            LinkFault::NotSent(why) => StoreFault::Unwritable(why),
            LinkFault::Refused(code, why) if code == SqlState::UNIQUE_VIOLATION => {
                StoreFault::Stale(why)
            }
            LinkFault::Refused(_, why) => StoreFault::Unwritable(why),
            LinkFault::Unanswered(why) => StoreFault::Unknown(why),
        }
    }
}

/// Result of a transaction, which is sent again if it collided with another, after a random time, so that the same two do
/// not meet again.
pub(super) async fn retried<T, F: Future<Output = Result<T, LinkFault>>>(
    send: impl Fn() -> F,
) -> Result<T, LinkFault> {
    for _ in 1..ATTEMPTS {
        match send().await {
            Err(fault) if fault.is_transient() => {
                pause(Duration::from_millis(5 + entropy::bits() % 20)).await;
            }
            result => return result,
        }
    }
    send().await
}

/// Next step of a person, for faults that do not pass by themselves.
fn advice(code: &SqlState) -> Option<&'static str> {
    if *code == SqlState::TOO_MANY_CONNECTIONS {
        return Some("raise `max_connections` at the server, or use a pooler in transaction mode");
    }
    if *code == SqlState::INVALID_PASSWORD {
        return Some("correct the password in `store`, which is read again by itself");
    }
    (*code == SqlState::DISK_FULL).then_some("make room on the disk of the server")
}

/// True if no other statement follows on the connection.
fn ends_connection(fault: &Error) -> bool {
    fault.as_db_error().is_some_and(|fault| {
        // Poolers send the word only.
        let severity = fault.parsed_severity();
        matches!(severity, Some(Severity::Fatal | Severity::Panic)) || fault.severity() == "FATAL"
    })
}

/// Fault with its cause and the next step, in one line.
pub(super) fn described(fault: &Error) -> String {
    if let Some(fault) = fault.as_db_error() {
        let advice = advice(fault.code()).map(|advice| format!("; {advice}"));
        return format!(
            "{} ({}){}",
            fault.message(),
            fault.code().code(),
            advice.unwrap_or_default()
        );
    }
    let cause = std::error::Error::source(fault);
    cause.map_or_else(|| fault.to_string(), |cause| format!("{fault}: {cause}"))
}

impl Link {
    /// Waits until the connection is closed.
    pub async fn closed(&mut self) {
        let _ = (&mut self.closed).await;
    }

    /// Takes the receiver that is closed with the connection, for an owner that shares the link.
    pub(super) fn take_closed(&mut self) -> oneshot::Receiver<()> {
        std::mem::replace(&mut self.closed, oneshot::channel().1)
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Asks the server for the notifications of a channel, which must be a plain name.
    pub async fn listen(&self, channel: &str) -> Result<(), LinkFault> {
        self.alone(&format!("LISTEN {channel}")).await
    }

    /// Notifies a channel, which must be a plain name.
    pub async fn notify(&self, channel: &str) -> Result<(), LinkFault> {
        self.alone(&format!("NOTIFY {channel}")).await
    }

    /// Runs a statement that is a transaction by itself.
    async fn alone(&self, sql: &str) -> Result<(), LinkFault> {
        let done = self.answered(self.client.batch_execute(sql)).await?;
        done.map_err(|e| LinkFault::of(&e, false))
    }

    /// Runs one transaction in one network flight: `first` (after the limits are set), then the statements. Returns the
    /// rows of `first`.
    pub async fn transact(
        &self,
        first: &str,
        statements: &[Statement<'_>],
    ) -> Result<Vec<SimpleQueryMessage>, LinkFault> {
        if self.client.is_closed() {
            return Err(LinkFault::NotSent("the connection is closed".into()));
        }
        let begin = format!("BEGIN; {}; {first}", self.limits);
        let begin = self.client.simple_query(&begin);
        let written = statements
            .iter()
            .map(|statement| self.client.execute_typed(&statement.sql, &statement.params));
        let written = in_order(written.collect());
        let commit = self.client.batch_execute("COMMIT");
        let flight = async { tokio::join!(biased; begin, written, commit) };
        let (begun, written, committed) = self.answered(flight).await?;
        // A commit after a failed statement is answered as if it had succeeded.
        let begun = begun.map_err(|e| LinkFault::of(&e, false))?;
        for result in written {
            result.map_err(|e| LinkFault::of(&e, false))?;
        }
        committed.map_err(|e| LinkFault::of(&e, true))?;
        Ok(begun)
    }

    /// Runs one transaction; again if it collided with another transaction.
    pub async fn transact_again(&self, sql: &str) -> Result<Vec<SimpleQueryMessage>, LinkFault> {
        retried(|| self.transact(sql, &[])).await
    }

    /// True if [`execute`](Self::execute) can be used.
    pub(super) fn prepares(&self) -> bool {
        self.prepares.load(Ordering::Relaxed)
    }

    /// Runs a transaction as one prepared statement, in one network flight; the first time in two. Where a pooler gives
    /// another server process, it is refused, and to be sent again without names.
    pub(super) async fn execute(&self, transaction: &Prepared<'_>) -> Result<(), LinkFault> {
        if self.client.is_closed() {
            return Err(LinkFault::NotSent("the connection is closed".into()));
        }
        let result = match self.prepare(transaction).await {
            Ok((statement, hash)) => {
                let params: Vec<_> = transaction.params(&hash).map(|(value, _)| value).collect();
                let flight = self.client.execute(&statement, &params);
                let done = self.answered(self.cancelled_late(flight)).await?;
                done.map(drop).map_err(|e| LinkFault::of(&e, true))
            }
            Err(fault) => Err(fault),
        };
        self.note_names(result)
    }

    /// Uses no names any more if the server process is not the one that prepared a statement.
    fn note_names<T>(&self, result: Result<T, LinkFault>) -> Result<T, LinkFault> {
        if result.as_ref().is_err_and(LinkFault::is_about_names) {
            self.prepares.store(false, Ordering::Relaxed);
        }
        result
    }

    async fn prepare_text(&self, sql: &str, types: Vec<Type>) -> Result<KnownStatement, LinkFault> {
        let prepared = self.answered(self.client.prepare_typed(sql, &types)).await;
        let statement = match prepared {
            Ok(prepared) => prepared.map_err(|e| LinkFault::of(&e, false)),
            Err(fault) => Err(fault),
        };
        // Nothing is written by it.
        let statement = statement.map_err(|fault| match fault {
            LinkFault::Unanswered(why) => LinkFault::NotSent(why),
            fault => fault,
        })?;
        Ok(KnownStatement {
            statement,
            uses_left: MAX_USES,
        })
    }

    /// Statement of a transaction, and its hash.
    async fn prepare(
        &self,
        transaction: &Prepared<'_>,
    ) -> Result<(tokio_postgres::Statement, i64), LinkFault> {
        let known = || lock(&self.statements);
        if let Some((known, hash)) = known().get_mut(&transaction.shape)
            && known.uses_left > 0
        {
            known.uses_left -= 1;
            return Ok((known.statement.clone(), *hash));
        }
        let Text { sql, hash } = transaction.text(&self.schema);
        let types = transaction.params(&hash).map(|(_, of)| of).collect();
        let prepared = self.prepare_text(&sql, types).await?;
        let statement = prepared.statement.clone();
        known().insert(transaction.shape.clone(), (prepared, hash));
        Ok((statement, hash))
    }

    /// Has all statements prepared again.
    pub(super) fn forget_statements(&self) {
        lock(&self.statements).clear();
    }

    /// Reads rows, in one transaction and one network flight.
    pub async fn read(&self, statement: &Statement<'_>) -> Result<Vec<Row>, LinkFault> {
        let begin = format!("BEGIN; {}", self.limits);
        let begin = self.client.batch_execute(&begin);
        let rows = self.client.query_typed(&statement.sql, &statement.params);
        let commit = self.client.batch_execute("COMMIT");
        let flight = async { tokio::join!(biased; begin, rows, commit) };
        let (begun, rows, committed) = self.answered(flight).await?;
        begun.map_err(|e| LinkFault::of(&e, false))?;
        let rows = rows.map_err(|e| LinkFault::of(&e, false))?;
        committed.map_err(|e| LinkFault::of(&e, true))?;
        Ok(rows)
    }

    /// Runs one statement as a transaction by itself, which is much less work for the server than one with settings.
    /// It must name the schema of its tables. Returns its rows.
    pub async fn query_alone(&self, statement: &Statement<'_>) -> Result<Vec<Row>, LinkFault> {
        if self.client.is_closed() {
            return Err(LinkFault::NotSent("the connection is closed".into()));
        }
        let rows = self.client.query_typed(&statement.sql, &statement.params);
        let rows = self.answered(self.cancelled_late(rows)).await?;
        rows.map_err(|e| LinkFault::of(&e, true))
    }

    /// Runs one statement as a transaction by itself, like [`query_alone`](Self::query_alone); again if it collided with
    /// another. If the caller stops waiting, the server is asked to give it up: it may wait for the lock of a table, for
    /// which no limit is set. The connection is not to be used again then. A repeated statement is prepared; it must
    /// have a guard (`prepared.rs`).
    pub async fn query_until_dropped(
        &self,
        statement: &Statement<'_>,
        is_repeated: bool,
    ) -> Result<Vec<Row>, LinkFault> {
        let mut given_up = CancelOnDrop(Some(self));
        let result = retried(|| async move {
            match is_repeated && self.prepares() {
                true => self.query_prepared(statement).await,
                false => self.query_alone(statement).await,
            }
        });
        let result = result.await;
        given_up.0 = None;
        result
    }

    async fn query_prepared(&self, statement: &Statement<'_>) -> Result<Vec<Row>, LinkFault> {
        let types = statement.params.iter().map(|(_, of)| of.clone()).collect();
        let known = async {
            if let Some(known) = lock(&self.repeated).get_mut(&statement.sql)
                && let Some(left) = known.uses_left.checked_sub(1)
            {
                known.uses_left = left;
                return Ok(known.statement.clone());
            }
            let prepared = self.prepare_text(&statement.sql, types).await?;
            lock(&self.repeated).insert(statement.sql.clone(), prepared.clone());
            Ok(prepared.statement)
        };
        let result = match known.await {
            Ok(known) => {
                let params: Vec<_> = statement.params.iter().map(|(value, _)| *value).collect();
                let rows = self.client.query(&known, &params);
                let rows = self.answered(self.cancelled_late(rows)).await?;
                rows.map_err(|e| LinkFault::of(&e, true))
            }
            Err(fault) => Err(fault),
        };
        self.note_names(result)
    }

    /// Schema of the tables.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// Result of a statement that is a transaction by itself. It waits for the locks of its tables before it can set
    /// a limit, so the server is asked to give up when a transaction with limits would have done so.
    async fn cancelled_late<T>(&self, flight: impl Future<Output = T>) -> T {
        let mut flight = std::pin::pin!(flight);
        tokio::select! {
            answer = &mut flight => answer,
            () = pause(Duration::from_millis(STATEMENT_MS)) => {
                // The next statement must not be the one that is cancelled.
                tokio::join!(flight, self.cancel()).0
            }
        }
    }

    /// Asks the server to give up the current statement.
    fn cancel(&self) -> impl Future<Output = ()> + use<> {
        let (cancel, tls) = (self.client.cancel_token(), self.tls.clone());
        async move {
            tokio::select! {
                _ = cancel.cancel_query(tls) => {}
                () = pause(CONNECT) => {}
            }
        }
    }

    /// Result of a flight, if it comes in time. If not, the server is asked to give up.
    async fn answered<T>(&self, flight: impl Future<Output = T>) -> Result<T, LinkFault> {
        tokio::select! {
            answer = flight => Ok(answer),
            () = pause(PATIENCE) => {
                tokio::spawn(self.cancel());
                Err(LinkFault::Unanswered(format!("no answer within {} s", PATIENCE.as_secs())))
            }
        }
    }
}

/// Asks the server to give up the current statement when the caller drops it.
struct CancelOnDrop<'a>(Option<&'a Link>);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let (Some(link), Ok(runtime)) = (self.0, Handle::try_current()) {
            runtime.spawn(link.cancel());
        }
    }
}

/// Polls all futures, which send statements when they are polled first, in their order.
async fn in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut sent = Vec::with_capacity(futures.len());
    for future in futures {
        let mut future = Box::pin(futures_util::FutureExt::fuse(future));
        match futures_util::poll!(&mut future) {
            Poll::Ready(done) => {
                sent.push(futures_util::future::Either::Left(std::future::ready(done)))
            }
            Poll::Pending => sent.push(futures_util::future::Either::Right(future)),
        }
    }
    join_all(sent).await
}

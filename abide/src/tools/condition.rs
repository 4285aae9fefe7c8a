//! `until`: turns the JSON that an agent wrote into a condition, or into one sentence that says what is wrong.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use abide_api::arguments::whole;
use abide_core::fleet::MachineId;
use abide_core::{Millis, SessionId};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::args::shown_text;
use super::policy::judge_condition;
use super::{BadInput, Context};
use abide_engine::Handle;
use abide_engine::machine_link::CannotCall;
use abide_engine::probe::{
    Command, Condition, File, FileState, Fingerprint, Owner, Pattern, SessionCondition, Url,
};
use abide_engine::web::Address;

/// Limit on the simple conditions in one `until`.
const LEAF_LIMIT: usize = 32;
/// Limit on the nesting of `all` and `any`.
const DEPTH_LIMIT: usize = 4;
/// Default time between two runs of a command, in milliseconds.
const EVERY_MS: u64 = 2_000;
/// Smallest allowed `every`, in seconds.
const EVERY_MIN: f64 = 0.1;
/// Largest allowed `every`, in seconds.
const EVERY_MAX: f64 = 86_400.0;

/// Kind of a condition, named by a field of this name.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Port,
    Url,
    File,
    Session,
    Command,
    All,
    Any,
}

impl Kind {
    pub const ALL: &[Kind] = &[
        Kind::Port,
        Kind::Url,
        Kind::File,
        Kind::Session,
        Kind::Command,
        Kind::All,
        Kind::Any,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Port => "port",
            Kind::Url => "url",
            Kind::File => "file",
            Kind::Session => "session",
            Kind::Command => "command",
            Kind::All => "all",
            Kind::Any => "any",
        }
    }
}

/// Words with commas and an `or` before the last one.
fn alternatives(words: &[&str]) -> String {
    match words {
        [words @ .., last] if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        words => words.concat(),
    }
}

/// Reads a condition. If this fails, nothing has been started.
pub(crate) async fn read(
    given: Value,
    context: &Context,
    handle: &Handle,
) -> Result<Condition, BadInput> {
    let reader = Reader { context, handle };
    let condition = reader.condition(given, "until".into(), 0).await?;
    if condition.leaves() > LEAF_LIMIT {
        return Err(BadInput::about(
            "until",
            format!(
                "must be made of at most {LEAF_LIMIT} conditions; got {}.",
                condition.leaves()
            ),
        ));
    }
    let (agent, conversation) = (context.agent.clone(), context.conversation.clone());
    let owner = Owner::wait(agent, conversation, limiting_root(context), None);
    let checked = handle.prober().check_bounds(&condition, &owner).await;
    checked.map_err(|why| BadInput::new(format!("REFUSED: {why}")))?;
    Ok(condition)
}

/// Root folder on which the sandbox of the caller depends, which limits its conditions; `None`: the caller is a person.
pub(crate) fn limiting_root(context: &Context) -> Option<PathBuf> {
    (!context.is_person).then(|| context.root.clone())
}

/// Condition in the JSON form in which agents write it.
pub(crate) fn written(condition: &Condition) -> Value {
    let mut written = match condition {
        Condition::Port {
            host,
            port,
            every_ms,
        } => {
            let port = match host {
                None => json!(port),
                Some(host) => json!(format!("{host}:{port}")),
            };
            json!({"port": port, "every": every_ms.map(|every| Millis(every).as_secs_f64())})
        }
        Condition::Url(wanted) => {
            let every = wanted.every_ms.map(|every| Millis(every).as_secs_f64());
            json!({"url": wanted.url, "status": wanted.status, "body": wanted.body, "every": every})
        }
        Condition::File(wanted) => {
            let is = match wanted.is {
                FileState::Present => "present",
                FileState::Gone => "gone",
                FileState::Changed { .. } => "changed",
            };
            json!({"file": wanted.path.to_string_lossy(), "is": is, "matches": wanted.matches})
        }
        Condition::Session { session, want } => match want {
            SessionCondition::Ended => json!({"session": session.to_string(), "is": "ended"}),
            SessionCondition::Output(pattern) => {
                json!({"session": session.to_string(), "output": pattern})
            }
        },
        Condition::SessionElsewhere { session, .. } => {
            json!({"session": session.to_string(), "is": "ended"})
        }
        Condition::Command(wanted) => {
            json!({"command": wanted.command, "every": Millis(wanted.every_ms).as_secs_f64()})
        }
        Condition::All(parts) => json!({"all": parts.iter().map(written).collect::<Vec<_>>()}),
        Condition::Any(parts) => json!({"any": parts.iter().map(written).collect::<Vec<_>>()}),
    };
    if let Value::Object(fields) = &mut written {
        fields.retain(|_, value| !value.is_null());
    }
    written
}

/// Session that a condition names.
enum FoundSession {
    Here(SessionId),
    On(MachineId, SessionId),
}

struct Reader<'a> {
    context: &'a Context,
    handle: &'a Handle,
}

impl Reader<'_> {
    /// Condition at a place in the arguments, such as `until.all[1]`.
    fn condition(
        &self,
        given: Value,
        at: String,
        depth: usize,
    ) -> BoxFuture<'_, Result<Condition, BadInput>> {
        Box::pin(async move { self.read_one(given, &at, depth).await })
    }

    async fn read_one(&self, given: Value, at: &str, depth: usize) -> Result<Condition, BadInput> {
        let fields = match given {
            Value::Object(fields) => fields,
            // Some clients send nested objects as JSON text.
            Value::String(text) => match serde_json::from_str(&text) {
                Ok(Value::Object(fields)) => fields,
                _ => return Err(wrong(at, "an object", &Value::String(text))),
            },
            other => return Err(wrong(at, "an object", &other)),
        };
        let kinds = || Kind::ALL.iter().copied();
        let mut named: Vec<Kind> = kinds().filter(|kind| has(&fields, kind.name())).collect();
        if named.is_empty() {
            // A kind whose value is null gets the error message of that kind.
            named.extend(kinds().filter(|kind| fields.contains_key(kind.name())));
        }
        let [kind] = named[..] else {
            let names =
                |kinds: &[Kind]| -> Vec<_> { kinds.iter().map(|kind| kind.name()).collect() };
            return Err(BadInput::about(
                at,
                format!(
                    "must name exactly one of {}; got {}.",
                    alternatives(&names(Kind::ALL)),
                    match named.is_empty() {
                        false => names(&named).join(" and "),
                        true => fields
                            .keys()
                            .next()
                            .map_or("none".into(), |name| shown_text(name)),
                    }
                ),
            ));
        };
        match kind {
            Kind::Port => port(fields, at),
            Kind::Url => url(fields, at),
            Kind::File => self.file(fields, at),
            Kind::Session => self.session(fields, at).await,
            Kind::Command => self.command(fields, at),
            Kind::All => Ok(Condition::All(
                self.parts(fields, kind.name(), at, depth).await?,
            )),
            Kind::Any => Ok(Condition::Any(
                self.parts(fields, kind.name(), at, depth).await?,
            )),
        }
    }

    /// Reads the conditions in the list `kind`.
    async fn parts(
        &self,
        mut fields: Map<String, Value>,
        kind: &str,
        at: &str,
        depth: usize,
    ) -> Result<Vec<Condition>, BadInput> {
        let list = fields.remove(kind).unwrap_or_default();
        refuse_other_fields(fields, at, kind)?;
        let at = &format!("{at}.{kind}");
        let Value::Array(list) = list else {
            return Err(wrong(at, "a list of conditions", &list));
        };
        if list.is_empty() {
            return Err(BadInput::about(
                at,
                "must hold at least one condition; got none.",
            ));
        }
        if depth + 1 >= DEPTH_LIMIT {
            return Err(BadInput::about(
                at,
                format!("must not be nested deeper than {DEPTH_LIMIT}."),
            ));
        }
        let mut parts = Vec::new();
        for (n, part) in list.into_iter().enumerate() {
            parts.push(
                self.condition(part, format!("{at}[{n}]"), depth + 1)
                    .await?,
            );
        }
        Ok(parts)
    }

    fn file(&self, mut fields: Map<String, Value>, at: &str) -> Result<Condition, BadInput> {
        let here = &format!("{at}.file");
        let path = text(fields.remove("file"), here)?;
        if path.is_empty() || path.contains('\0') {
            return Err(wrong(here, "a path", &Value::String(path)));
        }
        let path = super::args::full_path(&path, self.context);
        let is = fields.remove("is").unwrap_or(Value::Null);
        let is = match is.as_str() {
            None if is.is_null() => FileState::Present,
            Some("present") => FileState::Present,
            Some("gone") => FileState::Gone,
            Some("changed") => FileState::Changed {
                from: match self.context.files_before.get(&path) {
                    Some(before) => *before,
                    None => Fingerprint::of(&path).ok().flatten(),
                },
            },
            _ => return Err(wrong(&format!("{at}.is"), "present, gone or changed", &is)),
        };
        let matches = pattern(fields.remove("matches"), &format!("{at}.matches"))?;
        if matches.is_some() && is == FileState::Gone {
            return Err(BadInput::about(
                format_args!("{at}.matches"),
                "has no meaning for a file that is to be gone; leave one of them out.",
            ));
        }
        refuse_other_fields(fields, at, "file, is, matches")?;
        Ok(Condition::File(File { path, is, matches }))
    }

    async fn session(
        &self,
        mut fields: Map<String, Value>,
        at: &str,
    ) -> Result<Condition, BadInput> {
        let here = &format!("{at}.session");
        let given = text(fields.remove("session"), here)?;
        let found = self.find(&given).await;
        let found = found.map_err(|fault| BadInput::about(here, format!(": {fault}")))?;
        let Some(found) = found else {
            return Err(BadInput::about(
                here,
                format!(": Session '{}' not found", shown_text(&given)),
            ));
        };
        let is = fields.remove("is").unwrap_or(Value::Null);
        let output = pattern(fields.remove("output"), &format!("{at}.output"))?;
        let want = match (is.as_str(), output) {
            (None, None) if is.is_null() => SessionCondition::Ended,
            (Some("ended"), None) => SessionCondition::Ended,
            (None, Some(output)) if is.is_null() => SessionCondition::Output(output),
            (Some("ended"), Some(_)) => {
                return Err(BadInput::about(
                    at,
                    "takes `is` or `output`, not both; use `all` or `any` for both.",
                ));
            }
            _ => return Err(wrong(&format!("{at}.is"), "ended", &is)),
        };
        refuse_other_fields(fields, at, "session, is, output")?;
        match (found, want) {
            (FoundSession::Here(session), want) => Ok(Condition::Session { session, want }),
            (FoundSession::On(machine, session), SessionCondition::Ended) => {
                Ok(Condition::SessionElsewhere {
                    session,
                    machine: machine.0,
                })
            }
            (FoundSession::On(machine, _), SessionCondition::Output(_)) => {
                let machines = self.handle.other_machines();
                let name = machines.map_or_else(String::new, |known| known.shown_name(machine));
                Err(BadInput::about(
                    format!("{at}.output"),
                    format!(
                        ": the session is on machine {name}, and only the end of a session there can be waited for; use \
                         `is: \"ended\"`, or `read_output` with `until`."
                    ),
                ))
            }
        }
    }

    /// Session that the caller may see, here or on another machine.
    async fn find(&self, given: &str) -> Result<Option<FoundSession>, CannotCall> {
        let Ok(id) = given.parse::<SessionId>() else {
            return Ok(None);
        };
        let agent = (!self.context.is_person).then_some(&self.context.agent);
        if let Some(view) = self.handle.published().session(id) {
            return Ok(view.visible_to(agent).then_some(FoundSession::Here(id)));
        }
        if self.handle.published().is_held(id, agent) {
            return Ok(Some(FoundSession::Here(id)));
        }
        let Some(machines) = self.handle.other_machines() else {
            return Ok(None);
        };
        let row = machines.session(id).await?;
        let own = row.filter(|row| agent.is_none_or(|agent| *agent.0 == *row.agent));
        Ok(own.map(|row| FoundSession::On(row.machine, id)))
    }

    fn command(&self, mut fields: Map<String, Value>, at: &str) -> Result<Condition, BadInput> {
        let here = &format!("{at}.command");
        let command = text(fields.remove("command"), here)?;
        if command.trim().is_empty() || command.contains('\0') {
            return Err(wrong(here, "a command line", &Value::String(command)));
        }
        let every_ms = every(&mut fields, at)?.unwrap_or(EVERY_MS);
        refuse_other_fields(fields, at, "command, every")?;
        judge_condition(self.handle, self.context, &command, &self.context.root)?;
        let mut env = self.context.env.iter();
        let search_path = env.find(|(name, _)| name == "PATH");
        Ok(Condition::Command(Command {
            command,
            shell: self.handle.config().shell.clone(),
            cwd: self.context.root.clone(),
            search_path: search_path.map(|(_, path)| path.to_string_lossy().into_owned()),
            every_ms,
        }))
    }
}

/// Takes the time between two checks out of the fields, in milliseconds.
fn every(fields: &mut Map<String, Value>, at: &str) -> Result<Option<u64>, BadInput> {
    let Some(value) = fields.remove("every").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    match value.as_f64() {
        Some(secs) if (EVERY_MIN..=EVERY_MAX).contains(&secs) => Ok(Some((secs * 1_000.0) as u64)),
        _ => {
            let at = format!("{at}.every");
            Err(wrong(&at, "a number of seconds from 0.1 to 86400", &value))
        }
    }
}

fn port(mut fields: Map<String, Value>, at: &str) -> Result<Condition, BadInput> {
    const ALLOWED: &str = "a port from 1 to 65535, such as 3000 or \"host:3000\"";
    let given = fields.remove("port").unwrap_or_default();
    let every_ms = every(&mut fields, at)?;
    refuse_other_fields(fields, at, "port, every")?;
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let found = match &given {
        Value::Number(_) => whole(&given)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            .map(|port| (None, port)),
        Value::String(text) => match text.trim().rsplit_once(':') {
            None => number(text.trim()).map(|port| (None, port)),
            Some((host, port)) => number(port)
                .filter(|_| is_host(host))
                .map(|port| (Some(host.to_owned()), port)),
        },
        _ => None,
    };
    let here = format!("{at}.port");
    let (host, port) = found.ok_or_else(|| wrong(&here, ALLOWED, &given))?;
    Ok(Condition::Port {
        host,
        port,
        every_ms,
    })
}

/// True for a host name or an address. Text with colons must be an IPv6 address, with or without brackets.
fn is_host(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    match bare.contains(':') {
        true => bare.parse::<Ipv6Addr>().is_ok(),
        false => !bare.is_empty() && !bare.contains(|c: char| c.is_whitespace() || c == '/'),
    }
}

fn url(mut fields: Map<String, Value>, at: &str) -> Result<Condition, BadInput> {
    let here = &format!("{at}.url");
    let given = text(fields.remove("url"), here)?;
    let status = match fields.remove("status").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => {
            let status = whole(&value).and_then(|n| u16::try_from(n).ok());
            let status = status.filter(|n| (100..=599).contains(n));
            let at = format!("{at}.status");
            Some(status.ok_or_else(|| wrong(&at, "a status from 100 to 599", &value))?)
        }
    };
    let body = pattern(fields.remove("body"), &format!("{at}.body"))?;
    let every_ms = every(&mut fields, at)?;
    refuse_other_fields(fields, at, "url, status, body, every")?;
    let bad = || {
        wrong(
            here,
            "an address such as http://localhost:3000/health",
            &given.clone().into(),
        )
    };
    let address = Address::parse(&given).ok_or_else(bad)?;
    Ok(Condition::Url(Url {
        tls: address.tls,
        // The login is used for requests and never shown.
        url: match address.login {
            Some(_) => address.to_string(),
            None => given,
        },
        login: address.login,
        host: address.host,
        port: address.port,
        path: address.path,
        status,
        body,
        every_ms,
    }))
}

fn pattern(given: Option<Value>, at: &str) -> Result<Option<Pattern>, BadInput> {
    let Some(given) = given.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = text(Some(given), at)?;
    match Pattern::compile(&text) {
        Ok(pattern) => Ok(Some(pattern)),
        Err(e) => {
            let why = e.to_string();
            let why = why
                .lines()
                .last()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            Err(BadInput::about(
                at,
                format!(
                    "must be a regular expression; got {}: {why}.",
                    shown_text(&text)
                ),
            ))
        }
    }
}

fn has(fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).is_some_and(|value| !value.is_null())
}

fn text(given: Option<Value>, at: &str) -> Result<String, BadInput> {
    match given {
        Some(Value::String(text)) => Ok(text),
        other => Err(wrong(at, "text", &other.unwrap_or_default())),
    }
}

fn refuse_other_fields(fields: Map<String, Value>, at: &str, known: &str) -> Result<(), BadInput> {
    match fields.into_iter().find(|(_, value)| !value.is_null()) {
        None => Ok(()),
        Some((field, _)) => Err(BadInput::about(
            format_args!("{at}.{}", shown_text(&field)),
            format!("is not a field of this condition; the fields are {known}."),
        )),
    }
}

fn wrong(at: &str, allowed: &str, given: &Value) -> BadInput {
    BadInput::about(
        at,
        format!("must be {allowed}; got {}.", shown_text(&given.to_string())),
    )
}

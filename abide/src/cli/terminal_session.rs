//! `abide session start`, `send`, `screen`, `search`, `resize` and `signal`: the tool
//! `terminal_session` for people.

use abide_api::Session;
use serde_json::{Map, Value, json};

use super::args::{ResizeArgs, ScreenArgs, SearchArgs, SendArgs, SignalArgs, StartArgs};
use super::client::{Client, ToolResult};
use super::duration::DurationLimit;
use super::error::CliError;
use super::show;
use super::{ids, run};
use crate::http::headers::{INHERITED_LIMITS_HEADER, SESSION_NAME_HEADER};
use crate::http::run_request::OsText;
use abide_engine::config;

/// Calls the tool; an error result becomes an error of the command.
async fn call(client: &Client, arguments: Value) -> Result<ToolResult, CliError> {
    let path = "/v1/tools/terminal_session";
    let result: ToolResult = client.post_retrying(path, &arguments).await?;
    match result.is_error {
        true => Err(CliError::new(result.text)),
        false => Ok(result),
    }
}

async fn show(client: Client, arguments: Value, as_json: bool) -> Result<u8, CliError> {
    let result = call(&client, arguments).await?;
    show::result(as_json, &result, &result.text);
    Ok(0)
}

pub async fn start(client: Client, start: StartArgs) -> Result<u8, CliError> {
    let (command, argv) = run::command(&start.command)?;
    // The words are passed to the shell as a quoted command line, which is only possible if they are text.
    let is_text = |word: &OsText| matches!(word, OsText::Text(_));
    if !argv.iter().flatten().all(is_text) {
        let sentence = "the words of a session's command must be UTF-8";
        return Err(CliError::new(sentence)
            .next("`abide run` passes words on as they are")
            .code(2));
    }
    let here = std::env::current_dir()?;
    // Another machine has its own folders and environment.
    let cwd = match &start.on {
        Some(_) => start.cwd,
        None => Some(start.cwd.map_or_else(|| here.clone(), |cwd| here.join(cwd))),
    };
    let cwd = cwd
        .map(|cwd| cwd.into_os_string().into_string())
        .transpose();
    let cwd = cwd.map_err(|_| CliError::new("this folder's name is not UTF-8"))?;
    let mut env = Map::new();
    let own = config::environment()
        .into_iter()
        .filter(|_| start.on.is_none())
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    for (name, value) in own.filter(|(name, _)| name != "TERM").chain(start.env) {
        env.insert(name, value.into());
    }
    let inactivity = match start.inactivity {
        DurationLimit::Never => 0.0,
        DurationLimit::After(span) => span.as_secs_f64(),
    };
    let arguments = json!({
        "action": "start",
        "command": command,
        "on": start.on,
        "cwd": cwd,
        "env": env,
        "pty": !start.no_pty,
        "cols": start.cols,
        "rows": start.rows,
        "inactivity_timeout": inactivity,
    });
    let client = client.with_header(INHERITED_LIMITS_HEADER, &run::inherited_limits());
    let client = match &start.name {
        Some(name) => client.with_header(SESSION_NAME_HEADER, &name.as_str()),
        None => client,
    };
    show(client, arguments, start.json.json).await
}

pub async fn send(client: Client, send: SendArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &send.session).await?;
    let arguments = json!({
        "action": "send_input",
        "session_id": id,
        "input": send.text,
        "keys": send.keys,
    });
    show(client, arguments, send.json.json).await
}

pub async fn screen(client: Client, screen: ScreenArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &screen.session).await?;
    let session: Session = client.get(&format!("/v1/sessions/{id}")).await?;
    if !session.pty {
        return Err(CliError::new(format!("Session '{id}' has no terminal"))
            .next(format!("`abide logs {id}` shows its output")));
    }
    let arguments = json!({"action": "screen", "session_id": id});
    show(client, arguments, screen.json.json).await
}

/// Searches a session. The exit code is that of grep: 0 with matches, 1 without.
pub async fn search(client: Client, search: SearchArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &search.session).await?;
    let arguments = json!({
        "action": "search",
        "session_id": id,
        "pattern": search.pattern,
        "context": search.context,
        "max_lines": search.max_lines,
    });
    let result = call(&client, arguments).await?;
    show::result(search.json.json, &result, &result.text);
    Ok(u8::from(result.fact("matches") == 0))
}

pub async fn resize(client: Client, resize: ResizeArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &resize.session).await?;
    let arguments = json!({
        "action": "resize",
        "session_id": id,
        "cols": resize.cols,
        "rows": resize.rows,
    });
    show(client, arguments, resize.json.json).await
}

pub async fn signal(client: Client, signal: SignalArgs) -> Result<u8, CliError> {
    let id = ids::session(&client, &signal.session).await?;
    let given = signal
        .signal
        .parse::<i32>()
        .map_or_else(|_| json!(signal.signal), Value::from);
    let arguments = json!({
        "action": "signal",
        "session_id": id,
        "signal": given,
    });
    show(client, arguments, signal.json.json).await
}

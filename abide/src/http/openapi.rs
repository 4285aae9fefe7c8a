//! Registration of routes together with their descriptions, so that neither exists without the other,
//! and the OpenAPI 3.1 document made from the descriptions.

use std::sync::{Arc, LazyLock};

use abide_api::schema::with_is_error;
use axum::Router;
use axum::handler::Handler;
use axum::routing;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::headers::{AGENT_HEADER, CONVERSATION_HEADER, KEY_HEADER, PERSON_HEADER, ROOT_HEADER};
use super::state::State;
use crate::tools;

type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Description of a route.
pub struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: Option<SchemaFn>,
    body: BodyKind,
    response: ResponseKind,
    /// Request headers beside those of every route.
    headers: &'static [&'static str],
    /// Set if the route needs neither a token nor a login.
    public: bool,
}

/// Kind of request body.
enum BodyKind {
    None,
    Json(SchemaFn),
    Bytes,
}

enum ResponseKind {
    Json(u16, SchemaFn),
    Empty,
    Other(u16, &'static str),
}

/// Description with this summary.
pub fn operation(summary: &'static str) -> Operation {
    Operation {
        method: "",
        path: "",
        summary,
        query: None,
        body: BodyKind::None,
        response: ResponseKind::Empty,
        headers: &[],
        public: false,
    }
}

/// Headers of every request that is not public.
const CALLER_HEADERS: &[&str] = &[AGENT_HEADER, PERSON_HEADER];
/// Further headers of a request that calls a tool.
pub const CALL_HEADERS: &[&str] = &[CONVERSATION_HEADER, ROOT_HEADER, KEY_HEADER];
/// Header of a request that can be sent again.
pub const KEY: &[&str] = &[KEY_HEADER];

impl Operation {
    /// Sets the type of the query.
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Sets the type of the JSON body.
    pub fn json_body<T: JsonSchema>(mut self) -> Self {
        self.body = BodyKind::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Declares a body of raw bytes.
    pub fn bytes_body(mut self) -> Self {
        self.body = BodyKind::Bytes;
        self
    }

    /// Sets the type of a JSON response with status 200.
    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.response = ResponseKind::Json(200, SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the type of a JSON response with status 201.
    pub fn returns_created<T: JsonSchema>(mut self) -> Self {
        self.response = ResponseKind::Json(201, SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the status and the media type of another response.
    pub fn returns_other(mut self, status: u16, kind: &'static str) -> Self {
        self.response = ResponseKind::Other(status, kind);
        self
    }

    /// Adds request headers.
    pub fn headers(mut self, headers: &'static [&'static str]) -> Self {
        self.headers = headers;
        self
    }

    /// Declares that no credential is needed.
    pub fn public(mut self) -> Self {
        self.public = true;
        self
    }

    fn at(mut self, method: &'static str, path: &'static str) -> Self {
        (self.method, self.path) = (method, path);
        self
    }
}

/// Routes and their descriptions.
#[derive(Default)]
pub struct ApiRouter {
    router: Router<State>,
    operations: Vec<Operation>,
}

impl ApiRouter {
    /// Adds a `GET` route.
    pub fn get<H, T>(mut self, path: &'static str, handler: H, op: Operation) -> Self
    where
        H: Handler<T, State>,
        T: 'static,
    {
        self.router = self.router.route(path, routing::get(handler));
        self.operations.push(op.at("get", path));
        self
    }

    /// Adds a `POST` route.
    pub fn post<H, T>(mut self, path: &'static str, handler: H, op: Operation) -> Self
    where
        H: Handler<T, State>,
        T: 'static,
    {
        self.router = self.router.route(path, routing::post(handler));
        self.operations.push(op.at("post", path));
        self
    }

    /// Adds only the description of a `GET` route that serves the document itself; its handler is added
    /// after the document exists.
    pub fn describe_only(mut self, path: &'static str, op: Operation) -> Self {
        self.operations.push(op.at("get", path));
        self
    }

    /// Returns the routes and their document, which is generated on first use.
    pub fn finish(self) -> (Router<State>, Arc<OpenApiDocument>) {
        let operations = self.operations;
        let build: BuildDocument = Box::new(move || document(&operations));
        (self.router, Arc::new(LazyLock::new(build)))
    }
}

type BuildDocument = Box<dyn FnOnce() -> Value + Send>;

/// OpenAPI document, generated on first use.
pub type OpenApiDocument = LazyLock<Value, BuildDocument>;

fn document(operations: &[Operation]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for op in operations {
        let described = operation_json(op, &mut schemas);
        add_operation(&mut paths, op.path, op.method, described);
    }
    for tool in tools::all() {
        let path = format!("/v1/tools/{}", tool.name);
        add_operation(&mut paths, &path, "post", tool_operation(tool));
    }
    for (method, described) in mcp() {
        add_operation(&mut paths, "/mcp", method, described);
    }
    let problem = schemas.responses.subschema_for::<abide_api::Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "abide",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs commands, keeps terminal sessions and waits, on behalf of agents. A refused request is answered with a problem (RFC 9457), with one sentence in `detail`; a tool that was run and failed with status 200 and `is_error`. Durations are in seconds, timestamps in Unix milliseconds. The header `abide-agent` names the agent; a token without it acts for the agent `default`. A login, or a token with `abide-person: true`, acts for a person, who sees the sessions and timers of every agent.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {"login": []}],
        "paths": paths,
        "components": {
            "schemas": schemas.definitions(),
            "responses": {
                "Problem": {
                    "description": "Refused; nothing was changed.",
                    "content": {"application/problem+json": {"schema": problem}},
                },
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Content of the file `token` in the state directory; `abide status` shows the path."},
                "login": {"type": "apiKey", "in": "cookie", "name": "abide-PORT", "description": "Cookie set by `POST /v1/login`; PORT is the server's port."},
            },
        },
    })
}

fn add_operation(paths: &mut Map<String, Value>, path: &str, method: &str, described: Value) {
    let item = paths.entry(path).or_insert_with(|| json!({}));
    item[method] = described;
}

/// Schema generators for responses and requests, which differ in the fields that are required.
struct Schemas {
    responses: SchemaGenerator,
    requests: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let generator = |settings: SchemaSettings| {
            let settings = settings.with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            });
            settings.into_generator()
        };
        Schemas {
            responses: generator(abide_api::schema::answers()),
            requests: generator(SchemaSettings::draft2020_12()),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        all.extend(self.responses.take_definitions(true));
        all
    }
}

fn operation_json(op: &Operation, schemas: &mut Schemas) -> Value {
    let mut parameters = path_parameters(op.path);
    if let Some(query) = op.query {
        parameters.extend(query_parameters(query(&mut schemas.requests).as_value()));
    }
    if !op.public {
        parameters.extend(header_parameters(CALLER_HEADERS));
        parameters.extend(header_parameters(op.headers));
    }
    let mut described = json!({
        "summary": op.summary,
        "operationId": operation_id(op.method, op.path),
        "tags": [tag(op.path)],
        "responses": {"default": {"$ref": "#/components/responses/Problem"}},
    });
    if !parameters.is_empty() {
        described["parameters"] = json!(parameters);
    }
    if let Some((kind, schema)) = match op.body {
        BodyKind::None => None,
        BodyKind::Json(shape) => Some(("application/json", json!(shape(&mut schemas.requests)))),
        BodyKind::Bytes => Some(("application/octet-stream", json!({}))),
    } {
        let content = Map::from_iter([(kind.to_owned(), json!({"schema": schema}))]);
        described["requestBody"] = json!({"content": content});
    }
    let (status, response) = match op.response {
        ResponseKind::Empty => (204, json!({"description": "Done."})),
        ResponseKind::Json(status, shape) => {
            let content = json!({"application/json": {"schema": shape(&mut schemas.responses)}});
            (
                status,
                json!({"description": "The answer.", "content": content}),
            )
        }
        ResponseKind::Other(status, "") => (status, json!({"description": "A WebSocket."})),
        ResponseKind::Other(status, kind) => {
            let content = Map::from_iter([(kind.to_owned(), json!({}))]);
            (
                status,
                json!({"description": "The answer.", "content": content}),
            )
        }
    };
    described["responses"][status.to_string()] = response;
    if op.public {
        described["security"] = json!([]);
    }
    described
}

/// Tag of a route: the first word of its path after the version.
fn tag(path: &str) -> &str {
    let rest = path.strip_prefix("/v1/").unwrap_or(&path[1..]);
    rest.split(['/', '.']).next().unwrap_or_default()
}

fn operation_id(method: &str, path: &str) -> String {
    let words = path
        .split(['/', '.'])
        .filter(|word| !word.is_empty() && *word != "v1");
    let words = words.map(|word| word.trim_matches(['{', '}']));
    std::iter::once(method)
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}

fn path_parameters(path: &str) -> Vec<Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

fn header_parameters(names: &[&'static str]) -> Vec<Value> {
    let names = names.iter();
    names
        .map(|name| {
            let about = match *name {
                AGENT_HEADER => "The agent that the request acts for; with a token, else `default`.",
                PERSON_HEADER => "`true`: a person sends the request; without an agent.",
                CONVERSATION_HEADER => "Conversation of the agent whose messages the call may read: `claude_code:ID` or `codex:ID`.",
                ROOT_HEADER => "Absolute path of the folder for commands that name none, which is also the workspace of a sandbox; else the home folder.",
                _ => "Idempotency key: a request that is sent again with the same key is carried out once.",
            };
            json!({"name": name, "in": "header", "required": false, "schema": {"type": "string"}, "description": about})
        })
        .collect()
}

fn query_parameters(shape: &Value) -> Vec<Value> {
    let required = shape["required"].as_array().cloned().unwrap_or_default();
    let fields = shape["properties"].as_object().cloned().unwrap_or_default();
    fields
        .into_iter()
        .map(|(name, mut schema)| {
            let about = schema
                .as_object_mut()
                .and_then(|schema| schema.remove("description"));
            let mut described = json!({
                "name": name,
                "in": "query",
                "required": required.contains(&json!(name)),
                "schema": schema,
            });
            if let Some(about) = about {
                described["description"] = about;
            }
            described
        })
        .collect()
}

fn tool_operation(tool: &tools::ToolDescription) -> Value {
    let output = with_is_error((tool.output)());
    let headers = [CALLER_HEADERS, CALL_HEADERS]
        .map(header_parameters)
        .concat();
    json!({
        "summary": tool.title,
        "description": tool.description(),
        "operationId": format!("tool_{}", tool.name),
        "tags": ["tools"],
        "parameters": headers,
        "requestBody": {"content": {"application/json": {"schema": (tool.input)()}}},
        "responses": {
            "200": {
                "description": "The tool's result; `is_error` if the call failed.",
                "content": {"application/json": {"schema": output}},
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    })
}

fn mcp() -> [(&'static str, Value); 3] {
    let described = |id: &str, summary: &str, mut responses: Value| {
        responses["default"] = json!({"description": "Refused; `detail` says why."});
        json!({
            "summary": summary,
            "operationId": id,
            "tags": ["mcp"],
            "security": [{"token": []}],
            "parameters": header_parameters(&[AGENT_HEADER, ROOT_HEADER]),
            "responses": responses,
        })
    };
    let answers = json!({
        "200": {
            "description": "A JSON-RPC response, or a stream of events.",
            "content": {"application/json": {}, "text/event-stream": {}},
        },
        "202": {"description": "A notification or a response was accepted."},
    });
    let stream = json!({"200": {
        "description": "A stream of events.",
        "content": {"text/event-stream": {}},
    }});
    let ended = json!({"204": {"description": "The session has ended."}});
    let summary = "MCP (streamable HTTP); over TCP and with the token only";
    let mut post = described("mcp", summary, answers);
    post["requestBody"] = json!({"content": {"application/json": {"schema": {"type": "object"}}}});
    let listen = "Receive server messages, or resume a stream (protocol versions up to 2025-11-25)";
    let leave = "End an MCP session (protocol versions up to 2025-11-25)";
    [
        ("post", post),
        ("get", described("mcp_listen", listen, stream)),
        ("delete", described("mcp_leave", leave, ended)),
    ]
}

//! Registration of routes together with their descriptions, so that neither exists without the other,
//! and the OpenAPI 3.1 document made from the descriptions.

use std::sync::{Arc, LazyLock};

use abide_api::schema::with_is_error;
use axum::Router;
use axum::handler::Handler;
use axum::routing;
use bytes::Bytes;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::State;
use crate::tools;

/// Generator of the schema of a type.
type Shape = fn(&mut SchemaGenerator) -> Schema;

/// Description of a route.
pub struct Op {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    query: Option<Shape>,
    body: Body,
    answer: Answer,
    /// Set if the route needs neither a token nor a login.
    open: bool,
    /// Set if the route supports range requests.
    in_parts: bool,
}

/// Kind of request body.
enum Body {
    None,
    Json(Shape),
    Bytes,
}

/// Kind of response.
enum Answer {
    Json(u16, Shape),
    Nothing,
    Other(u16, &'static str),
}

/// Description with this summary.
pub fn op(summary: &'static str) -> Op {
    Op {
        method: "",
        path: "",
        summary,
        query: None,
        body: Body::None,
        answer: Answer::Nothing,
        open: false,
        in_parts: false,
    }
}

impl Op {
    /// Sets the type of the query.
    pub fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(T::json_schema);
        self
    }

    /// Sets the type of the JSON body.
    pub fn takes<T: JsonSchema>(mut self) -> Self {
        self.body = Body::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Declares a body of raw bytes.
    pub fn takes_bytes(mut self) -> Self {
        self.body = Body::Bytes;
        self
    }

    /// Sets the type of a JSON response with status 200.
    pub fn json<T: JsonSchema>(mut self) -> Self {
        self.answer = Answer::Json(200, SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the type of a JSON response with status 201.
    pub fn creates<T: JsonSchema>(mut self) -> Self {
        self.answer = Answer::Json(201, SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Sets the status and the media type of another response.
    pub fn other(mut self, status: u16, kind: &'static str) -> Self {
        self.answer = Answer::Other(status, kind);
        self
    }

    /// Declares that no credential is needed.
    pub fn open(mut self) -> Self {
        self.open = true;
        self
    }

    /// Declares support for the `Range` header.
    pub fn in_parts(mut self) -> Self {
        self.in_parts = true;
        self
    }

    fn at(mut self, method: &'static str, path: &'static str) -> Self {
        (self.method, self.path) = (method, path);
        self
    }
}

/// Routes and their descriptions.
#[derive(Default)]
pub struct Api {
    router: Router<State>,
    ops: Vec<Op>,
}

impl Api {
    /// Adds a `GET` route.
    pub fn get<H, T>(mut self, path: &'static str, handler: H, op: Op) -> Self
    where
        H: Handler<T, State>,
        T: 'static,
    {
        self.router = self.router.route(path, routing::get(handler));
        self.ops.push(op.at("get", path));
        self
    }

    /// Adds a `POST` route.
    pub fn post<H, T>(mut self, path: &'static str, handler: H, op: Op) -> Self
    where
        H: Handler<T, State>,
        T: 'static,
    {
        self.router = self.router.route(path, routing::post(handler));
        self.ops.push(op.at("post", path));
        self
    }

    /// Adds only the description of a `GET` route that serves the document itself; its handler is added
    /// after the document exists.
    pub fn shows_itself(mut self, path: &'static str, op: Op) -> Self {
        self.ops.push(op.at("get", path));
        self
    }

    /// Returns the routes and their document, which is generated on first use.
    pub fn finish(self) -> (Router<State>, Arc<Document>) {
        let ops = self.ops;
        let document = LazyLock::new(Box::new(move || Written::new(document(&ops))) as Make);
        (self.router, Arc::new(Document(document)))
    }
}

type Make = Box<dyn FnOnce() -> Written + Send>;

/// OpenAPI document, generated on first use.
pub struct Document(LazyLock<Written, Make>);

/// Document as a JSON value and as encoded bytes.
struct Written {
    value: Value,
    bytes: Bytes,
}

impl Written {
    fn new(value: Value) -> Self {
        Written {
            bytes: value.to_string().into(),
            value,
        }
    }
}

impl Document {
    /// Encoded document.
    pub fn bytes(&self) -> Bytes {
        self.0.bytes.clone()
    }

    /// Document as a JSON value.
    pub fn value(&self) -> &Value {
        &self.0.value
    }
}

fn document(ops: &[Op]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for op in ops {
        let said = operation(op, &mut schemas);
        item(&mut paths, op.path, op.method, said);
    }
    for tool in tools::all() {
        let path = format!("/v1/tools/{}", tool.name);
        item(&mut paths, &path, "post", tool_operation(tool));
    }
    for (method, said) in mcp() {
        item(&mut paths, "/mcp", method, said);
    }
    let problem = schemas.answers.subschema_for::<abide_api::Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "abide",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs commands, keeps terminal sessions and waits, on behalf of agents. Every error is a problem (RFC 9457) with one sentence in `detail`. Durations are in seconds, timestamps in Unix milliseconds. The header `abide-agent` names the agent; a token without it acts for the agent `default`. A login, or a token with `abide-person: true`, acts for a person, who sees the sessions and timers of every agent.",
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

fn item(paths: &mut Map<String, Value>, path: &str, method: &str, said: Value) {
    let item = paths.entry(path).or_insert_with(|| json!({}));
    item[method] = said;
}

/// Schema generators for responses and requests, which differ in the fields that are required.
struct Schemas {
    answers: SchemaGenerator,
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
            answers: generator(abide_api::schema::answers()),
            requests: generator(SchemaSettings::draft2020_12()),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        all.extend(self.answers.take_definitions(true));
        all
    }
}

fn operation(op: &Op, schemas: &mut Schemas) -> Value {
    let mut parameters = path_parameters(op.path);
    if let Some(query) = op.query {
        parameters.extend(query_parameters(query(&mut schemas.requests).as_value()));
    }
    let mut said = json!({
        "summary": op.summary,
        "operationId": operation_id(op.method, op.path),
        "tags": [tag(op.path)],
        "responses": {"default": {"$ref": "#/components/responses/Problem"}},
    });
    if !parameters.is_empty() {
        said["parameters"] = json!(parameters);
    }
    if let Some((kind, schema)) = match op.body {
        Body::None => None,
        Body::Json(shape) => Some(("application/json", json!(shape(&mut schemas.requests)))),
        Body::Bytes => Some(("application/octet-stream", json!({}))),
    } {
        let content = Map::from_iter([(kind.to_owned(), json!({"schema": schema}))]);
        said["requestBody"] = json!({"content": content});
    }
    let (status, response) = match op.answer {
        Answer::Nothing => (204, json!({"description": "Done."})),
        Answer::Json(status, shape) => {
            let content = json!({"application/json": {"schema": shape(&mut schemas.answers)}});
            (
                status,
                json!({"description": "The answer.", "content": content}),
            )
        }
        Answer::Other(status, "") => (status, json!({"description": "A WebSocket."})),
        Answer::Other(status, kind) => {
            let content = Map::from_iter([(kind.to_owned(), json!({}))]);
            (
                status,
                json!({"description": "The answer.", "content": content}),
            )
        }
    };
    if op.in_parts {
        let mut part = response.clone();
        part["description"] = json!("The requested range.");
        said["responses"]["206"] = part;
    }
    said["responses"][status.to_string()] = response;
    if op.open {
        said["security"] = json!([]);
    }
    said
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

fn query_parameters(shape: &Value) -> Vec<Value> {
    let required = shape["required"].as_array().cloned().unwrap_or_default();
    let fields = shape["properties"].as_object().cloned().unwrap_or_default();
    fields
        .into_iter()
        .map(|(name, mut schema)| {
            let about = schema
                .as_object_mut()
                .and_then(|schema| schema.remove("description"));
            let mut said = json!({
                "name": name,
                "in": "query",
                "required": required.contains(&json!(name)),
                "schema": schema,
            });
            if let Some(about) = about {
                said["description"] = about;
            }
            said
        })
        .collect()
}

fn tool_operation(tool: &tools::Described) -> Value {
    let answer = with_is_error((tool.output)());
    json!({
        "summary": tool.title,
        "description": tool.description,
        "operationId": format!("tool_{}", tool.name),
        "tags": ["tools"],
        "requestBody": {"content": {"application/json": {"schema": (tool.input)()}}},
        "responses": {
            "200": {
                "description": "The tool's result; `is_error` if the call failed.",
                "content": {"application/json": {"schema": answer}},
            },
            "default": {"$ref": "#/components/responses/Problem"},
        },
    })
}

fn mcp() -> [(&'static str, Value); 3] {
    let operation = |id: &str, summary: &str, status: &str, answer: Value| {
        let mut said = json!({
            "summary": summary,
            "operationId": id,
            "tags": ["mcp"],
            "security": [{"token": []}],
            "responses": {"default": {"description": "Refused; `detail` says why."}},
        });
        said["responses"][status] = answer;
        said
    };
    let stream = json!({
        "description": "A stream of events.",
        "content": {"text/event-stream": {}},
    });
    let mut post = operation(
        "mcp",
        "MCP (streamable HTTP); over TCP and with the token only",
        "200",
        json!({
            "description": "A JSON-RPC response, or a stream of events.",
            "content": {"application/json": {}, "text/event-stream": {}},
        }),
    );
    post["responses"]["202"] = json!({"description": "A notification or a response was accepted."});
    post["requestBody"] = json!({"content": {"application/json": {"schema": {"type": "object"}}}});
    [
        ("post", post),
        (
            "get",
            operation(
                "mcp_listen",
                "Receive server messages, or resume a stream (protocol versions up to 2025-11-25)",
                "200",
                stream,
            ),
        ),
        (
            "delete",
            operation(
                "mcp_leave",
                "End an MCP session (protocol versions up to 2025-11-25)",
                "202",
                json!({"description": "It is over."}),
            ),
        ),
    ]
}

//! All routes with their descriptions.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::access_check::LOGIN_PATH;
use super::body::BODY_LIMIT;
use super::openapi::{ApiRouter, CALL_HEADERS, KEY, OpenApiDocument, operation};
use super::run_request::RunBody;
use super::state::State;
use super::{
    docs, elsewhere, events, frame, ids, log_download, log_lines, log_stream, login, machines,
    messages, metrics, page, policy, problem, questions, runs, search, session_actions,
    session_stats, sessions, status, terminal, timers, tools,
};

/// Path of the OpenAPI document.
const DOCUMENT: &str = "/v1/openapi.json";
/// Path of the documentation page.
const DOCS: &str = "/docs";

const BYTES: &str = "application/octet-stream";

/// All routes, with the OpenAPI document and the web page.
pub fn router(state: State) -> Router {
    let (routes, document) = routes().finish();
    let page = document.clone();
    routes
        .route(DOCUMENT, get(async move || openapi_json(&document)))
        .route(DOCS, get(async move || docs::page(&page)))
        .fallback(page::page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(from_fn_with_state(state.clone(), elsewhere::forward))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(map_response(problem::convert_errors))
        .with_state(state)
}

fn openapi_json(document: &OpenApiDocument) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, document.to_string()).into_response()
}

/// All routes with their descriptions.
fn routes() -> ApiRouter {
    let api = daemon_routes(ApiRouter::default());
    let api = fleet_routes(api);
    let api = session_routes(api);
    let api = timer_routes(api);
    let api = policy_routes(api);
    people_routes(api)
        .describe_only(
            DOCUMENT,
            operation("This document").returns_other(200, "application/json"),
        )
        .describe_only(
            DOCS,
            operation("This document as a page").returns_other(200, "text/html"),
        )
}

fn daemon_routes(api: ApiRouter) -> ApiRouter {
    api.get(
        "/v1/health",
        status::health,
        operation("Health check").returns::<abide_api::Health>().public(),
    )
    .get(
        "/v1/status",
        status::status,
        operation("State of the daemon and counts").returns::<abide_api::Status>(),
    )
    .post(
        "/v1/stop",
        status::stop,
        operation("Stop the daemon; sessions continue (person only)").returns::<abide_api::Stopping>(),
    )
    .post(
        "/v1/reload",
        status::reload,
        operation("Read the configuration again (person only); a changed file is noticed without it")
            .returns::<abide_api::Configuration>(),
    )
    .get(
        "/metrics",
        metrics::metrics,
        operation("Metrics for Prometheus").returns_other(200, "text/plain"),
    )
    .get(
        "/v1/tools",
        tools::list,
        operation("All tools with their schemas").returns::<abide_api::PublishedTools>(),
    )
    .post(
        "/v1/tools/{name}",
        tools::call,
        operation("Call a tool and wait for its result")
            .json_body::<abide_api::Object>()
            .returns::<abide_api::Object>(),
    )
    .get(
        "/v1/events",
        events::events,
        operation("Event stream: hello, reset, session, session_removed, output, timer, timers_changed, question, message. `Last-Event-ID` resumes a stream. Also available as a WebSocket")
            .query::<events::EventQuery>()
            .returns_other(200, "text/event-stream"),
    )
    .get(
        "/v1/ids",
        ids::list,
        operation("Ids that a word may stand for: the beginning of an id, a session's name, or `last`")
            .query::<ids::IdQuery>()
            .returns::<abide_api::KnownIds>(),
    )
    .get(
        "/v1/search",
        search::search,
        operation("Search the logs of all sessions, newest first")
            .query::<search::SearchQuery>()
            .returns::<abide_api::MatchPage>(),
    )
}

fn fleet_routes(api: ApiRouter) -> ApiRouter {
    api.get(
        "/v1/machines",
        machines::list,
        operation("Machines of the fleet").returns::<abide_api::FleetMachines>(),
    )
    .post(
        "/v1/machines/{name}/{act}",
        machines::act,
        operation("`lost`: what ran on a machine is lost; `forget` or `revoke` it (person only)")
            .returns::<abide_api::MachineActed>(),
    )
}

fn session_routes(api: ApiRouter) -> ApiRouter {
    let one = |summary| operation(summary).returns::<abide_api::Session>();
    api.get(
        "/v1/sessions",
        sessions::list,
        operation("List sessions, newest first")
            .query::<sessions::SessionQuery>()
            .returns::<abide_api::SessionPage>(),
    )
    .post(
        "/v1/sessions",
        sessions::start,
        operation("Start a session with a terminal")
            .json_body::<abide_api::NewSession>()
            .headers(CALL_HEADERS)
            .returns_created::<abide_api::Session>(),
    )
    .get(
        "/v1/sessions/stats",
        session_stats::stats,
        operation("Statistics of all sessions that are kept").returns::<abide_api::SessionStats>(),
    )
    .get("/v1/sessions/{id}", sessions::get, one("One session"))
    .get(
        "/v1/sessions/{id}/log",
        log_stream::log,
        operation("Read and follow a log")
            .query::<log_stream::LogQuery>()
            .returns_other(200, BYTES),
    )
    .get(
        "/v1/sessions/{id}/log/raw",
        log_download::download,
        operation("Download a log")
            .query::<log_download::DownloadQuery>()
            .returns_other(200, BYTES),
    )
    .get(
        "/v1/sessions/{id}/lines",
        log_lines::lines,
        operation("Lines of a log by their numbers, as text with colours")
            .query::<log_lines::LinesQuery>()
            .returns::<abide_api::LogLines>(),
    )
    .get(
        "/v1/sessions/{id}/matches",
        log_lines::matches,
        operation("Numbers of the lines of a log that match a pattern")
            .query::<log_lines::MatchesQuery>()
            .returns::<abide_api::LogMatches>(),
    )
    .get(
        "/v1/sessions/{id}/terminal",
        terminal::terminal,
        operation("Attach to a session's terminal over a WebSocket").returns_other(101, ""),
    )
    .get(
        "/v1/sessions/{id}/paint",
        sessions::paint,
        operation("Bytes that draw a session's screen on an empty terminal")
            .returns::<abide_api::ScreenPaint>(),
    )
    .post(
        "/v1/sessions/{id}/kill",
        session_actions::kill,
        operation("End a session and every process it started, or withdraw a command that waits for an answer")
            .returns::<abide_api::Killed>(),
    )
    .post(
        "/v1/sessions/{id}/delete",
        session_actions::delete,
        one("Delete an ended session and its log (person only)"),
    )
    .post(
        "/v1/sessions/{id}/rename",
        session_actions::rename,
        one("Give a session another name").json_body::<abide_api::Rename>(),
    )
    .post(
        "/v1/sessions/{id}/signal",
        session_actions::signal,
        one("Send a signal to the foreground process group")
            .json_body::<abide_api::SignalRequest>()
            .headers(KEY),
    )
    .post(
        "/v1/sessions/{id}/extend",
        session_actions::extend,
        one("Change a session's limits, counted from now")
            .json_body::<abide_api::arguments::LimitArgs>(),
    )
    .post(
        "/v1/sessions/{id}/input",
        session_actions::input,
        operation("Send input")
            .headers(KEY)
            .query::<session_actions::InputQuery>()
            .bytes_body()
            .returns::<abide_api::WrittenBytes>(),
    )
    .post(
        "/v1/sessions/{id}/resize",
        session_actions::resize,
        one("Resize a session's terminal").json_body::<abide_api::arguments::SizeArgs>(),
    )
    .post(
        "/v1/runs",
        runs::run,
        operation("Run a command and stream its output and ending as frames")
            .json_body::<RunBody>()
            .returns_other(200, frame::MEDIA_TYPE),
    )
}

fn timer_routes(api: ApiRouter) -> ApiRouter {
    let one = |summary| operation(summary).returns::<abide_api::TimerDetails>();
    api.get(
        "/v1/timers",
        timers::list,
        operation("List timers")
            .query::<timers::TimerListQuery>()
            .returns::<abide_api::TimerPage>(),
    )
    .post(
        "/v1/timers",
        timers::create,
        operation("Create a timer and wait for it, as the tool `timer` does; with `timers`, several at once")
            .json_body::<abide_api::NewTimer>()
            .headers(CALL_HEADERS)
            .returns::<abide_api::TimerMade>(),
    )
    .get(
        "/v1/timers/history",
        timers::history,
        operation("Timers that have ended, newest first")
            .query::<timers::TimerHistoryQuery>()
            .returns::<abide_api::TimerPage>(),
    )
    .get(
        "/v1/timers/stats",
        timers::stats,
        operation("Statistics of all timers").returns::<abide_api::TimerStats>(),
    )
    .get("/v1/timers/{id}", timers::get, one("One timer"))
    .post(
        "/v1/timers/{id}/{act}",
        timers::act,
        one("`stop`, `cancel`, `pause`, `resume` or `continue` a timer").json_body::<abide_api::TimerAction>(),
    )
    .post(
        "/v1/wait",
        timers::wait,
        operation("Wait until a condition is met, while the client is connected")
            .json_body::<abide_api::arguments::WaitArgs>()
            .headers(CALL_HEADERS)
            .returns::<abide_api::Waited>(),
    )
}

fn policy_routes(api: ApiRouter) -> ApiRouter {
    api.get(
        "/v1/policy",
        policy::list,
        operation("Rules for commands of agents (person only)").returns::<abide_api::PolicyRules>(),
    )
    .post(
        "/v1/policy/test",
        policy::test,
        operation("Decision about a command line, which is not run (person only)")
            .json_body::<abide_api::PolicyTest>()
            .returns::<abide_api::PolicyTested>(),
    )
    .post(
        "/v1/policy/rules/{name}/remove",
        policy::remove,
        operation("Remove a rule that the answer `always` has written (person only)")
            .returns::<abide_api::PolicyRemoved>(),
    )
    .get(
        "/v1/audit",
        policy::audit,
        operation("Decisions about commands, newest first (person only)")
            .query::<policy::AuditQuery>()
            .returns::<abide_api::AuditPage>(),
    )
    .get(
        "/v1/audit/verify",
        policy::verify,
        operation("Check that no decision was changed, removed or inserted (person only)")
            .returns::<abide_api::AuditVerified>(),
    )
    .get(
        "/v1/refusals",
        policy::refusals,
        operation("Sessions in which a sandbox refused something, newest first (person only)")
            .query::<policy::RefusalQuery>()
            .returns::<abide_api::RefusalPage>(),
    )
}

fn people_routes(api: ApiRouter) -> ApiRouter {
    api.get(
        "/v1/questions",
        questions::list,
        operation("Open questions, oldest first")
            .query::<questions::QuestionListQuery>()
            .returns::<abide_api::QuestionPage>(),
    )
    .post(
        "/v1/questions/{id}/answer",
        questions::answer,
        operation("Answer a question (person only); the first answer counts")
            .headers(KEY)
            .json_body::<abide_api::QuestionAnswer>()
            .returns::<abide_api::Answered>(),
    )
    .get(
        "/v1/messages",
        messages::list,
        operation("Messages to agents, newest first; reading does not mark them as seen")
            .query::<messages::MessageListQuery>()
            .returns::<abide_api::MessagePage>(),
    )
    .post(
        "/v1/messages/{id}/wake",
        messages::wake,
        operation("Send a message again with the agent's wakers").returns::<abide_api::Message>(),
    )
    .post(
        "/v1/logins",
        login::create_link,
        operation("Create a login link for one browser (person only)").returns::<abide_api::Link>(),
    )
    .post(
        LOGIN_PATH,
        login::login,
        operation("Exchange the code of a login link for a cookie")
            .json_body::<login::Code>()
            .public(),
    )
    .post("/v1/logout", login::logout, operation("Log out"))
}

//! All routes with their descriptions.

use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::openapi::{Api, Document, op};
use super::wire::{PtySize, RunBody};
use super::{
    events, frame, log_download, log_stream, login, messages, metrics, questions, runs,
    screen_snapshot, search, session_actions, sessions, status, terminal, timers, tools,
};

/// Path of the OpenAPI document.
pub const DOCUMENT: &str = "/v1/openapi.json";
/// Path of the documentation page.
pub const DOCS: &str = "/docs";

const BYTES: &str = "application/octet-stream";

/// Response with the OpenAPI document.
pub fn json(document: &Document) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, document.bytes()).into_response()
}

/// All routes.
pub fn all() -> Api {
    let api = house(Api::default());
    let api = session_routes(api);
    let api = timer_routes(api);
    people(api)
        .shows_itself(DOCUMENT, op("This document").other(200, "application/json"))
        .shows_itself(DOCS, op("This document as a page").other(200, "text/html"))
}

fn house(api: Api) -> Api {
    api.get(
        "/v1/health",
        status::health,
        op("Health check").json::<abide_api::Health>().open(),
    )
    .get(
        "/v1/status",
        status::status,
        op("State of the daemon and counts").json::<abide_api::Status>(),
    )
    .post(
        "/v1/stop",
        status::stop,
        op("Stop the daemon; sessions continue (person only)").json::<abide_api::Stopping>(),
    )
    .get(
        "/metrics",
        metrics::metrics,
        op("Metrics for Prometheus").other(200, "text/plain"),
    )
    .get(
        "/v1/tools",
        tools::list,
        op("All tools with their schemas").json::<abide_api::PublishedTools>(),
    )
    .post(
        "/v1/tools/{name}",
        tools::call,
        op("Call a tool and wait for its result")
            .takes::<abide_api::Object>()
            .json::<abide_api::Object>(),
    )
    .get(
        "/v1/events",
        events::events,
        op("Event stream: hello, reset, session, output, timer, timers_changed, question, message. `Last-Event-ID` resumes a stream. Also available as a WebSocket")
            .query::<events::Wanted>()
            .other(200, "text/event-stream"),
    )
    .get(
        "/v1/search",
        search::search,
        op("Search the logs of all sessions, newest first")
            .query::<search::Wanted>()
            .json::<abide_api::MatchPage>(),
    )
}

fn session_routes(api: Api) -> Api {
    let one = |summary| op(summary).json::<abide_api::Session>();
    api.get(
        "/v1/sessions",
        sessions::list,
        op("List sessions, newest first")
            .query::<sessions::Wanted>()
            .json::<abide_api::SessionPage>(),
    )
    .post(
        "/v1/sessions",
        sessions::start,
        op("Start a session with a terminal")
            .takes::<abide_api::NewSession>()
            .creates::<abide_api::Session>(),
    )
    .get("/v1/sessions/{id}", sessions::one, one("One session"))
    .get(
        "/v1/sessions/{id}/log",
        log_stream::log,
        op("Read and follow a log")
            .query::<log_stream::Wanted>()
            .other(200, BYTES),
    )
    .get(
        "/v1/sessions/{id}/log/raw",
        log_download::raw,
        op("Download a log; supports `Range`")
            .query::<log_download::Wanted>()
            .other(200, BYTES)
            .in_parts(),
    )
    .get(
        "/v1/sessions/{id}/terminal",
        terminal::terminal,
        op("Attach to a session's terminal over a WebSocket").other(101, ""),
    )
    .get(
        "/v1/sessions/{id}/paint",
        screen_snapshot::paint,
        op("Bytes that draw a session's screen on an empty terminal").json::<abide_api::Painted>(),
    )
    .post(
        "/v1/sessions/{id}/kill",
        session_actions::kill,
        one("End a session and every process it started"),
    )
    .post(
        "/v1/sessions/{id}/signal",
        session_actions::signal,
        one("Send a signal to the foreground process group").takes::<abide_api::SignalRequest>(),
    )
    .post(
        "/v1/sessions/{id}/extend",
        session_actions::extend,
        one("Change a session's limits, counted from now")
            .takes::<abide_api::arguments::LimitArgs>(),
    )
    .post(
        "/v1/sessions/{id}/input",
        session_actions::input,
        op("Send input")
            .query::<session_actions::Input>()
            .takes_bytes()
            .json::<abide_api::WrittenBytes>(),
    )
    .post(
        "/v1/sessions/{id}/resize",
        session_actions::resize,
        one("Resize a session's terminal").takes::<PtySize>(),
    )
    .post(
        "/v1/runs",
        runs::run,
        op("Run a command and stream its output and ending as frames")
            .takes::<RunBody>()
            .other(200, frame::MEDIA_TYPE),
    )
}

fn timer_routes(api: Api) -> Api {
    let one = |summary| op(summary).json::<abide_api::TimerDetails>();
    api.get(
        "/v1/timers",
        timers::list,
        op("List timers")
            .query::<timers::Wanted>()
            .json::<abide_api::TimerPage>(),
    )
    .post(
        "/v1/timers",
        timers::make,
        op("Create a timer and wait for it, as the tool `timer` does; with `timers`, several at once")
            .takes::<abide_api::NewTimer>()
            .json::<abide_api::TimerMade>(),
    )
    .get(
        "/v1/timers/history",
        timers::history,
        op("Timers that have ended, newest first")
            .query::<timers::Past>()
            .json::<abide_api::TimerPage>(),
    )
    .get(
        "/v1/timers/stats",
        timers::stats,
        op("Statistics of all timers").json::<abide_api::TimerStats>(),
    )
    .get("/v1/timers/{id}", timers::one, one("One timer"))
    .post(
        "/v1/timers/{id}/{act}",
        timers::act,
        one("`stop`, `cancel`, `pause`, `resume` or `continue` a timer").takes::<abide_api::TimerAction>(),
    )
    .post(
        "/v1/wait",
        timers::wait,
        op("Wait until a condition is met, while the client is connected")
            .takes::<abide_api::arguments::WaitArgs>()
            .json::<abide_api::Waited>(),
    )
}

fn people(api: Api) -> Api {
    api.get(
        "/v1/questions",
        questions::list,
        op("Open questions, oldest first")
            .query::<questions::Listing>()
            .json::<abide_api::QuestionPage>(),
    )
    .post(
        "/v1/questions/{id}/answer",
        questions::answer,
        op("Answer a question (person only); the first answer counts")
            .takes::<abide_api::QuestionAnswer>()
            .json::<abide_api::Answered>(),
    )
    .get(
        "/v1/messages",
        messages::list,
        op("Messages to agents, newest first; reading does not mark them as seen")
            .query::<messages::Listing>()
            .json::<abide_api::MessagePage>(),
    )
    .post(
        "/v1/messages/{id}/wake",
        messages::wake,
        op("Send a message again with the agent's wakers").json::<abide_api::Message>(),
    )
    .post(
        "/v1/logins",
        login::offer,
        op("Create a login link for one browser (person only)").json::<abide_api::Link>(),
    )
    .post(
        login::PATH,
        login::login,
        op("Exchange the code of a login link for a cookie")
            .takes::<login::Code>()
            .open(),
    )
    .post("/v1/logout", login::logout, op("Log out"))
}

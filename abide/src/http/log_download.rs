//! Session log as a file download.

use axum::body::Body;
use axum::extract::{Path, State as Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::Query;
use super::log_stream::{self, LogTail};
use super::problem::Problem;
use super::requester::Requester;
use super::state::State;
use abide_session::log::Log;

/// Content security policy that stops a browser from running anything in the log.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DownloadQuery {
    /// `1`: send the log as a file download.
    download: Option<String>,
}

pub async fn download(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(query): Query<DownloadQuery>,
) -> Result<Response, Problem> {
    let view = requester.session(&state, &id)?;
    let log = Log::open(&view.folder);
    let (end, gaps) = (log.end()?, log.gaps()?);
    let mut tail = LogTail::open(&state.handle, &requester, &view, 0, None);
    tail.end_at(end);
    let pages = stream::try_unfold(tail, |mut tail| async move {
        let page = tail.page().await?;
        Ok::<_, std::io::Error>((!page.is_empty()).then(|| (log_stream::output_bytes(page), tail)))
    });
    let length = stored_bytes(end, &gaps).to_string();
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_LENGTH, &length),
    ];
    let is_file = query
        .download
        .is_some_and(|flag| flag == "1" || flag == "true");
    let file = is_file.then(|| {
        let words = format!("attachment; filename=\"{}.log\"", view.id);
        [(header::CONTENT_DISPOSITION, words)]
    });
    Ok((head, file, Body::from_stream(pages)).into_response())
}

/// Bytes of a log that ends at this offset, without its gaps: pairs of the offsets where one begins and ends.
fn stored_bytes(end: u64, gaps: &[(u64, u64)]) -> u64 {
    // A log can end within its last gap, if the disk refused the output after it.
    let end = gaps.last().map_or(end, |(_, next)| end.max(*next));
    let missing: u64 = gaps.iter().map(|(from, next)| next - from).sum();
    end - missing
}

#[cfg(test)]
mod tests {
    use super::stored_bytes;

    #[test]
    fn missing_bytes_are_not_counted() {
        assert_eq!(stored_bytes(35, &[]), 35);
        assert_eq!(stored_bytes(35, &[(10, 30)]), 15);
        assert_eq!(stored_bytes(35, &[(0, 5), (10, 30)]), 10);
        assert_eq!(stored_bytes(20, &[(10, 30)]), 10);
    }
}

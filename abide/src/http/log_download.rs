//! Session log as a file download, whole or as a byte range.

use std::ops::Range;

use axum::body::Body;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::State;
use super::body::Query;
use super::log_stream::{self, LogTail};
use super::problem::Problem;
use super::requester::Requester;
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
    headers: HeaderMap,
    Query(query): Query<DownloadQuery>,
) -> Result<Response, Problem> {
    let view = requester.session(&state, &id)?;
    let stored = StoredRanges::of(&Log::open(&view.folder))?;
    let length = stored.length();
    let range = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok());
    let part = match range.map(|range| parse_range(range, length)) {
        None | Some(RangeRequest::Whole) => None,
        Some(RangeRequest::Range(part)) => Some(part),
        Some(RangeRequest::Unsatisfiable) => {
            let detail = format!("the log has {length} bytes");
            let mut response = Problem::no_such_range(detail).into_response();
            set_header(
                &mut response,
                header::CONTENT_RANGE,
                &format!("bytes */{length}"),
            );
            return Ok(response);
        }
    };
    let (status, bytes) = match &part {
        None => (StatusCode::OK, 0..length),
        Some(part) => (StatusCode::PARTIAL_CONTENT, part.clone()),
    };
    let mut tail = LogTail::open(&state.handle, &view, stored.offset(bytes.start), None);
    tail.end_at(stored.offset(bytes.end));
    let pages = stream::try_unfold(tail, |mut tail| async move {
        let page = tail.page().await?;
        Ok::<_, std::io::Error>((!page.is_empty()).then(|| (log_stream::output_bytes(page), tail)))
    });
    let mut response = (status, Body::from_stream(pages)).into_response();
    set_header(
        &mut response,
        header::CONTENT_TYPE,
        "application/octet-stream",
    );
    set_header(&mut response, header::CONTENT_SECURITY_POLICY, POLICY);
    set_header(&mut response, header::CACHE_CONTROL, "no-store");
    set_header(&mut response, header::ACCEPT_RANGES, "bytes");
    let sent = (bytes.end - bytes.start).to_string();
    set_header(&mut response, header::CONTENT_LENGTH, &sent);
    if let Some(part) = part {
        let words = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        set_header(&mut response, header::CONTENT_RANGE, &words);
    }
    if query
        .download
        .is_some_and(|flag| flag == "1" || flag == "true")
    {
        let words = format!("attachment; filename=\"{}.log\"", view.id);
        set_header(&mut response, header::CONTENT_DISPOSITION, &words);
    }
    Ok(response)
}

fn set_header(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Ranges of offsets that are still in the log, between its gaps.
struct StoredRanges(Vec<Range<u64>>);

impl StoredRanges {
    fn of(log: &Log) -> std::io::Result<Self> {
        let (end, gaps) = (log.end()?, log.gaps()?);
        let mut ranges = Vec::new();
        let mut from = 0;
        for (missing, next) in gaps {
            ranges.push(from..missing);
            from = next;
        }
        ranges.push(from..end.max(from));
        Ok(StoredRanges(ranges))
    }

    fn length(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Log offset of a byte of the file.
    fn offset(&self, at: u64) -> u64 {
        let mut left = at;
        for range in &self.0 {
            let length = range.end - range.start;
            if left <= length {
                return range.start + left;
            }
            left -= length;
        }
        self.0.last().map_or(0, |last| last.end)
    }
}

/// Part of the file that the `Range` header requests.
#[derive(Debug, PartialEq, Eq)]
enum RangeRequest {
    /// The whole file: the header is malformed or requests several ranges.
    Whole,
    Range(Range<u64>),
    Unsatisfiable,
}

fn parse_range(range: &str, length: u64) -> RangeRequest {
    let Some((from, to)) = range
        .strip_prefix("bytes=")
        .filter(|parts| !parts.contains(','))
        .and_then(|part| part.trim().split_once('-'))
    else {
        return RangeRequest::Whole;
    };
    let number = |text: &str| {
        let plain = text.bytes().all(|digit| digit.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let requested = match (from, to) {
        ("", last) => match number(last) {
            Some(last) => length.saturating_sub(last)..length,
            None => return RangeRequest::Whole,
        },
        (from, "") => match number(from) {
            Some(from) => from..length,
            None => return RangeRequest::Whole,
        },
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => from..length.min(to.saturating_add(1)),
            _ => return RangeRequest::Whole,
        },
    };
    match requested.start < requested.end {
        true => RangeRequest::Range(requested),
        false => RangeRequest::Unsatisfiable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_header_is_parsed_as_in_rfc_9110() {
        for (range, requested) in [
            ("bytes=0-0", RangeRequest::Range(0..1)),
            ("bytes=2-4", RangeRequest::Range(2..5)),
            ("bytes=2-", RangeRequest::Range(2..10)),
            ("bytes=2-99", RangeRequest::Range(2..10)),
            ("bytes=-3", RangeRequest::Range(7..10)),
            ("bytes=-99", RangeRequest::Range(0..10)),
            ("bytes=10-", RangeRequest::Unsatisfiable),
            ("bytes=10-12", RangeRequest::Unsatisfiable),
            ("bytes=-0", RangeRequest::Unsatisfiable),
            ("bytes=4-2", RangeRequest::Whole),
            ("bytes=0-1,3-4", RangeRequest::Whole),
            ("bytes=x-1", RangeRequest::Whole),
            ("bytes=+1-2", RangeRequest::Whole),
            ("lines=0-1", RangeRequest::Whole),
            ("", RangeRequest::Whole),
        ] {
            assert_eq!(parse_range(range, 10), requested, "{range}");
        }
        assert_eq!(parse_range("bytes=0-", 0), RangeRequest::Unsatisfiable);
    }

    #[test]
    fn removed_ranges_are_not_in_the_file() {
        let stored = StoredRanges(vec![0..10, 30..35]);
        assert_eq!(stored.length(), 15);
        for (at, offset) in [(0, 0), (9, 9), (11, 31), (15, 35), (99, 35)] {
            assert_eq!(stored.offset(at), offset, "{at}");
        }
    }
}

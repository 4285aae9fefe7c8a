//! Session log as a file download, whole or as a byte range.

use std::ops::Range;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use super::State;
use super::body::parse_query;
use super::log_stream::{self, Tail};
use super::problem::Problem;
use super::requester::Requester;
use abide_session::log::Log;

/// Content security policy that stops a browser from running anything in the log.
const POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// `1`: send the log as a file download.
    download: Option<String>,
}

pub async fn raw(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    headers: HeaderMap,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let wanted = parse_query(wanted)?;
    let view = requester.session(&state, &id)?;
    let kept = Kept::of(&Log::open(&view.folder));
    let kept = kept.map_err(|fault| Problem::fault(fault.to_string()))?;
    let length = kept.length();
    let range = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok());
    let part = match range.map(|range| part(range, length)) {
        None | Some(Part::All) => None,
        Some(Part::Some(part)) => Some(part),
        Some(Part::Impossible) => {
            let detail = format!("the log has {length} bytes");
            let mut response = Problem::no_such_range(detail).into_response();
            say(
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
    let mut tail = Tail::open(&state.handle, &view, kept.offset(bytes.start), None);
    tail.end_at(kept.offset(bytes.end));
    let pages = stream::try_unfold(tail, |mut tail| async move {
        let page = tail.page().await?;
        Ok::<_, std::io::Error>((!page.is_empty()).then(|| (log_stream::raw(page), tail)))
    });
    let mut response = (status, Body::from_stream(pages)).into_response();
    say(
        &mut response,
        header::CONTENT_TYPE,
        "application/octet-stream",
    );
    say(&mut response, header::CONTENT_SECURITY_POLICY, POLICY);
    say(&mut response, header::CACHE_CONTROL, "no-store");
    say(&mut response, header::ACCEPT_RANGES, "bytes");
    let sent = (bytes.end - bytes.start).to_string();
    say(&mut response, header::CONTENT_LENGTH, &sent);
    if let Some(part) = part {
        let words = format!("bytes {}-{}/{length}", part.start, part.end - 1);
        say(&mut response, header::CONTENT_RANGE, &words);
    }
    if wanted
        .download
        .is_some_and(|flag| flag == "1" || flag == "true")
    {
        let words = format!("attachment; filename=\"{}.log\"", view.id);
        say(&mut response, header::CONTENT_DISPOSITION, &words);
    }
    Ok(response)
}

fn say(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Ranges of offsets that are still in the log, between its gaps.
struct Kept(Vec<Range<u64>>);

impl Kept {
    fn of(log: &Log) -> std::io::Result<Self> {
        let (end, gaps) = (log.end()?, log.gaps()?);
        let mut stretches = Vec::new();
        let mut from = 0;
        for (missing, next) in gaps {
            stretches.push(from..missing);
            from = next;
        }
        stretches.push(from..end.max(from));
        Ok(Kept(stretches))
    }

    fn length(&self) -> u64 {
        self.0
            .iter()
            .map(|stretch| stretch.end - stretch.start)
            .sum()
    }

    /// Log offset of a byte of the file.
    fn offset(&self, at: u64) -> u64 {
        let mut left = at;
        for stretch in &self.0 {
            let length = stretch.end - stretch.start;
            if left <= length {
                return stretch.start + left;
            }
            left -= length;
        }
        self.0.last().map_or(0, |last| last.end)
    }
}

/// Part of the file that the `Range` header requests.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// The whole file: the header is malformed or requests several ranges.
    All,
    Some(Range<u64>),
    Impossible,
}

fn part(range: &str, length: u64) -> Part {
    let Some((from, to)) = range
        .strip_prefix("bytes=")
        .filter(|parts| !parts.contains(','))
        .and_then(|part| part.trim().split_once('-'))
    else {
        return Part::All;
    };
    let number = |text: &str| {
        let plain = text.bytes().all(|digit| digit.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let wanted = match (from, to) {
        ("", last) => match number(last) {
            Some(last) => length.saturating_sub(last)..length,
            None => return Part::All,
        },
        (from, "") => match number(from) {
            Some(from) => from..length,
            None => return Part::All,
        },
        (from, to) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => from..length.min(to.saturating_add(1)),
            _ => return Part::All,
        },
    };
    match wanted.start < wanted.end {
        true => Part::Some(wanted),
        false => Part::Impossible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_understood_as_the_standard_says() {
        for (range, wanted) in [
            ("bytes=0-0", Part::Some(0..1)),
            ("bytes=2-4", Part::Some(2..5)),
            ("bytes=2-", Part::Some(2..10)),
            ("bytes=2-99", Part::Some(2..10)),
            ("bytes=-3", Part::Some(7..10)),
            ("bytes=-99", Part::Some(0..10)),
            ("bytes=10-", Part::Impossible),
            ("bytes=10-12", Part::Impossible),
            ("bytes=-0", Part::Impossible),
            ("bytes=4-2", Part::All),
            ("bytes=0-1,3-4", Part::All),
            ("bytes=x-1", Part::All),
            ("bytes=+1-2", Part::All),
            ("lines=0-1", Part::All),
            ("", Part::All),
        ] {
            assert_eq!(part(range, 10), wanted, "{range}");
        }
        assert_eq!(part("bytes=0-", 0), Part::Impossible);
    }

    #[test]
    fn what_fell_out_of_the_log_is_not_in_the_file() {
        let kept = Kept(vec![0..10, 30..35]);
        assert_eq!(kept.length(), 15);
        for (at, offset) in [(0, 0), (9, 9), (11, 31), (15, 35), (99, 35)] {
            assert_eq!(kept.offset(at), offset, "{at}");
        }
    }
}

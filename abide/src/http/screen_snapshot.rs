//! Snapshot of a session's screen as bytes that draw it, for a terminal that attaches.

use abide_api::ScreenPaint;
use axum::extract::{Path, State as Shared};

use super::State;
use super::body::JsonResponse;
use super::problem::Problem;
use super::requester::Requester;

/// Returns the bytes, the size of the screen, and the log offset at which the snapshot was taken.
pub async fn screen_snapshot(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> Result<JsonResponse<ScreenPaint>, Problem> {
    let view = requester.session(&state, &id)?;
    if !view.pty {
        return Err(Problem::conflict(format!("Session '{id}' has no terminal")));
    }
    let (folded, offset) = state.handle.screens().paint(view.id).await?;
    Ok(JsonResponse(ScreenPaint {
        paint: String::from_utf8_lossy(folded.paint()).into_owned(),
        cols: folded.size().cols,
        rows: folded.size().rows,
        offset,
    }))
}

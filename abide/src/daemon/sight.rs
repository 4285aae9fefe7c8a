//! How probes see sessions.

use std::path::PathBuf;
use std::pin::Pin;

use abide_core::SessionId;
use abide_core::session::{Exit, Phase};
use tokio::sync::broadcast::error::RecvError;

use super::Handle;
use crate::world::keepers::Follower;
use crate::world::probe::Sessions;

/// Sees through the board.
pub(super) struct Sight(pub Handle);

impl Sessions for Sight {
    fn ended(
        &self,
        session: SessionId,
    ) -> Pin<Box<dyn Future<Output = Option<String>> + Send + '_>> {
        Box::pin(async move {
            let mut changes = self.0.board().follow();
            loop {
                let view = self.0.board().session(session)?;
                if let Phase::Failed { fault, .. } = &view.state.phase {
                    return Some(fault.to_string());
                }
                if let Some(ending) = view.ending() {
                    return Some(match ending.exit {
                        Some(Exit::Code(code)) => format!("exited with code {code}"),
                        Some(Exit::Signal(signal)) => format!("ended by signal {signal}"),
                        None => "nobody saw how".into(),
                    });
                }
                if let Err(RecvError::Closed) = changes.recv().await {
                    return std::future::pending().await;
                }
            }
        })
    }

    fn follow(&self, session: SessionId) -> Option<Follower> {
        self.0.keepers().follow(session)
    }

    fn folder(&self, session: SessionId) -> PathBuf {
        self.0.keepers().folder(session)
    }
}

//! Telling a client how far a call is.

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use std::time::Duration;
use tokio::time::Instant;

/// Least time between two notifications.
const PAUSE: Duration = Duration::from_millis(200);

/// Tells a client that wants to know it.
pub(super) struct Progress {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    done: f64,
    last: Option<Instant>,
}

impl Progress {
    /// For the client that made this request.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Progress {
        let to = context.meta.get_progress_token().map(|token| (context.peer.clone(), token));
        Progress { to, done: -1.0, last: None }
    }

    /// So much is done. What is told too soon after the last time, or is no more than then, is left out, since progress may
    /// only grow.
    pub(super) async fn tell(&mut self, done: f64, total: Option<f64>, text: &str) {
        let Some((peer, token)) = &self.to else { return };
        let soon = self.last.is_some_and(|last| last.elapsed() < PAUSE);
        if soon || done <= self.done {
            return;
        }
        (self.done, self.last) = (done, Some(Instant::now()));
        let mut told = ProgressNotificationParam::new(token.clone(), done).with_message(text);
        told.total = total;
        // Who is gone does not hear it; the call itself notices that.
        let _ = peer.notify_progress(told).await;
    }
}

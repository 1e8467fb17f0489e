//! Work that takes longer than a connection's turn.

use crate::backend::{Refusal, RefusalKind};

/// Does work on a thread for such: a long conversation takes a while to be rendered and split into tokens, and the threads
/// that serve connections have streams to keep going meanwhile.
///
/// # Errors
/// The work's own, or that it panicked.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let failed = |e| Refusal::new(RefusalKind::Engine, format!("a thread of the server failed: {e}"));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(failed(e)))
}

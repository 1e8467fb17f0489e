//! A socket whose other side has to take what is written to it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

/// How long a client is listened to after the last word: what it was still sending would otherwise have the system throw
/// away the answer on its way.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A socket that fails when nothing that is written is taken for some time.
pub(super) struct Wire {
    socket: TcpStream,
    patience: Duration,
    /// Runs while the system takes no more, since the other side does not.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub(super) fn new(socket: TcpStream, patience: Duration) -> Wire {
        Wire { socket, patience, stuck: None }
    }

    /// Writes a few bytes if there is room for them, and ends the connection so that they arrive.
    pub(super) async fn end(mut self, last: &[u8]) {
        if !last.is_empty() {
            // A client that has taken nothing so far gets nothing now either.
            let _ = self.socket.try_write(last);
        }
        if std::future::poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await.is_err() {
            return;
        }
        let unread = async {
            let mut bytes = [0; 4096];
            while self.socket.readable().await.is_ok() {
                match self.socket.try_read(&mut bytes) {
                    Ok(0) => return,
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => return,
                    Ok(_) | Err(_) => {}
                }
            }
        };
        let _ = timeout(LAST_WORDS, unread).await;
    }

    fn taken<T>(&mut self, cx: &mut Context<'_>, taken: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if taken.is_ready() {
            self.stuck = None;
            return taken;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, Unread)))
    }
}

/// The other side took nothing in time.
#[derive(Debug, thiserror::Error)]
#[error("nothing that was sent was taken in time")]
pub(super) struct Unread;

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.taken(cx, taken)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let taken = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.taken(cx, taken)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

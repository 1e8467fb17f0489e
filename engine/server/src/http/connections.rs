//! Connections: how many there may be, and when one is let go that does not get on.

use super::errors::{ApiError, Dialect};
use super::wire::{Unread, Wire};
use crate::ids::id;
use crate::options::{Limits, Log};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Connections beyond the limit that are told so at a time; further ones wait to be accepted.
const TOLD: usize = 64;
/// How long such a one has for its request.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// When to come back if there are too many connections.
const COME_BACK: Duration = Duration::from_secs(1);
/// Bytes that wait to be read or sent at most in each connection; a request's head must fit.
const BUFFER: usize = 128 << 10;
/// Time between tries to accept when the system has no more sockets, and how long that may go on.
const PAUSE: Duration = Duration::from_secs(1);
const GIVE_UP: Duration = Duration::from_secs(60);

/// The connections of a server.
pub(crate) struct Connections {
    limits: Limits,
    log: Log,
    room: Arc<Semaphore>,
    told: Arc<Semaphore>,
    refused: AtomicU64,
    /// Whether the last connection was one too many, so that it is said once.
    full: AtomicBool,
}

/// How many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ConnectionCounts {
    pub(crate) open: usize,
    pub(crate) limit: usize,
    /// Those that were turned away since the start because there were too many.
    pub(crate) refused: u64,
}

/// Marks requests that came over a connection beyond the limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OneTooMany;

impl OneTooMany {
    /// What such a request is answered.
    pub(crate) fn error() -> ApiError {
        let message = "the server has as many connections as it takes; try again in a moment";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("too_many_connections").with_retry(COME_BACK)
    }
}

impl Connections {
    pub(crate) fn new(limits: Limits, log: Log) -> Connections {
        let room = Arc::new(Semaphore::new(limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        let (refused, full) = (AtomicU64::new(0), AtomicBool::new(false));
        Connections { limits, log, room, told: Arc::new(Semaphore::new(TOLD)), refused, full }
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        let limit = self.limits.connections.max(1);
        let open = limit.saturating_sub(self.room.available_permits());
        ConnectionCounts { open, limit, refused: self.refused.load(Ordering::Relaxed) }
    }

    /// Serves until the server is to stop, and then until every connection has ended. Dropping it drops them.
    ///
    /// # Errors
    /// Nothing could be accepted for a minute.
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        router: Router,
        mut stopping: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let mut open = JoinSet::new();
        let mut failing: Option<Instant> = None;
        loop {
            let accepted = tokio::select! {
                // An error means that the sender is gone, which is an end too.
                _ = stopping.wait_for(|&stop| stop) => break,
                Some(_) = open.join_next() => continue,
                accepted = self.accept(&listener) => accepted,
            };
            match accepted {
                Ok((socket, address, place)) => {
                    failing = None;
                    open.spawn(Arc::clone(&self).connection(socket, address, place, router.clone(), stopping.clone()));
                }
                Err(e) if is_of_one_connection(&e) => {}
                Err(e) => {
                    let since = *failing.get_or_insert_with(|| {
                        self.log.line(&format!("no connection can be accepted: {e}"));
                        Instant::now()
                    });
                    if since.elapsed() >= GIVE_UP {
                        return Err(e);
                    }
                    sleep(PAUSE).await;
                }
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
        Ok(())
    }

    /// The next connection, with its place. Nothing is lost if this is given up before it is ready.
    async fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr, Place)> {
        // It is never closed.
        let spare = Arc::clone(&self.told).acquire_owned().await.map_err(io::Error::other)?;
        let (socket, address) = listener.accept().await?;
        // Tokens are small, and each is to leave at once. A socket that cannot is slower.
        let _ = socket.set_nodelay(true);
        let place = match Arc::clone(&self.room).try_acquire_owned() {
            Ok(room) => {
                self.full.store(false, Ordering::Relaxed);
                Place { _permit: room, served: true }
            }
            Err(_) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if !self.full.swap(true, Ordering::Relaxed) {
                    let limit = self.limits.connections;
                    self.log.line(&format!("{limit} connections are open, so further ones are turned away"));
                }
                Place { _permit: spare, served: false }
            }
        };
        Ok((socket, address, place))
    }

    /// Serves a connection to its end.
    async fn connection(
        self: Arc<Self>,
        socket: TcpStream,
        address: SocketAddr,
        place: Place,
        router: Router,
        mut stopping: watch::Receiver<bool>,
    ) {
        let served = place.served;
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(address));
            if !served {
                request.extensions_mut().insert(OneTooMany);
            }
            Box::pin(router.call(request))
        });
        let head = if served { self.limits.head } else { self.limits.head.min(TOLD_WITHIN) };
        let mut connection = Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .keep_alive(served)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(Wire::new(socket, self.limits.unread)), service);
        let mut told = false;
        let ended = loop {
            tokio::select! {
                ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
                _ = stopping.wait_for(|&stop| stop), if !told => {
                    told = true;
                    std::pin::Pin::new(&mut connection).graceful_shutdown();
                }
            }
        };
        let parts = connection.into_parts();
        let wire = parts.io.into_inner();
        match ended {
            Err(e) if is_unread(&e) => {
                let seconds = self.limits.unread.as_secs_f64();
                self.log.line(&format!("{address} took nothing of an answer for {seconds} s and was let go"));
            }
            // Half a request: whoever sends it may hear why. An idle connection ends without a word.
            Err(e) if e.is_timeout() && !parts.read_buf.is_empty() => wire.end(&too_slow(head)).await,
            // What is wrong with a request was answered.
            Ok(()) | Err(_) => wire.end(&[]).await,
        }
        drop(place);
    }
}

/// A connection's place among those that there may be.
struct Place {
    _permit: OwnedSemaphorePermit,
    /// Whether it is answered, or only told that there are too many.
    served: bool,
}

/// Whether an error of accepting is about the connection that was to be accepted and no other.
fn is_of_one_connection(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Whether a connection ended because the client took nothing.
fn is_unread(e: &hyper::Error) -> bool {
    let io = e.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<Unread>())
}

/// The answer to a request whose head did not come in time. Its path, and so its interface, is not known.
fn too_slow(within: Duration) -> Vec<u8> {
    let seconds = within.as_secs_f64();
    let message = format!("the request's head was not there after {seconds} s");
    let error = ApiError::new(StatusCode::REQUEST_TIMEOUT, message).with_code("request_timeout");
    let body = error.body(Dialect::OpenAi, &id("req_")).to_string();
    let head = "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

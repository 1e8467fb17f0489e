//! A server on a real socket, and a client that shows what came over it.

// Tests fail by panicking, in their helpers too; each test uses some of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]

pub mod crowd;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strata_server::scripted::{Script, Scripted};
use strata_server::{Options, serve};
use tokio::sync::oneshot;

/// A server that runs until it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub backend: Arc<Scripted>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// One that always answers alike.
    pub fn always(script: Script) -> Server {
        Server::start(Scripted::always(script), |_| ())
    }

    /// One that writes these pieces.
    pub fn text<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Server {
        Server::always(Script::text(pieces))
    }

    pub fn start(backend: Scripted, change: impl FnOnce(&mut Options)) -> Server {
        let backend = Arc::new(backend);
        let mut options = Options { grace: Duration::from_millis(300), ..Options::default() };
        change(&mut options);
        let (stop, stopped) = oneshot::channel();
        let (told, address) = std::sync::mpsc::channel();
        let served = Arc::clone(&backend);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let stopped = async move {
                    let _ = stopped.await;
                };
                serve(listener, served, options, stopped).await.unwrap();
            });
        });
        Server { address: address.recv().unwrap(), backend, stop: Some(stop), thread: Some(thread) }
    }

    /// Has the server stop, without waiting for it.
    pub fn ask_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until it stopped.
    pub fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Sends a request with further headers and reads the whole answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(&head(method, path, headers, body.len())).unwrap();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(body);
        Reply::read(&mut stream)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    /// Sends a request and leaves its answer to be read.
    pub fn open(&self, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let mut stream = self.connect();
        stream.write_all(&head("POST", path, &[], body.len())).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    /// Waits until no answer runs; long enough for a busy machine, and shorter than any answer that does not end.
    pub fn becomes_idle(&self) -> bool {
        let start = Instant::now();
        while self.backend.running() > 0 {
            if start.elapsed() > Duration::from_secs(10) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ask_to_stop();
        self.wait();
    }
}

fn head(method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: 127.0.0.1\r\n");
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn read(stream: &mut TcpStream) -> Reply {
        let mut bytes = Vec::new();
        let mut piece = [0; 1 << 16];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(n) => bytes.extend_from_slice(&piece[..n]),
                Err(e) if bytes.is_empty() => panic!("nothing came: {e}"),
                Err(_) => break,
            }
        }
        Reply::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Reply {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let body = &bytes[end + 4..];
        let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v == "chunked");
        let body = if chunked { dechunk(body) } else { body.to_vec() };
        Reply { status, headers, body: String::from_utf8(body).unwrap() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// Every event: its name, if it has one, and its data.
    pub fn events(&self) -> Vec<(Option<String>, String)> {
        events(&self.body)
    }

    /// The data of every event but `[DONE]`.
    pub fn data(&self) -> Vec<Value> {
        let events = self.events().into_iter().filter(|(_, data)| data != "[DONE]");
        events.map(|(_, data)| serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: {data}"))).collect()
    }

    /// The comments of a stream.
    pub fn comments(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix(": ")).collect()
    }
}

pub fn events(body: &str) -> Vec<(Option<String>, String)> {
    let mut events = Vec::new();
    for block in body.split("\n\n") {
        let (mut name, mut data) = (None, None);
        for line in block.lines() {
            if let Some(text) = line.strip_prefix("event: ") {
                name = Some(text.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                assert!(data.is_none(), "one line of data each: {block}");
                data = Some(text.to_owned());
            } else {
                assert!(line.is_empty() || line.starts_with(": "), "{line:?}");
            }
        }
        events.extend(data.map(|data| (name, data)));
    }
    events
}

/// What was sent in chunks, as far as it came.
pub fn dechunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        let from = end + 2;
        if size == 0 || bytes.len() < from + size {
            break;
        }
        body.extend_from_slice(&bytes[from..from + size]);
        bytes = &bytes[(from + size + 2).min(bytes.len())..];
    }
    body
}

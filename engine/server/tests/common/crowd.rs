//! Many clients that stream answers at once, for some time, and look at every token.

// Tests fail by panicking, in their helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unreachable_pub)]

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients at once.
pub const CLIENTS: usize = 32;

/// How long the clients go on asking: STRATA_LOAD_SECONDS, or this many seconds.
pub fn seconds(short: f64) -> f64 {
    std::env::var("STRATA_LOAD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// A question, and the whole text that must come back.
pub struct Question {
    pub text: String,
    pub max_tokens: usize,
    pub answer: String,
}

/// What came of it.
#[derive(Default)]
pub struct Tally {
    pub requests: usize,
    /// Events that brought text. A token is one at most.
    pub pieces: usize,
    pub seconds: f64,
    /// From one piece to the next.
    gaps: Vec<Duration>,
    /// From the request to the first piece.
    waits: Vec<Duration>,
    /// Bytes of memory that the server had, every quarter of a second; none where the system does not say.
    memory: Vec<u64>,
}

impl Tally {
    /// A line for people.
    pub fn line(&self) -> String {
        let (gaps, waits) = (sorted(&self.gaps), sorted(&self.waits));
        let ms = |list: &[Duration], share| at(list, share).as_secs_f64() * 1e3;
        let mb = |bytes: Option<&u64>| bytes.map_or(0.0, |&bytes| bytes as f64 / 1e6);
        format!(
            "{CLIENTS} clients, {:.1} s: {} answers, {} pieces ({:.0}/s), between them p50 {:.2} ms, p99 {:.2} ms; \
             until the first p50 {:.0} ms, p99 {:.0} ms; memory {:.1} MB at first, {:.1} at last, {:.1} at most",
            self.seconds,
            self.requests,
            self.pieces,
            self.pieces as f64 / self.seconds,
            ms(&gaps, 0.5),
            ms(&gaps, 0.99),
            ms(&waits, 0.5),
            ms(&waits, 0.99),
            mb(self.memory.first()),
            mb(self.memory.last()),
            mb(self.memory.iter().max())
        )
    }

    /// Looks whether memory stays what it is: in the last third of the time not a tenth more than in the third before it.
    /// A short run says nothing of that.
    pub fn must_be_bounded(&self) {
        let third = self.memory.len() / 3;
        if third < 10 {
            return;
        }
        let most = |range: std::ops::Range<usize>| *self.memory[range].iter().max().unwrap();
        let (before, last) = (most(third..2 * third), most(2 * third..self.memory.len()));
        assert!(last <= before + before / 10 + (8 << 20), "memory grows from {before} to {last} bytes");
    }
}

fn sorted(list: &[Duration]) -> Vec<Duration> {
    let mut list = list.to_vec();
    list.sort_unstable();
    list
}

fn at(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// Has the clients ask for so many seconds, each the next of its questions as soon as the one before is answered.
/// `process` is the server, whose memory is looked at.
pub fn run(address: &str, process: u32, seconds: f64, question: impl Fn(usize, usize) -> Question + Sync) -> Tally {
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let end = start + Duration::from_secs_f64(seconds);
    let mut tally = Tally::default();
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut memory = Vec::new();
            while !over.load(Ordering::Relaxed) {
                memory.extend(resident(process));
                std::thread::sleep(Duration::from_millis(250));
            }
            memory
        });
        let question = &question;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut own = Tally::default();
                    while Instant::now() < end {
                        let question = question(client, own.requests);
                        let text = ask(address, &question, &mut own);
                        assert_eq!(
                            text, question.answer,
                            "client {client}, answer {}: {:?}",
                            own.requests, question.text
                        );
                        own.requests += 1;
                    }
                    own
                })
            })
            .collect();
        let owns: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::Relaxed);
        tally.memory = watching.join().unwrap();
        for own in owns {
            let mut own = own.unwrap();
            tally.requests += own.requests;
            tally.pieces += own.pieces;
            tally.gaps.append(&mut own.gaps);
            tally.waits.append(&mut own.waits);
        }
    });
    tally.seconds = start.elapsed().as_secs_f64();
    tally
}

/// Asks and returns the text of the stream, which must end as it should.
fn ask(address: &str, question: &Question, tally: &mut Tally) -> String {
    let body = json!({
        "stream": true, "temperature": 0, "max_tokens": question.max_tokens,
        "messages": [{"role": "user", "content": question.text}],
    })
    .to_string();
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let head = format!("host: {address}\r\nconnection: close\r\ncontent-length: {}", body.len());
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
    let mut stream = BufReader::new(stream);
    let (mut text, mut last, mut done) = (String::new(), None, false);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "no whole head: {head}");
    }
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut waiting = Vec::new();
    loop {
        let mut size = String::new();
        stream.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a stream that broke off");
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).unwrap();
        if size == 0 {
            break;
        }
        waiting.extend_from_slice(&chunk[..size]);
        let whole = waiting.windows(2).rposition(|pair| pair == b"\n\n").map_or(0, |at| at + 2);
        let events: Vec<u8> = waiting.drain(..whole).collect();
        for event in String::from_utf8(events).unwrap().split("\n\n").filter_map(|event| event.strip_prefix("data: ")) {
            if event == "[DONE]" {
                done = true;
                continue;
            }
            let event: Value = serde_json::from_str(event).unwrap();
            assert!(event["error"].is_null(), "{event}");
            if let Some(piece) = event["choices"][0]["delta"]["content"].as_str().filter(|piece| !piece.is_empty()) {
                text.push_str(piece);
                let now = Instant::now();
                match last.replace(now) {
                    None => tally.waits.push(now - start),
                    Some(before) => tally.gaps.push(now - before),
                }
                tally.pieces += 1;
            }
        }
    }
    assert!(done, "a stream without an end: {text}");
    text
}

/// Bytes of memory that a process has, where the system says.
fn resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

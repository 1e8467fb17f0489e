//! The other side of a recording: the thread that empties the ring into the trace.

use super::notes::{Notes, most_moves};
use super::shadow::{CacheCounts, LayerHits, Shadow};
use super::{About, LENGTH, RING, ROUNDS, Recorder};
use crate::error::{Error, Result};
use rtrb::{Consumer, RingBuffer};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strata_policy::window::MAX_ROWS;
use strata_trace::{Meta, RoundDecoder, TraceError, TraceWriter, most_bytes};

/// How often the ring is looked into.
const PAUSE: Duration = Duration::from_millis(20);

/// What both sides of a recording know.
#[derive(Default)]
pub(super) struct Shared {
    /// Rounds for which there was no room in time, or which could not be written.
    pub(super) lost: AtomicU64,
    /// Answers that ran beside another one, which was recorded.
    pub(super) missed: AtomicU64,
    /// Nothing more will come.
    ended: AtomicBool,
    /// What the expert cache counted so far; empty without one. The decode loop does not touch it.
    layers: Mutex<Vec<LayerHits>>,
}

/// What a recording's expert cache counts, while it is recorded. It stays what it was once that ended.
#[derive(Clone)]
pub struct CacheWatch(Arc<Shared>);

impl CacheWatch {
    /// Uses and hits of each layer, from the first on; empty without an expert cache.
    pub fn layers(&self) -> Vec<LayerHits> {
        self.0.layers().clone()
    }
}

impl Shared {
    fn layers(&self) -> std::sync::MutexGuard<'_, Vec<LayerHits>> {
        // It is replaced as a whole, so a panic elsewhere leaves it whole.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, shadow: Option<&Shadow>) {
        if let Some(shadow) = shadow {
            shadow.layers().clone_into(&mut self.layers());
        }
    }
}

/// How a recording went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recorded {
    /// Rounds written, chunks of prompts included.
    pub rounds: u64,
    /// Tokens of these rounds.
    pub tokens: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Rounds that could not be written in time.
    pub lost: u64,
    /// Answers that were not recorded, because they ran beside one that was.
    pub missed: u64,
    /// What the expert cache counted; `None` without one.
    pub cache: Option<CacheCounts>,
}

impl Recorded {
    /// What the user should know: that something is missing.
    pub fn warning(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.lost > 0 {
            parts.push(format!("{} rounds could not be written in time", self.lost));
        }
        if self.missed > 0 {
            parts.push(format!("{} answers ran beside others", self.missed));
        }
        (!parts.is_empty()).then(|| format!("the trace is not complete: {}", parts.join(", and ")))
    }
}

/// A trace that is being recorded.
///
/// One that is dropped and not [finished](Recording::finish) is broken off: everything that was recorded is written, and
/// the trace has no end.
pub struct Recording<W: Write> {
    shared: Arc<Shared>,
    /// Until it is joined.
    thread: Option<JoinHandle<Drained<W>>>,
}

/// What the thread works with, and leaves behind.
struct Drained<W: Write> {
    writer: TraceWriter<W>,
    meta: Meta,
    decoder: RoundDecoder,
    shadow: Option<Shadow>,
    failed: Option<TraceError>,
}

impl<W: Write> Drained<W> {
    /// Writes a round, with what the expert cache makes of it.
    fn write(&mut self, round: &[u8]) -> Result<(), TraceError> {
        let record = self.decoder.decode(round, &self.meta)?;
        match &mut self.shadow {
            // What a device's cache did is counted, and not decided again.
            Some(shadow) if record.hits.is_some() => {
                shadow.count(&record, &self.meta);
                self.writer.append(&record)
            }
            Some(shadow) => self.writer.append(&shadow.see(record, &self.meta)),
            None => self.writer.append(&record),
        }
    }
}

impl<W: Write> Recording<W> {
    /// Waits until everything that was recorded is written.
    fn join(&mut self) -> Result<Option<Drained<W>>> {
        self.shared.ended.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(None) };
        thread.thread().unpark();
        thread.join().map(Some).map_err(|_| Error::Thread(std::io::Error::other("it panicked")))
    }
}

impl<W: Write> Drop for Recording<W> {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl<W: Write + Send + 'static> Recording<W> {
    /// Begins a trace in `out`, of sessions that read prompts in chunks of up to `chunk` tokens. The recorder goes to
    /// [`Engine::record`](crate::Engine::record).
    ///
    /// # Errors
    /// What is known of the model cannot be a trace's, the settings' expert cache cannot be, `out` fails, or the system has
    /// no thread.
    pub fn start(out: W, about: About, chunk: usize) -> Result<(Box<Recorder>, Recording<W>)> {
        let rows = chunk.max(MAX_ROWS);
        let largest = LENGTH + most_bytes(&about.meta, rows, most_moves(&about.meta));
        Recording::with_ring(out, about, rows, RING.max(ROUNDS * largest))
    }

    /// [`Recording::start`] with a ring of so many bytes.
    pub(super) fn with_ring(out: W, about: About, rows: usize, ring: usize) -> Result<(Box<Recorder>, Recording<W>)> {
        let shadow = Shadow::of(&about.meta)?;
        let mut writer = TraceWriter::new(out, about.meta.clone())?;
        // Whatever comes, the file is a trace.
        writer.flush()?;
        let message = Vec::with_capacity(LENGTH + most_bytes(&about.meta, rows, most_moves(&about.meta)));
        let notes = Notes::new(&about, rows);
        let (producer, consumer) = RingBuffer::new(ring);
        let shared = Arc::new(Shared::default());
        shared.show(shadow.as_ref());
        let theirs = Arc::clone(&shared);
        let drained = Drained { writer, meta: about.meta, decoder: RoundDecoder::default(), shadow, failed: None };
        let thread = std::thread::Builder::new().name("trace".into()).spawn(move || drain(consumer, drained, &theirs));
        let thread = thread.map_err(Error::Thread)?;
        let recorder =
            Recorder { notes, message, ring: producer, shared: Arc::clone(&shared), writer: thread.thread().clone() };
        Ok((Box::new(recorder), Recording { shared, thread: Some(thread) }))
    }

    /// What its expert cache counts, for who asks while it is recorded.
    pub fn cache(&self) -> CacheWatch {
        CacheWatch(Arc::clone(&self.shared))
    }

    /// Ends the trace and returns what it was written to. What the recorder is shown from now on is not recorded.
    ///
    /// # Errors
    /// Something could not be written. What was written before is a trace that was broken off.
    pub fn finish(mut self) -> Result<(W, Recorded)> {
        let gone = || Error::Thread(std::io::Error::other("it ended before"));
        let Drained { writer, shadow, failed, .. } = self.join()?.ok_or_else(gone)?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let [lost, missed] = [&self.shared.lost, &self.shared.missed].map(|n| n.load(Ordering::Relaxed));
        let (rounds, tokens, cache) = (writer.rounds(), writer.tokens(), shadow.map(|shadow| shadow.counts()));
        let (out, bytes) = writer.finish(lost)?;
        Ok((out, Recorded { rounds, tokens, bytes, lost, missed, cache }))
    }
}

/// Writes what comes out of the ring until nothing more will.
fn drain<W: Write>(mut ring: Consumer<u8>, mut drained: Drained<W>, shared: &Shared) -> Drained<W> {
    let mut round = Vec::new();
    loop {
        // Asked first: what was pushed before the end is then seen below.
        let ended = shared.ended.load(Ordering::Acquire);
        let mut some = false;
        while pop(&mut ring, &mut round) {
            some = true;
            match &drained.failed {
                None => drained.failed = drained.write(&round).err(),
                // It goes on being emptied, so that nobody waits for a disk that is full.
                Some(_) => {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if some {
            shared.show(drained.shadow.as_ref());
        }
        if some && drained.failed.is_none() {
            drained.failed = drained.writer.flush().err();
        }
        if ended {
            return drained;
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Takes a round out of the ring, which holds whole ones only; tells whether there was one.
fn pop(ring: &mut Consumer<u8>, round: &mut Vec<u8>) -> bool {
    let mut length = [0; LENGTH];
    if ring.pop_entire_slice(&mut length).is_err() {
        return false;
    }
    round.resize(u32::from_le_bytes(length) as usize, 0);
    ring.pop_entire_slice(round).is_ok()
}

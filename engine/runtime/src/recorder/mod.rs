//! The recorder: what the engine does, as a trace.
//!
//! The thread that decodes notes what a round was in memory that it has had from the start, and pushes the round as bytes
//! into a lock-free ring of one producer and one consumer ([`rtrb`]); it takes no lock and no memory. Another thread looks
//! into the ring fifty times a second and writes what it finds. So a crash loses a fiftieth of a second, and what the disk
//! does is nothing to the decode loop. If the disk falls behind by the whole ring, a round waits for it for a tenth of a
//! second at most; then the round is lost, which is counted, told at the end and written into the trace.
//!
//! ```no_run
//! # fn f(engine: &strata_runtime::Engine<strata_model::CpuOps>, gguf: &strata_gguf::Gguf) -> strata_runtime::Result<()> {
//! use strata_runtime::{About, Recording};
//!
//! let about = About::of(gguf, engine, "strata 0.1.0", Default::default())?;
//! let (recorder, recording) = Recording::start(Vec::new(), about, 256)?;
//! engine.record(recorder);
//! // Every answer of every session is recorded.
//! let (file, recorded) = recording.finish()?;
//! println!("{} rounds, {} bytes", recorded.rounds, recorded.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! # The expert cache
//!
//! Where a GPU has an expert cache, its hits and changes are recorded with the rounds, and the header says what it held at
//! the start. Where the settings in the header ask for one and there is no GPU, it runs on the thread that writes and moves
//! no bytes. [`CacheCounts`] are the sums. Either way it is the code that replays run, so a replay of the trace under its own
//! settings gives the same, access by access.
//!
//! # What is measured
//!
//! A round lasts from the end of the one before to the end of its own commit, so that the rounds of an answer add up to
//! its time. [`Branch::CpuExperts`](strata_trace::Branch) is the time between a layer's choice of experts and their sum;
//! the shared expert is added up with them, and its time cannot be told apart, but its bytes count as dense.
//! [`Branch::Draft`](strata_trace::Branch) is the draft layer with its reading along, and has no bytes: what it reads is
//! not counted. [`Branch::Other`](strata_trace::Branch) is what is left of the round, the dense weights above all. A
//! round reads every weight once at most, so bytes are those of the distinct experts of its layers and of the dense
//! weights; the head's are left out where no logits are asked for.

mod about;
mod clock;
mod drain;
mod notes;
mod shadow;
mod slot;
#[cfg(test)]
mod tests;

pub use about::About;
pub(crate) use clock::{Lap, Times, nanos};
pub use drain::{CacheWatch, Recorded, Recording};
pub(crate) use notes::Pass;
pub use shadow::{CacheCounts, LayerHits};
pub(crate) use slot::Slot;

use drain::Shared;
use notes::Notes;
use rtrb::Producer;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use std::time::{Duration, Instant};
use strata_model::{CacheRound, Observer, Routing};
use strata_trace::{Phase, encode};

/// Bytes of the ring at least: some thousand tokens of the published model, of 1.9 KB each.
const RING: usize = 4 << 20;

/// The largest rounds that the ring holds.
const ROUNDS: usize = 2;

/// How long a round waits for room in the ring, and how long at a time.
const PATIENCE: Duration = Duration::from_millis(100);
const NAP: Duration = Duration::from_millis(1);

/// Bytes before each round in the ring: how many it has.
const LENGTH: usize = 4;

/// The decode loop's side of a recording.
pub struct Recorder {
    notes: Notes,
    /// The round as bytes, behind their number.
    message: Vec<u8>,
    ring: Producer<u8>,
    shared: Arc<Shared>,
    writer: Thread,
}

impl Recorder {
    /// Another answer begins.
    pub(crate) fn begin(&mut self) {
        self.notes.begin();
    }

    /// A pass over so many rows begins: what this is shown from now on is the pass's.
    fn watch(&mut self, rows: usize, phase: Phase) -> &mut Self {
        self.notes.watch(rows, phase);
        self
    }

    /// A round is over.
    pub(crate) fn add(&mut self, pass: &Pass<'_>, times: Times) {
        let record = self.notes.record(pass, times);
        self.message.clear();
        self.message.extend_from_slice(&[0; LENGTH]);
        encode(&record, &mut self.message);
        self.notes.next();
        let bytes = (self.message.len() - LENGTH) as u32;
        self.message[..LENGTH].copy_from_slice(&bytes.to_le_bytes());
        if !self.push() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pushes the message; tells whether there was room in time.
    fn push(&mut self) -> bool {
        let capacity = self.ring.buffer().capacity();
        if self.message.len() > capacity {
            return false;
        }
        if self.ring.push_entire_slice(&self.message).is_err() {
            let since = Instant::now();
            loop {
                self.writer.unpark();
                if self.ring.is_abandoned() || since.elapsed() >= PATIENCE {
                    return false;
                }
                std::thread::sleep(NAP);
                if self.ring.push_entire_slice(&self.message).is_ok() {
                    break;
                }
            }
        }
        if self.ring.slots() < capacity / 2 {
            self.writer.unpark();
        }
        true
    }
}

impl Observer for Recorder {
    fn routing(&mut self, layer: usize, routing: &Routing) {
        self.notes.routing(layer, routing);
    }

    fn experts(&mut self, layer: usize) {
        self.notes.experts(layer);
    }

    fn phase(&self) -> Option<Phase> {
        Some(self.notes.phase())
    }

    fn cache(&mut self, round: &CacheRound<'_>) {
        self.notes.cache(round);
    }
}

/// Looks away, but knows what a pass is for.
pub(crate) struct Unseen(pub(crate) Phase);

impl Observer for Unseen {
    fn phase(&self) -> Option<Phase> {
        Some(self.0)
    }
}

/// What watches a pass over so many rows: the recorder, if there is one.
pub(crate) fn observer<'a>(
    recorder: &'a mut Option<Box<Recorder>>,
    rows: usize,
    unseen: &'a mut Unseen,
) -> &'a mut dyn Observer {
    match recorder {
        Some(recorder) => recorder.watch(rows, unseen.0),
        None => unseen,
    }
}

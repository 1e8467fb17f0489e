//! What the engine did, as records: which experts each token used, and how long each branch of a round took.
//!
//! A trace is written by the engine's decode loop and read by the simulator, which replays it under other policies and
//! cost models. Three levels hold its facts: the file as a whole ([`Meta`]), each [`Round`] (a window of tokens read in
//! one pass, or a chunk of a prompt), and each [`Token`] of a round with the experts that every layer chose for it.
//!
//! In memory a [`Trace`] keeps each kind of fact in one array, so that a replay walks through memory in order. In a file
//! it is written by a [`TraceWriter`] and read by [`Trace::read`], or round by round by a [`TraceReader`].
//!
//! ```
//! use strata_trace::{DraftSource, Meta, ModelMeta, Origin, Phase, Round, Token, Trace};
//!
//! let meta = Meta {
//!     origin: Origin::Synthetic,
//!     model: ModelMeta { name: "two layers".into(), id: String::new(), quant: String::new() },
//!     engine: "an example".into(),
//!     layers: 2,
//!     experts: 8,
//!     used: 2,
//!     expert_bytes: vec![1000, 1000],
//!     dense_bytes: 5000,
//!     knobs: Default::default(),
//!     hardware: None,
//!     clock: "none".into(),
//!     resident: Vec::new(),
//!     unix_seconds: None,
//!     note: String::new(),
//! };
//! let mut trace = Trace::new(meta);
//! let round = Round {
//!     request: 0,
//!     round: 0,
//!     phase: Phase::Decode,
//!     source: DraftSource::None,
//!     rows: 1,
//!     committed: 1,
//!     total_nanos: 0,
//!     nanos: [0; 9],
//!     bytes: [0; 9],
//! };
//! let token = Token { id: 17, position: 0, drafted: false, committed: true };
//! trace.push(round, &[token], &[3, 5, 0, 7], &[40_000, 25_535, 33_000, 32_535])?;
//! let file = trace.write(Vec::new())?;
//! let read = Trace::read_from(&file[..], file.len() as u64, "an example")?;
//! assert_eq!((read.trace, read.warnings.len()), (trace, 0));
//! # Ok::<(), strata_trace::TraceError>(())
//! ```
//!
//! # The file
//!
//! All numbers are little endian. A file begins with
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `STRATATR` |
//! | 8 | 4 | version of this format, 1 |
//! | 12 | 4 | n, the bytes of the meta |
//! | 16 | n | [`Meta`] as JSON |
//! | 16 + n | 8 | XXH3 (64 bits, seed 0) of everything before |
//!
//! and goes on with frames, one for each round, and one that ends it:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4 | n, the bytes of the payload |
//! | 4 | 4 | the bitwise complement of n |
//! | 8 | 1 | kind: 1 = a round, 2 = the end |
//! | 9 | n | the payload |
//! | 9 + n | 8 | XXH3 (64 bits) of the 9 + n bytes before; its seed is the checksum before this frame, the header's for the first |
//!
//! The payload of a round, of r rows in l layers with u experts each:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 4, 4 | request and round |
//! | 8 | 1 | phase: 0 = prefill, 1 = decode |
//! | 9 | 1 | source of drafts: 0 = none, 1 = draft layer, 2 = lookup, 3 = both, 4 = the caller |
//! | 10 | 2 | flags: 1 = with times of layers, 2 = with hits, 4 = with moves; with times of layers, 8, 16, 32 and 64 = `dense`, `gpu`, `copy` and `cpu` are not all 0 |
//! | 12 | 4, 4 | r, and how many of them were kept |
//! | 20 | 8 | nanoseconds of the round |
//! | 28 | 9 × 8 | nanoseconds of each branch, in the order of [`BRANCHES`] |
//! | 100 | 9 × 8 | bytes of each branch |
//! | 172 | r × 9 | for each row: the token (4), its position (4), flags (1): 1 = drafted, 2 = kept |
//! | | r × l × u × 2 | experts |
//! | | r × l × u × 2 | router weights in units of 1 / 65,535 |
//! | | up to 4 × l × 8 | if flagged: for each flagged column of times, nanoseconds of each layer |
//! | | (r × l × u + 7) / 8 | if flagged: hits, a bit each, the lowest first |
//! | | 4 + m × 9 | if flagged: m, then for each move: flags (1): 1 = came, 2 = left; layer (2), expert that came (2), layer and expert that left (2, 2) |
//!
//! The payload of the end is the number of rounds (8) and tokens (8) in the file, and of rounds that were lost (8). Nothing
//! follows it.
//!
//! A file is a trace at every moment while it is written, and a crash may break it off at any byte. So what is at its end
//! and no whole frame is cut, with a warning: fewer bytes than the last frame has, a last frame with a wrong checksum, or
//! zeros in place of frames, which some file systems leave after a loss of power. Without a whole header there is nothing
//! to keep. Everything else that is wrong is damage and refused, since nobody could tell what else is.
//!
//! A reader believes no length before it has been compared with the file's.
//!
//! # Text
//!
//! [`write_jsonl`] and [`read_jsonl`] have a form for other programs, a line of JSON for each round:
#![doc = include_str!("jsonl.md")]
//!
//! [`write_csv`] writes a table with a line for each token and layer.
#![forbid(unsafe_code)]

mod codec;
mod csv;
mod jsonl;
mod limits;
mod meta;
mod part;
mod reader;
mod record;
mod round;
pub mod stats;
mod summary;
pub mod synth;
mod trace;
mod writer;

pub use codec::{RoundDecoder, encode, most_bytes};
pub use csv::write_csv;
pub use jsonl::{read_jsonl, read_jsonl_from, write_jsonl};
pub use meta::{KnobValue, Meta, ModelMeta, Origin};
pub use part::PartFile;
pub use reader::{Cut, Opened, TraceReader};
pub use record::Record;
pub use round::{BRANCHES, Branch, DraftSource, LayerTimes, Move, Phase, Round, Token};
pub use summary::{BranchTime, Drafts, Part, Summary};
pub use trace::{Trace, TraceError, gate_from_fixed, gate_to_fixed};
pub use writer::TraceWriter;

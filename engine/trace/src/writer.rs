//! Writing traces, round by round.

use crate::codec::{self, END, HEADER, MAGIC, ROUND, VERSION};
use crate::limits::invalid;
use crate::meta::Meta;
use crate::record::Record;
use crate::trace::{Trace, TraceError};
use std::io::{self, Write};

/// Writes a trace, round by round.
///
/// What was written is a trace at every moment: one that was broken off is read up to its last whole round.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    meta: Meta,
    /// The checksum before the next frame.
    sum: u64,
    rounds: u64,
    tokens: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// `meta` cannot be a trace's, or `out` fails.
    pub fn new(mut out: W, meta: Meta) -> Result<TraceWriter<W>, TraceError> {
        meta.check("the trace")?;
        let json = serde_json::to_vec(&meta).map_err(|e| TraceError::writing(e.into()))?;
        let length = u32::try_from(json.len()).ok();
        let length =
            length.ok_or_else(|| invalid("the trace: meta", format!("{} bytes", json.len()), "below 4 GiB"))?;
        let mut header = Vec::with_capacity(HEADER + json.len() + codec::CHECKSUM);
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&length.to_le_bytes());
        header.extend_from_slice(&json);
        let sum = codec::checksum(&header, 0);
        header.extend_from_slice(&sum.to_le_bytes());
        out.write_all(&header).map_err(TraceError::writing)?;
        let bytes = header.len() as u64;
        Ok(TraceWriter { out, meta, sum, rounds: 0, tokens: 0, bytes, buffer: header })
    }

    /// Adds a round.
    ///
    /// # Errors
    /// The record cannot be a round of this trace, or `out` fails; a trace of which a part could not be written goes no
    /// further.
    pub fn append(&mut self, record: &Record<'_>) -> Result<(), TraceError> {
        record.check(&self.meta, "the trace")?;
        self.buffer.clear();
        codec::frame(&mut self.buffer, ROUND, &mut self.sum, |out| codec::encode(record, out))?;
        self.rounds += 1;
        self.tokens += record.tokens.len() as u64;
        self.put()
    }

    /// Hands what was added to the operating system.
    ///
    /// # Errors
    /// `out` fails.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.out.flush().map_err(TraceError::writing)
    }

    /// Ends the trace, of which so many rounds were lost. Returns what it was written to, and how many bytes it has.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self, lost: u64) -> Result<(W, u64), TraceError> {
        self.buffer.clear();
        let numbers = [self.rounds, self.tokens, lost];
        codec::frame(&mut self.buffer, END, &mut self.sum, |out| {
            numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        })?;
        self.put()?;
        self.flush()?;
        Ok((self.out, self.bytes))
    }

    /// Rounds so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Tokens of all rounds so far.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn put(&mut self) -> Result<(), TraceError> {
        self.bytes += self.buffer.len() as u64;
        self.out.write_all(&self.buffer).map_err(TraceError::writing)
    }
}

impl Trace {
    /// Writes the whole trace.
    ///
    /// # Errors
    /// A round cannot be one of a trace, which [`Trace::push`] rules out, or `out` fails.
    pub fn write<W: Write>(&self, out: W) -> Result<W, TraceError> {
        let mut writer = TraceWriter::new(out, self.meta.clone())?;
        (0..self.rounds.len()).try_for_each(|round| writer.append(&self.record(round)))?;
        Ok(writer.finish(self.lost)?.0)
    }
}

impl TraceError {
    /// Writing failed.
    pub(crate) fn writing(source: io::Error) -> TraceError {
        TraceError::Io { path: "cannot write the trace".into(), source }
    }
}

//! Reading traces, round by round.

use crate::codec::{self, CHECKSUM, END, FRAME, HEADER, MAGIC, Parts, ROUND, VERSION};
use crate::limits::invalid;
use crate::meta::Meta;
use crate::record::Record;
use crate::trace::{Trace, TraceError};
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// What is missing at the end of a trace that was broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Where the last whole round ends, in bytes of the file.
    pub at: u64,
    /// Bytes behind it, of a round or an end that was being written. They were left out.
    pub bytes: u64,
    /// Whole rounds before it.
    pub rounds: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = match self.rounds {
            1 => "1 whole round".to_owned(),
            n => format!("{n} whole rounds"),
        };
        match self.bytes {
            0 => write!(f, "the recording was broken off behind {rounds}; what followed is not here"),
            n => write!(
                f,
                "the recording was broken off: {rounds} up to byte {}; the {n} bytes behind hold no whole one and are \
                 left out",
                self.at
            ),
        }
    }
}

/// A trace from a file, and what the user should know about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The trace.
    pub trace: Trace,
    /// Sentences: that it was broken off, that rounds were lost.
    pub warnings: Vec<String>,
}

/// Reads a trace, round by round.
#[derive(Debug)]
pub struct TraceReader<R: Read> {
    input: R,
    name: String,
    meta: Meta,
    /// Bytes of the whole file, and those that were read.
    len: u64,
    at: u64,
    sum: u64,
    rounds: u64,
    tokens: u64,
    buffer: Vec<u8>,
    parts: Parts,
    end: Option<End>,
}

/// How a trace ended.
#[derive(Debug, Clone, Copy)]
enum End {
    Whole { lost: u64 },
    Cut(Cut),
}

impl TraceReader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// See [`TraceReader::new`]; or the file cannot be read.
    pub fn open(path: &Path) -> Result<TraceReader<BufReader<File>>, TraceError> {
        let name = show(path);
        let failed = |source| TraceError::Io { path: name.clone(), source };
        let (file, len) = open_regular(path).map_err(failed)?;
        TraceReader::new(BufReader::new(file), len, &name)
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads the beginning of a trace of `len` bytes. `name` is for errors.
    ///
    /// # Errors
    /// It is no trace, of a version that is not known, damaged, or what holds for all of it makes no sense; or `input`
    /// fails.
    pub fn new(mut input: R, len: u64, name: &str) -> Result<TraceReader<R>, TraceError> {
        let failed = |source| TraceError::Io { path: name.into(), source };
        let short = |part: &str| {
            invalid(format!("{name} byte {len}"), "the end of the file", format!("{part}: no round is recorded in it"))
        };
        let place = |at: usize| format!("{name} byte {at}");
        let mut header = vec![0; (len.min(HEADER as u64)) as usize];
        input.read_exact(&mut header).map_err(failed)?;
        let known = header.len().min(MAGIC.len());
        if header[..known] != MAGIC[..known] || header.is_empty() {
            return Err(invalid(place(0), "something else", "a trace, which begins with STRATATR"));
        }
        if header.len() < HEADER {
            return Err(short("the rest of a trace's header"));
        }
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (version, json) = (number(8), u64::from(number(12)));
        if version != VERSION {
            let found = format!("version {version} of the format");
            return Err(invalid(place(8), found, format!("{VERSION}; a newer strata may know it")));
        }
        let at = HEADER as u64 + json + CHECKSUM as u64;
        if at > len {
            return Err(short("the rest of a trace's meta"));
        }
        // The file has as many bytes.
        header.resize(HEADER + json as usize, 0);
        input.read_exact(&mut header[HEADER..]).map_err(failed)?;
        let mut stored = [0; CHECKSUM];
        input.read_exact(&mut stored).map_err(failed)?;
        let sum = codec::checksum(&header, 0);
        if u64::from_le_bytes(stored) != sum {
            let found = format!("checksum {:016x} of the header", u64::from_le_bytes(stored));
            return Err(invalid(place(HEADER + json as usize), found, format!("{sum:016x}: the header is damaged")));
        }
        let meta = meta_of(&header[HEADER..], &place(HEADER))?;
        meta.check(name)?;
        Ok(TraceReader {
            input,
            name: name.into(),
            meta,
            len,
            at,
            sum,
            rounds: 0,
            tokens: 0,
            buffer: header,
            parts: Parts::default(),
            end: None,
        })
    }

    /// What holds for all of it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Where a trace was broken off, if it was; known behind its last round.
    pub fn cut(&self) -> Option<Cut> {
        match self.end {
            Some(End::Cut(cut)) => Some(cut),
            _ => None,
        }
    }

    /// Rounds that could not be written in time; known behind the last round.
    pub fn lost(&self) -> u64 {
        match self.end {
            Some(End::Whole { lost }) => lost,
            _ => 0,
        }
    }

    /// The next round; `None` behind the last whole one.
    ///
    /// # Errors
    /// The file is damaged before its end or holds what makes no sense; byte and round are named. Or it cannot be read.
    pub fn next_round(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let start = self.at;
        let Some(kind) = self.frame()? else { return Ok(None) };
        let payload = FRAME..self.buffer.len() - CHECKSUM;
        match kind {
            ROUND => {
                let end = self.at - CHECKSUM as u64;
                let record = codec::decode(&self.buffer[payload], end, &self.name, &self.meta, &mut self.parts)?;
                self.rounds += 1;
                self.tokens += record.tokens.len() as u64;
                Ok(Some(record))
            }
            END => {
                self.finish(start)?;
                Ok(None)
            }
            other => {
                Err(invalid(self.place(start + 8), format!("a frame of kind {other}"), format!("{ROUND} or {END}")))
            }
        }
    }

    /// Reads a frame into the buffer and checks it; `None` when the file was broken off before its end.
    fn frame(&mut self) -> Result<Option<u8>, TraceError> {
        let (start, left) = (self.at, self.len - self.at);
        if left < FRAME as u64 {
            return Ok(self.broken_off(start));
        }
        self.buffer.clear();
        self.fill(FRAME)?;
        let number =
            |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| self.buffer.get(at + i).copied().unwrap_or_default()));
        let (length, complement) = (number(0), number(4));
        if length != !complement {
            return match self.rest_is_zero()? {
                true => Ok(self.broken_off(start)),
                false => {
                    let found = format!("length {length:#x} and complement {complement:#x} of round {}", self.rounds);
                    Err(invalid(self.place(start), found, "complements of each other: the file is damaged"))
                }
            };
        }
        let length = length as usize;
        if left < FRAME as u64 + length as u64 + CHECKSUM as u64 {
            return Ok(self.broken_off(start));
        }
        // The file has as many bytes.
        self.fill(length + CHECKSUM)?;
        let (body, stored) = self.buffer.split_at(FRAME + length);
        let (found, expected) = (number_u64(stored), codec::checksum(body, self.sum));
        if found != expected {
            return match self.rest_is_zero()? {
                true => Ok(self.broken_off(start)),
                false => {
                    let found = format!("checksum {found:016x} of round {}", self.rounds);
                    let place = self.place(start + (FRAME + length) as u64);
                    Err(invalid(place, found, format!("{expected:016x}: the file is damaged")))
                }
            };
        }
        self.sum = found;
        self.at = start + self.buffer.len() as u64;
        Ok(self.buffer.get(8).copied())
    }

    /// Appends bytes of the file to the buffer.
    fn fill(&mut self, len: usize) -> Result<(), TraceError> {
        let start = self.buffer.len();
        self.buffer.resize(start + len, 0);
        let read = self.input.read_exact(&mut self.buffer[start..]);
        read.map_err(|source| TraceError::Io { path: self.name.clone(), source })
    }

    /// Whether nothing but zeros is left: after a loss of power a file may have its length and not its bytes.
    fn rest_is_zero(&mut self) -> Result<bool, TraceError> {
        let mut piece = [0; 4096];
        loop {
            match self.input.read(&mut piece) {
                Ok(0) => return Ok(true),
                Ok(n) if piece[..n].iter().any(|&b| b != 0) => return Ok(false),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(TraceError::Io { path: self.name.clone(), source }),
            }
        }
    }

    fn broken_off(&mut self, at: u64) -> Option<u8> {
        self.end = Some(End::Cut(Cut { at, bytes: self.len - at, rounds: self.rounds }));
        None
    }

    /// Takes in the end, which began at a byte of the file.
    fn finish(&mut self, start: u64) -> Result<(), TraceError> {
        let payload = &self.buffer[FRAME..self.buffer.len() - CHECKSUM];
        let place = self.place(start);
        let Ok([rounds, tokens, lost]) = <[u64; 3]>::try_from(payload.chunks(8).map(number_u64).collect::<Vec<_>>())
        else {
            return Err(invalid(place, format!("an end of {} bytes", payload.len()), "24"));
        };
        if (rounds, tokens) != (self.rounds, self.tokens) {
            let found = format!("an end of {rounds} rounds and {tokens} tokens");
            return Err(invalid(place, found, format!("{} and {}, as there are", self.rounds, self.tokens)));
        }
        let more = self.len - self.at;
        if more > 0 {
            return Err(invalid(self.place(self.at), format!("{more} bytes behind the end"), "none"));
        }
        self.end = Some(End::Whole { lost });
        Ok(())
    }

    fn place(&self, at: u64) -> String {
        format!("{} byte {at}", self.name)
    }
}

/// Up to eight bytes as a number.
fn number_u64(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// What holds for a trace, from its JSON.
fn meta_of(json: &[u8], place: &str) -> Result<Meta, TraceError> {
    serde_json::from_slice(json).map_err(|e| json_error(&e, &format!("{place}, meta"), "what holds for a trace"))
}

/// What is wrong with JSON, without serde's place in the text, of which the column is named.
pub(crate) fn json_error(e: &serde_json::Error, place: &str, expected: &str) -> TraceError {
    let text = e.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    invalid(format!("{place}, column {}", e.column()), what, expected)
}

/// A path for a message: control characters are escaped.
pub(crate) fn show(path: &Path) -> String {
    let mut shown = String::new();
    for c in path.to_string_lossy().chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Opens a file with its length: a pipe would make the program wait, and has none.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok((file, meta.len()))
}

impl Trace {
    /// Reads a whole trace.
    ///
    /// One that was broken off, by a crash in the middle of a write at any byte, is read up to its last whole round, with
    /// a warning.
    ///
    /// # Errors
    /// The file is no trace or is damaged before its end; file, byte and field are named.
    pub fn read(path: &Path) -> Result<Opened, TraceError> {
        read_all(TraceReader::open(path)?)
    }

    /// Reads a whole trace of `len` bytes. See [`Trace::read`]; `name` is for messages.
    ///
    /// # Errors
    /// See [`Trace::read`].
    pub fn read_from(input: impl Read, len: u64, name: &str) -> Result<Opened, TraceError> {
        read_all(TraceReader::new(input, len, name)?)
    }
}

fn read_all<R: Read>(mut reader: TraceReader<R>) -> Result<Opened, TraceError> {
    let mut trace = Trace::new(reader.meta.clone());
    loop {
        let place = reader.place(reader.at);
        match reader.next_round()? {
            Some(record) => trace.add(&record, &place)?,
            None => break,
        }
    }
    trace.lost = reader.lost();
    let mut warnings = Vec::new();
    warnings.extend(reader.cut().map(|cut| format!("{}: {cut}", reader.name)));
    if trace.lost > 0 {
        warnings.push(format!("{}: {} rounds happened that are not in it", reader.name, trace.lost));
    }
    Ok(Opened { trace, warnings })
}

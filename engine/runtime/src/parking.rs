//! Conversations parked in files.
//!
//! # The file
//!
//! All numbers are little endian.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `STRATAPK` |
//! | 8 | 4 | version of this format, 1 |
//! | 12 | 4 | [`NUMERIC_VERSION`]: what the state was computed with |
//! | 16 | 16 | [`ModelId`] |
//! | 32 | 8 | bytes of the whole file |
//! | 40 | 8 | tokens |
//! | 48 | 8 | bytes of the caller's note |
//! | 56 | 4 | checkpoints |
//! | 60 | 4 | 0 |
//! | 64 | 16 | XXH3 (128 bits) of the 64 bytes before |
//! | 80 | | the note; for each checkpoint its tokens (8), its flags (4: 1 = pinned, 2 = with logits) and 0 (4) |
//! | | | the state, then each checkpoint: snapshot and, if flagged, logits (f32); see `strata_model`'s module `park` |
//! | end - 16 | 16 | XXH3 (128 bits) of everything before |
//!
//! A file is written under another name, flushed to the disk and then renamed, so a crash leaves the old file or the new
//! one. Reading believes no length before it has been compared with the file's, and hands out nothing before the
//! checksum was right.

use crate::checkpoints::{Checkpoint, Checkpoints, checkpoint_bytes};
use crate::error::{Error, Result};
use crate::session::Session;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strata_gguf::show_path;
use strata_model::{ModelId, NUMERIC_VERSION, Ops};
use twox_hash::XxHash3_128;

const MAGIC: [u8; 8] = *b"STRATAPK";
const VERSION: u32 = 1;
const HEADER: usize = 80;
const CHECKSUM: usize = 16;
const ENDING: &str = "strata";
const UNFINISHED: &str = ".parking-";
/// Nobody writes one file for so long: what is older was left by a crash.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Checkpoints that are parked besides pinned ones: enough to take the last turn back.
const PARKED: usize = 2;
const PINNED: u32 = 1;
const LOGITS: u32 = 2;
const BUFFER: usize = 1 << 20;

/// A folder of parked conversations.
#[derive(Debug, Clone)]
pub struct Parking {
    folder: PathBuf,
    model: ModelId,
    limit: u64,
}

/// A conversation that was parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// Older files removed to keep the folder within its limit.
    pub removed: usize,
}

struct Header {
    numeric: u32,
    model: ModelId,
    len: u64,
    tokens: u64,
    note: u64,
    checkpoints: u32,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&self.numeric.to_le_bytes());
        put(&self.model.to_bytes());
        put(&self.len.to_le_bytes());
        put(&self.tokens.to_le_bytes());
        put(&self.note.to_le_bytes());
        put(&self.checkpoints.to_le_bytes());
        let sum = XxHash3_128::oneshot(&bytes[..HEADER - CHECKSUM]);
        bytes[HEADER - CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header, or says what is wrong with it.
    fn from_bytes(bytes: &[u8; HEADER]) -> Result<Header, String> {
        if bytes[..8] != MAGIC {
            return Err("it is no parked conversation".into());
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(format!("its format is version {version}, expected {VERSION}"));
        }
        let sum = XxHash3_128::oneshot(&bytes[..HEADER - CHECKSUM]);
        if bytes[HEADER - CHECKSUM..] != sum.to_le_bytes() {
            return Err("its header is damaged".into());
        }
        let mut model = [0; 16];
        model.copy_from_slice(&bytes[16..32]);
        Ok(Header {
            numeric: u32_at(bytes, 12),
            model: ModelId::from_bytes(model),
            len: u64_at(bytes, 32),
            tokens: u64_at(bytes, 40),
            note: u64_at(bytes, 48),
            checkpoints: u32_at(bytes, 56),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

impl Parking {
    /// Conversations of this model in a folder, which is made when something is parked. Files there may take `limit`
    /// bytes together; beyond it the oldest are removed, but never the one just written.
    pub fn new(folder: impl Into<PathBuf>, model: ModelId, limit: u64) -> Parking {
        Parking { folder: folder.into(), model, limit }
    }

    /// Makes a folder for conversations if there is none, and finds out whether one can be written there.
    ///
    /// # Errors
    /// It cannot be made or written in.
    pub fn prepare(folder: &Path) -> Result<()> {
        if folder.exists() && !folder.is_dir() {
            let error = io::Error::new(io::ErrorKind::NotADirectory, "it is a file, and a folder is expected");
            return Err(failed("cannot keep conversations in", folder, error));
        }
        fs::create_dir_all(folder).map_err(|e| failed("cannot make", folder, e))?;
        let tried = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder);
        tried.map(drop).map_err(|e| failed("cannot write in", folder, e))
    }

    /// The conversation of this model that was parked last. One whose header cannot be read counts: better a sentence
    /// about it than an older conversation in its place.
    ///
    /// # Errors
    /// The folder is there but cannot be read.
    pub fn newest(&self) -> Result<Option<PathBuf>> {
        Ok(self.of_this_model(true)?.pop())
    }

    /// The conversation of this model that was parked last before another was, among those whose headers can be read.
    ///
    /// # Errors
    /// The folder is there but cannot be read.
    pub fn before(&self, file: &Path) -> Result<Option<PathBuf>> {
        let files = self.files().map_err(|e| failed("cannot read", &self.folder, e))?;
        let older: Vec<PathBuf> = files.into_iter().map(|f| f.path).take_while(|path| path != file).collect();
        Ok(self.of_this_model(false)?.into_iter().rfind(|path| older.contains(path)))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Files of this model, the oldest first, and those of which that cannot be told if `doubtful` ones are wanted.
    fn of_this_model(&self, doubtful: bool) -> Result<Vec<PathBuf>> {
        let files = match self.files() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files.map_err(|e| failed("cannot read", &self.folder, e))?,
        };
        let ours = |path: &Path| {
            let header = File::open(path).ok().and_then(|mut file| {
                let mut bytes = [0; HEADER];
                file.read_exact(&mut bytes).ok()?;
                Header::from_bytes(&bytes).ok()
            });
            header.map_or(doubtful, |h| h.model == self.model)
        };
        Ok(files.into_iter().map(|f| f.path).filter(|path| ours(path)).collect())
    }

    /// Parks a conversation with a note of the caller's, in the file it was resumed from or else in a new one.
    ///
    /// # Errors
    /// The file cannot be written; what was parked there before is still there then.
    pub fn save<O: Ops>(&self, session: &Session<'_, O>, note: &[u8], over: Option<&Path>) -> Result<Parked> {
        fs::create_dir_all(&self.folder).map_err(|e| failed("cannot make", &self.folder, e))?;
        let path = over.map_or_else(|| self.unused(), Path::to_owned);
        let file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder);
        let file = file.map_err(|e| failed("cannot write in", &self.folder, e))?;
        let mut out = Hashing { inner: BufWriter::with_capacity(BUFFER, file.as_file()), hash: XxHash3_128::new() };
        let bytes = write(&mut out, self.model, session, note).map_err(|e| match e {
            Error::Model(strata_model::Error::Io(e)) => failed("cannot write", &path, e),
            other => other,
        })?;
        let flushed = out.inner.flush().and_then(|()| file.as_file().sync_all());
        flushed.map_err(|e| failed("cannot write", &path, e))?;
        drop(out);
        file.persist(&path).map_err(|e| failed("cannot write", &path, e.error))?;
        // The new name is on the disk only once the folder is; systems that cannot do this do it by themselves.
        if let Ok(folder) = File::open(&self.folder) {
            let _ = folder.sync_all();
        }
        Ok(Parked { bytes, removed: self.tidy(&path), path })
    }

    /// Puts a parked conversation into a session, in place of what the session knew, and returns the note. The session
    /// then stands where the parked one stood, bit for bit.
    ///
    /// # Errors
    /// The file cannot be read, is damaged or cut, is of another model, engine or format, or holds more tokens than the
    /// session; the session is unchanged then.
    pub fn restore<O: Ops>(&self, path: &Path, session: &mut Session<'_, O>) -> Result<Vec<u8>> {
        let refuse = |why: String| Error::Parked { path: show_path(path), why };
        let file = File::open(path).map_err(|e| failed("cannot read", path, e))?;
        let found = file.metadata().map_err(|e| failed("cannot read", path, e))?.len();
        let mut input = Hashing { inner: BufReader::with_capacity(BUFFER, file), hash: XxHash3_128::new() };
        let mut header = [0; HEADER];
        match input.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(refuse(format!("it has {found} bytes, fewer than the {HEADER} of a header")));
            }
            read => read.map_err(|e| failed("cannot read", path, e))?,
        }
        let header = Header::from_bytes(&header).map_err(&refuse)?;
        self.check(&header, found, session.state.capacity()).map_err(&refuse)?;
        // Whatever is wrong from here on, the file is not what was written.
        let damaged = |e: Error| refuse(format!("it is damaged ({e})"));
        let (note, state, points) = read(&mut input, &header, session).map_err(damaged)?;
        let sum = input.hash.finish_128().to_le_bytes();
        let mut stored = [0; CHECKSUM];
        input.inner.read_exact(&mut stored).map_err(|e| damaged(strata_model::Error::Io(e).into()))?;
        if sum != stored {
            return Err(refuse("it is damaged: its checksum is not that of its content".into()));
        }
        session.state = state;
        session.speculator.clear();
        session.checkpoints.replace(points, checkpoint_bytes(session.engine.model()));
        Ok(note)
    }

    /// What is wrong with a file of `found` bytes for this model and a context of so many tokens.
    fn check(&self, header: &Header, found: u64, context: usize) -> Result<(), String> {
        if header.model != self.model {
            return Err(format!("it is of model {}, expected {}", header.model, self.model));
        }
        if header.numeric != NUMERIC_VERSION {
            let numeric = header.numeric;
            return Err(format!("it was computed with arithmetic version {numeric}, expected {NUMERIC_VERSION}"));
        }
        if header.len != found {
            return Err(format!("it has {found} bytes, expected {}", header.len));
        }
        if header.tokens > context as u64 {
            let tokens = header.tokens;
            return Err(format!(
                "it has {tokens} tokens and the context holds {context}; a longer one (--ctx) is needed"
            ));
        }
        Ok(())
    }

    fn unused(&self) -> PathBuf {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut names = (now..).map(|n| self.folder.join(format!("conversation-{n}.{ENDING}")));
        // Endless, so there is one.
        names.find(|path| !path.exists()).unwrap_or_default()
    }

    /// Parked files, the oldest first.
    fn files(&self) -> io::Result<Vec<Found>> {
        let mut files: Vec<Found> = fs::read_dir(&self.folder)?
            .filter_map(|entry| Found::of(&entry.ok()?))
            .filter(|f| f.path.extension().is_some_and(|e| e == ENDING))
            .collect();
        files.sort_by(|a, b| (a.changed, &a.path).cmp(&(b.changed, &b.path)));
        Ok(files)
    }

    /// Removes the oldest files beyond the limit, and what crashes left; returns how many files of the former.
    fn tidy(&self, kept: &Path) -> usize {
        for found in fs::read_dir(&self.folder).into_iter().flatten().filter_map(|e| Found::of(&e.ok()?)) {
            let unfinished = found.path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(UNFINISHED));
            if unfinished && found.changed.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(found.path);
            }
        }
        let files = self.files().unwrap_or_default();
        let mut total: u64 = files.iter().map(|f| f.bytes).sum();
        let mut removed = 0;
        for file in files.iter().filter(|f| f.path != kept) {
            if total <= self.limit {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                total -= file.bytes;
                removed += 1;
            }
        }
        removed
    }
}

struct Found {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

impl Found {
    fn of(entry: &fs::DirEntry) -> Option<Found> {
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Found { path: entry.path(), bytes: meta.len(), changed: meta.modified().ok()? })
    }
}

fn failed(what: &'static str, path: &Path, error: io::Error) -> Error {
    Error::Parking { what, path: show_path(path), error }
}

/// Writes a file; returns its length.
fn write<O: Ops, W: Write>(out: &mut Hashing<W>, model: ModelId, session: &Session<'_, O>, note: &[u8]) -> Result<u64> {
    let engine = session.engine().model();
    let points = session.checkpoints.to_park(PARKED);
    let logits = points.iter().filter_map(|p| p.logits.as_ref()).map(|l| 4 * l.len()).sum::<usize>();
    let body = note.len() + points.len() * (16 + engine.snapshot_bytes()) + logits;
    let len = HEADER + body + engine.state_bytes(session.tokens().len()) + CHECKSUM;
    let header = Header {
        numeric: NUMERIC_VERSION,
        model,
        len: len as u64,
        tokens: session.tokens().len() as u64,
        note: note.len() as u64,
        checkpoints: points.len() as u32,
    };
    let put = |out: &mut Hashing<W>, bytes: &[u8]| out.write_all(bytes).map_err(strata_model::Error::Io);
    put(out, &header.to_bytes())?;
    put(out, note)?;
    for point in &points {
        let flags = if point.pinned { PINNED } else { 0 } | if point.logits.is_some() { LOGITS } else { 0 };
        put(out, &(point.snapshot.len() as u64).to_le_bytes())?;
        put(out, &flags.to_le_bytes())?;
        put(out, &[0; 4])?;
    }
    engine.save_state(&session.state, out)?;
    for point in &points {
        engine.save_snapshot(&point.snapshot, out)?;
        for value in point.logits.iter().flatten() {
            put(out, &value.to_le_bytes())?;
        }
    }
    let sum = out.hash.finish_128().to_le_bytes();
    put(out, &sum)?;
    Ok(header.len)
}

type Content<O> = (Vec<u8>, strata_model::State<O>, Vec<Checkpoint<O>>);

/// Reads what is between the header and the checksum.
fn read<O: Ops, R: Read>(input: &mut Hashing<R>, header: &Header, session: &Session<'_, O>) -> Result<Content<O>> {
    let model = session.engine().model();
    let io = |e: io::Error| Error::from(strata_model::Error::Io(e));
    let wrong = |what: &str| io(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    // Checked against the context before.
    let tokens = usize::try_from(header.tokens).map_err(|_| wrong("too many tokens"))?;
    let fixed = HEADER as u64 + model.state_bytes(tokens) as u64 + CHECKSUM as u64;
    let table = 16 * u64::from(header.checkpoints);
    let known = fixed.checked_add(table).and_then(|n| n.checked_add(header.note));
    // The file is as long as the header says, so nothing that is not there is made room for.
    let left = known.and_then(|known| header.len.checked_sub(known)).ok_or_else(|| wrong("its lengths contradict"))?;
    let note = bytes(input, header.note).map_err(io)?;
    let table = bytes(input, table).map_err(io)?;
    let points: Vec<(u64, u32)> = table.chunks_exact(16).map(|p| (u64_at(p, 0), u32_at(p, 8))).collect();
    let logits = points.iter().filter(|(_, flags)| flags & LOGITS != 0).count();
    let vocab = model.config().vocab;
    let expected = (points.len() as u128) * model.snapshot_bytes() as u128 + (logits as u128) * 4 * vocab as u128;
    let ascending = points.windows(2).all(|p| p[0].0 < p[1].0);
    if expected != u128::from(left) || !ascending || points.last().is_some_and(|p| p.0 > header.tokens) {
        return Err(wrong("its lengths contradict"));
    }
    let state = model.load_state(tokens, session.state.capacity(), input)?;
    let mut loaded = Vec::with_capacity(points.len());
    for (len, flags) in points {
        let snapshot = model.load_snapshot(len as usize, &state, input)?;
        let logits = if flags & LOGITS != 0 {
            let values = bytes(input, 4 * vocab as u64).map_err(io)?;
            Some(values.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
        } else {
            None
        };
        loaded.push(Checkpoint { snapshot, pinned: flags & PINNED != 0, logits, side: None });
    }
    Ok((note, state, loaded))
}

/// So many bytes; memory grows with what is there.
fn bytes(input: &mut impl Read, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(len).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == len { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Hashes what passes through.
struct Hashing<T> {
    inner: T,
    hash: XxHash3_128,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.write(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.write(&bytes[..read]);
        Ok(read)
    }
}

impl<O: Ops> Checkpoints<O> {
    /// Pinned ones and the latest, shortest first.
    fn to_park(&self, latest: usize) -> Vec<Arc<Checkpoint<O>>> {
        let first = self.points.len().saturating_sub(latest);
        let chosen = self.points.iter().enumerate().filter(|(i, p)| *i >= first || p.pinned);
        chosen.map(|(_, p)| Arc::clone(p)).collect()
    }
}

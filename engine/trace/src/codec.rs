//! Rounds as bytes: the payload of a frame. The crate's documentation has the layout.

use crate::limits::{self, invalid};
use crate::meta::Meta;
use crate::record::Record;
use crate::round::{BRANCHES, DraftSource, LayerTimes, Move, Phase, Round, Token};
use crate::trace::TraceError;

pub(crate) const MAGIC: [u8; 8] = *b"STRATATR";
pub(crate) const VERSION: u32 = 1;
/// Bytes before the JSON of [`Meta`].
pub(crate) const HEADER: usize = 16;
/// Bytes of a frame before its payload.
pub(crate) const FRAME: usize = 9;
pub(crate) const CHECKSUM: usize = 8;

/// The kinds of frames.
pub(crate) const ROUND: u8 = 1;
pub(crate) const END: u8 = 2;

/// Bytes of a round before its tokens.
const FIXED: usize = 28 + 2 * 8 * BRANCHES.len();
const TOKEN: usize = 9;
const MOVE: usize = 9;

/// Parts of a round that may be left out.
const LAYER_TIMES: u16 = 1;
const HITS: u16 = 2;
const MOVES: u16 = 4;
/// The columns of layer times, those that are all 0 left out.
const COLUMNS: [u16; 4] = [8, 16, 32, 64];
const ALL: u16 = LAYER_TIMES | HITS | MOVES | COLUMNS[0] | COLUMNS[1] | COLUMNS[2] | COLUMNS[3];

const DRAFTED: u8 = 1;
const COMMITTED: u8 = 2;

const CAME: u8 = 1;
const LEFT: u8 = 2;

/// The frame of this kind around what `payload` appends, behind what is in `out`. `sum` is the checksum before it, and
/// becomes its own.
///
/// # Errors
/// The payload has 4 GiB or more.
pub(crate) fn frame(
    out: &mut Vec<u8>,
    kind: u8,
    sum: &mut u64,
    payload: impl FnOnce(&mut Vec<u8>),
) -> Result<(), TraceError> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME]);
    payload(out);
    let bytes = out.len() - start - FRAME;
    let length = u32::try_from(bytes)
        .ok()
        .ok_or_else(|| invalid("a round", format!("{bytes} bytes"), "below 4 GiB, so fewer rows"))?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&(!length).to_le_bytes());
    out[start + 8] = kind;
    *sum = checksum(&out[start..], *sum);
    out.extend_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// XXH3 with 64 bits. The seed is the checksum before, so a frame that is right in itself and in the wrong place is
/// found too.
pub(crate) fn checksum(bytes: &[u8], seed: u64) -> u64 {
    twox_hash::XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// Bytes that [`encode`] appends at most for a round of so many rows and moves.
pub fn most_bytes(meta: &Meta, rows: usize, moves: usize) -> usize {
    let accesses = rows * meta.layers * meta.used;
    FIXED + rows * TOKEN + accesses * 4 + meta.layers * 4 * 8 + accesses.div_ceil(8) + 4 + moves * MOVE
}

/// Appends a round to `out` as bytes, for a [`RoundDecoder`]. Takes no memory when `out` has room for [`most_bytes`].
pub fn encode(record: &Record<'_>, out: &mut Vec<u8>) {
    let round = &record.round;
    let column = |i: usize| move |times: &LayerTimes| times.columns()[i].1;
    let mut flags = 0;
    if let Some(times) = record.layer_times {
        flags |= LAYER_TIMES;
        for (i, flag) in COLUMNS.iter().enumerate() {
            flags |= if times.iter().map(column(i)).any(|nanos| nanos > 0) { *flag } else { 0 };
        }
    }
    flags |= if record.hits.is_some() { HITS } else { 0 };
    flags |= if record.moves.is_some() { MOVES } else { 0 };
    out.extend_from_slice(&round.request.to_le_bytes());
    out.extend_from_slice(&round.round.to_le_bytes());
    out.push(match round.phase {
        Phase::Prefill => 0,
        Phase::Decode => 1,
    });
    out.push(source_number(round.source));
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&round.rows.to_le_bytes());
    out.extend_from_slice(&round.committed.to_le_bytes());
    let numbers = [round.total_nanos].into_iter().chain(round.nanos).chain(round.bytes);
    numbers.for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    for token in record.tokens {
        out.extend_from_slice(&token.id.to_le_bytes());
        out.extend_from_slice(&token.position.to_le_bytes());
        out.push(if token.drafted { DRAFTED } else { 0 } | if token.committed { COMMITTED } else { 0 });
    }
    for values in [record.ids, record.gates] {
        values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    }
    if let Some(times) = record.layer_times {
        for (i, _) in COLUMNS.iter().enumerate().filter(|(_, flag)| flags & **flag != 0) {
            times.iter().map(column(i)).for_each(|nanos| out.extend_from_slice(&nanos.to_le_bytes()));
        }
    }
    if let Some(hits) = record.hits {
        let byte = |hits: &[bool]| hits.iter().enumerate().fold(0, |byte, (i, &hit)| byte | u8::from(hit) << i);
        out.extend(hits.chunks(8).map(byte));
    }
    if let Some(moves) = record.moves {
        out.extend_from_slice(&(moves.len() as u32).to_le_bytes());
        for m in moves {
            let (layer, expert) = m.left.unwrap_or_default();
            out.push(if m.came.is_some() { CAME } else { 0 } | if m.left.is_some() { LEFT } else { 0 });
            let values = [m.layer, m.came.unwrap_or_default(), layer, expert];
            values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        }
    }
}

/// A source's number in files.
fn source_number(source: DraftSource) -> u8 {
    match source {
        DraftSource::None => 0,
        DraftSource::Mtp => 1,
        DraftSource::Lookup => 2,
        DraftSource::Both => 3,
        DraftSource::Own => 4,
    }
}

/// Memory for the parts of a round, which serves again and again.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    tokens: Vec<Token>,
    ids: Vec<u16>,
    gates: Vec<u16>,
    layer_times: Vec<LayerTimes>,
    hits: Vec<bool>,
    moves: Vec<Move>,
}

/// Reads rounds as [`encode`] made them, into memory that serves again and again.
#[derive(Debug, Default)]
pub struct RoundDecoder(Parts);

impl RoundDecoder {
    /// The round that these bytes are.
    ///
    /// # Errors
    /// They are not those of a round of a trace with this `meta`.
    pub fn decode(&mut self, round: &[u8], meta: &Meta) -> Result<Record<'_>, TraceError> {
        decode(round, round.len() as u64, "a recorded round", meta, &mut self.0)
    }
}

/// Bytes of a payload, and where in the file they are.
struct Cursor<'a> {
    rest: &'a [u8],
    /// Of the payload's end.
    end: u64,
    file: &'a str,
}

impl<'a> Cursor<'a> {
    fn here(&self) -> String {
        format!("{} byte {}", self.file, self.end - self.rest.len() as u64)
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], TraceError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| {
            invalid(self.here(), format!("{} bytes of a round left", self.rest.len()), format!("{len} of {what}"))
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], TraceError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u8(&mut self, what: &str) -> Result<u8, TraceError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    fn u16(&mut self, what: &str) -> Result<u16, TraceError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    fn u32(&mut self, what: &str) -> Result<u32, TraceError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, TraceError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A number of which only some bits mean something.
    fn bits(&self, found: u16, known: u16, what: &str) -> Result<(), TraceError> {
        match found & !known {
            0 => Ok(()),
            _ => Err(invalid(self.here(), format!("{what} {found:#x}"), format!("no bits but {known:#x}"))),
        }
    }
}

/// The round of a payload that ends at byte `end` of a file. Memory is taken for as much as the payload holds.
///
/// # Errors
/// The bytes are not those of a round of a trace with this `meta`.
pub(crate) fn decode<'a>(
    payload: &[u8],
    end: u64,
    file: &str,
    meta: &Meta,
    parts: &'a mut Parts,
) -> Result<Record<'a>, TraceError> {
    let c = &mut Cursor { rest: payload, end, file };
    let start = c.here();
    let (request, number) = (c.u32("request")?, c.u32("round")?);
    let phase = match c.u8("phase")? {
        0 => Phase::Prefill,
        1 => Phase::Decode,
        other => return Err(invalid(c.here(), format!("phase {other}"), "0 or 1")),
    };
    let source = match c.u8("source of drafts")? {
        0 => DraftSource::None,
        1 => DraftSource::Mtp,
        2 => DraftSource::Lookup,
        3 => DraftSource::Both,
        4 => DraftSource::Own,
        other => return Err(invalid(c.here(), format!("source of drafts {other}"), "0 to 4")),
    };
    let flags = c.u16("flags")?;
    c.bits(flags, if flags & LAYER_TIMES == 0 { HITS | MOVES } else { ALL }, "flags")?;
    let (rows, committed) = (c.u32("rows")?, c.u32("rows kept")?);
    if rows as usize > limits::ROWS {
        return Err(invalid(c.here(), format!("{rows} rows"), format!("at most {}", limits::ROWS)));
    }
    let total_nanos = c.u64("nanoseconds")?;
    let (mut nanos, mut bytes) = ([0; BRANCHES.len()], [0; BRANCHES.len()]);
    for n in nanos.iter_mut().chain(&mut bytes) {
        *n = c.u64("branches")?;
    }
    let round = Round { request, round: number, phase, source, rows, committed, total_nanos, nanos, bytes };

    parts.tokens.clear();
    for token in c.take(rows as usize * TOKEN, "tokens")?.chunks_exact(TOKEN) {
        let c = &mut Cursor { rest: token, end: c.end, file };
        let (id, position, flags) = (c.u32("token")?, c.u32("position")?, c.u8("flags")?);
        c.bits(flags.into(), (DRAFTED | COMMITTED).into(), "a token's flags")?;
        parts.tokens.push(Token { id, position, drafted: flags & DRAFTED != 0, committed: flags & COMMITTED != 0 });
    }
    // Rows, layers and experts used have bounds of which the product fits.
    let accesses = rows as usize * meta.layers * meta.used;
    for values in [&mut parts.ids, &mut parts.gates] {
        values.clear();
        let pairs = c.take(accesses * 2, "experts and their weights")?.as_chunks::<2>().0;
        values.extend(pairs.iter().map(|pair| u16::from_le_bytes(*pair)));
    }
    parts.layer_times.clear();
    if flags & LAYER_TIMES != 0 {
        parts.layer_times.resize(meta.layers, LayerTimes::default());
        let columns: [fn(&mut LayerTimes) -> &mut u64; 4] =
            [|t| &mut t.dense, |t| &mut t.gpu, |t| &mut t.copy, |t| &mut t.cpu];
        for (column, _) in columns.iter().zip(COLUMNS).filter(|(_, flag)| flags & flag != 0) {
            for times in &mut parts.layer_times {
                *column(times) = c.u64("times of layers")?;
            }
        }
    }
    parts.hits.clear();
    if flags & HITS != 0 {
        let bytes = c.take(accesses.div_ceil(8), "hits")?;
        parts.hits.extend((0..accesses).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1));
    }
    parts.moves.clear();
    if flags & MOVES != 0 {
        let count = c.u32("number of moves")? as usize;
        if count.checked_mul(MOVE) != Some(c.rest.len()) {
            let expected = format!("as many as {} bytes hold, {MOVE} each", c.rest.len());
            return Err(invalid(c.here(), format!("{count} moves"), expected));
        }
        for _ in 0..count {
            let flags = c.u8("moves")?;
            c.bits(flags.into(), (CAME | LEFT).into(), "a move's flags")?;
            let (layer, came) = (c.u16("moves")?, c.u16("moves")?);
            let left = (c.u16("moves")?, c.u16("moves")?);
            let (came, left) = ((flags & CAME != 0).then_some(came), (flags & LEFT != 0).then_some(left));
            parts.moves.push(Move { layer, came, left });
        }
    }
    if !c.rest.is_empty() {
        return Err(invalid(c.here(), format!("{} more bytes of a round", c.rest.len()), "its end"));
    }
    let record = Record {
        round,
        tokens: &parts.tokens,
        ids: &parts.ids,
        gates: &parts.gates,
        layer_times: (flags & LAYER_TIMES != 0).then_some(&parts.layer_times),
        hits: (flags & HITS != 0).then_some(&parts.hits),
        moves: (flags & MOVES != 0).then_some(&parts.moves),
    };
    record.check(meta, &start)?;
    Ok(record)
}

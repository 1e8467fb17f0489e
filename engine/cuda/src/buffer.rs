//! Values on the device.

use crate::device::{Arg, Device, Owned};
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use strata_cpu::Block as Blocks;

/// Memory on the device, given back when dropped.
pub(crate) struct Memory {
    device: Device,
    address: u64,
    size: usize,
    /// The graph it was made in, if it was.
    own: Option<Arc<Owned>>,
    /// Whether its values are from before anything ran: then no kernel of the same graph may have it.
    constant: bool,
}

impl Memory {
    /// At least `bytes` of anything.
    pub(crate) fn new(device: &Device, bytes: usize) -> Arc<Memory> {
        let (address, size, own) = device.allocate(bytes, false);
        Arc::new(Memory { device: device.clone(), address, size, own, constant: false })
    }

    /// At least `bytes` of anything, outside of any graph. Without room the device is as usable as before.
    pub(crate) fn try_new(device: &Device, bytes: usize) -> Result<Arc<Memory>> {
        let (address, size) = device.try_allocate(bytes)?;
        Ok(Arc::new(Memory { device: device.clone(), address, size, own: None, constant: false }))
    }

    /// A copy of host values. In a graph that is recorded it is a constant: copied now, and there whenever the graph runs.
    pub(crate) fn of<T: Copy>(device: &Device, values: &[T]) -> Arc<Memory> {
        let (address, size, own) = device.allocate(size_of_val(values), true);
        let memory = Arc::new(Memory { device: device.clone(), address, size, own, constant: true });
        // SAFETY: it has room for them, or the device has failed.
        unsafe { device.upload(memory.address, values) };
        memory
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// For kernels, which may be recorded and run later.
    pub(crate) fn arg(self: &Arc<Memory>) -> Arg {
        if self.own.is_none() {
            self.device.uses(self);
        }
        Arg::At(self.address)
    }

    /// [`Memory::arg`] as an address.
    pub(crate) fn arg_address(self: &Arc<Memory>) -> u64 {
        self.arg();
        self.address
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.own {
            // It is the graph's until that goes.
            Some(_) if self.constant => {}
            Some(own) => self.device.release_within(own, self.address, self.size),
            None => self.device.release(self.address, self.size),
        }
    }
}

/// A count as kernels take it.
///
/// Counts beyond 32 bits are refused where buffers are made, so this saturates for those alone.
pub(crate) fn n(count: usize) -> Arg {
    Arg::N(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Blocks of so many threads that `count` items need.
pub(crate) fn blocks(count: usize, per_block: usize) -> u32 {
    u32::try_from(count.div_ceil(per_block)).unwrap_or(u32::MAX)
}

/// Rows of floats, and their quantised forms once those were wanted.
pub struct Floats {
    memory: Arc<Memory>,
    /// Bytes of the memory before the first value.
    offset: u64,
    len: usize,
    short: OnceLock<Quantised>,
    long: OnceLock<Quantised>,
    /// A norm that a kernel has made together with the values, until it is taken, and what makes it that norm.
    norm: Mutex<Option<(Norm, Arc<Memory>)>>,
}

/// What a norm of rows follows from besides them: the address of its factors, the parts of a row, and the bits of what is added to a
/// part's mean square.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Norm {
    gamma: u64,
    groups: usize,
    eps: u32,
}

impl Norm {
    pub(crate) fn new(gamma: &Floats, groups: usize, eps: f32) -> Norm {
        Norm { gamma: gamma.address(), groups, eps: eps.to_bits() }
    }
}

/// Rows of 8-bit integers with scales; see [`strata_cpu::Activations`].
pub(crate) struct Quantised {
    pub(crate) values: Arc<Memory>,
    pub(crate) scales: Arc<Memory>,
    pub(crate) sums: Arc<Memory>,
}

impl Quantised {
    /// Room for `len` values.
    pub(crate) fn new(device: &Device, len: usize) -> Quantised {
        let [values, scales, sums] = [len, len / 32 * 4, len / 16 * 2].map(|bytes| Memory::new(device, bytes));
        Quantised { values, scales, sums }
    }
}

/// The kernel that quantises in blocks, the values of a block, and the values that 128 threads take.
pub(crate) fn quantiser(block: Blocks) -> (&'static str, usize, usize) {
    match block {
        Blocks::Short => ("quantise_short", 32, 512),
        Blocks::Long => ("quantise_long", 256, 1024),
    }
}

impl Floats {
    /// `len` values, whatever they are.
    pub(crate) fn new(device: &Device, len: usize) -> Floats {
        if u32::try_from(len).is_err() {
            device.fail(Error::Internal(format!("a buffer of {len} values is larger than kernels can count")));
        }
        Floats::within(&Memory::new(device, len * 4), 0, len)
    }

    /// Values of memory that others have too, from a word on.
    pub(crate) fn within(memory: &Arc<Memory>, word: usize, len: usize) -> Floats {
        let memory = Arc::clone(memory);
        Floats {
            memory,
            offset: word as u64 * 4,
            len,
            short: OnceLock::new(),
            long: OnceLock::new(),
            norm: Mutex::default(),
        }
    }

    /// `len` zeros.
    pub fn zeros(device: &Device, len: usize) -> Floats {
        let zeros = Floats::new(device, len);
        // SAFETY: it has that many bytes.
        unsafe { device.fill(zeros.address(), 0, len * 4) };
        zeros
    }

    /// A copy of host values.
    pub fn upload(device: &Device, values: &[f32]) -> Floats {
        let floats = Floats::new(device, values.len());
        // SAFETY: it has that many values.
        unsafe { device.upload(floats.address(), values) };
        floats
    }

    /// The values; zeros if the device has failed.
    pub fn download(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.len];
        // SAFETY: there are that many values, and any bits are a float.
        unsafe { self.memory.device.download(self.address(), &mut values) };
        values
    }

    /// The same values, not a copy.
    pub(crate) fn alias(&self) -> Floats {
        Floats {
            memory: Arc::clone(&self.memory),
            offset: self.offset,
            len: self.len,
            short: OnceLock::new(),
            long: OnceLock::new(),
            norm: Mutex::default(),
        }
    }

    /// A copy.
    pub fn duplicate(&self) -> Floats {
        self.slice(0..self.len)
    }

    /// A copy of a range, which must lie within; what does not is left out.
    pub fn slice(&self, range: Range<usize>) -> Floats {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let copy = Floats::new(&self.memory.device, range.len());
        self.arg();
        let from = self.address() + range.start as u64 * 4;
        // SAFETY: the range lies within, and the copy has room for it.
        unsafe { self.memory.device.copy(copy.address(), from, range.len() * 4) };
        copy
    }

    /// Several buffers as one, of a device.
    pub fn concat(device: &Device, parts: &[Floats]) -> Floats {
        let all = Floats::new(device, parts.iter().map(|p| p.len).sum());
        let mut to = all.address();
        for part in parts {
            part.arg();
            // SAFETY: the lengths add up to that of `all`.
            unsafe { device.copy(to, part.address(), part.len * 4) };
            to += part.len as u64 * 4;
        }
        all
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.memory.device
    }

    /// For kernels that read.
    pub(crate) fn arg(&self) -> Arg {
        self.memory.arg();
        Arg::At(self.address())
    }

    /// For kernels that write: the quantised forms are forgotten, and a norm.
    pub(crate) fn arg_mut(&mut self) -> Arg {
        self.short.take();
        self.long.take();
        *self.norm.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.arg()
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address + self.offset
    }

    /// Takes the short quantised form, which a kernel has made together with the values.
    pub(crate) fn set_short(&mut self, form: Quantised) {
        self.short = OnceLock::from(form);
    }

    /// Takes a norm that a kernel has made together with the values, for the one that wants it.
    pub(crate) fn set_norm(&mut self, which: Norm, made: Arc<Memory>) {
        *self.norm.get_mut().unwrap_or_else(PoisonError::into_inner) = Some((which, made));
    }

    /// A norm, if a kernel has made it already and nobody has taken it.
    pub(crate) fn take_norm(&self, which: Norm) -> Option<Floats> {
        let mut norm = self.norm.lock().unwrap_or_else(PoisonError::into_inner);
        norm.take_if(|(of, _)| *of == which).map(|(_, made)| Floats::within(&made, 0, self.len))
    }

    /// The quantised form, made when first wanted. The length must be a multiple of the block.
    pub(crate) fn quantised(&self, block: Blocks) -> &Quantised {
        let form = match block {
            Blocks::Short => &self.short,
            Blocks::Long => &self.long,
        };
        let (kernel, per_block, at_once) = quantiser(block);
        form.get_or_init(|| {
            let device = &self.memory.device;
            let (len, blocks_) = (self.len, self.len / per_block);
            let form = Quantised::new(device, len);
            let args = [self.arg(), form.values.arg(), form.scales.arg(), form.sums.arg(), n(blocks_)];
            // SAFETY: the outputs have an entry for each value, 32 values and 16 values of whole blocks.
            unsafe { device.launch(kernel, [blocks(len, at_once), 1, 1], 128, &args) };
            form
        })
    }
}

/// The position of a window's first row.
#[derive(Clone, Copy)]
pub enum First<'a> {
    /// Known.
    At(usize),
    /// Read by kernels when they run: the bits of an integer in the place of a float. The position that is known now is that of
    /// the host's books.
    Word(&'a Floats, usize),
}

impl First<'_> {
    /// As kernels take it: a word's address or none, and a position.
    pub(crate) fn args(&self) -> [Arg; 2] {
        match self {
            First::At(first) => [Arg::At(0), n(*first)],
            First::Word(word, first) => [word.arg(), n(*first)],
        }
    }

    /// The position in the host's books.
    pub fn known(&self) -> usize {
        match self {
            First::At(first) | First::Word(_, first) => *first,
        }
    }
}

/// Rows that grow with the sequence, with room for all of them from the start: their address never changes.
pub struct Cache {
    memory: Arc<Memory>,
    row_len: usize,
    capacity: usize,
    rows: usize,
}

impl Cache {
    /// Room for `capacity` rows of `row_len` values.
    pub fn new(device: &Device, row_len: usize, capacity: usize) -> Cache {
        Cache { memory: Memory::new(device, row_len * capacity * 4), row_len, capacity, rows: 0 }
    }

    /// Appends rows, behind those that are held as far as the host knows. Those beyond the capacity are a failure of the
    /// device.
    pub fn append(&mut self, rows: &Floats) {
        self.append_at(First::At(self.rows), rows);
    }

    /// Appends rows where a window begins.
    pub fn append_at(&mut self, first: First<'_>, rows: &Floats) {
        let count = rows.len / self.row_len.max(1);
        let device = &self.memory.device;
        if self.rows + count > self.capacity {
            let (held, capacity) = (self.rows, self.capacity);
            device.fail(Error::Internal(format!("{count} rows behind {held} in a cache for {capacity}")));
            return;
        }
        let [word, at] = first.args();
        let args = [self.memory.arg(), rows.arg(), word, at, n(rows.len), n(self.row_len)];
        // SAFETY: the cache has room for the rows.
        unsafe { device.launch("append", [blocks(rows.len, 256), 1, 1], 256, &args) };
        self.rows += count;
    }

    /// Takes note that rows were appended by kernels that had been recorded.
    pub fn appended(&mut self, rows: usize) {
        self.rows = (self.rows + rows).min(self.capacity);
    }

    /// Takes note that a kernel has written rows up to `rows`.
    pub(crate) fn grow(&mut self, rows: usize) {
        self.rows = self.rows.max(rows.min(self.capacity));
    }

    /// Keeps the first `rows` rows.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
    }

    /// A copy of rows, which must be there; zeros if the device has failed.
    pub fn rows(&self, range: Range<usize>) -> Vec<f32> {
        let range = range.start.min(self.rows)..range.end.min(self.rows);
        let mut values = vec![0.0; range.len() * self.row_len];
        let from = self.memory.address + (range.start * self.row_len * 4) as u64;
        // SAFETY: the range lies within the rows that there are, and any bits are a float.
        unsafe { self.memory.device.download(from, &mut values) };
        values
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether none are held.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of memory, the room for further rows included.
    pub fn bytes(&self) -> usize {
        self.memory.size()
    }

    pub(crate) fn arg(&self) -> Arg {
        self.memory.arg()
    }

    pub(crate) fn row_len(&self) -> usize {
        self.row_len
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

//! A tensor: where its bytes are and what shape they have.

use crate::header::TensorInfo;
use crate::mmap::Backing;
use crate::types::GgmlType;
use std::sync::Arc;

/// A tensor of an open file. Clones are cheap and keep the file mapped; ranges were checked when it was opened.
#[derive(Clone)]
pub struct Tensor {
    info: Arc<TensorInfo>,
    backing: Arc<Backing>,
    file: usize,
    /// The range inside the backing: `info.offset` and `info.bytes`, known to fit in memory.
    start: usize,
    len: usize,
}

impl Tensor {
    /// `None` when the tensor's range does not lie inside the file.
    pub(crate) fn new(info: TensorInfo, backing: &Arc<Backing>, file: usize) -> Option<Tensor> {
        let start = usize::try_from(info.offset).ok()?;
        let len = usize::try_from(info.bytes).ok()?;
        backing.bytes().get(start..start.checked_add(len)?)?;
        Some(Tensor { info: Arc::new(info), backing: Arc::clone(backing), file, start, len })
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.info.name)
    }

    /// The tensor's name, such as `blk.0.ffn_down_exps.weight`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// One to four dimensions in ggml's order: the first is contiguous in memory. Trailing ones are kept as in the file.
    pub fn dims(&self) -> &[u64] {
        &self.info.dims
    }

    /// The element type.
    pub fn ty(&self) -> GgmlType {
        self.info.ty
    }

    /// Number of values: the product of the dimensions.
    pub fn elements(&self) -> u64 {
        self.row_len().saturating_mul(self.rows())
    }

    /// Values in one row: the first dimension.
    pub fn row_len(&self) -> u64 {
        self.info.dims.first().copied().unwrap_or(0)
    }

    /// Number of rows: the product of all dimensions but the first.
    pub fn rows(&self) -> u64 {
        self.info.dims.iter().skip(1).fold(1, |n, &d| n.saturating_mul(d))
    }

    /// Bytes of one row. Rows follow each other without padding.
    pub fn row_bytes(&self) -> u64 {
        self.info.row_bytes
    }

    /// Bytes of the whole tensor.
    pub fn bytes(&self) -> u64 {
        self.info.bytes
    }

    /// The tensor's bytes. Blocks are not aligned to more than the file's alignment, and bytes in memory not even to that.
    pub fn data(&self) -> &[u8] {
        self.backing.bytes().get(self.start..self.start.saturating_add(self.len)).unwrap_or_default()
    }

    /// The bytes of row `index`; `None` beyond the last row.
    pub fn row(&self, index: u64) -> Option<&[u8]> {
        let start = usize::try_from(index.checked_mul(self.info.row_bytes)?).ok()?;
        let len = usize::try_from(self.info.row_bytes).ok()?;
        self.data().get(start..start.checked_add(len)?)
    }

    /// Asks the system to read `count` rows from row `first` on, and returns at once. Rows beyond the last are left out.
    /// Does nothing for bytes that are in memory already, and on systems without `madvise`.
    pub fn prefetch_rows(&self, first: u64, count: u64) {
        let rows = self.rows();
        let first = first.min(rows);
        let count = count.min(rows - first);
        let offset = first.saturating_mul(self.info.row_bytes);
        let bytes = count.saturating_mul(self.info.row_bytes);
        if let (Ok(offset), Ok(bytes)) = (usize::try_from(offset), usize::try_from(bytes)) {
            self.backing.prefetch(self.start.saturating_add(offset), bytes);
        }
    }

    /// Which file of the model holds the tensor: an index into [`Gguf::files`](crate::Gguf::files).
    pub fn file(&self) -> usize {
        self.file
    }

    /// Position of the first byte in that file, in bytes from its start.
    pub fn offset(&self) -> u64 {
        self.info.offset
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {} in file {} at {}", self.name(), self.dims(), self.ty(), self.file, self.offset())
    }
}

//! A tensor: where its bytes are and what shape they have.

use crate::error::{Error, Result, show_text};
use crate::header::{TensorInfo, check_shape};
use crate::mmap::Backing;
use crate::types::GgmlType;
use std::ops::Range;
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

    /// A tensor of bytes in memory: `dims` in ggml's order, rows without padding.
    ///
    /// # Errors
    ///
    /// When the type cannot hold rows of that length, or `data` is not as long as the dimensions say.
    pub fn owned(name: &str, dims: &[u64], ty: GgmlType, data: Vec<u8>) -> Result<Tensor> {
        Tensor::over(name, dims, ty, 0, &Arc::new(Backing::Owned(data)), 0)
    }

    /// The same tensor in memory of its own, which is in huge pages where the system has them: `copy` is called with that
    /// memory and the bytes that it is to have.
    ///
    /// # Errors
    ///
    /// When the system has no such memory.
    pub fn resident(&self, copy: impl FnOnce(&mut [u8], &[u8])) -> Result<Tensor> {
        let refused = |e: std::io::Error| about(self.name(), format!("no memory for {} bytes: {e}", self.len));
        let backing = Backing::copied(self.len, |to| copy(to, self.data())).map_err(refused)?;
        Tensor::over(self.name(), self.dims(), self.ty(), 0, &Arc::new(backing), 0)
    }

    /// Rows from `first` on under another name and shape, without a copy: as many as `dims` says.
    ///
    /// # Errors
    ///
    /// When the rows are of another length, or this tensor has fewer.
    pub fn part(&self, name: &str, first: u64, dims: &[u64]) -> Result<Tensor> {
        let rows = dims.iter().skip(1).try_fold(1u64, |n, &d| n.checked_mul(d));
        let end = rows.and_then(|n| first.checked_add(n));
        if dims.first() != self.info.dims.first() || end.is_none_or(|end| end > self.rows()) {
            let what = format!("{dims:?} from row {first} on is no part of {:?}", self.dims());
            return Err(about(self.name(), what));
        }
        // Inside the tensor, whose range fits.
        let offset = self.info.offset.saturating_add(first.saturating_mul(self.info.row_bytes));
        Tensor::over(name, dims, self.ty(), offset, &self.backing, self.file)
    }

    /// A copy of the rows with these numbers, in this order, as a matrix.
    ///
    /// # Errors
    ///
    /// When there is no such row.
    pub fn gathered(&self, rows: impl IntoIterator<Item = u64>) -> Result<Tensor> {
        let (mut data, mut count) = (Vec::new(), 0);
        for row in rows {
            let missing = || about(self.name(), format!("there is no row {row}, only {}", self.rows()));
            data.extend_from_slice(self.row(row).ok_or_else(missing)?);
            count += 1;
        }
        Tensor::owned(self.name(), &[self.row_len(), count], self.ty(), data)
    }

    /// A copy of some columns of a matrix.
    ///
    /// # Errors
    ///
    /// When the columns do not exist or cut a block of the type.
    pub fn columns(&self, range: Range<u64>) -> Result<Tensor> {
        let bytes = |columns: u64| self.ty().row_bytes(columns).and_then(|b| usize::try_from(b).ok());
        let cut = bytes(range.start).zip(bytes(range.end)).filter(|_| range.end <= self.row_len());
        let (from, to) = cut.ok_or_else(|| {
            let (ty, len) = (self.ty(), self.row_len());
            about(self.name(), format!("columns {range:?} of rows of {len} {ty} values cut a block or do not exist"))
        })?;
        let rows = (0..self.rows()).filter_map(|row| self.row(row)?.get(from..to));
        let data = rows.flatten().copied().collect();
        Tensor::owned(self.name(), &[range.end.saturating_sub(range.start), self.rows()], self.ty(), data)
    }

    fn over(
        name: &str,
        dims: &[u64],
        ty: GgmlType,
        offset: u64,
        backing: &Arc<Backing>,
        file: usize,
    ) -> Result<Tensor> {
        let (row_bytes, bytes) = check_shape(name, dims, ty).map_err(|what| about(name, what))?;
        let info = TensorInfo { name: name.into(), dims: dims.to_vec(), ty, row_bytes, bytes, offset };
        Tensor::new(info, backing, file).ok_or_else(|| about(name, format!("{dims:?} {ty} needs {bytes} bytes")))
    }

    pub(crate) fn backing(&self) -> &Arc<Backing> {
        &self.backing
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

/// An error about a tensor of this name.
fn about(name: &str, what: String) -> Error {
    Error::Invalid { file: format!("tensor {}", show_text(name)), what }
}

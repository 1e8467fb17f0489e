//! How weights are arranged on the device: as the file has them, or so that kernels read them in wide steps (`cu/products.cuh`).

use crate::buffer::{Memory, blocks, n};
use crate::device::{Arg, Device};
use crate::matrix::kernel;
use std::sync::Arc;
use strata_gguf::GgmlType;

/// Bytes that are brought to the device at a time.
const PIECE: usize = 32 << 20;

/// Rows of a tile of integer weights.
const ROWS: usize = 4;

/// Bytes that four rows may have as the file has them, to be streamed: a block's shared memory.
const STREAMED_ROWS: usize = 16384;

/// The shape of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Type of the weights.
    pub ty: GgmlType,
    /// Length of the output.
    pub rows: usize,
    /// Length of the input.
    pub cols: usize,
}

/// Units of a type that is arranged in tiles: values, bytes of levels, bytes of a header, units that share it.
struct Units {
    values: usize,
    levels: usize,
    header: usize,
    share: usize,
}

/// How a type is arranged.
enum Order {
    /// As in the file.
    Plain,
    /// Rows of floats, rearranged within.
    Floats(usize),
    /// Tiles of four rows.
    Tiles(Units),
}

fn order(ty: GgmlType) -> Order {
    let units = |levels, header| Order::Tiles(Units { values: 32, levels, header, share: 1 });
    match ty {
        GgmlType::F32 => Order::Floats(4),
        GgmlType::F16 | GgmlType::BF16 => Order::Floats(2),
        GgmlType::Q8_0 => units(32, 2),
        GgmlType::Q4_0 | GgmlType::IQ4_NL => units(16, 2),
        GgmlType::Q4_1 => units(16, 4),
        GgmlType::Q5_0 => units(16, 6),
        GgmlType::Q5_1 => units(16, 8),
        GgmlType::MXFP4 => units(16, 1),
        GgmlType::NVFP4 => Order::Tiles(Units { values: 16, levels: 8, header: 1, share: 1 }),
        GgmlType::Q2_0 => Order::Tiles(Units { values: 32, levels: 8, header: 2, share: 2 }),
        _ => Order::Plain,
    }
}

impl Shape {
    /// Eights of units in a row, if the type is arranged in tiles.
    pub(crate) fn eights(&self) -> Option<usize> {
        match order(self.ty) {
            Order::Tiles(Units { values, .. }) => Some((self.cols / values).div_ceil(8)),
            Order::Plain | Order::Floats(_) => None,
        }
    }

    /// Bytes of a row as the file has it.
    pub fn file_row(&self) -> usize {
        self.cols / self.ty.block_values() * self.ty.block_bytes()
    }

    /// Bytes of the matrix as the file has it.
    pub fn file_bytes(&self) -> usize {
        self.rows * self.file_row()
    }

    /// Bytes of `rows` rows on the device; all but the last of a matrix's pieces have a multiple of four.
    fn bytes_of(&self, rows: usize) -> usize {
        match order(self.ty) {
            Order::Plain => rows * self.file_row(),
            Order::Floats(bytes) => rows * (self.cols * bytes).next_multiple_of(16),
            Order::Tiles(Units { values, levels, header, share }) => {
                let eight = |units: usize| {
                    (ROWS * units * levels).next_multiple_of(16)
                        + (ROWS * units.div_ceil(share) * header).next_multiple_of(16)
                };
                let units = self.cols / values;
                rows.div_ceil(ROWS) * (units / 8 * eight(8) + eight(units % 8))
            }
        }
    }

    /// Bytes of the matrix on the device.
    pub fn bytes(&self) -> usize {
        self.bytes_of(self.rows)
    }

    /// Whether matrices of this shape can be brought by kernels that read host memory.
    pub fn streams(&self) -> bool {
        match order(self.ty) {
            Order::Plain => true,
            Order::Floats(_) => false,
            Order::Tiles(_) => ROWS * self.file_row() <= STREAMED_ROWS,
        }
    }

    /// Starts the bringing of `each` matrices of each of some experts, at most `room`, to places on the device.
    ///
    /// # Safety
    /// `from` must have the device's addresses of the matrices, as the file has them, `count` the number of experts, and `to` room
    /// for the matrices: an expert's are `apart` bytes from each other, experts `to_apart`.
    pub(crate) unsafe fn stream(
        &self,
        device: &Device,
        [from, count]: [Arg; 2],
        [each, room]: [usize; 2],
        to: u64,
        [to_apart, apart]: [u64; 2],
    ) {
        let matrices = blocks(each * room, 1);
        let mut args = vec![from, count, n(each), Arg::At(to), Arg::At(to_apart), Arg::At(apart)];
        let (name, across) = match order(self.ty) {
            Order::Plain => {
                args.push(Arg::At(self.file_bytes() as u64));
                ("stream_plain".to_owned(), blocks(self.file_bytes(), 128 * 16 * 2))
            }
            Order::Floats(_) | Order::Tiles(_) => {
                args.extend([n(self.rows), n(self.cols)]);
                (kernel("stream", self.ty), blocks(self.rows, ROWS))
            }
        };
        // SAFETY: says the caller.
        unsafe { device.launch(&name, [across, matrices, 1], 128, &args) };
    }

    /// Brings matrices of this shape, as the file has them one after another, to an address, one after another there, too.
    ///
    /// # Safety
    /// The address must have [`Shape::bytes`] for each.
    pub(crate) unsafe fn bring(&self, device: &Device, bytes: &[u8], to: u64) {
        let (row, all) = (self.file_row(), self.file_bytes());
        if row == 0 || all == 0 {
            return;
        }
        if let Order::Plain = order(self.ty) {
            // SAFETY: there are as many bytes there.
            unsafe { device.upload(to, bytes) };
            return;
        }
        let staging = Memory::new(device, PIECE.min(bytes.len()).max(ROWS * row));
        if all <= PIECE {
            // As many whole matrices as fit.
            let many = PIECE / all;
            for (i, piece) in bytes.chunks(many * all).enumerate() {
                let at = to + (i * many * self.bytes()) as u64;
                // SAFETY: the staging has room for the piece, the address for what becomes of it.
                unsafe { self.rearrange(device, &staging, piece, self.rows, piece.len() / all, at) };
            }
            return;
        }
        for (i, matrix) in bytes.chunks_exact(all).enumerate() {
            let rows = (PIECE / row / ROWS * ROWS).max(ROWS);
            for (j, piece) in matrix.chunks(rows * row).enumerate() {
                let at = to + (i * self.bytes() + self.bytes_of(j * rows)) as u64;
                // SAFETY: as above.
                unsafe { self.rearrange(device, &staging, piece, piece.len() / row, 1, at) };
            }
        }
    }

    /// Brings `count` matrices of `rows` rows.
    ///
    /// # Safety
    /// The staging must have room for them as the file has them, the address for them as they are arranged.
    unsafe fn rearrange(
        &self,
        device: &Device,
        staging: &Arc<Memory>,
        piece: &[u8],
        rows: usize,
        count: usize,
        to: u64,
    ) {
        // SAFETY: says the caller.
        unsafe { device.upload(staging.address(), piece) };
        let [from_apart, to_apart] = [rows * self.file_row(), self.bytes_of(rows)].map(|bytes| bytes as u64);
        let piece = Shape { rows, ..*self };
        // SAFETY: says the caller.
        unsafe { piece.arrange(device, staging.address(), from_apart, to, to_apart, blocks(count, 1)) };
    }

    /// Whether the device has matrices of this shape as the file does.
    pub fn is_plain(&self) -> bool {
        matches!(order(self.ty), Order::Plain)
    }

    /// Arranges `count` matrices that are on the device as the file has them, so many bytes apart, to where they are to be.
    ///
    /// # Safety
    /// The matrices must be there, and there must be room for them as they are arranged.
    pub(crate) unsafe fn arrange(
        &self,
        device: &Device,
        from: u64,
        from_apart: u64,
        to: u64,
        to_apart: u64,
        count: u32,
    ) {
        let &Shape { rows, cols, .. } = self;
        let args = [Arg::At(from), Arg::At(to), n(rows), n(cols), Arg::At(from_apart), Arg::At(to_apart)];
        let grid = [blocks(rows * cols, 128 * 64).min(4096), count, 1];
        // SAFETY: a block of `y` takes one of `count` matrices; there is room for them on both sides.
        unsafe { device.launch(&kernel("pack", self.ty), grid, 128, &args) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_arranged_takes_no_more_room_where_rows_and_units_come_out_even() {
        for &ty in GgmlType::ALL {
            for cols in [256, 2560, 4096] {
                let shape = Shape { ty, rows: 640, cols };
                assert_eq!(shape.bytes(), shape.file_bytes(), "{ty} {cols}");
            }
        }
        // Twenty units: two eights, and one of four.
        let shape = Shape { ty: GgmlType::Q2_0, rows: 2560, cols: 640 };
        assert_eq!(shape.bytes(), shape.file_bytes());
        // Three rows take the room of four.
        let shape = Shape { ty: GgmlType::Q4_0, rows: 3, cols: 32 };
        assert_eq!(shape.bytes(), 4 * 18_usize.next_multiple_of(20));
    }
}

//! What attention keeps and reads of a context.

/// How keys and values are stored. Bytes per cell of one attention layer: 2 K/V heads of 256 values each for keys and
/// for values, with their scales, as in the original engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvType {
    /// Half precision.
    F16,
    /// 8 bits, one scale for 64 values.
    Int8,
    /// Keys of 8 bits, rotated values of 4.
    K8v4,
    /// Both rotated, 4 bits.
    Q4,
}

/// Cells that sparse attention reads at most: 512 blocks of 4, and a tail of up to 3.
const SELECTED_CELLS: f64 = 2051.0;
/// Bytes of the indexer's keys for one token and layer: 128 values of single precision for a block of 4.
const INDEX_BYTES: f64 = 128.0;
/// Bytes of rotary tables for one token.
const ROTARY_BYTES: f64 = 260.0;

impl KvType {
    /// The type of this name: `f16`, `int8`, `k8v4` or `q4`.
    pub fn of(name: &str) -> Option<KvType> {
        Some(match name {
            "f16" => KvType::F16,
            "int8" => KvType::Int8,
            "k8v4" => KvType::K8v4,
            "q4" => KvType::Q4,
            _ => return None,
        })
    }

    /// Bytes of one cell in one attention layer.
    pub fn cell_bytes(self) -> f64 {
        match self {
            KvType::F16 => 2048.0,
            KvType::Int8 => 1056.0,
            KvType::K8v4 => 816.0,
            KvType::Q4 => 576.0,
        }
    }

    /// Bytes that one attention layer reads for a window behind `context` tokens: the keys of the indexer, then the
    /// selected cells, once for all rows of the window.
    pub fn read_bytes(self, context: f64) -> f64 {
        context * INDEX_BYTES + context.min(SELECTED_CELLS) * self.cell_bytes()
    }

    /// Bytes of VRAM for a context of `context` tokens of which `resident` have their keys and values in VRAM: those of
    /// `attention_layers` and of the draft layer, and the indexer's keys and rotary tables of all.
    pub fn vram_bytes(self, attention_layers: usize, context: f64, resident: f64) -> f64 {
        let layers = attention_layers as f64;
        context.min(resident) * self.cell_bytes() * (layers + 1.0) + context * (layers * INDEX_BYTES + ROTARY_BYTES)
    }
}

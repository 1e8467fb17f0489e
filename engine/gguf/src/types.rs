//! The tensor types a GGUF file may hold, and how their blocks are sized.

use std::fmt;

/// Declares the types once: variant, printed name, id in the file, values per block, bytes per block.
macro_rules! ggml_types {
    ($($variant:ident $name:literal $id:literal $values:literal $bytes:literal;)*) => {
        /// A tensor element type of ggml. Quantised types store values in blocks that share scales.
        ///
        /// Ids and block sizes are those of ggml's `ggml.h` and `ggml-common.h`.
        #[allow(non_camel_case_types, missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum GgmlType { $($variant,)* }

        impl GgmlType {
            /// Every supported type, in the order of the declaration.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            /// The type that a file's number stands for; `None` for numbers this engine does not know.
            pub fn from_id(id: u32) -> Option<GgmlType> {
                match id { $($id => Some(GgmlType::$variant),)* _ => None }
            }

            /// The number that stands for this type in a file.
            pub fn id(self) -> u32 {
                match self { $(GgmlType::$variant => $id,)* }
            }

            /// The name used by ggml and by published file names, such as `IQ3_S`.
            pub fn name(self) -> &'static str {
                match self { $(GgmlType::$variant => $name,)* }
            }

            /// Values in one block; a row's length must be a multiple of it.
            pub fn block_values(self) -> usize {
                match self { $(GgmlType::$variant => $values,)* }
            }

            /// Bytes of one block.
            pub fn block_bytes(self) -> usize {
                match self { $(GgmlType::$variant => $bytes,)* }
            }
        }
    };
}

ggml_types! {
    F32 "F32" 0 1 4;
    F16 "F16" 1 1 2;
    BF16 "BF16" 30 1 2;
    Q4_0 "Q4_0" 2 32 18;
    Q4_1 "Q4_1" 3 32 20;
    Q5_0 "Q5_0" 6 32 22;
    Q5_1 "Q5_1" 7 32 24;
    Q8_0 "Q8_0" 8 32 34;
    Q2_K "Q2_K" 10 256 84;
    Q3_K "Q3_K" 11 256 110;
    Q4_K "Q4_K" 12 256 144;
    Q5_K "Q5_K" 13 256 176;
    Q6_K "Q6_K" 14 256 210;
    IQ2_XXS "IQ2_XXS" 16 256 66;
    IQ2_XS "IQ2_XS" 17 256 74;
    IQ3_XXS "IQ3_XXS" 18 256 98;
    IQ1_S "IQ1_S" 19 256 50;
    IQ4_NL "IQ4_NL" 20 32 18;
    IQ3_S "IQ3_S" 21 256 110;
    IQ2_S "IQ2_S" 22 256 82;
    IQ4_XS "IQ4_XS" 23 256 136;
    IQ1_M "IQ1_M" 29 256 56;
    MXFP4 "MXFP4" 39 32 17;
    NVFP4 "NVFP4" 40 64 36;
    Q2_0 "Q2_0" 42 64 18;
}

impl GgmlType {
    /// Bits per value, scales included.
    pub fn bits_per_value(self) -> f64 {
        self.block_bytes() as f64 * 8.0 / self.block_values() as f64
    }

    /// Bytes of a row of `values`, or `None` when the row does not divide into blocks or the size overflows.
    pub fn row_bytes(self, values: u64) -> Option<u64> {
        let per = self.block_values() as u64;
        values.is_multiple_of(per).then(|| (values / per).checked_mul(self.block_bytes() as u64)).flatten()
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

//! Matrices of random weights to multiply with.

use super::stats::Random;
use anyhow::Result;
use strata_cpu::{Matrix, Rows};
use strata_gguf::{GgmlType, Gguf, Writer, quant};

/// Length of the input vectors: that of an expert's in the published model.
pub(crate) const COLS: usize = 2560;

/// Rows of a matrix: those that a layer's experts have in the published model, which a token's threads share in one round.
/// Ten experts with two matrices of 640 rows each.
pub(crate) const ROWS: usize = 10 * 2 * 640;

/// Values of different blocks that matrices are made of: enough that no table lookup or branch repeats itself soon.
const VALUES: usize = 1 << 16;

/// Magnitudes of a block's largest value that are taken for weights. Random bytes as scales reach from denormal numbers,
/// which some processors are slow with, to infinity.
const ORDINARY: std::ops::RangeInclusive<f32> = 1e-6..=1e3;

/// Blocks tried for one that is taken, at most.
const PATIENCE: usize = 10_000;

/// As many matrices of a type as fill `bytes`, at least two, so that none is in a cache when its turn comes again.
pub(crate) fn matrices(ty: GgmlType, bytes: u64) -> Result<Vec<Matrix>> {
    let size = COLS / ty.block_values() * ty.block_bytes() * ROWS;
    let copies = (bytes as usize).div_ceil(size).max(2);
    let mut random = Random::new(u64::from(ty.id()) + 1);
    let blocks = blocks(ty, &mut random)?;
    let mut writer = Writer::new();
    for i in 0..copies {
        let mut data = Vec::with_capacity(size);
        while data.len() < size {
            data.extend_from_slice(blocks[random.below(blocks.len())].as_slice());
        }
        writer.tensor(&i.to_string(), &[COLS as u64, ROWS as u64], ty, data)?;
    }
    let gguf = Gguf::from_bytes("random weights", writer.to_bytes()?)?;
    Ok(gguf.tensors().iter().map(|tensor| Matrix::new(tensor.clone(), 1.0)).collect())
}

/// Blocks of random bytes whose values are of an ordinary size. Every level and every entry of a code book comes up.
fn blocks(ty: GgmlType, random: &mut Random) -> Result<Vec<Vec<u8>>> {
    let mut values = vec![0.0; ty.block_values()];
    let mut block = || -> Result<Vec<u8>> {
        for _ in 0..PATIENCE {
            let words = ty.block_bytes().div_ceil(8);
            let mut bytes: Vec<u8> = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
            bytes.truncate(ty.block_bytes());
            quant::decode(ty, &bytes, &mut values)?;
            // A comparison with NaN is false, but the largest of some values passes it over.
            let largest = values.iter().fold(0.0f32, |most, v| if v.is_nan() { f32::NAN } else { most.max(v.abs()) });
            if values.iter().all(|v| v.is_finite()) && ORDINARY.contains(&largest) {
                return Ok(bytes);
            }
        }
        anyhow::bail!("random bytes make no ordinary weights of {ty}")
    };
    (0..VALUES / ty.block_values()).map(|_| block()).collect()
}

/// Rows of activations, between -1 and 1.
pub(crate) fn activations(rows: usize) -> Rows {
    let mut random = Random::new(0);
    let value = |_| (random.next() as i64 as f64 / i64::MAX as f64) as f32;
    Rows::from((0..rows * COLS).map(value).collect::<Vec<f32>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_gets_weights_that_are_numbers() {
        for &ty in GgmlType::ALL {
            let blocks = blocks(ty, &mut Random::new(3)).unwrap();
            let mut values = vec![0.0; ty.block_values()];
            assert_eq!(blocks.len() * ty.block_values(), VALUES);
            for block in &blocks {
                quant::decode(ty, block, &mut values).unwrap();
                assert!(values.iter().all(|v| v.is_finite()), "{ty}");
            }
            assert!(blocks.iter().any(|b| b != &blocks[0]), "{ty}");
        }
    }

    #[test]
    fn matrices_fill_what_they_should() {
        let matrices = matrices(GgmlType::Q4_K, 40 << 20).unwrap();
        assert_eq!(matrices.len(), 3);
        assert_eq!((matrices[2].in_len(), matrices[2].out_len()), (COLS, ROWS));
        assert!(activations(3).iter().all(|v| v.abs() <= 1.0));
    }
}

//! Prints how many bytes of weights per second each type's product reads, on one thread, for 1, 4 and 64 input rows.
#![allow(clippy::unwrap_used)]

use std::time::Instant;
use strata_cpu::{Cpu, Isa, Matrix, Rows};
use strata_gguf::{GgmlType, Gguf, Writer};

fn main() {
    let (cols, out) = (2560usize, 2048usize);
    let cpu = Cpu::new(1, Isa::detect());
    println!("{} one thread, GB/s of weights; 1, 4, 64 rows", cpu.isa());
    for &ty in GgmlType::ALL {
        let bytes = cols / ty.block_values() * ty.block_bytes() * out;
        // Several copies, so that the weights do not stay in the cache.
        let copies = (64 << 20) / bytes + 1;
        let mut w = Writer::new();
        let data: Vec<u8> =
            (0..bytes * copies).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] & 0x3f).collect();
        w.tensor("w", &[cols as u64, (out * copies) as u64], ty, data).unwrap();
        let gguf = Gguf::from_bytes("w", w.to_bytes().unwrap()).unwrap();
        let matrix = Matrix::new(gguf.require("w").unwrap().clone(), 1.0);
        let mut rates = Vec::new();
        for t in [1usize, 4, 64] {
            let x = Rows::from((0..t * cols).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<f32>>());
            let mut y = vec![0.0; t * matrix.out_len()];
            let mut best = f64::MAX;
            for _ in 0..if t > 8 { 1 } else { 3 } {
                let start = Instant::now();
                matrix.mul(&cpu, &x, &mut y);
                best = best.min(start.elapsed().as_secs_f64());
            }
            rates.push((bytes * copies) as f64 / best / 1e9);
        }
        println!(
            "{:8} {:6.2} {:6.2} {:6.2}   {:.1} G products/s at 64",
            ty.name(),
            rates[0],
            rates[1],
            rates[2],
            rates[2] / ty.bits_per_value() * 8.0 * 64.0
        );
    }
}

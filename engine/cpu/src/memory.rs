//! Reading memory as fast as it comes: the ceiling of every operation that reads each weight once.

use crate::Cpu;
use crate::ahead::fetch_ahead;
use crate::isa::per_isa;
use std::sync::atomic::{AtomicU64, Ordering};

/// Partial sums. One would make each addition wait for the one before it, and the loop slower than the memory; as many
/// as these fill eight registers of 256 bits.
const SUMS: usize = 32;

/// Words that are worth handing to another thread: 512 KiB, some tens of microseconds.
const GRAIN: usize = 1 << 16;

/// Pieces for each thread: one that was held up leaves its share to the others.
const PIECES: usize = 4;

/// Reads all words once, shared over the threads of `cpu`, and returns their sum modulo 2^64. The sum is of no
/// interest but that it cannot be known without reading.
pub fn read(cpu: &Cpu, words: &[u64]) -> u64 {
    let piece = piece(cpu, words.len());
    let total = AtomicU64::new(0);
    cpu.pool().run(words.len().div_ceil(piece), |i| {
        let first = i * piece;
        let part = sum(cpu.isa(), &words[first..words.len().min(first + piece)]);
        total.fetch_add(part, Ordering::Relaxed);
    });
    total.into_inner()
}

/// Writes every word, so that all pages have memory behind them: the system gives pages that were never written one
/// page of zeros, which stays in the cache. Each is written by one of the threads that read later, so that where
/// sockets have memory of their own it is theirs.
pub fn touch(cpu: &Cpu, words: &mut [u64]) {
    let piece = piece(cpu, words.len());
    cpu.pool().each(words.chunks_mut(piece).enumerate().collect(), |(i, part)| {
        part.iter_mut().zip((i * piece) as u64..).for_each(|(word, at)| *word = at);
    });
}

/// Words of a piece.
fn piece(cpu: &Cpu, words: usize) -> usize {
    words.div_ceil(cpu.pool().threads() * PIECES).max(GRAIN)
}

per_isa! {
    /// The sum of the words modulo 2^64.
    fn sum(isa: Isa, words: &[u64]) -> u64 {
        let mut sums = [0u64; SUMS];
        let chunks = words.chunks_exact(SUMS);
        let rest = chunks.remainder();
        for chunk in chunks {
            // The processor alone does not keep as many loads in flight as memory can serve.
            fetch_ahead(chunk);
            for (sum, word) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(*word);
            }
        }
        sums.iter().chain(rest).fold(0, |a, b| a.wrapping_add(*b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn every_word_is_written_and_read_once_whatever_reads() {
        for isa in Isa::available() {
            for threads in [1, 3] {
                let cpu = Cpu::exactly(threads, isa);
                for n in [0, 1, 31, 33, GRAIN - 1, 5 * GRAIN + 7, 13 * GRAIN] {
                    let mut words = vec![u64::MAX; n];
                    touch(&cpu, &mut words);
                    let n = n as u64;
                    assert_eq!(read(&cpu, &words), n * n.saturating_sub(1) / 2, "{n} words, {threads} on {isa}");
                }
            }
        }
    }
}

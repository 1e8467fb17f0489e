//! Byte-pair merging of one piece of text.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Pieces up to this many bytes are merged by scanning for the lowest rank; longer ones through a heap.
/// Words are short, and there a scan over a few cache lines beats any structure.
const SHORT: usize = 64;

/// Longest piece merged as one, in bytes: positions are 32-bit.
const LONGEST: usize = 1 << 30;

/// No merge applies: ranks are list positions and never reach this.
const NONE: Merge = Merge { rank: u32::MAX, id: 0 };

/// What two neighbours become.
#[derive(Debug, Clone, Copy)]
struct Merge {
    /// Position in the merge list; lower merges first.
    rank: u32,
    /// The merged token.
    id: u32,
}

/// The merge list as a table from a pair of ids, and the token of each single byte.
pub(super) struct Merges {
    table: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
    bytes: [u32; 256],
}

/// Buffers reused from piece to piece.
#[derive(Default)]
pub(super) struct Scratch {
    ids: Vec<u32>,
    merges: Vec<Merge>,
    prev: Vec<u32>,
    next: Vec<u32>,
    heap: Vec<Reverse<u64>>,
}

impl Merges {
    pub(super) fn new(bytes: [u32; 256], capacity: usize) -> Self {
        Merges { table: HashMap::with_capacity_and_hasher(capacity, BuildHasherDefault::default()), bytes }
    }

    /// Adds a merge; the first one given for a pair stays, as it has the lower rank.
    pub(super) fn add(&mut self, left: u32, right: u32, rank: u32, id: u32) {
        self.table.entry(key(left, right)).or_insert(Merge { rank, id });
    }

    /// Appends the tokens of one piece to `out`: always the merge of lowest rank next, the leftmost among equals.
    pub(super) fn encode(&self, piece: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        if let &[byte] = piece {
            out.push(self.bytes[usize::from(byte)]);
        } else if piece.len() <= SHORT {
            self.encode_short(piece, scratch, out);
        } else {
            for part in piece.chunks(LONGEST) {
                self.encode_long(part, scratch, out);
            }
        }
    }

    fn find(&self, left: u32, right: u32) -> Merge {
        self.table.get(&key(left, right)).copied().unwrap_or(NONE)
    }

    /// Fills `ids` with the bytes' tokens and `merges[i]` with what `i` and its right neighbour become.
    fn start(&self, piece: &[u8], s: &mut Scratch) {
        s.ids.clear();
        s.ids.extend(piece.iter().map(|&b| self.bytes[usize::from(b)]));
        s.merges.clear();
        s.merges.extend(s.ids.windows(2).map(|w| self.find(w[0], w[1])));
        s.merges.push(NONE);
    }

    fn encode_short(&self, piece: &[u8], s: &mut Scratch, out: &mut Vec<u32>) {
        self.start(piece, s);
        loop {
            let mut at = 0;
            let mut best = NONE;
            for (i, m) in s.merges.iter().enumerate() {
                if m.rank < best.rank {
                    (at, best) = (i, *m);
                }
            }
            if best.rank == NONE.rank {
                break;
            }
            s.ids[at] = best.id;
            s.ids.remove(at + 1);
            s.merges.remove(at + 1);
            s.merges[at] = s.ids.get(at + 1).map_or(NONE, |&right| self.find(best.id, right));
            if at > 0 {
                s.merges[at - 1] = self.find(s.ids[at - 1], best.id);
            }
        }
        if !piece.is_empty() {
            out.extend_from_slice(&s.ids);
        }
    }

    /// A linked list of symbols and a heap of (rank, position): n log n however many merges apply. A heap entry is
    /// stale when the position has another merge by now, and is then skipped. Returns how many entries there were.
    fn encode_long(&self, piece: &[u8], s: &mut Scratch, out: &mut Vec<u32>) -> usize {
        self.start(piece, s);
        let n = piece.len() as u32;
        s.prev.clear();
        s.prev.extend((0..n).map(|i| i.wrapping_sub(1)));
        s.next.clear();
        s.next.extend(1..=n);
        s.heap.clear();
        s.heap.extend((0..n).zip(&s.merges).filter(|(_, m)| m.rank != NONE.rank).map(|(i, m)| entry(m.rank, i)));
        let mut heap = BinaryHeap::from(std::mem::take(&mut s.heap));
        let mut entries = 0;
        while let Some(Reverse(top)) = heap.pop() {
            entries += 1;
            let (rank, at) = ((top >> 32) as u32, top as u32);
            let here = at as usize;
            let merge = s.merges[here];
            if merge.rank != rank {
                continue;
            }
            let gone = s.next[here] as usize;
            let after = s.next[gone];
            s.ids[here] = merge.id;
            s.next[here] = after;
            s.merges[gone] = NONE;
            s.merges[here] = NONE;
            if after < n {
                s.prev[after as usize] = at;
                let m = self.find(merge.id, s.ids[after as usize]);
                s.merges[here] = m;
                if m.rank != NONE.rank {
                    heap.push(entry(m.rank, at));
                }
            }
            let before = s.prev[here];
            if before < n {
                let m = self.find(s.ids[before as usize], merge.id);
                s.merges[before as usize] = m;
                if m.rank != NONE.rank {
                    heap.push(entry(m.rank, before));
                }
            }
        }
        s.heap = heap.into_vec();
        let mut at = 0;
        while at < n {
            out.push(s.ids[at as usize]);
            at = s.next[at as usize];
        }
        entries
    }
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

fn entry(rank: u32, at: u32) -> Reverse<u64> {
    Reverse(u64::from(rank) << 32 | u64::from(at))
}

/// A multiply-and-fold hash of one 64-bit key: pairs of ids are looked up several times per word, and the default
/// hasher's resistance to chosen keys buys nothing for a table that is built once.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }

    fn write_u64(&mut self, x: u64) {
        let wide = u128::from(x ^ self.0 ^ 0x9E37_79B9_7F4A_7C15) * 0xA076_1D64_78BD_642F;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over the letters a and b every string up to eight long is a token, merges in an arbitrary fixed order.
    fn merges() -> Merges {
        let id = |s: &str| s.bytes().fold(1u32, |v, c| v << 1 | u32::from(c == b'b'));
        let mut bytes = [0; 256];
        bytes[usize::from(b'a')] = id("a");
        bytes[usize::from(b'b')] = id("b");
        let mut m = Merges::new(bytes, 0);
        let words: Vec<String> = (2u32..512)
            .map(|v| format!("{v:b}")[1..].replace('0', "a").replace('1', "b"))
            .filter(|w| !w.is_empty() && w.len() <= 8)
            .collect();
        let mut rank = 0;
        for (i, left) in words.iter().enumerate() {
            for (j, right) in words.iter().enumerate() {
                if left.len() + right.len() <= 8 && (i * 7 + j * 3) % 5 < 2 {
                    m.add(id(left), id(right), (rank * 7919) % 100_003, id(&format!("{left}{right}")));
                    rank += 1;
                }
            }
        }
        m
    }

    #[test]
    fn heap_and_scan_agree() {
        let m = merges();
        let mut seed = 7u64;
        let mut s = Scratch::default();
        for n in 1..400 {
            let piece: Vec<u8> = (0..n % 64 + 1)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    if seed >> 63 == 0 { b'a' } else { b'b' }
                })
                .collect();
            let (mut short, mut long) = (Vec::new(), Vec::new());
            m.encode_short(&piece, &mut s, &mut short);
            m.encode_long(&piece, &mut s, &mut long);
            assert_eq!(short, long, "{}", String::from_utf8_lossy(&piece));
        }
    }

    #[test]
    fn the_same_letter_again_and_again_takes_no_more_work_than_any_text() {
        let m = merges();
        let (mut s, mut out) = (Scratch::default(), Vec::new());
        for n in [1000, 4000, 16_000] {
            for piece in [vec![b'a'; n], b"ab".repeat(n / 2)] {
                // Each merge takes a symbol away, and makes two pairs at most.
                let entries = m.encode_long(&piece, &mut s, &mut out);
                assert!(entries <= 3 * n, "{entries} entries for {n} letters");
            }
        }
    }
}

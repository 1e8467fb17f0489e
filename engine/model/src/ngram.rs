//! Which rows of the n-gram table a token looks up.

use crate::config::NgramConfig;

/// The hash of the last few tokens, one row per head.
///
/// The window of a token is itself and its predecessors, newest first; from the first predecessor on that does not
/// exist or is the end-of-text token, the rest counts as end-of-text. Each length from 2 on mixes one more token into
/// an exclusive or of products; every head of that length takes it modulo its own number of rows.
#[derive(Debug, Clone)]
pub struct NgramHash {
    config: NgramConfig,
}

impl NgramHash {
    /// The hash of a model with this configuration.
    pub fn new(config: NgramConfig) -> NgramHash {
        NgramHash { config }
    }

    /// The configuration.
    pub fn config(&self) -> &NgramConfig {
        &self.config
    }

    /// Table rows looked up per token.
    pub fn heads(&self) -> usize {
        self.config.head_rows.len()
    }

    /// Appends the rows of the last token of `sequence` to `rows`; an empty sequence has none.
    pub fn rows(&self, sequence: &[u32], rows: &mut Vec<u64>) {
        let Some((&token, before)) = sequence.split_last() else { return };
        let c = &self.config;
        let mut mixed = u64::from(token).wrapping_mul(c.multipliers[0]);
        let mut predecessors = before.iter().rev();
        let mut cut = false;
        for length in 2..=c.longest {
            let token = predecessors.next().copied().filter(|&t| !cut && t != c.eos);
            cut = token.is_none();
            mixed ^= u64::from(token.unwrap_or(c.eos)).wrapping_mul(c.multipliers[length - 1]);
            let first = (length - 2) * c.heads_per_length;
            for head in first..first + c.heads_per_length {
                rows.push(mixed % c.head_rows[head] + c.head_offsets[head]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> NgramHash {
        let sizes = [3, 23, 33, 47, 59, 63, 69, 77, 81, 93, 107, 147, 153, 159, 161, 171].map(|s| 20_000_000 + s);
        let offsets = sizes.iter().scan(0, |sum, s| {
            *sum += s;
            Some(*sum - s)
        });
        NgramHash::new(NgramConfig {
            layer: 1,
            longest: 3,
            heads_per_length: 8,
            taps: 4,
            eos: 248_044,
            row_len: 160,
            multipliers: vec![23_703_573_157_769, 20_109_073_645_365, 8_052_911_324_071],
            head_rows: sizes.to_vec(),
            head_offsets: offsets.collect(),
        })
    }

    #[test]
    fn published_constants_give_the_published_rows() {
        let cases: [(&[u32], [u64; 8]); 5] = [
            (&[248_045], [13981229, 30076798, 49239434, 146384625, 173637879, 184336749, 217808755, 312970430]),
            (&[248_045, 846], [4908448, 36872991, 46611251, 159207155, 170314019, 195445770, 214314282, 308659387]),
            (
                &[248_045, 846, 198],
                [4582007, 37691206, 44255274, 145212418, 163775156, 199680439, 200044921, 317942745],
            ),
            (&[7, 248_044, 198], [15632910, 22689959, 59955968, 149526814, 170846002, 185983071, 206510390, 313959329]),
            (
                &[846, 198, 248_044],
                [16849591, 37537304, 42290399, 158125394, 172066454, 182943779, 210981828, 306781843],
            ),
        ];
        for (sequence, expected) in cases {
            let mut rows = Vec::new();
            published().rows(sequence, &mut rows);
            assert_eq!(rows.len(), 16);
            assert_eq!([0, 1, 2, 7, 8, 9, 10, 15].map(|h| rows[h]), expected, "{sequence:?}");
        }
    }
}

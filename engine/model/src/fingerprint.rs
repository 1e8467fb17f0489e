//! One number for many: whether two states hold the same bits.

/// FNV-1a, word by word.
pub(crate) struct Fingerprint(pub(crate) u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Takes in a word.
    pub(crate) fn word(&mut self, word: u32) {
        self.0 = (self.0 ^ u64::from(word)).wrapping_mul(0x100_0000_01b3);
    }

    /// Takes in a list of values: its length, and their bits.
    pub(crate) fn add(&mut self, values: &[f32]) {
        self.word(values.len() as u32);
        values.iter().for_each(|v| self.word(v.to_bits()));
    }
}

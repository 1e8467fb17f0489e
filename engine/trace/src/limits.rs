//! What a value may be at most.
//!
//! Beyond these no machine and no model is known by orders of magnitude, so a larger value is a mistake; and below them
//! sums over a trace do not overflow.

use crate::meta::Meta;
use crate::trace::TraceError;

/// Layers of a model.
pub(crate) const LAYERS: usize = 1 << 12;
/// Routed experts of a layer: their numbers have 16 bits.
pub(crate) const EXPERTS: usize = 1 << 16;
/// Experts that a token uses in a layer.
pub(crate) const USED: usize = 1 << 10;
/// Bytes of one expert: 1 TiB.
pub(crate) const EXPERT_BYTES: u64 = 1 << 40;
/// Bytes of all weights, or of what a round reads or moves: 1 PiB.
pub(crate) const BYTES: u64 = 1 << 50;
/// Tokens of a round.
pub(crate) const ROWS: usize = 1 << 20;
/// Nanoseconds of a round: a day.
pub(crate) const NANOS: u64 = 86_400_000_000_000;

/// The error that something is not what is expected there.
pub(crate) fn invalid(place: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> TraceError {
    TraceError::Invalid { place: place.into(), found: found.into(), expected: expected.into() }
}

impl Meta {
    /// Whether its numbers can be those of a model. `place` is the file, for the error.
    ///
    /// # Errors
    /// A number is out of its range, or there is not one size of experts for each layer.
    pub fn check(&self, place: &str) -> Result<(), TraceError> {
        let counts = [
            ("layers", self.layers, LAYERS),
            ("experts", self.experts, EXPERTS),
            ("used", self.used, self.experts.min(USED)),
        ];
        for (field, found, most) in counts {
            if !(1..=most).contains(&found) {
                return Err(invalid(format!("{place}: meta.{field}"), found.to_string(), format!("1 to {most}")));
            }
        }
        let sizes = self.expert_bytes.len();
        if sizes != self.layers {
            let expected = format!("{}, one for each layer", self.layers);
            return Err(invalid(format!("{place}: meta.expert_bytes"), format!("{sizes} sizes"), expected));
        }
        for (layer, &bytes) in self.expert_bytes.iter().enumerate() {
            if !(1..=EXPERT_BYTES).contains(&bytes) {
                let expected = format!("1 to {EXPERT_BYTES}");
                return Err(invalid(format!("{place}: meta.expert_bytes[{layer}]"), bytes.to_string(), expected));
            }
        }
        if ![0, self.layers].contains(&self.resident.len()) {
            let expected = format!("none, or {}, one for each layer", self.layers);
            let found = format!("{} lists", self.resident.len());
            return Err(invalid(format!("{place}: meta.resident"), found, expected));
        }
        for (layer, resident) in self.resident.iter().enumerate() {
            let known = resident.last().is_none_or(|&last| usize::from(last) < self.experts);
            if !known || !resident.is_sorted_by(|a, b| a < b) {
                let expected = format!("ascending numbers below {}", self.experts);
                return Err(invalid(format!("{place}: meta.resident[{layer}]"), format!("{resident:?}"), expected));
            }
        }
        if self.dense_bytes > BYTES {
            let expected = format!("at most {BYTES}");
            return Err(invalid(format!("{place}: meta.dense_bytes"), self.dense_bytes.to_string(), expected));
        }
        Ok(())
    }
}

//! Forgetting.

/// Below this a count is 0: a use that was forgotten so far decides nothing, and multiplying ever smaller numbers ends
/// in ones that processors are slow at.
const FORGOTTEN: f32 = 1e-12;

/// Multiplies all counts, which are not negative, by a factor from 0 to 1.
pub(crate) fn decay(counts: &mut [f32], factor: f32) {
    if factor == 1.0 {
        return;
    }
    for count in counts {
        let next = *count * factor;
        *count = if next < FORGOTTEN { 0.0 } else { next };
    }
}

//! Refuses values that cannot be, with the field, what was found and what was expected.

use crate::error::SimError;

/// One sentence about a value that cannot be.
pub(crate) fn invalid(place: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> SimError {
    SimError::Invalid { place: place.into(), found: found.to_string(), expected: expected.into() }
}

/// Finite and above 0.
pub(crate) fn positive(place: &str, value: f64) -> Result<(), SimError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(invalid(place, value, "a finite number above 0")) }
}

/// Finite, and 0 or above.
pub(crate) fn not_negative(place: &str, value: f64) -> Result<(), SimError> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(invalid(place, value, "a finite number of at least 0")) }
}

/// From 0 to 1.
pub(crate) fn share(place: &str, value: f64) -> Result<(), SimError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(invalid(place, value, "a number from 0 to 1")) }
}

/// Above 0 and at most 1.
pub(crate) fn efficiency(place: &str, value: f64) -> Result<(), SimError> {
    if value > 0.0 && value <= 1.0 { Ok(()) } else { Err(invalid(place, value, "a number above 0 and at most 1")) }
}

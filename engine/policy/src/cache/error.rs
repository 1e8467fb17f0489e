//! What can be wrong with a cache.

/// Why a cache cannot be made, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: found {found}, expected {expected}")]
pub struct CacheError {
    /// The setting or the input.
    pub place: String,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
}

impl CacheError {
    pub(crate) fn invalid(place: &str, found: impl Into<String>, expected: impl Into<String>) -> CacheError {
        CacheError { place: place.into(), found: found.into(), expected: expected.into() }
    }
}

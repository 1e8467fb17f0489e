//! What can go wrong.

/// Why a simulation cannot be made. Each case is one sentence that names the place.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A value that cannot be: where, what was found, what was expected.
    #[error("{place}: found {found}, expected {expected}")]
    Invalid {
        /// File and line, or field.
        place: String,
        /// What was found.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Its reason.
        source: std::io::Error,
    },
    /// A hardware profile or a setting cannot be used.
    #[error(transparent)]
    Config(#[from] strata_config::ConfigError),
    /// A trace cannot be used.
    #[error(transparent)]
    Trace(#[from] strata_trace::TraceError),
}

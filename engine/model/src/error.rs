//! What can go wrong with a model, in sentences.

/// The result of a model operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a model was refused or a pass failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is damaged, incomplete or not of this architecture.
    #[error(transparent)]
    File(#[from] strata_gguf::Error),
    /// An expert cache that cannot be.
    #[error("the expert cache: {0}")]
    Cache(String),
    /// A value stopped being a number. The state is unusable until it is restored or cleared.
    #[error("the model produced {value} in {place} at position {position}: its weights or a kernel are broken")]
    NonFinite {
        /// `NaN` or `infinity`.
        value: &'static str,
        /// Where it arose first, such as `layer 3 (attention)`.
        place: String,
        /// Position of the token in its sequence, from 0.
        position: usize,
    },
    /// More tokens than the state was made for.
    #[error("{asked} tokens do not fit the context of {capacity}")]
    ContextFull {
        /// Tokens that would be in the sequence.
        asked: usize,
        /// Tokens that the state can hold.
        capacity: usize,
    },
    /// A token id beyond the vocabulary.
    #[error("token id {id} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab: usize,
    },
    /// More rows to be kept than the window has.
    #[error("{keep} rows cannot be kept of a window of {rows}")]
    Keep {
        /// Rows to be kept.
        keep: usize,
        /// Rows of the window.
        rows: usize,
    },
    /// The device failed, such as for want of memory, and does nothing any more.
    #[error("{0}")]
    Device(String),
    /// The state was left unusable by an earlier failure or is not in the condition that the call needs, or a snapshot
    /// is of another history.
    #[error("{0}")]
    State(&'static str),
    /// A saved state could not be written or read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

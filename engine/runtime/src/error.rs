//! What can go wrong between a prompt and its answer.

/// The result of a runtime operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an answer could not be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] strata_gguf::Error),
    /// The model refused or failed.
    #[error(transparent)]
    Model(#[from] strata_model::Error),
    /// The chat template refused the messages.
    #[error(transparent)]
    Template(#[from] strata_gguf::TemplateError),
    /// The prompt leaves no room in the context.
    #[error(
        "the prompt has {prompt} tokens and the context holds {context}; a longer one (--ctx) or a shorter prompt is needed"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// The prompt has so many bytes that it leaves no room in the context, however it is split.
    #[error(
        "the prompt has {bytes} bytes, which are {least} tokens at least, and the context holds {context}; a longer one \
         (--ctx) or a shorter prompt is needed"
    )]
    TextTooLong {
        /// Bytes of the prompt.
        bytes: usize,
        /// Tokens that they are at least.
        least: usize,
        /// Tokens the context holds.
        context: usize,
    },
    /// The template made nothing of the messages.
    #[error("the chat template made an empty prompt of the conversation")]
    EmptyRendering,
    /// There is nothing to read.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The file has no chat template.
    #[error("{file} has no chat template that can be used; give the prompt as it is with --raw")]
    NoTemplate {
        /// Name of the file.
        file: String,
    },
    /// The expert cache that the settings ask for cannot be.
    #[error("experts.{0}")]
    Cache(#[from] strata_policy::cache::CacheError),
    /// A parameter of the answer cannot be obeyed.
    #[error("{name}: {why}")]
    BadParameter {
        /// Which: a field of [`GenerateParams`](crate::GenerateParams) or [`SamplingParams`](crate::SamplingParams).
        name: &'static str,
        /// What was found and what was expected.
        why: String,
    },
    /// A schema or grammar that cannot be followed, and why.
    #[error("the constraint cannot be followed: {0}")]
    BadConstraint(String),
    /// An answer could not go on within its constraint.
    #[error("the answer cannot go on within its constraint: {0}")]
    Constraint(String),
    /// The vocabulary cannot be used with constraints.
    #[error("constraints cannot be used with this vocabulary: {0}")]
    Grammars(String),
    /// A trace could not be written.
    #[error(transparent)]
    Trace(#[from] strata_trace::TraceError),
    /// The thread that writes a trace could not be started, or failed.
    #[error("the thread that writes the trace failed: {0}")]
    Thread(std::io::Error),
    /// A parked conversation could not be written or found.
    #[error("{what} {path}: {error}")]
    Parking {
        /// What was tried, such as "cannot write".
        what: &'static str,
        /// The file or folder.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A parked conversation cannot be resumed here.
    #[error("{path} cannot be resumed: {why}")]
    Parked {
        /// The file.
        path: String,
        /// What was found and what was expected.
        why: String,
    },
}

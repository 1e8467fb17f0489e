//! What holds for a round and for its tokens.

/// Reading a prompt or writing an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A chunk of a prompt.
    Prefill,
    /// A window of an answer: the last known token and drafts.
    Decode,
}

/// Where the drafts of a round came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DraftSource {
    /// There were none.
    #[default]
    None,
    /// The draft layer.
    Mtp,
    /// Prompt lookup.
    Lookup,
    /// The draft layer first, then prompt lookup.
    Both,
    /// The caller.
    Own,
}

/// The parts of a round that are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Branch {
    /// Dense weights on the GPU.
    GpuDense,
    /// Resident experts on the GPU.
    GpuHits,
    /// Copies of experts to the GPU.
    PcieCopy,
    /// Experts on the CPU.
    CpuExperts,
    /// The CPU waiting for the GPU.
    WaitGpu,
    /// The GPU waiting for the CPU.
    WaitCpu,
    /// Drafting.
    Draft,
    /// Committing.
    Commit,
    /// Everything else; on a machine without a GPU the dense weights too.
    Other,
}

/// All branches, in the order of [`Round::nanos`].
pub const BRANCHES: [Branch; 9] = [
    Branch::GpuDense,
    Branch::GpuHits,
    Branch::PcieCopy,
    Branch::CpuExperts,
    Branch::WaitGpu,
    Branch::WaitCpu,
    Branch::Draft,
    Branch::Commit,
    Branch::Other,
];

impl Branch {
    /// Its name, as records have it.
    pub fn name(self) -> &'static str {
        match self {
            Branch::GpuDense => "gpu_dense",
            Branch::GpuHits => "gpu_hits",
            Branch::PcieCopy => "pcie_copy",
            Branch::CpuExperts => "cpu_experts",
            Branch::WaitGpu => "wait_gpu",
            Branch::WaitCpu => "wait_cpu",
            Branch::Draft => "draft",
            Branch::Commit => "commit",
            Branch::Other => "other",
        }
    }
}

impl std::fmt::Display for Branch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One pass over a window of tokens, and what was kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Number of the request in its trace, from 0.
    pub request: u32,
    /// Number of the round in its request, from 0; chunks of the prompt count.
    pub round: u32,
    /// Reading or writing.
    pub phase: Phase,
    /// Where the drafts came from.
    pub source: DraftSource,
    /// Tokens read: the window or the chunk.
    pub rows: u32,
    /// The first of them that were kept.
    pub committed: u32,
    /// Nanoseconds from the end of the round before to the end of this one, so that those of an answer add up to its
    /// time. Less those of [`Branch::Draft`] they are what the window policy learns its costs from.
    pub total_nanos: u64,
    /// Nanoseconds of each branch, in the order of [`BRANCHES`]; branches may overlap.
    pub nanos: [u64; BRANCHES.len()],
    /// Bytes of weights that each branch read or moved.
    pub bytes: [u64; BRANCHES.len()],
}

/// A token that a round read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its number in the vocabulary.
    pub id: u32,
    /// Its position in the sequence, from 0.
    pub position: u32,
    /// It was a guess.
    pub drafted: bool,
    /// It was kept.
    pub committed: bool,
}

/// Nanoseconds of the branches of one layer in one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayerTimes {
    /// Everything before the experts.
    pub dense: u64,
    /// Resident experts on the GPU.
    pub gpu: u64,
    /// Copies to the GPU.
    pub copy: u64,
    /// Experts on the CPU.
    pub cpu: u64,
}

impl LayerTimes {
    /// All of them by name.
    pub fn columns(&self) -> [(&'static str, u64); 4] {
        [("dense", self.dense), ("gpu", self.gpu), ("copy", self.copy), ("cpu", self.cpu)]
    }
}

/// A change of what is resident, at the end of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Move {
    /// The layer of the expert that came; of the one that left, if none came.
    pub layer: u16,
    /// The expert that came in, if one did.
    pub came: Option<u16>,
    /// The layer and expert that left, if one did.
    pub left: Option<(u16, u16)>,
}

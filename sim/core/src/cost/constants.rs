//! The constants of the model that no data sheet holds.

use super::WeightKind;
use crate::check::{efficiency, not_negative, positive, share};
use crate::error::SimError;

/// Constants of a round of decoding.
///
/// The defaults are for the original engine on its RTX 5070 with a Ryzen 5 7600. *Fitted* ones were set to a published
/// figure, so that figure checks nothing; the others are published by themselves or assumed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constants {
    /// Share of the peak bandwidth of VRAM that matrix-vector products reach. Assumed.
    pub vram_efficiency: f64,
    /// Nodes of the captured graph for each layer. Published: about 1,400 for 32 layers.
    pub nodes_per_layer: f64,
    /// Microseconds of each node beyond what it reads: start, drain, and what small products lose. Fitted to the
    /// published 14.6 ms of waiting for the GPU.
    pub node_us: f64,
    /// Microseconds of each layer for each row of the window beyond the first. Fitted to a published
    /// expectation: a window of four rows takes 2.05 times as long as one of one.
    pub row_us: f64,
    /// Microseconds of each layer for the doorbells between GPU and host. Assumed: 5 to 20 are usual.
    pub sync_us: f64,
    /// Microseconds of each layer in which the CPU has any expert: waking the workers. Published for two Xeons: 50; that
    /// the published 13.4 ms of the Ryzen leave no room for it is why it is 0 here.
    pub wake_us: f64,
    /// Nanoseconds of one worker for one plain weight. Not bound on the reference machine.
    pub plain_ns: f64,
    /// Nanoseconds of one worker for one nested weight.
    pub nested_ns: f64,
    /// Nanoseconds of one worker for one weight of a code book. Fitted to IQ3_S at 4K, 53.3 tokens/s.
    pub codebook_ns: f64,
    /// Nanoseconds of each attention layer for each token of the context: scoring and selecting, beyond reading the
    /// keys. Fitted to Q2_0 at 262K, 60.3 tokens/s.
    pub select_ns: f64,
    /// Milliseconds of each draft step. Fitted to the published 2.0 ms of drafts; 0.7 to 0.8 elsewhere.
    pub step_ms: f64,
    /// Milliseconds of keeping what was accepted. Published for another machine: 0.5 to 0.6.
    pub commit_ms: f64,
    /// Milliseconds of reading the rows of the n-gram table, one request for a window. Published: 0.311.
    pub ngram_ms: f64,
    /// Milliseconds of whatever else a round has. Fitted to the published 4.3 ms, less head, commit and n-gram rows.
    pub other_ms: f64,
}

impl Default for Constants {
    fn default() -> Constants {
        Constants {
            vram_efficiency: 0.85,
            nodes_per_layer: 44.0,
            node_us: 1.022,
            row_us: 57.98,
            sync_us: 10.0,
            wake_us: 0.0,
            plain_ns: 0.04,
            nested_ns: 0.08,
            codebook_ns: 0.1122,
            select_ns: 1.594,
            step_ms: 0.7252,
            commit_ms: 0.5,
            ngram_ms: 0.311,
            other_ms: 2.7187,
        }
    }
}

impl Constants {
    /// Nanoseconds of one worker for one weight of this kind.
    pub fn weight_ns(&self, kind: WeightKind) -> f64 {
        match kind {
            WeightKind::Plain => self.plain_ns,
            WeightKind::Nested => self.nested_ns,
            WeightKind::CodeBook => self.codebook_ns,
        }
    }

    /// Refuses numbers that cannot be.
    ///
    /// # Errors
    /// A constant is negative or no number; the sentence names it.
    pub fn check(&self) -> Result<(), SimError> {
        efficiency("constant vram_efficiency", self.vram_efficiency)?;
        for (field, value) in [
            ("nodes_per_layer", self.nodes_per_layer),
            ("node_us", self.node_us),
            ("row_us", self.row_us),
            ("sync_us", self.sync_us),
            ("wake_us", self.wake_us),
            ("plain_ns", self.plain_ns),
            ("nested_ns", self.nested_ns),
            ("codebook_ns", self.codebook_ns),
            ("select_ns", self.select_ns),
            ("step_ms", self.step_ms),
            ("commit_ms", self.commit_ms),
            ("ngram_ms", self.ngram_ms),
            ("other_ms", self.other_ms),
        ] {
            not_negative(&format!("constant {field}"), value)?;
        }
        Ok(())
    }
}

/// Constants of reading a prompt.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptConstants {
    /// Milliseconds of a prompt that is read in chunks, whatever its length. Published: about 300.
    pub batch_ms: f64,
    /// Milliseconds of filling lent slots again. Published: about 180.
    pub refill_ms: f64,
    /// Streaming of experts in GB/s at most. Published: about 70 us for 1.38 MB.
    pub stream_gb_s: f64,
    /// Share of the link that streaming reaches where the link is the slower one. Assumed.
    pub link_efficiency: f64,
    /// Share of the data sheet's matrix speed that a chunk reaches, all its kernels taken together. Fitted to Q2_0 with
    /// 32K tokens, 2,171 tokens/s.
    pub tensor_efficiency: f64,
    /// Share of the shorter of streaming and computing that is hidden behind the longer: 1 is max(stream, compute), 0
    /// their sum. 0 since the speeds with 4K and 32K tokens leave no room for streaming that is hidden.
    pub overlap: f64,
    /// Tokens of a chunk from which every absent expert is streamed; below it only those that are routed to.
    pub stream_from: f64,
    /// Slots that are never lent.
    pub keep_slots: f64,
    /// Share of the slots that may be lent.
    pub lend_share: f64,
    /// Slots of the ring through which experts are streamed.
    pub ring_slots: f64,
    /// Bytes of buffers for each token of a chunk. Derived: 4,234 slots of IQ3_S lent to a chunk of 20,224 tokens.
    pub token_bytes: f64,
}

impl Default for PromptConstants {
    fn default() -> PromptConstants {
        PromptConstants {
            batch_ms: 300.0,
            refill_ms: 180.0,
            stream_gb_s: 19.75,
            link_efficiency: 0.8,
            tensor_efficiency: 0.8,
            overlap: 0.0,
            stream_from: 1024.0,
            keep_slots: 128.0,
            lend_share: 0.9,
            ring_slots: 384.0,
            token_bytes: 366_000.0,
        }
    }
}

impl PromptConstants {
    /// Refuses numbers that cannot be.
    ///
    /// # Errors
    /// A constant cannot be; the sentence names it.
    pub fn check(&self) -> Result<(), SimError> {
        for (field, value) in [
            ("batch_ms", self.batch_ms),
            ("refill_ms", self.refill_ms),
            ("stream_from", self.stream_from),
            ("keep_slots", self.keep_slots),
            ("ring_slots", self.ring_slots),
        ] {
            not_negative(&format!("prompt constant {field}"), value)?;
        }
        positive("prompt constant stream_gb_s", self.stream_gb_s)?;
        positive("prompt constant token_bytes", self.token_bytes)?;
        efficiency("prompt constant link_efficiency", self.link_efficiency)?;
        positive("prompt constant tensor_efficiency", self.tensor_efficiency)?;
        share("prompt constant overlap", self.overlap)?;
        share("prompt constant lend_share", self.lend_share)
    }
}

/// What else than experts VRAM holds.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VramConstants {
    /// Bytes left free for the desktop. Published: 700 MiB.
    pub reserve_bytes: f64,
    /// Bytes of everything else: driver, graphs, draft head, verifier. Fitted to 2,580 slots of IQ3_S at 4K.
    pub other_bytes: f64,
}

impl Default for VramConstants {
    fn default() -> VramConstants {
        VramConstants { reserve_bytes: 734_003_200.0, other_bytes: 1.788e9 }
    }
}

//! `prefill`: how long a prompt takes, by its length and the size of its chunks.

use super::setting::{AXES as SHARED, INPUTS, Library, Setting};
use super::values::{NumberOr, Values, word};
use super::{Described, Inputs, Point, Prepared, Row, Study};
use crate::check::invalid;
use crate::cost::counts::Unions;
use crate::cost::{Prompt, largest_chunk, prompt_time};
use crate::error::SimError;

/// The study.
pub struct PrefillStudy;

const NAME: &str = "prefill";

/// Largest chunk that the original engine takes by itself.
const AUTO_CHUNK: f64 = 8192.0;

const AXES: &[Described] = &[
    SHARED[0],
    SHARED[1],
    SHARED[2],
    SHARED[3],
    SHARED[4],
    SHARED[5],
    SHARED[6],
    SHARED[7],
    SHARED[10],
    SHARED[16],
    Described { name: "prompt", unit: "tokens", help: "Length of the prompt; 0, the default: the whole context" },
    Described {
        name: "engine.prefill_chunk",
        unit: "tokens",
        help: "Of one chunk at most, lowered to what the slots have room for; auto, the default: 8192",
    },
    Described {
        name: "overlap",
        unit: "",
        help: "Share of streaming or computing hidden behind the longer; the model's constant unless given",
    },
];

const METRICS: &[Described] = &[
    Described { name: "prompt_s", unit: "s", help: "The whole prompt" },
    Described { name: "tokens_per_s", unit: "tokens/s", help: "Tokens over that time" },
    Described { name: "stream_s", unit: "s", help: "Streaming experts, all chunks" },
    Described { name: "compute_s", unit: "s", help: "Computing, all chunks" },
    Described { name: "fixed_s", unit: "s", help: "Paid once: setting up, and filling lent slots again" },
    Described { name: "chunks", unit: "chunks", help: "Of the prompt" },
    Described { name: "chunk", unit: "tokens", help: "Of a full chunk, as lowered" },
    Described { name: "lent", unit: "experts", help: "Slots lent to a full chunk" },
    Described { name: "slots", unit: "experts", help: "Places for experts in VRAM" },
    Described { name: "streamed_gb", unit: "GB", help: "Read over PCIe" },
];

impl Study for PrefillStudy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn axes(&self) -> &'static [Described] {
        AXES
    }

    fn metrics(&self) -> &'static [Described] {
        METRICS
    }

    fn inputs(&self) -> &'static [(&'static str, bool)] {
        INPUTS
    }

    fn prepare(&self, inputs: &Inputs) -> Result<Box<dyn Prepared>, SimError> {
        Ok(Box::new(PrefillPrepared { library: Library::read(inputs)? }))
    }
}

struct PrefillPrepared {
    library: Library,
}

impl Prepared for PrefillPrepared {
    fn evaluate(&self, point: &Point) -> Result<Vec<Row>, SimError> {
        let values = Values::new(NAME, point, AXES)?;
        let s = Setting::of(&values, &self.library)?;
        let mut constants = s.prompt.clone();
        constants.overlap = values.number("overlap", constants.overlap)?;
        let tokens = match values.int("prompt", 0, 0, 1 << 24)? {
            0 => s.context,
            tokens => tokens as f64,
        };
        if tokens > s.context {
            return Err(invalid("axis prompt", tokens, format!("at most the context, {}", s.context)));
        }
        let room = largest_chunk(&s.model, &constants, s.slots)?;
        let chunk = match values.number_or("engine.prefill_chunk", "auto")? {
            NumberOr::Number(chunk) => chunk.min(room),
            NumberOr::Word("auto") => AUTO_CHUNK.min(room),
            NumberOr::Word(other) => return Err(word("engine.prefill_chunk", other, "a number of tokens, or auto")),
        };
        let hits = s.hit_rate()?;
        let prompt = Prompt { tokens, chunk, slots: s.slots, hits, unions: Unions::default() };
        let time = prompt_time(&s.machine, &s.model, &constants, prompt)?;
        let figures = [
            time.total,
            tokens / time.total,
            time.stream,
            time.compute,
            time.fixed,
            time.chunks,
            chunk.min(tokens),
            time.lent,
            s.slots,
            time.bytes / 1e9,
        ];
        Ok(vec![Row::of(values.labels(), METRICS, &figures)])
    }
}

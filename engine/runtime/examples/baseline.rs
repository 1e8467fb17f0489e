//! Measures reading and writing speed of a model, and the memory that it takes.
//!
//! `baseline [MODEL.gguf] [THREADS]` prints one line per repetition and the medians. Without a model it is the
//! built-in one of the repository.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use strata_gguf::{Gguf, Special};
use strata_model::CpuOps;
use strata_runtime::{Engine, GenerateParams};

const REPETITIONS: usize = 7;
const PROMPT_TOKENS: usize = 256;
const OUTPUT_TOKENS: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut args = std::env::args().skip(1);
    let model = args.next().map_or_else(|| here.join("../cli/model/nano-IQ3_S.gguf"), PathBuf::from);
    let threads = args.next().map_or(Ok(0), |t| t.parse())?;
    let engine = Engine::load(&Gguf::open(&model)?, CpuOps::new(threads), &mut |_| ())?;
    // Real text: a repeated phrase would flatter every cache.
    let text = std::fs::read_to_string(here.join("../cli/model/conversations.jsonl"))?;
    let tokens = engine.tokenizer().encode(&text, Special::Plain);
    let params = GenerateParams { max_tokens: OUTPUT_TOKENS, ignore_stop: true, ..GenerateParams::default() };

    let (mut reading, mut writing) = (Vec::new(), Vec::new());
    // The first repetition warms caches and pages and is not counted.
    for repetition in 0..=REPETITIONS {
        let prompt = &tokens[repetition * PROMPT_TOKENS..][..PROMPT_TOKENS];
        let mut session = engine.session(PROMPT_TOKENS + OUTPUT_TOKENS + 1, 64);
        let timings = session.generate(prompt, &params, &AtomicBool::new(false), &mut |_| ())?.timings;
        println!(
            "{repetition}: prompt {:.1} tokens/s, output {:.1} tokens/s",
            timings.prompt_rate(),
            timings.output_rate()
        );
        if repetition > 0 {
            reading.push(timings.prompt_rate());
            writing.push(timings.output_rate());
        }
    }
    println!(
        "{} threads, medians of {REPETITIONS}: prompt of {PROMPT_TOKENS} {:.1} tokens/s, output of {OUTPUT_TOKENS} {:.1} tokens/s",
        engine.model().ops().threads(),
        median(&mut reading),
        median(&mut writing)
    );
    // Absent where the system has no /proc.
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        status.lines().filter(|l| l.starts_with("VmHWM") || l.starts_with("RssAnon")).for_each(|l| println!("{l}"));
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

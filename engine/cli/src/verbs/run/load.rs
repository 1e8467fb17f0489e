//! From an open file to a loaded engine, with a progress bar.

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Instant;
use strata_config::Settings;
use strata_cpu::{Cpu, Isa};
use strata_gguf::Gguf;
use strata_model::CpuOps;
use strata_runtime::Engine;

/// Loads the engine; returns it with the seconds that took.
pub(super) fn engine(gguf: &Gguf, settings: &Settings, quiet: bool) -> Result<(Engine<CpuOps>, f64)> {
    let start = Instant::now();
    let isa = match settings.engine.isa.as_str() {
        "auto" => Isa::detect(),
        name => Isa::from_name(name).with_context(|| {
            let has: Vec<&str> = Isa::available().map(Isa::name).collect();
            format!("this processor has no {name}, only {}", has.join(" and "))
        })?,
    };
    let bar = bar("loading", "layers", quiet);
    let engine = Engine::load(gguf, CpuOps::on(Cpu::new(settings.engine.threads, isa)), &mut |progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.layers as u64);
    });
    bar.finish_and_clear();
    Ok((engine?, start.elapsed().as_secs_f64()))
}

/// The context to make room for: what was asked, at most what the model was trained for.
pub(super) fn context(engine: &Engine<CpuOps>, settings: &Settings, warnings: &mut Vec<String>) -> usize {
    let (asked, trained) = (settings.engine.ctx, engine.model().config().context);
    if asked == 0 {
        return trained;
    }
    if asked > trained && settings.origin(&strata_config::registry::CTX) != Some(&strata_config::Origin::Default) {
        warnings
            .push(format!("the context is lowered from {asked} to {trained} tokens, what the model was trained for"));
    }
    asked.min(trained)
}

/// A bar on stderr; it draws nothing when that is no terminal.
pub(super) fn bar(doing: &'static str, unit: &str, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template(&format!("{{msg}} {{bar:30}} {{pos}}/{{len}} {unit} {{eta}}"));
    let bar = ProgressBar::with_draw_target(None, target).with_message(doing);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

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
pub(crate) fn engine(gguf: &Gguf, settings: &Settings, quiet: bool) -> Result<(Engine<CpuOps>, f64)> {
    let start = Instant::now();
    let isa = isa(settings)?;
    let bar = bar("loading", "layers", quiet);
    let engine = Engine::load(gguf, CpuOps::on(Cpu::new(settings.engine.threads, isa)), &mut |progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.layers as u64);
    });
    bar.finish_and_clear();
    Ok((engine?, start.elapsed().as_secs_f64()))
}

/// The instruction set that `--isa` names, which this processor may lack.
pub(crate) fn isa(settings: &Settings) -> Result<Isa> {
    match settings.engine.isa.as_str() {
        "auto" => Ok(Isa::detect()),
        name => Isa::from_name(name).with_context(|| {
            let has: Vec<&str> = Isa::available().map(Isa::name).collect();
            format!("this processor has no {name}, only {}", has.join(" and "))
        }),
    }
}

/// The context to make room for: what was asked, at most what the model was trained for.
pub(crate) fn context(engine: &Engine<CpuOps>, settings: &Settings, warnings: &mut Vec<String>) -> usize {
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

/// A bar of bytes on stderr, shown only when that is a terminal.
pub(crate) fn byte_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template(
        "{bar:30} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left",
    );
    // The template is a constant; should it be refused, the default style is a bar as well.
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// A bar on stderr; it draws nothing when that is no terminal.
pub(crate) fn bar(doing: &'static str, unit: &str, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template(&format!("{{msg}} {{bar:30}} {{pos}}/{{len}} {unit} {{eta}}"));
    let bar = ProgressBar::with_draw_target(None, target).with_message(doing);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

//! From an open file to a loaded engine, with a progress bar.

use crate::builtin;
use crate::device::{Machine, Placement, Where};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Instant;
use strata_config::registry::{DRAFT, SPEC};
use strata_config::{Origin, Settings};
use strata_cpu::Isa;
use strata_gguf::{Gguf, ModelFiles, SafeTensors, models_in, show_path};
use strata_model::{HiddenNorm, ModelConfig, draft_from_safetensors};
use strata_policy::window::{Settings as PolicySettings, Source};
use strata_runtime::{DraftNorm, Engine, Ops, SamplingParams, SpecSampling, SpeculationParams};

/// An engine that is ready.
pub(crate) struct Ready<O: Machine> {
    pub(crate) engine: Engine<O>,
    /// How long that took.
    pub(crate) seconds: f64,
    /// What lies where.
    pub(crate) place: Where,
}

/// Loads the engine onto the device of `placement`, whose operations `ops` are.
pub(crate) fn engine<O: Machine>(gguf: &Gguf, placement: &Placement, ops: O, quiet: bool) -> Result<Ready<O>> {
    engine_told(gguf, placement, ops, quiet, &|_| ())
}

/// Loads the engine, telling the share that is loaded, from 0 to 1.
pub(crate) fn engine_told<O: Machine>(
    gguf: &Gguf,
    placement: &Placement,
    ops: O,
    quiet: bool,
    told: &dyn Fn(f32),
) -> Result<Ready<O>> {
    let start = Instant::now();
    let bar = bar("loading", "layers", quiet);
    let part = placement.share_of_layers();
    let engine = Engine::load(gguf, ops, &mut |progress| {
        bar.set_length(progress.of as u64);
        bar.set_position(progress.layers as u64);
        told(part * progress.layers as f32 / progress.of.max(1) as f32);
    });
    bar.finish_and_clear();
    let mut engine = engine?;
    if let Some(draft) = &placement.draft {
        engine.add_draft_layer(draft.file(gguf))?;
    }
    let place = O::settle(&engine, placement, quiet, &|share| told(part + (1.0 - part) * share))?;
    Ok(Ready { engine, seconds: start.elapsed().as_secs_f64(), place })
}

/// A draft layer that was found.
pub(crate) enum Draft {
    /// In the model file.
    Own,
    /// In a file of its own.
    Other(Box<Gguf>),
}

impl Draft {
    /// The file it is in, which may be the model's.
    pub(crate) fn file<'a>(&'a self, model: &'a Gguf) -> &'a Gguf {
        match self {
            Draft::Own => model,
            Draft::Other(file) => file,
        }
    }
}

/// Finds and opens the draft layer, if the settings want one. What is wrong with one that was named is said before a large
/// model is read.
pub(crate) fn draft(gguf: &Gguf, settings: &Settings) -> Result<Option<Draft>> {
    if !speculation(settings).policy.source.mtp() {
        return Ok(None);
    }
    Ok(match draft_file(gguf, settings)? {
        None => None,
        Some(DraftFile::Own) => Some(Draft::Own),
        Some(DraftFile::Packed(file)) => Some(Draft::Other(Box::new(file))),
        Some(DraftFile::Checkpoint(source)) => {
            let layers = ModelConfig::from_gguf(gguf)?.layers.len();
            Some(Draft::Other(Box::new(draft_from_safetensors(&source, layers)?)))
        }
    })
}

/// What the settings say about drafts.
pub(crate) fn speculation(settings: &Settings) -> SpeculationParams {
    let s = &settings.speculation;
    let source = match s.draft.as_str() {
        _ if s.spec == Some(0) => Source::None,
        "mtp" => Source::Mtp,
        "lookup" => Source::Lookup,
        "none" => Source::None,
        _ => Source::Both,
    };
    let norm = match s.draft_norm.as_str() {
        "whole" => DraftNorm::Fixed(HiddenNorm::Whole),
        "per-stream" => DraftNorm::Fixed(HiddenNorm::PerStream),
        _ => DraftNorm::Auto,
    };
    let default = PolicySettings::default();
    let max_rows = s.spec.map_or(default.max_rows, |drafts| drafts + 1);
    let policy = PolicySettings { source, fixed: s.spec, max_rows, confidence_floor: s.draft_floor, ..default };
    let sampling = match s.spec_sampling.as_str() {
        "reject" => SpecSampling::Reject,
        _ => SpecSampling::Noise,
    };
    SpeculationParams { policy, norm, sampling }
}

/// What the settings say about choosing tokens, with this seed where they name none.
pub(crate) fn sampling(settings: &Settings, seed: u64) -> SamplingParams {
    let s = &settings.sampling;
    SamplingParams {
        temp: s.temp,
        top_k: s.top_k,
        top_p: s.top_p,
        min_p: s.min_p,
        repeat_penalty: s.repeat_penalty,
        repeat_last_n: s.repeat_last_n,
        presence_penalty: s.presence_penalty,
        frequency_penalty: s.frequency_penalty,
        seed: s.seed.unwrap_or(seed),
        ..SamplingParams::default()
    }
}

/// Where a draft layer is.
enum DraftFile {
    /// In the model file.
    Own,
    /// In a file of `strata pack mtp`.
    Packed(Gguf),
    /// In the original checkpoint.
    Checkpoint(SafeTensors),
}

/// Finds the draft layer: the one that was named, the built-in model's, the model file's own, or one beside it.
fn draft_file(gguf: &Gguf, settings: &Settings) -> Result<Option<DraftFile>> {
    if let Some(path) = &settings.speculation.draft_model {
        let path = if path.is_dir() { &packed_in(path)?.unwrap_or_else(|| path.clone()) } else { path };
        let safetensors = path.is_dir() || path.extension().is_some_and(|e| e == "safetensors" || e == "json");
        return Ok(Some(match safetensors {
            true => DraftFile::Checkpoint(SafeTensors::open(path, "mtp.")?),
            false => DraftFile::Packed(Gguf::open(path)?),
        }));
    }
    if let Some(own) = builtin::draft_layer(gguf)? {
        return Ok(Some(DraftFile::Checkpoint(own)));
    }
    if gguf.tensors().iter().any(|t| t.name().contains(".nextn.")) {
        return Ok(Some(DraftFile::Own));
    }
    let model = settings.engine.model.as_deref();
    let folder = model.and_then(|m| if m.is_dir() { Some(m) } else { m.parent() });
    match folder.map(|folder| folder.join(BESIDE)).filter(|path| path.exists()) {
        Some(path) => Ok(Some(DraftFile::Packed(Gguf::open(&path)?))),
        None => Ok(None),
    }
}

/// The packed draft layer of a folder: the one of the usual name, or the only one.
fn packed_in(folder: &Path) -> Result<Option<PathBuf>> {
    let usual = folder.join(BESIDE);
    if usual.exists() {
        return Ok(Some(usual));
    }
    let mut layers: Vec<PathBuf> =
        models_in(folder)?.into_iter().filter(ModelFiles::is_draft_layer).flat_map(|m| m.paths).collect();
    if let [_, _, ..] = layers.as_slice() {
        bail!("{} holds {} draft layers, name one of them", show_path(folder), layers.len());
    }
    Ok(layers.pop())
}

/// What the user should know about drafts: that there is no draft layer where one was asked for.
pub(crate) fn missing_drafts<O: Ops>(engine: &Engine<O>, settings: &Settings) -> Option<&'static str> {
    let asked = [&SPEC, &DRAFT].iter().any(|knob| settings.origin(knob) != Some(&Origin::Default));
    (asked && speculation(settings).policy.source.mtp() && engine.draft_layer().is_none()).then_some(
        "there is no draft layer, so drafts come from earlier text at most; `strata pack mtp` makes one of the original \
         checkpoint",
    )
}

/// The name under which a draft layer is found beside a model.
const BESIDE: &str = "mtp.gguf";

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
pub(crate) fn context<O: Ops>(engine: &Engine<O>, settings: &Settings, warnings: &mut Vec<String>) -> usize {
    let (asked, trained) = (settings.engine.ctx, engine.model().config().context);
    if asked == 0 {
        return trained;
    }
    if asked > trained && settings.origin(&strata_config::registry::CTX) != Some(&Origin::Default) {
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

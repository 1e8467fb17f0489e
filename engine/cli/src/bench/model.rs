//! `strata bench decode` and `strata bench prefill`: how fast a model writes and reads.

use super::corpus::Corpus;
use super::report::{self, Measured, Series, Started, interval};
use super::values;
use crate::device::{Machine, Placement, Purpose, Where, on_device};
use crate::exit::Interrupted;
use crate::load::Ready;
use crate::output::{self, Table};
use crate::recording::{self, Target};
use crate::{builtin, flags, interrupt, load};
use anyhow::{Result, bail};
use clap::ArgMatches;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use strata_config::Settings;
use strata_gguf::{Gguf, Tokenizer};
use strata_model::ARCHITECTURE;
use strata_runtime::{
    Answer, CheckpointParams, Engine, Finish, GenerateParams, Speculation, SpeculationParams, Timings,
};

/// Tokens and repetitions, at most.
const MOST_TOKENS: usize = 1 << 20;
const MOST_REPETITIONS: usize = 10_000;

/// What a repetition is timed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Writing, behind a prompt.
    Decode,
    /// Reading prompts.
    Prefill,
}

impl Kind {
    /// The word of the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Decode => "decode",
            Kind::Prefill => "prefill",
        }
    }

    /// The kind of this name.
    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        [Kind::Decode, Kind::Prefill].into_iter().find(|kind| kind.name() == name)
    }

    /// Tokens per second of what is timed. The first token of an answer comes with its prompt and is not counted as
    /// written.
    fn rate(self, timings: &Timings) -> f64 {
        match self {
            Kind::Decode => timings.output_rate(),
            Kind::Prefill => timings.prompt_rate(),
        }
    }
}

/// What is to be done.
struct Plan {
    kind: Kind,
    /// Lengths of prompts, each repeated.
    prompts: Vec<usize>,
    /// Tokens to write behind each.
    output: usize,
    repetitions: usize,
    warm_up: usize,
    /// Repetitions whose text is passed over.
    skip: usize,
    corpus: Option<PathBuf>,
}

/// One repetition at one length.
struct Sample {
    prompt: usize,
    repetition: usize,
    timings: Timings,
    speculation: Speculation,
}

impl Plan {
    fn of(kind: Kind, matches: &ArgMatches) -> Result<Plan> {
        let (prompts, output) = match kind {
            // One token alone comes with the prompt: there would be nothing to time.
            Kind::Decode => (
                vec![values::number(matches, "prompt-tokens", 1..=MOST_TOKENS)?],
                values::number(matches, "output-tokens", 2..=MOST_TOKENS)?,
            ),
            Kind::Prefill => (values::list(matches, "prompt-tokens", 1..=MOST_TOKENS)?, 1),
        };
        Ok(Plan {
            kind,
            prompts,
            output,
            repetitions: values::number(matches, "repetitions", 1..=MOST_REPETITIONS)?,
            warm_up: values::number(matches, "warm-up", 0..=MOST_REPETITIONS)?,
            skip: values::number(matches, "skip", 0..=MOST_TOKENS)?,
            corpus: matches.get_one::<PathBuf>("corpus").cloned(),
        })
    }

    /// Tokens of one repetition's prompts together.
    fn round(&self) -> usize {
        self.prompts.iter().sum()
    }

    /// The longest sequence.
    fn longest(&self) -> usize {
        self.prompts.iter().max().map_or(0, |p| p + self.output)
    }

    /// Fails unless the longest sequence fits the context that the model was trained for.
    fn must_fit(&self, trained: u64) -> Result<()> {
        if self.longest() as u64 > trained {
            bail!(
                "the prompt and the answer have {} tokens, and at most {trained} are expected, what the model was \
                 trained for",
                self.longest()
            );
        }
        Ok(())
    }

    /// Runs all repetitions; `done` is called with each that counts.
    fn run<O: Machine>(
        &self,
        engine: &Engine<O>,
        (chunk, speculation): (usize, SpeculationParams),
        corpus: &mut Corpus,
        cancel: &AtomicBool,
        done: &mut dyn FnMut(&Sample) -> Result<()>,
    ) -> Result<Vec<Sample>> {
        let params = GenerateParams { max_tokens: self.output, ignore_stop: true, ..GenerateParams::default() };
        let mut samples = Vec::new();
        corpus.take(self.skip.saturating_mul(self.round()));
        for turn in 0..self.warm_up + self.repetitions {
            // Lengths take turns, so that whatever slows the machine for a while slows all of them.
            for &prompt in &self.prompts {
                // A new session each time: what was read before must not help.
                let session =
                    engine.session(prompt + self.output + 1, chunk).with_checkpoints(CheckpointParams::none());
                let mut session = session.with_speculation(speculation);
                let answer = session.generate(corpus.take(prompt), &params, cancel, &mut |_| ())?;
                if answer.finish == Finish::Cancelled {
                    return Err(Interrupted.into());
                }
                if answer.tokens.len() != self.output {
                    bail!("the answer ended after {} of {} tokens", answer.tokens.len(), self.output);
                }
                if let Some(repetition) = (turn + 1).checked_sub(self.warm_up).filter(|r| *r > 0) {
                    let Answer { timings, speculation, .. } = answer;
                    let sample = Sample { prompt, repetition, timings, speculation };
                    done(&sample)?;
                    samples.push(sample);
                }
            }
        }
        Ok(samples)
    }
}

/// What can be wrong with the command line before a model is opened.
pub(crate) fn check(kind: Kind, matches: &ArgMatches) -> Result<Settings> {
    Plan::of(kind, matches)?;
    let settings = flags::settings(matches, None)?;
    values::threads_fit(&settings)?;
    load::isa(&settings)?;
    Ok(settings)
}

/// Measures a model and prints a line for each repetition.
pub(crate) fn run(kind: Kind, matches: &ArgMatches) -> Result<()> {
    let plan = Plan::of(kind, matches)?;
    // What is wrong with the command line is said before a large file is opened.
    let settings = check(kind, matches)?;
    let target = Target::of(matches)?;
    let idle_cache = recording::check_cache(&settings, target.is_some())?;
    let gguf = builtin::open_to_run(settings.engine.model.as_deref())?;
    let mut settings = flags::settings(matches, Some(&gguf))?;
    let started = Started::begin(kind.name(), matches)?;
    interrupt::handler()?;
    // A longer text would not help, so this comes first.
    if let Some(trained) = gguf.meta().opt_u64(&format!("{ARCHITECTURE}.context_length"))? {
        plan.must_fit(trained)?;
    }
    // A text that is missing or too short is worth knowing before a large model is read.
    let corpus = Corpus::open(plan.corpus.as_deref(), &Tokenizer::from_metadata(gguf.meta())?)?;
    let turns = plan.skip.saturating_add(plan.warm_up + plan.repetitions);
    let remedies = "fewer --repetitions, a smaller --skip, shorter --prompt-tokens";
    corpus.must_hold(turns.saturating_mul(plan.round()), remedies)?;
    let purpose = Purpose { context: Some(plan.longest() + 1), conversations: 1, checkpoints: 0 };
    let placement = Placement::new(&gguf, &settings, purpose)?;
    settings.engine.prefill_chunk = placement.chunk(&settings);
    let task = Task { gguf: &gguf, settings: &settings, placement: &placement, plan, target, started };
    on_device!(placement, &settings, |ops| task.run(ops, corpus, idle_cache))
}

/// What is to be measured, once it is known where.
struct Task<'a> {
    gguf: &'a Gguf,
    settings: &'a Settings,
    placement: &'a Placement,
    plan: Plan,
    target: Option<Target>,
    started: Started,
}

impl Task<'_> {
    fn run<O: Machine>(self, ops: O, mut corpus: Corpus, idle_cache: Option<&'static str>) -> Result<()> {
        let Task { gguf, settings, placement, plan, target, mut started } = self;
        let (kind, cancel) = (plan.kind, interrupt::handler()?);
        let Ready { engine, seconds: load_seconds, place } = load::engine(gguf, placement, ops, false)?;
        plan.must_fit(engine.model().config().context as u64)?;
        let pool = engine.model().ops().cpu().pool();
        settings.warnings().iter().chain(engine.warnings()).chain(pool.notes()).for_each(|w| started.note(w));
        idle_cache.into_iter().for_each(|w| started.note(w));
        placement.warnings().iter().for_each(|w| started.note(w));
        load::missing_drafts(&engine, settings).into_iter().for_each(|w| started.note(w));
        settings.said_of_results().iter().for_each(|line| started.note(line));
        let _pinned = pool.pin_caller();

        let model = report::model(gguf);
        started.say(&headline(&model, &engine, &place))?;
        let tracing = target.map(|target| target.record(gguf, &engine, settings, None)).transpose()?;
        // Otherwise the lines show how far it is.
        let bar = load::bar("measuring", "repetitions", !started.json);
        bar.set_length((plan.repetitions * plan.prompts.len()) as u64);
        let samples = plan.run(
            &engine,
            (settings.engine.prefill_chunk, load::speculation(settings)),
            &mut corpus,
            cancel,
            &mut |sample| {
                bar.inc(1);
                started.say(&line(kind, sample))
            },
        );
        bar.finish_and_clear();
        let (samples, recorded) = match tracing {
            Some(tracing) => {
                let path = tracing.path().to_path_buf();
                let (samples, recorded) = tracing.end(samples)?;
                output::note(&format!("trace: {}", recording::summary(&path, &recorded)));
                (samples, Some(recorded))
            }
            None => (samples?, None),
        };

        let mut series = Vec::new();
        for &prompt in &plan.prompts {
            let rates = samples.iter().filter(|s| s.prompt == prompt).map(|s| kind.rate(&s.timings)).collect();
            series.push((prompt, Series::new(plan.label(prompt), "tokens/s", rates)?));
        }
        started.say(&summary(&series))?;
        started.say(&report::peak())?;
        let results = series.iter().map(|(prompt, s)| s.with(details(*prompt, &samples))).collect::<Result<_>>()?;
        let settings = plan.settings(&engine, settings, &corpus, &place);
        let more = json!({ "load_seconds": load_seconds, "trace": recorded });
        started.finish(Measured { settings, model, results, more, csv: csv(kind, &samples) })
    }
}

impl Plan {
    fn label(&self, prompt: usize) -> String {
        match self.kind {
            Kind::Decode => format!("decode {} behind {prompt}", self.output),
            Kind::Prefill => format!("prefill {prompt}"),
        }
    }

    fn settings<O: Machine>(&self, engine: &Engine<O>, settings: &Settings, corpus: &Corpus, place: &Where) -> Value {
        let ops = engine.model().ops();
        json!({
            "device": place.device,
            "experts_on_gpu": place.kept,
            "vram_bytes": place.vram,
            "threads": ops.cpu().pool().threads(),
            "isa": ops.cpu().isa().name(),
            "prefill_chunk": settings.engine.prefill_chunk,
            "spec": settings.speculation.spec,
            "draft": settings.speculation.draft,
            "draft_floor": settings.speculation.draft_floor,
            "draft_norm": settings.speculation.draft_norm,
            "spec_sampling": settings.speculation.spec_sampling,
            "draft_layer": engine.draft_layer().is_some(),
            "prompt_tokens": self.prompts,
            "output_tokens": self.output,
            "repetitions": self.repetitions,
            "warm_up": self.warm_up,
            "skip": self.skip,
            "corpus": corpus.name,
        })
    }
}

/// The raw times of each repetition at one length.
fn details(prompt: usize, samples: &[Sample]) -> Value {
    let timings: Vec<&Timings> = samples.iter().filter(|s| s.prompt == prompt).map(|s| &s.timings).collect();
    let speculation: Vec<&Speculation> =
        samples.iter().filter(|s| s.prompt == prompt).map(|s| &s.speculation).collect();
    json!({ "prompt_tokens": prompt, "timings": timings, "speculation": speculation })
}

fn headline<O: Machine>(model: &Value, engine: &Engine<O>, place: &Where) -> String {
    let ops = engine.model().ops();
    let gpu = if place.vram > 0 { format!("; {}", place.device) } else { String::new() };
    format!(
        "{}, {}, mostly {}; {}, {}{gpu}\n\n",
        engine.name(),
        output::bytes(model["bytes"].as_u64().unwrap_or(0)),
        model["type"].as_str().unwrap_or("of no type"),
        output::count(ops.cpu().pool().threads(), "thread"),
        ops.cpu().isa()
    )
}

/// One repetition, for people.
fn line(kind: Kind, sample: &Sample) -> String {
    let t = &sample.timings;
    let read = format!("{:>3}: read {} at {:.1} tokens/s", sample.repetition, t.prompt_tokens, t.prompt_rate());
    match kind {
        Kind::Decode => format!(
            "{read}, wrote {} at {:.1} tokens/s, {:.2} a round",
            t.output_tokens,
            t.output_rate(),
            sample.speculation.tokens_per_round(t.output_tokens)
        ),
        Kind::Prefill => read,
    }
}

fn summary(series: &[(usize, Series)]) -> String {
    let mut table = Table::new("lrrr");
    table.row(["", "median tokens/s", "95 % interval", "ms/token"]);
    for (_, s) in series {
        table.row([
            s.label.clone(),
            format!("{:.1}", s.summary.median),
            interval(&s.summary, 1),
            format!("{:.2}", 1e3 / s.summary.median),
        ]);
    }
    format!("\n{}", table.render(0))
}

fn csv(kind: Kind, samples: &[Sample]) -> String {
    let head = "repetition,prompt_tokens,prompt_seconds,output_tokens,output_seconds,tokens_per_second\n";
    let line = |s: &Sample| {
        let (t, rate) = (&s.timings, kind.rate(&s.timings));
        let (read, wrote) = (t.prompt_seconds, t.output_seconds);
        format!("{},{},{read},{},{wrote},{rate}\n", s.repetition, t.prompt_tokens, t.output_tokens)
    };
    std::iter::once(head.to_owned()).chain(samples.iter().map(line)).collect()
}

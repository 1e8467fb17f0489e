//! `strata trace record`: has a model write, and records it.

use crate::bench::{corpus::Corpus, values};
use crate::device::{Machine, Placement, Purpose, on_device};
use crate::exit::Interrupted;
use crate::load::Ready;
use crate::output::{self, note};
use crate::recording::{self, Target};
use crate::{builtin, flags, interrupt, load};
use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use strata_config::registry::MODEL;
use strata_config::{HardwareProfile, Settings, Verb};
use strata_gguf::{Gguf, Special, Tokenizer};
use strata_runtime::{Answer, Chat, ChatOptions, CheckpointParams, Engine, Finish, GenerateParams, Session};

/// Tokens and requests, at most.
const MOST_TOKENS: usize = 1 << 20;
const MOST_REQUESTS: usize = 100_000;

const AFTER: &str = "\
Each request is a session of its own. Without --prompt it reads the next passage of a real text, conversations that come \
with the binary or the text of --corpus, and writes exactly --output-tokens behind it. With --prompt it answers as `strata \
run` does, and an answer may end before. Tokens are greedy, so they and their experts are the same every time; how they \
are cut into rounds is too if --spec names a number, and times never are.

Examples:
  strata trace record --out nano.strace
  strata trace record model.gguf --out model.strace --requests 32 --output-tokens 512
  strata trace record model.gguf --out code.strace --corpus code.jsonl --spec 3
  strata trace record --out two.strace --prompt \"Hello\" --prompt \"What is 2 + 2?\"";

/// The verb's part of the command line.
pub(super) fn command() -> Command {
    let path = Arg::new(MODEL.key).value_name("MODEL").value_parser(value_parser!(PathBuf)).help(
        "A .gguf file, any shard of a set, or the folder of one model [default: nano, built in, unless settings name one]",
    );
    let out = Arg::new("out").short('o').long("out").value_name("FILE").required(true);
    let prompt = Arg::new("prompt").long("prompt").value_name("TEXT").action(ArgAction::Append);
    let raw = Arg::new("raw").long("raw").action(ArgAction::SetTrue).requires("prompt");
    let corpus = Arg::new("corpus").long("corpus").value_name("FILE").value_parser(value_parser!(PathBuf));
    let command = Command::new("record")
        .about("Have a model write, and record it")
        .arg(path)
        .arg(
            out.value_parser(value_parser!(PathBuf))
                .help("The trace to write; until it is whole it has .part behind its name"),
        )
        .arg(recording::force())
        .arg(
            prompt
                .conflicts_with_all(["corpus", "requests", "prompt-tokens", "skip"])
                .help("A question to answer; each time it is given it is another request"),
        )
        .arg(raw.help("Continue the prompts as plain text, without the chat template"))
        .arg(corpus.help("Text to read: UTF-8, or .jsonl with a \"text\" in each line"))
        .arg(number("requests", "8", "Requests, each with another passage of the text"))
        .arg(number("prompt-tokens", "128", "Tokens that each reads"))
        .arg(number("output-tokens", "128", "Tokens that each writes, with --prompt at most"))
        .arg(number("skip", "0", "Pass over the text of so many requests first"))
        .arg(
            Arg::new("hardware")
                .long("hardware")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("The machine's profile, as `strata bench hardware` writes it, to be kept in the trace"),
        )
        .after_help(AFTER);
    flags::add(command, Verb::Bench)
}

/// A flag with a number, which is read with an error of the form that all have.
fn number(id: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name("N").default_value(default).allow_negative_numbers(true).help(help)
}

/// What is to be recorded.
struct Plan {
    prompts: Vec<String>,
    raw: bool,
    requests: usize,
    read: usize,
    write: usize,
    skip: usize,
}

impl Plan {
    fn of(matches: &ArgMatches) -> Result<Plan> {
        let prompts: Vec<String> = matches.get_many("prompt").into_iter().flatten().cloned().collect();
        if prompts.iter().any(String::is_empty) {
            return Err(strata_config::ConfigError::value("--prompt", "", "a question").into());
        }
        let requests = values::number(matches, "requests", 1..=MOST_REQUESTS)?;
        Ok(Plan {
            requests: if prompts.is_empty() { requests } else { prompts.len() },
            prompts,
            raw: matches.get_flag("raw"),
            read: values::number(matches, "prompt-tokens", 1..=MOST_TOKENS)?,
            write: values::number(matches, "output-tokens", 1..=MOST_TOKENS)?,
            skip: values::number(matches, "skip", 0..=MOST_REQUESTS)?,
        })
    }
}

/// Records.
pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    let plan = Plan::of(matches)?;
    // What is wrong with the command line is said before a large file is opened.
    let settings = flags::settings(matches, None)?;
    load::isa(&settings)?;
    let idle_cache = recording::check_cache(&settings, true)?;
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    let target = Target::new(&out, matches.get_flag("force"))?;
    let hardware = matches.get_one::<PathBuf>("hardware").map(|path| HardwareProfile::from_file(path)).transpose()?;
    let hardware = hardware.map(|profile| profile.to_toml());
    let gguf = builtin::open_to_run(settings.engine.model.as_deref())?;
    let mut settings = flags::settings(matches, Some(&gguf))?;
    let corpus = matches.get_one::<PathBuf>("corpus");
    let mut corpus = match plan.prompts.as_slice() {
        [] => Some(Corpus::open(corpus.map(PathBuf::as_path), &Tokenizer::from_metadata(gguf.meta())?)?),
        _ => None,
    };
    if let Some(corpus) = &mut corpus {
        let needed = plan.skip.saturating_add(plan.requests).saturating_mul(plan.read);
        corpus.must_hold(needed, "fewer --requests, a smaller --skip, shorter --prompt-tokens")?;
        corpus.take(plan.skip * plan.read);
    }
    let context = corpus.is_some().then_some(plan.read + plan.write + 1);
    let placement = Placement::new(&gguf, &settings, Purpose { context, conversations: 1, checkpoints: 0 })?;
    settings.engine.prefill_chunk = placement.chunk(&settings);
    let task = Task { gguf: &gguf, settings: &settings, placement: &placement, plan, target };
    on_device!(placement, &settings, |ops| task.run(ops, corpus, hardware, idle_cache))
}

/// What is to be recorded, once it is known where.
struct Task<'a> {
    gguf: &'a Gguf,
    settings: &'a Settings,
    placement: &'a Placement,
    plan: Plan,
    target: Target,
}

impl Task<'_> {
    fn run<O: Machine>(
        self,
        ops: O,
        mut corpus: Option<Corpus>,
        hardware: Option<String>,
        idle_cache: Option<&'static str>,
    ) -> Result<()> {
        let Task { gguf, settings, placement, plan, target } = self;
        let cancel = interrupt::handler()?;
        let Ready { engine, .. } = load::engine(gguf, placement, ops, false)?;
        let trained = engine.model().config().context;
        if corpus.is_some() && plan.read + plan.write > trained {
            bail!(
                "the prompt and the answer have {} tokens, and at most {trained} are expected, what the model was trained for",
                plan.read + plan.write
            );
        }
        let pool = engine.model().ops().cpu().pool();
        let warnings = settings.warnings().iter().chain(engine.warnings()).chain(pool.notes());
        warnings.for_each(|w| note(&format!("warning: {w}")));
        placement.warnings().iter().for_each(|w| note(&format!("warning: {w}")));
        let further = load::missing_drafts(&engine, settings).into_iter().chain(idle_cache);
        further.for_each(|w| note(&format!("warning: {w}")));
        let _pinned = pool.pin_caller();

        let tracing = target.record(gguf, &engine, settings, hardware)?;
        let bar = load::bar("recording", "requests", false);
        bar.set_length(plan.requests as u64);
        let outcome = (0..plan.requests).try_for_each(|request| {
            plan.answer(request, &engine, (settings, placement), corpus.as_mut(), cancel)?;
            bar.inc(1);
            Ok(())
        });
        bar.finish_and_clear();
        let path = tracing.path().to_path_buf();
        let ((), recorded) = tracing.end(outcome)?;
        output::emit(&format!("{}; {}", recording::summary(&path, &recorded), output::count(plan.requests, "request")))
    }
}

impl Plan {
    /// One request.
    fn answer<O: Machine>(
        &self,
        request: usize,
        engine: &Engine<O>,
        (settings, placement): (&Settings, &Placement),
        corpus: Option<&mut Corpus>,
        cancel: &AtomicBool,
    ) -> Result<()> {
        let passage = corpus.map(|corpus| corpus.take(self.read).to_vec());
        let exactly = passage.is_some();
        let params = GenerateParams { max_tokens: self.write, ignore_stop: exactly, ..GenerateParams::default() };
        let trained = placement.checked_context(engine.model().config().context);
        let context = if exactly { self.read + self.write + 1 } else { trained };
        let mut session = engine
            .session(context, settings.engine.prefill_chunk)
            .with_checkpoints(CheckpointParams::none())
            .with_speculation(load::speculation(settings));
        let answer = match (passage, self.prompts.get(request)) {
            (Some(passage), _) => session.generate(&passage, &params, cancel, &mut |_| ())?,
            (None, Some(text)) => self.ask(session, text, settings, &params, cancel)?,
            (None, None) => return Ok(()),
        };
        if answer.finish == Finish::Cancelled {
            return Err(Interrupted.into());
        }
        if exactly && answer.tokens.len() != self.write {
            bail!("the answer ended after {} of {} tokens", answer.tokens.len(), self.write);
        }
        Ok(())
    }

    /// Answers a prompt as `strata run` does.
    fn ask<O: Machine>(
        &self,
        mut session: Session<'_, O>,
        text: &str,
        settings: &Settings,
        params: &GenerateParams,
        cancel: &AtomicBool,
    ) -> Result<Answer> {
        if self.raw {
            let tokenizer = session.engine().tokenizer();
            let text = tokenizer.encode(text, Special::Parse);
            let tokens: Vec<u32> = tokenizer.bos_to_add().into_iter().chain(text).collect();
            return Ok(session.generate(&tokens, params, cancel, &mut |_| ())?);
        }
        let options = ChatOptions { system: settings.chat.system.clone(), think: settings.chat.think };
        Ok(Chat::new(session, options).ask(text, params, cancel, &mut |_| ())?)
    }
}

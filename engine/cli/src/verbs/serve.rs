//! `strata serve`: the model over HTTP.

mod address;
mod control;
pub(super) mod host;
mod lab;
mod model;
mod record;
mod room;

use crate::device::{Machine, Placement};
use crate::load::Ready;
use crate::output::{self, note};
use crate::recording::Target;
use crate::{builtin, flags, interrupt, load};
use address::Address;
use anyhow::{Context, Result};
use clap::{ArgMatches, Command};
use host::Host;
use model::Model;
use record::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_config::{Settings, Verb};
use strata_gguf::Gguf;
use strata_runtime::{CheckpointParams, ConversationParams};
use strata_server::backend::{Degradation, Tiers};
use strata_server::engine::{EngineBackend, EngineOptions, Loaded};
use strata_server::{Log, Options};

/// Threads that read requests and write answers. They wait nearly always: the model has threads of its own.
const HTTP_THREADS: usize = 2;

/// How often it is looked whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

const LONG_ABOUT: &str = "\
Serve a model over HTTP

Programs that speak OpenAI's chat completions, completions or responses, or Anthropic's messages, are answered by the \
model, and browsers find a chat page and a monitor at the same address.";

const EXAMPLES: &str = "\
Examples:
  strata serve                                        serve the built-in model
  strata serve --model model.gguf --port 9000
  STRATA_API_KEY=secret strata serve --host 0.0.0.0   let other machines use it, with a key
  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'

OpenAI clients take http://127.0.0.1:8080/v1 as base URL, Anthropic's http://127.0.0.1:8080. Ctrl-C or SIGTERM lets running
answers end, a second one does not wait.";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let command = Command::new("serve")
        .about("Serve a model over HTTP: OpenAI's and Anthropic's interfaces, and pages for people")
        .long_about(LONG_ABOUT)
        .after_help(format!("{}\n\n{EXAMPLES}", flags::SETTINGS_HELP));
    flags::add(command, Verb::Serve)
}

/// Serves until the program is told to end.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    // What is wrong with the command line is said before a large file is opened.
    let settings = flags::settings(matches, None)?;
    load::isa(&settings)?;
    let address = Address::of(&settings.server)?;
    let host = Host::new(matches.clone(), settings);
    let opened = host.open(None)?;
    let settings = opened.settings.clone();
    opened.notes().iter().for_each(|line| note(line));

    let runtime = runtime()?;
    let listener = runtime.block_on(address.listen())?;
    let cancel = interrupt::handler()?;
    let name = opened.name.clone();
    let options = Options { mcp: host.mcp(&address), ..options(&settings, &name) };
    let grace = options.grace;
    host.put(Model::start(opened)?);
    output::emit(&address.greeting(&listener, &name, &settings.server)?)?;

    let stopped = host.served_at(Address::url(&listener)?);
    let told = async move {
        tokio::select! {
            () = told_to_end(cancel) => {}
            () = stopped => note("ending, as a client asked: running answers may finish"),
        }
    };
    let serving = strata_server::serve(listener, host.switch(), options, told);
    let served = runtime.block_on(serving);
    host.end(grace)?;
    served.context("cannot serve any longer")?;
    note("ended");
    Ok(())
}

/// What requests are read and answered on.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .thread_name("http")
        .enable_all()
        .build()
        .context("cannot start the threads of the server")
}

/// Is ready once the program was told to end.
pub(super) async fn told_to_end(cancel: &'static AtomicBool) {
    while !cancel.load(Ordering::SeqCst) {
        tokio::time::sleep(LOOK).await;
    }
    note("ending: running answers may finish; again to end at once");
}

/// What answers call the model.
fn name(settings: &Settings, gguf: &Gguf) -> String {
    let own = || gguf.meta().opt_str("general.name").ok().flatten().filter(|name| !name.trim().is_empty());
    match &settings.server.model_name {
        Some(name) => name.clone(),
        None if builtin::is_nano(gguf) => builtin::NAME.to_owned(),
        None => own().map_or_else(|| file_stem(gguf.name()), str::to_owned),
    }
}

/// A file's name without its folder and ending.
fn file_stem(path: &str) -> String {
    std::path::Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(path).to_owned()
}

/// How the server behaves.
pub(super) fn options(settings: &Settings, name: &str) -> Options {
    let s = &settings.server;
    Options {
        keys: s.api_keys.clone(),
        hosts: s.allow_hosts.clone(),
        origins: s.allow_origins.clone(),
        body_limit: s.body_limit << 20,
        grace: Duration::from_secs(s.grace as u64),
        sampling: load::sampling(settings, 0),
        max_tokens: settings.sampling.max_tokens,
        think: settings.chat.think,
        name: name.to_owned(),
        log: Log::new(note),
        ..Options::default()
    }
}

/// A model to be loaded.
struct Task {
    gguf: Gguf,
    settings: Settings,
    name: String,
    target: Option<Target>,
    recorder: Recorder,
    placement: Placement,
}

/// Has the model loaded and answer, on threads of its own.
fn start<O: Machine>(task: Task, ops: O) -> Result<EngineBackend<O>> {
    let server = &task.settings.server;
    let options = EngineOptions {
        // Passes over a GPU are recorded, by one thread at a time.
        parallel: if task.placement.plan().is_some() { 1 } else { server.parallel },
        queue: server.queue,
        stuck_after: Duration::from_secs(server.stuck as u64),
        log: Arc::new(note),
    };
    let load = move |progress: &dyn Fn(f32)| task.loaded(ops, progress).map_err(|e| crate::exit::sentence(&e));
    EngineBackend::start(options, load).context("cannot start the thread of the model")
}

impl Task {
    /// Loads the model.
    fn loaded<O: Machine>(self, ops: O, progress: &dyn Fn(f32)) -> Result<Loaded<O>> {
        let Task { gguf, settings, name, target, recorder, placement } = self;
        let Ready { engine, seconds, place } = load::engine_told(&gguf, &placement, ops, false, progress)?;
        let mut warnings = Vec::new();
        let context = placement.checked_context(load::context(&engine, &settings, &mut warnings));
        warnings.extend_from_slice(engine.warnings());
        warnings.extend_from_slice(engine.model().ops().cpu().pool().notes());
        let degradation = |name: &str, text: &str| Degradation { name: name.into(), count: 1, text: text.into() };
        // The server says them, and shows them.
        let mut degradations: Vec<Degradation> = warnings.iter().map(|text| degradation("warning", text)).collect();
        if let Some(why) = placement.why() {
            degradations.push(degradation("no_gpu", &placement.on_the_cpu(why)));
        }
        degradations.extend(placement.reductions().iter().map(|text| degradation("less_on_gpu", text)));
        if placement.plan().is_some() && settings.server.parallel > 1 {
            degradations.push(degradation("one_answer_at_a_time", "on a GPU one answer is made at a time"));
        }
        if let Some(text) = load::missing_drafts(&engine, &settings) {
            degradations.push(degradation("no_draft_layer", text));
        }
        let expert_cache = target.map(|target| recorder.begin(&target, &gguf, &engine, &settings)).transpose()?;
        let c = &settings.cache;
        let (count, checkpoints) = match placement.plan() {
            Some(plan) => (plan.conversations, plan.checkpoints),
            None => (c.conversations, c.checkpoints),
        };
        note(&format!("{name} is ready after {seconds:.1} s: context {context} tokens, on {}", place.device));
        Ok(Loaded {
            id: name,
            conversations: ConversationParams {
                context,
                chunk: settings.engine.prefill_chunk,
                checkpoints: CheckpointParams {
                    every: c.checkpoint_every,
                    count: checkpoints,
                    bytes: c.checkpoint_ram << 20,
                },
                count,
                bytes: c.conversation_ram << 20,
            },
            speculation: load::speculation(&settings),
            tiers: Tiers {
                ram: place.ram,
                vram: place.vram,
                file: place.file,
                experts_on_gpu: place.kept,
                experts: place.experts,
            },
            device: place.device,
            degradations,
            expert_cache,
            engine: Arc::new(engine),
        })
    }
}

//! `strata run`: answers a prompt, or talks.

mod kept;
mod show;
mod talk;

use crate::builtin;
use crate::device::{Machine, Placement, Purpose, on_device};
use crate::exit::Interrupted;
use crate::load::Ready;
use crate::output::note;
use crate::recording::{self, Target};
use crate::{flags, interrupt, load};
use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use kept::Kept;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use strata_config::{Settings, Verb};
use strata_gguf::{Gguf, Special};
use strata_runtime::{Answer, Chat, ChatOptions, CheckpointParams, Engine, Finish, GenerateParams, Parking, Session};

const EXAMPLES: &str = "\
Examples:
  strata run \"What is the capital of France?\"         ask the built-in model
  strata run                                          talk to it, one line at a time
  strata run --model model.gguf \"Why is the sky blue?\"
  strata run --model model.gguf < question.txt        take the prompt from a file
  strata run --model model.gguf --temp 0.7 --seed 1 --no-think \"Write a haiku.\"
  strata run --model model.gguf --park chats          talk, and keep the conversation in a folder
  strata run --model model.gguf --park chats --resume   go on where you left, reading nothing again
  strata run --model model.gguf --raw --max-tokens 50 \"Once upon a time\"

The answer goes to stdout, everything else to stderr. Ctrl-C ends the answer, a second one the program.";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    let command = Command::new("run")
        .about("Answer a prompt, or talk")
        .arg(Arg::new("prompt").value_name("PROMPT").help("What to ask; without it, a conversation is started"))
        .arg(
            Arg::new("raw")
                .long("raw")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(["chat.system", "chat.think", "no chat.think", "cache.park"])
                .help("Continue the prompt as plain text, without the chat template"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the answer and its figures as one JSON object"),
        )
        .arg(
            Arg::new("quiet")
                .long("quiet")
                .short('q')
                .action(ArgAction::SetTrue)
                .help("Print the answer alone: no progress and no summary; warnings stay"),
        )
        .arg(
            Arg::new("resume")
                .long("resume")
                .value_name("FILE")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value(kept::NEWEST)
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("raw")
                .help("Go on in the conversation that was kept last, or in this one; needs --park"),
        )
        .args(recording::args())
        .after_help(format!("{}\n\n{EXAMPLES}", flags::SETTINGS_HELP));
    flags::add(command, Verb::Run)
}

/// Bytes of the longest prompt that is read: a million tokens of sixteen bytes.
const LONGEST_PROMPT: u64 = 16 << 20;

/// What the flags of this verb alone say.
struct Options {
    raw: bool,
    json: bool,
    quiet: bool,
    /// The file to resume; [`kept::NEWEST`] for the last.
    resume: Option<PathBuf>,
}

/// Answers the prompt, or talks.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    let flag = |name| matches.get_flag(name);
    let resume = matches.get_one::<PathBuf>("resume").cloned();
    let options = Options { raw: flag("raw"), json: flag("json"), quiet: flag("quiet"), resume };
    // What the model file suggests is known only once it is open; everything else can be wrong before that.
    let settings = flags::settings(matches, None)?;
    let prompt = prompt(matches)?;
    if prompt.as_deref() == Some("") {
        return Err(clap::Error::raw(ErrorKind::InvalidValue, "the prompt is empty\n").into());
    }
    if prompt.is_none() && (options.raw || options.json) {
        let flag = if options.raw { "--raw" } else { "--json" };
        let message = format!("{flag} needs a prompt, as an argument or on stdin\n");
        return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message).into());
    }
    if options.resume.is_some() && settings.cache.park.is_none() {
        let message = "--resume needs --park, the folder of the conversations\n";
        return Err(clap::Error::raw(ErrorKind::MissingRequiredArgument, message).into());
    }
    let target = Target::of(matches)?;
    let idle_cache = recording::check_cache(&settings, target.is_some())?;
    // A folder that cannot be used must not be found when there is a conversation to lose.
    if let Some(folder) =
        settings.cache.park.as_ref().filter(|f| !options.raw && (options.resume.is_none() || f.exists()))
    {
        Parking::prepare(folder)?;
    }
    let gguf = builtin::open_to_run(settings.engine.model.as_deref())?;
    let mut settings = flags::settings(matches, Some(&gguf))?;
    settings.said_of_results().filter(|_| !options.quiet).iter().for_each(|line| note(line));
    let mut warnings = settings.warnings().to_vec();
    let kept = !options.raw && settings.cache.park.is_some();
    // Nothing can follow an answer that is not kept.
    let followed = prompt.is_none() || kept;
    let checkpoints = if followed { settings.cache.checkpoints } else { 0 };
    let placement = Placement::new(&gguf, &settings, Purpose { context: None, conversations: 1, checkpoints })?;
    settings.engine.prefill_chunk = placement.chunk(&settings);
    warnings.extend(idle_cache.map(String::from));
    let task = Task { gguf: &gguf, settings: &settings, options, prompt, target, followed };
    on_device!(placement, &settings, |ops| task.run(ops, &placement, warnings))
}

/// What is to be done, once it is known where.
struct Task<'a> {
    gguf: &'a Gguf,
    settings: &'a Settings,
    options: Options,
    prompt: Option<String>,
    target: Option<Target>,
    /// Whether something may follow the answer.
    followed: bool,
}

impl Task<'_> {
    fn run<O: Machine>(self, ops: O, placement: &Placement, mut warnings: Vec<String>) -> Result<()> {
        let Task { gguf, settings, options, prompt, target, followed } = self;
        let Ready { engine, seconds: load_seconds, place } = load::engine(gguf, placement, ops, options.quiet)?;
        let context = placement.checked_context(load::context(&engine, settings, &mut warnings));
        warnings.extend_from_slice(engine.warnings());
        warnings.extend(placement.warnings());
        warnings.extend(load::missing_drafts(&engine, settings).map(String::from));
        let pool = engine.model().ops().cpu().pool();
        warnings.extend_from_slice(pool.notes());
        // The thread that decodes takes part in the work; beside a pinned worker it would share that one's core. Where the
        // system refuses, a note of the pool's says so of the workers.
        let _pinned = pool.pin_caller();
        warnings.iter().for_each(|w| note(&format!("warning: {w}")));
        if placement.plan().is_some() && !options.quiet {
            note(&format!("on {}", place.device));
        }

        let params = params(settings);
        let c = &settings.cache;
        let count = placement.plan().map_or(c.checkpoints, |plan| plan.checkpoints.min(c.checkpoints));
        let checkpoints = match followed {
            false => CheckpointParams::none(),
            true => CheckpointParams { every: c.checkpoint_every, count, bytes: c.checkpoint_ram << 20 },
        };
        let tracing = target.map(|target| target.record(gguf, &engine, settings, None)).transpose()?;
        let session = engine.session(context, settings.engine.prefill_chunk);
        let session = session.with_checkpoints(checkpoints).with_speculation(load::speculation(settings));
        let mut on = match &prompt {
            Some(_) if options.raw => On::Raw(Box::new(session)),
            _ => {
                let chat = chat(session, settings);
                On::Chat(Box::new(Kept::new(gguf, chat, settings, options.resume.as_deref(), options.quiet)?))
            }
        };
        let outcome = match prompt {
            None => match on {
                On::Chat(kept) => talk::talk(*kept, &params, options.quiet),
                On::Raw(_) => Ok(()),
            },
            Some(text) => answer(&engine, &mut on, &params, &options, &text).and_then(|answer| {
                let facts =
                    show::Facts { model: engine.name(), device: &place.device, threads: pool.threads(), context };
                if options.json {
                    show::json(&answer, &params, &facts, load_seconds)?;
                } else if !options.quiet {
                    note(&show::summary(&answer));
                }
                if let On::Chat(kept) = &mut on {
                    kept.park(options.quiet)?;
                }
                // A cancelled answer is shown as far as it came, and the exit code says that it is not whole.
                if answer.finish == Finish::Cancelled { Err(Interrupted.into()) } else { Ok(()) }
            }),
        };
        // However it ended: what happened is what is recorded.
        if let Some(tracing) = tracing {
            let path = tracing.path().to_path_buf();
            let recorded = tracing.finish()?;
            if !options.quiet {
                note(&format!("trace: {}", recording::summary(&path, &recorded)));
            }
        }
        outcome
    }
}

/// What a prompt is put to.
enum On<'e, O: Machine> {
    Raw(Box<Session<'e, O>>),
    Chat(Box<Kept<'e, O>>),
}

/// Answers one prompt and shows the answer as it comes.
fn answer<O: Machine>(
    engine: &Engine<O>,
    on: &mut On<'_, O>,
    params: &GenerateParams,
    options: &Options,
    text: &str,
) -> Result<Answer> {
    let cancel = interrupt::handler()?;
    let mut screen = show::Screen::new(cancel, options.json, options.quiet);
    let answer = match on {
        On::Raw(session) => {
            let tokenizer = engine.tokenizer();
            let tokens: Vec<u32> =
                tokenizer.bos_to_add().into_iter().chain(tokenizer.encode(text, Special::Parse)).collect();
            session.generate(&tokens, params, cancel, &mut |event| screen.event(event))?
        }
        On::Chat(kept) => kept.chat.ask(text, params, cancel, &mut |event| screen.event(event))?,
    };
    screen.explain(&answer);
    screen.end()?;
    Ok(answer)
}

fn chat<'e, O: Machine>(session: Session<'e, O>, settings: &Settings) -> Chat<'e, O> {
    let options = ChatOptions { system: settings.chat.system.clone(), think: settings.chat.think };
    Chat::new(session, options)
}

fn params(settings: &Settings) -> GenerateParams {
    GenerateParams {
        sampling: load::sampling(settings, random_seed()),
        max_tokens: settings.sampling.max_tokens,
        ..GenerateParams::default()
    }
}

/// A seed short enough to be typed again.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library keys every hasher with random bits from the system.
    std::hash::RandomState::new().build_hasher().finish() >> 32
}

/// The prompt: the argument, or stdin when that is no terminal; `None` for a conversation.
fn prompt(matches: &ArgMatches) -> Result<Option<String>> {
    if let Some(text) = matches.get_one::<String>("prompt") {
        return Ok(Some(text.clone()));
    }
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let stdin = std::io::stdin().lock();
    stdin.take(LONGEST_PROMPT + 1).read_to_end(&mut bytes).context("cannot read the prompt from stdin")?;
    if bytes.len() as u64 > LONGEST_PROMPT {
        bail!("the prompt on stdin is longer than {} MiB, more than any context holds", LONGEST_PROMPT >> 20);
    }
    let mut text = String::from_utf8(bytes).context("the prompt on stdin is not UTF-8")?;
    // The line break that ends a file is not part of the question.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(Some(text))
}

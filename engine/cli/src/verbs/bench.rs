//! `strata bench`: how fast this machine, its kernels and a model are.

use crate::bench::model::Kind;
use crate::bench::{ab, hardware, kernels, memory, model};
use crate::{flags, recording};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::path::PathBuf;
use strata_config::Verb;
use strata_config::registry::{ISA, MODEL, THREADS};

const ABOUT: &str = "Measure how fast this machine, its kernels and a model are";

// Paragraphs are single lines: they are wrapped to the terminal's width.
const LONG_ABOUT: &str = "\
Measure how fast this machine, its kernels and a model are

Start with `memory`: a model that writes reads each of the weights that a token uses once, so what memory gives is the \
most that any engine can reach. `kernels` shows how near to it the products of each block type come, `decode` and \
`prefill` what is left of that in a whole model, and `ab` whether a change made it faster. `hardware` writes what the \
machine can do to a file that predictions read.";

const AFTER: &str = "\
Figures are medians with a 95 % interval: a percentile bootstrap of the median, 10,000 resamples with a fixed seed, so \
the same samples give the same interval; fewer than 6 samples give none. One run that others disturbed does not move a median much. A difference \
smaller than the intervals is none; `strata bench ab` says so itself.

GB are 10^9 bytes. Results go to stdout, progress and notes to stderr. --json prints one document with every raw \
sample, the machine, the load before and after, the command and the date.

Examples:
  strata bench memory
  strata bench kernels --types IQ3_S,Q4_K --tokens 1,8
  strata bench hardware -o desk.toml
  strata bench decode model.gguf --threads 8
  strata bench prefill model.gguf --prompt-tokens 512 --out results/prefill
  strata bench ab \"decode --threads 4\" \"decode --threads 8\"

`strata bench WHAT --help` says more about a measurement.";

const MEMORY_HELP: &str = "\
Threads share a buffer larger than the caches, whose pages were written before, and add up its words, each thread on a \
core of its own. A pass over all of it is one sample.

Examples:
  strata bench memory
  strata bench memory --threads 1,8,16 --size 4G --json";

const KERNELS_HELP: &str = "\
A figure is the weights' bytes divided by the time of a product: of a matrix of 12800 rows and 2560 columns, as many \
weights as the threads share when they begin a layer's ten experts in the published model, with the activations of 1 \
or more tokens, which are quantised already. Each call takes another matrix, so that weights come from memory. With \
more tokens in the window a weight that was read is used more often, and at some number the product, not memory, sets \
the speed: products per second (a multiplication with an addition each) then say more than GB/s. The ceiling is \
measured before and after, with the same threads.

Samples are taken by the criterion library. With --out its own files are kept in DIR/criterion.

Examples:
  strata bench kernels
  strata bench kernels --types Q4_K,Q6_K --tokens 1 --threads 1 --seconds 2
  strata bench kernels --isa scalar --types Q4_K";

const HARDWARE_HELP: &str = "\
The profile is a TOML file in which each number has its unit and its source. Memory is read as by `strata bench memory`, \
and block types are multiplied as by `strata bench kernels` with 1 and 4 tokens, with the number of threads that read \
memory fastest. Besides, waking the workers is timed, and the disk when --disk names a file on it, for instance a shard \
of the model; the system is told to forget the file first, but a disk may have a cache of its own. No graphics card is \
measured, and the profile then has none.

Without -o the profile goes to stdout.

Examples:
  strata bench hardware -o desk.toml
  strata bench hardware -o desk.toml --disk models/model-00002-of-00002.gguf --types Q2_0,IQ3_S --force";

/// What `decode` and `prefill` have in common.
const TEXT_HELP: &str = "\
Each repetition reads another passage of a real text, conversations that come with the binary or the text of --corpus, \
in a session of its own. Tokens are greedy, and those that would end an answer do not.";

const DECODE_HELP: &str = "\
The first token of an answer comes with the prompt, so N tokens are timed as N - 1.

Examples:
  strata bench decode
  strata bench decode model.gguf --output-tokens 256 --repetitions 9
  strata bench decode model.gguf --corpus book.txt --json > decode.json";

const PREFILL_HELP: &str = "\
Lengths take turns within a repetition.

Examples:
  strata bench prefill
  strata bench prefill model.gguf --prompt-tokens 128,512,2048 --prefill-chunk 128";

const AB_ABOUT: &str = "\
Compare two builds, two settings or two models, in turns

A and B are each one quoted argument: what would stand behind `strata bench`, that is `decode` or `prefill` with flags. \
The path of another strata binary may stand before it; otherwise this one runs. Words are cut as a shell cuts them, \
with quotes and backslashes.";

const AB_HELP: &str = "\
A round runs A and B once each, as processes of their own with --repetitions 1 behind their own warm-up, on the same \
text; the next round has another text and the other order (A B, B A, ...). What counts is the ratio B/A within a round: \
above 1, B is faster. The interval is that of the median of these ratios. When it holds 1 there is no difference that \
these rounds can show.

--repetitions, --skip, --json and --out are not for A and B: the comparison sets them.

Examples:
  two settings:
    strata bench ab \"decode m.gguf --threads 4\" \"decode m.gguf --threads 8\"
  two builds, the old one kept elsewhere:
    strata bench ab \"../old/strata prefill m.gguf\" \"prefill m.gguf\" --rounds 20
  two models:
    strata bench ab \"decode small.gguf\" \"decode 'my models/large.gguf'\" --out results/sizes";

/// The verb's part of the command line.
pub(crate) fn command() -> Command {
    Command::new("bench")
        .about(ABOUT)
        .long_about(LONG_ABOUT)
        .after_help(AFTER)
        .subcommand_required(true)
        .subcommand_value_name("WHAT")
        .subcommand_help_heading("Measurements")
        .subcommand(memory_command())
        .subcommand(kernels_command())
        .subcommand(hardware_command())
        .subcommand(decode_command())
        .subcommand(prefill_command())
        .subcommand(ab_command())
}

fn memory_command() -> Command {
    common(Command::new("memory"))
        .about("How fast threads can read memory: the ceiling of everything that reads weights")
        .arg(value("threads", "LIST", "", "Numbers of threads, such as 1,2,4 [default: 1, 2, 4 and so on up to all]"))
        .arg(value(
            "size",
            "SIZE",
            "",
            "Memory to read, such as 512M or 2G [default: 256M, or four times the last-level cache if that is more]",
        ))
        .arg(value("repetitions", "N", "15", "Passes over the memory, behind one that is not counted"))
        .after_help(MEMORY_HELP)
}

fn kernels_command() -> Command {
    let command = common(Command::new("kernels"))
        .about("How fast weights of each block type are multiplied, beside the speed of memory")
        .arg(value("types", "LIST", "all", "Block types, such as Q4_K,IQ3_S"))
        .arg(value("tokens", "LIST", "1,4,8,64", "Tokens in the window that weights are multiplied with"))
        .arg(value("seconds", "S", "0.2", "Time for each figure, behind a third of it for warming up"))
        .after_help(KERNELS_HELP);
    flags::add_these(command, [&THREADS, &ISA])
}

fn hardware_command() -> Command {
    let path = |id: &'static str, name| Arg::new(id).long(id).value_name(name).value_parser(value_parser!(PathBuf));
    Command::new("hardware")
        .about("What this machine can do, as a profile for predictions")
        .arg(path("output", "FILE").short('o').help("Write the profile here"))
        .arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help("Write over a profile that is there"))
        .arg(value("name", "NAME", "", "The machine's name [default: the file's, without .toml]"))
        .arg(value("threads", "LIST", "", "Numbers of threads [default: 1, 2, 4 and so on up to all]"))
        .arg(value("size", "SIZE", "", "Memory to read [default: 256M, or four times the last-level cache if more]"))
        .arg(value("repetitions", "N", "9", "Passes over the memory and the file"))
        .arg(value("types", "LIST", "all", "Block types, such as Q2_0,IQ3_S"))
        .arg(value("seconds", "S", "0.2", "Time for each product, behind a third of it for warming up"))
        .arg(path("disk", "FILE").help("A large file, to measure its disk with"))
        .arg(json_arg())
        .after_help(HARDWARE_HELP)
}

fn decode_command() -> Command {
    let lengths = [
        value("prompt-tokens", "N", "128", "Tokens of the prompt before the answer"),
        value("output-tokens", "N", "128", "Tokens to write in each repetition, at least 2"),
    ];
    model_command("decode", lengths).about("How fast a model writes").after_help(format!("{TEXT_HELP} {DECODE_HELP}"))
}

fn prefill_command() -> Command {
    model_command("prefill", [value("prompt-tokens", "LIST", "128,512", "Lengths of prompts")])
        .about("How fast a model reads prompts")
        .after_help(format!("{TEXT_HELP} {PREFILL_HELP}"))
}

fn ab_command() -> Command {
    let side = |id: &'static str, help: &'static str| Arg::new(id).value_name(id).required(true).help(help);
    common(Command::new("ab"))
        .about("Whether B is faster than A: two builds, settings or models, in turns")
        .long_about(AB_ABOUT)
        .arg(side("A", "`[STRATA] decode|prefill [FLAGS]` in quotes: what is compared with"))
        .arg(side("B", "The same, for what may be faster"))
        .arg(value("rounds", "N", "10", "Rounds, each with one run of A and one of B"))
        .after_help(AB_HELP)
}

/// What `decode` and `prefill` share.
fn model_command(name: &'static str, lengths: impl IntoIterator<Item = Arg>) -> Command {
    let path = Arg::new(MODEL.key).value_name("MODEL").value_parser(value_parser!(PathBuf)).help(
        "A .gguf file, any shard of a set, or the folder of one model [default: nano, built in, unless settings name one]",
    );
    let corpus = value("corpus", "FILE", "", "Text to read: UTF-8, or .jsonl with a \"text\" in each line")
        .value_parser(value_parser!(PathBuf));
    let command = common(Command::new(name))
        .arg(path)
        .args(lengths)
        .arg(value("repetitions", "N", "7", "Repetitions that count, each with another text"))
        .arg(value("warm-up", "N", "1", "Repetitions before them that do not"))
        .arg(corpus)
        .arg(value("skip", "N", "0", "Pass over the text of so many repetitions first"))
        .args(recording::args());
    flags::add(command, Verb::Bench)
}

/// What all measurements share.
fn common(command: Command) -> Command {
    let out = Arg::new("out").long("out").value_name("DIR").value_parser(value_parser!(PathBuf));
    command.arg(json_arg()).arg(out.help("Write samples.csv and result.json to a folder, which is made if need be"))
}

/// The flag for one document in place of text.
fn json_arg() -> Arg {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    json.help("Print one JSON document, with every raw sample and what it was measured on")
}

/// A flag with a value, which each measurement reads itself for errors of one form.
fn value(id: &'static str, placeholder: &'static str, default: &'static str, help: &'static str) -> Arg {
    // A number that is too small is told what is expected; it never looks like a flag.
    let arg = Arg::new(id).long(id).value_name(placeholder).allow_negative_numbers(true).help(help);
    if default.is_empty() { arg } else { arg.default_value(default) }
}

/// Measures.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("memory", matches)) => memory::run(matches),
        Some(("kernels", matches)) => kernels::run(matches),
        Some(("hardware", matches)) => hardware::run(matches),
        Some(("decode", matches)) => model::run(Kind::Decode, matches),
        Some(("prefill", matches)) => model::run(Kind::Prefill, matches),
        Some(("ab", matches)) => ab::run(matches),
        // The command line requires one of them.
        _ => Ok(()),
    }
}

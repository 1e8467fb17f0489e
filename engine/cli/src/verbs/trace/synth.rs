//! `strata trace synth`: a trace that is made up, and how far it is what was asked for.

use crate::output::{self, Table};
use crate::recording::{self, Target};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::str::FromStr;
use strata_config::ConfigError;
use strata_gguf::show_path;
use strata_trace::stats::{SHARES, Stats};
use strata_trace::synth::SynthParams;
use strata_trace::{Trace, TraceError, TraceWriter};

const LONG_ABOUT: &str = "\
Make up a trace with given statistics

For questions that no recorded trace answers: how much an expert cache gains when popularity is more skewed, experts are \
used again sooner, or texts change their topic. Nothing that is measured on such a trace is a fact about a model. The same \
flags give the same file on every machine.";

const AFTER: &str = "\
Popularity: the expert of rank r is used in proportion to exp(-tail x r / experts) / r^zipf, in each layer with an order of \
its own. With several topics popularity is as asked inside a topic, and flatter over the whole trace, so the measured \
exponent is lower. It is also lower where --reuse is less than chance gives, and says how concentrated popularity is where \
--tail makes it no power law.

Examples:
  strata trace synth --out made-up.strace
  strata trace synth --out speculating.strace --window 4 --accept 0.77 --tokens 5000
  strata trace synth --out fickle.strace --zipf 0.5 --tail 6 --topics 64 --topic-tokens 1000 --topic-share 0.5";

/// The parameters as flags: key, placeholder, help.
const FLAGS: [(&str, &str, &str); 17] = [
    ("layers", "N", "Layers"),
    ("experts", "N", "Experts of each layer"),
    ("used", "K", "Experts that each token uses in each layer"),
    ("tokens", "N", "Tokens that are kept, of all requests together"),
    ("requests", "N", "Requests, which share the tokens"),
    ("window", "N", "Rows of a round: the last known token and drafts"),
    ("accept", "SHARE", "Chance of each draft to be kept when all before it were"),
    ("zipf", "S", "Exponent of popularity, the mean over layers"),
    ("zipf-spread", "S", "How far layers' exponents lie from it, at most"),
    ("tail", "T", "Exponential fall of popularity over all ranks, besides"),
    ("reuse", "SHARE", "Share of a token's experts that are the previous token's too"),
    ("topics", "N", "Topics"),
    ("topic-tokens", "N", "Tokens before the topic changes, on average"),
    ("topic-share", "SHARE", "Share of popularity that moves with the topic"),
    ("expert-bytes", "N", "Bytes of an expert, for the trace's description"),
    ("dense-bytes", "N", "Bytes of what every token reads, for the trace's description"),
    ("seed", "N", "Start of the random numbers"),
];

/// The verb's part of the command line.
pub(super) fn command() -> Command {
    let out = Arg::new("out").short('o').long("out").value_name("FILE").required(true);
    let command = Command::new("synth")
        .about("Make up a trace with given statistics")
        .long_about(LONG_ABOUT)
        .arg(out.value_parser(value_parser!(PathBuf)).help("The file to write"))
        .arg(recording::force())
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON document"))
        .after_help(AFTER);
    let defaults = serde_json::to_value(SynthParams::default()).unwrap_or_default();
    FLAGS.iter().fold(command, |command, (flag, placeholder, help)| {
        let arg = Arg::new(*flag).long(*flag).value_name(*placeholder).help(*help).allow_negative_numbers(true);
        command.arg(arg.default_value(defaults[flag.replace('-', "_")].to_string()))
    })
}

/// Makes the trace up, writes it, and says what it is like.
pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    let params = params(matches)?;
    let path = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    let target = Target::new(&path, matches.get_flag("force"))?;
    let trace = params.generate()?;
    let bytes = write(&trace, &target)?;
    let stats = Stats::of(&trace);
    if matches.get_flag("json") {
        let document = json!({ "file": path.to_string_lossy(), "bytes": bytes, "asked": params, "measured": stats });
        return output::emit(&serde_json::to_string_pretty(&document)?);
    }
    let tokens = output::count(trace.tokens.len(), "token");
    let rounds = output::count(trace.rounds.len(), "round");
    let size = output::bytes(bytes);
    output::emit(&format!(
        "{}: {size}; {tokens} read in {rounds}\n\n{}",
        show_path(&path),
        text(&params, &trace, &stats)
    ))
}

/// Writes the file; its bytes.
fn write(trace: &Trace, target: &Target) -> Result<u64> {
    let mut file = target.create()?;
    let written = (|| {
        let mut writer = TraceWriter::new(&mut file, trace.meta.clone())?;
        for round in 0..trace.rounds.len() {
            writer.append(&trace.record(round))?;
        }
        Ok(writer.finish(0)?.1)
    })();
    match written {
        Ok(bytes) => {
            file.finish()?;
            Ok(bytes)
        }
        Err(e) => {
            file.discard();
            Err(TraceError::into(e))
        }
    }
}

/// The parameters that flags give.
fn params(matches: &ArgMatches) -> Result<SynthParams, ConfigError> {
    let mut p = SynthParams::default();
    for (flag, ..) in FLAGS {
        let text = matches.get_one::<String>(flag).map_or("", String::as_str);
        let read = match flag {
            "layers" => number(text, &mut p.layers),
            "experts" => number(text, &mut p.experts),
            "used" => number(text, &mut p.used),
            "tokens" => number(text, &mut p.tokens),
            "requests" => number(text, &mut p.requests),
            "window" => number(text, &mut p.window),
            "accept" => number(text, &mut p.accept),
            "zipf" => number(text, &mut p.zipf),
            "zipf-spread" => number(text, &mut p.zipf_spread),
            "tail" => number(text, &mut p.tail),
            "reuse" => number(text, &mut p.reuse),
            "topics" => number(text, &mut p.topics),
            "topic-tokens" => number(text, &mut p.topic_tokens),
            "topic-share" => number(text, &mut p.topic_share),
            "expert-bytes" => number(text, &mut p.expert_bytes),
            "dense-bytes" => number(text, &mut p.dense_bytes),
            _ => number(text, &mut p.seed),
        };
        let kind = if is_whole(flag) { "a whole number" } else { "a number" };
        read.ok_or_else(|| ConfigError::value(format!("--{flag}"), text, kind))?;
    }
    // Who sets one exponent for few layers need not know of the spread.
    if matches.value_source("zipf-spread") == Some(clap::parser::ValueSource::DefaultValue) && p.zipf >= 0.0 {
        p.zipf_spread = p.zipf_spread.min(p.zipf);
    }
    p.check().map_err(|e| match e {
        TraceError::Invalid { place, found, expected } => {
            let field = place.rsplit(": ").next().unwrap_or_default().replace('_', "-");
            ConfigError::value(format!("--{field}"), &found, expected)
        }
        other => ConfigError::value("the parameters", &other.to_string(), "some that go together"),
    })?;
    Ok(p)
}

fn number<T: FromStr>(text: &str, into: &mut T) -> Option<()> {
    *into = text.trim().parse().ok()?;
    Some(())
}

/// Whether a flag takes whole numbers, as its default is one.
fn is_whole(flag: &str) -> bool {
    let defaults = serde_json::to_value(SynthParams::default()).unwrap_or(Value::Null);
    defaults[flag.replace('-', "_")].is_u64()
}

/// A number without what additions leave behind its last digit.
fn shown(value: f64) -> String {
    ((value * 1e6).round() / 1e6).to_string()
}

/// Asked beside measured.
fn text(params: &SynthParams, trace: &Trace, stats: &Stats) -> String {
    let mut table = Table::new("lrr");
    table.row(["", "asked", "measured"]);
    let mut row = |name: &str, asked: String, measured: Option<f64>, digits: usize| {
        let measured = measured.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
        table.row([name.to_owned(), asked, measured]);
    };
    let none = String::new;
    row("kept tokens", params.tokens.to_string(), Some(stats.tokens as f64), 0);
    row("requests", params.requests.to_string(), Some(stats.requests as f64), 0);
    let edge = |pick: fn(f64, f64) -> f64| stats.zipf.iter().copied().reduce(pick);
    row("exponent of popularity", params.zipf.to_string(), Some(stats.mean_zipf()), 3);
    row("  of the flattest layer", shown(params.zipf - params.zipf_spread), edge(f64::min), 3);
    row("  of the steepest layer", shown(params.zipf + params.zipf_spread), edge(f64::max), 3);
    row("next-token reuse", params.reuse.to_string(), stats.reuse, 4);
    let drafts = trace.tokens.iter().filter(|t| t.drafted).count();
    let kept = trace.tokens.iter().filter(|t| t.drafted && t.committed).count();
    row("share of drafts kept", none(), (drafts > 0).then(|| kept as f64 / drafts as f64), 4);
    for (i, share) in SHARES.iter().enumerate() {
        let name = format!("hits of the best {:.0} % of pairs", share * 100.0);
        row(&name, none(), stats.coverage.map(|c| c[i]), 4);
    }
    for window in [2, 4, 8] {
        row(&format!("distinct experts of {window} tokens"), none(), stats.union[window - 1], 2);
    }
    row("in common: neighbouring pieces", none(), stats.near, 4);
    row("in common: neighbouring requests", none(), stats.far, 4);
    table.render(2)
}

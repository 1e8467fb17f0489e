//! Answers on the screen and as JSON.

use crate::load;
use crate::output;
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use strata_runtime::{Answer, Event, Finish, GenerateParams};

/// Prompts shorter than this are read before anyone looks.
const SHORT_PROMPT: usize = 256;

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// Prints what happens as it happens.
pub(super) struct Screen<'a> {
    cancel: &'a AtomicBool,
    json: bool,
    quiet: bool,
    /// Thinking is shown, dimmed, to people only; what reads a pipe gets the answer.
    show_thinking: bool,
    thinking: bool,
    bar: Option<ProgressBar>,
    at_line_start: bool,
    failed: Option<std::io::Error>,
}

impl<'a> Screen<'a> {
    /// A screen that sets `cancel` when nobody reads any more.
    pub(super) fn new(cancel: &'a AtomicBool, json: bool, quiet: bool) -> Screen<'a> {
        Screen {
            cancel,
            json,
            quiet,
            show_thinking: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            thinking: false,
            bar: None,
            at_line_start: true,
            failed: None,
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Prompt { read, of } if of - read.min(of) > SHORT_PROMPT || self.bar.is_some() => {
                let bar = self.bar.get_or_insert_with(|| load::bar("reading", "tokens", self.quiet || self.json));
                bar.set_length(of as u64);
                bar.set_position(read as u64);
                if read == of {
                    bar.finish_and_clear();
                    self.bar = None;
                }
            }
            Event::Prompt { .. } => {}
            _ if self.json => {}
            Event::Thinking(text) if self.show_thinking => {
                if !self.thinking {
                    self.thinking = true;
                    self.print(DIM);
                }
                self.print(text);
            }
            Event::Thinking(_) | Event::Logprob(_) | Event::Round(_) => {}
            Event::Text(text) | Event::Mark(text) => {
                self.end_thinking();
                self.print(text);
            }
        }
    }

    /// Says so when all there was to show was thinking that is not shown.
    pub(super) fn explain(&self, answer: &Answer) {
        if !self.json && !self.show_thinking && answer.text.is_empty() && !answer.thinking.is_empty() {
            output::note("note: the model only thought, which is not shown here; --no-think or --json helps");
        }
        warn_of_failed_drafts(answer);
    }

    /// Ends the last line. An answer that nobody could read is an error.
    pub(super) fn end(mut self) -> Result<()> {
        if self.thinking {
            self.print(PLAIN);
        }
        if !self.json && !self.at_line_start {
            self.print("\n");
        }
        self.failed.map_or(Ok(()), |e| Err(e).context("cannot write to stdout"))
    }

    fn end_thinking(&mut self) {
        if std::mem::take(&mut self.thinking) {
            self.print(PLAIN);
            self.print(if self.at_line_start { "\n" } else { "\n\n" });
        }
    }

    fn print(&mut self, text: &str) {
        if self.failed.is_some() || text.is_empty() {
            return;
        }
        let mut out = std::io::stdout().lock();
        if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.failed = Some(e);
            self.cancel.store(true, Ordering::Relaxed);
        }
        if !text.starts_with('\u{1b}') {
            self.at_line_start = text.ends_with('\n');
        }
    }
}

/// Says that the draft layer failed, if it did; the answer is right all the same, and only slower.
pub(super) fn warn_of_failed_drafts(answer: &Answer) -> bool {
    let failures = answer.speculation.failures;
    if failures > 0 {
        output::note(&format!(
            "warning: the draft layer failed {}, so its drafts were left out; `strata check FILE --weights` looks for \
             damage in it",
            output::count(failures, "time")
        ));
    }
    failures > 0
}

/// One line about how an answer went.
pub(super) fn summary(answer: &Answer) -> String {
    let t = &answer.timings;
    let cached = match t.cached_tokens {
        0 => String::new(),
        n => format!(" ({n} read before)"),
    };
    let finish = match answer.finish {
        Finish::Stop | Finish::StopText => "",
        Finish::Length => " | cut at the limit of tokens (--max-tokens)",
        Finish::Context => " | cut because the context is full (--ctx)",
        Finish::Cancelled => " | cancelled",
    };
    let tokens = |n: usize| output::count(n, "token");
    let rate = |r: f64| if r > 0.0 { format!(", {r:.1} tokens/s") } else { String::new() };
    let s = &answer.speculation;
    let drafts = match s.mtp.verified + s.lookup.verified {
        0 => String::new(),
        verified => format!(
            ", {:.2} a round ({} of {verified} drafts accepted)",
            s.tokens_per_round(t.output_tokens),
            s.mtp.accepted + s.lookup.accepted
        ),
    };
    format!(
        "prompt {}{cached}{} | answer {}{}{drafts}{finish}",
        tokens(t.prompt_tokens),
        rate(t.prompt_rate()),
        tokens(t.output_tokens),
        rate(t.output_rate())
    )
}

/// What the JSON object says besides the answer.
pub(super) struct Facts<'a> {
    pub(super) model: &'a str,
    pub(super) device: &'a str,
    pub(super) threads: usize,
    pub(super) context: usize,
}

/// Prints an answer as one JSON object.
pub(super) fn json(answer: &Answer, params: &GenerateParams, facts: &Facts<'_>, load_seconds: f64) -> Result<()> {
    let t = &answer.timings;
    let some = |rate: f64| (rate > 0.0).then_some(rate);
    let object = serde_json::json!({
        "text": answer.text,
        "thinking": answer.thinking,
        "tokens": answer.tokens,
        "finish": answer.finish,
        "model": facts.model,
        "seed": (params.sampling.temp > 0.0).then_some(params.sampling.seed),
        "device": facts.device,
        "threads": facts.threads,
        "context": facts.context,
        "speculation": {
            "tokens_per_round": answer.speculation.tokens_per_round(t.output_tokens),
            "counts": answer.speculation,
        },
        "timings": {
            "load_seconds": load_seconds,
            "prompt_tokens": t.prompt_tokens,
            "cached_tokens": t.cached_tokens,
            "prompt_seconds": t.prompt_seconds,
            "prompt_tokens_per_second": some(t.prompt_rate()),
            "output_tokens": t.output_tokens,
            "output_seconds": t.output_seconds,
            "output_tokens_per_second": some(t.output_rate()),
        },
    });
    output::emit(&serde_json::to_string_pretty(&object)?)
}

//! `run_prompt`: an answer of the model.

use super::{Effect, Tool, about, result};
use crate::api::answer::{Part, Reason, vanished};
use crate::api::ask::Ask;
use crate::api::asked::{Asked, Running, counted};
use crate::api::fields::Fields;
use crate::api::{sampling, usage};
use crate::backend::Refusal;
use crate::mcp::call::Call;
use crate::thinking::Thinking;
use crate::tools::{Format, Tools};
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(super) const TOOL: Tool = Tool {
    name: "run_prompt",
    about: || {
        about::<Arguments>("run_prompt", "Ask the model", DESCRIPTION, Effect::None).with_output_schema::<Answered>()
    },
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Asks the model that is loaded, and gives its answer with how long it took. If none is loaded, the one of the settings is loaded \
first. Each call is a conversation of its own.";

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// What the model is asked.
    prompt: String,
    /// What the model is told beforehand, as its system message.
    #[serde(default)]
    system: Option<String>,
    /// Tokens of the answer at most, thinking included. Left out: as the settings have it.
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_tokens: Option<u64>,
    /// How freely tokens are chosen: 0 takes the likeliest each time, and gives the same answer to the same question.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2))]
    temperature: Option<f32>,
    /// The same seed gives the same answer at any temperature.
    #[serde(default)]
    seed: Option<u64>,
    /// Whether the model thinks before it answers, if it can. Left out: as the settings have it.
    #[serde(default)]
    thinking: Option<bool>,
}

/// What came of it.
#[derive(Serialize, JsonSchema)]
#[schemars(crate = "schemars")]
struct Answered {
    /// The answer.
    text: String,
    /// What the model thought before, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    /// The model that answered.
    model: String,
    /// Why the answer ended: stop (the model ended it), length (max_tokens came) or context (there was no more room).
    finish: String,
    /// Tokens of the prompt.
    prompt_tokens: usize,
    /// Tokens of the prompt that were known from before and needed no reading.
    cached_tokens: usize,
    /// Tokens of the answer, thinking included.
    output_tokens: usize,
    /// How long it took: queue_ms, prompt_ms, predicted_ms, tokens per second, and drafts.
    timings: Map<String, Value>,
}

async fn run(mut call: Call) -> Result<CallToolResult, String> {
    let arguments: Arguments = call.arguments()?;
    let app = call.ready().await?;
    let asked = async {
        let limit = arguments.max_tokens;
        let asked = Asked::without_body(app, call.caller.clone())?;
        let ask = counted(&asked.app, ask(arguments, &asked.app.options, &asked.model))?;
        let running = asked.chat(ask).await?;
        attend(&mut call, running, limit).await
    };
    let answered = asked.await.map_err(|refusal: Refusal| refusal.message)?;
    let seconds = |key: &str| answered.timings.get(key).and_then(Value::as_f64).unwrap_or_default() / 1e3;
    let line = format!(
        "({}: {} prompt tokens, {} of them known, read in {:.2} s; {} tokens written in {:.2} s; ended by {})",
        answered.model,
        answered.prompt_tokens,
        answered.cached_tokens,
        seconds("prompt_ms"),
        answered.output_tokens,
        seconds("predicted_ms"),
        answered.finish,
    );
    let mut answer = result(answered.text.clone(), &answered)?;
    answer.content.push(ContentBlock::text(line));
    Ok(answer)
}

fn ask(arguments: Arguments, options: &crate::Options, model: &crate::backend::ModelInfo) -> Result<Ask, Refusal> {
    let Arguments { prompt, system, max_tokens, temperature, seed, thinking } = arguments;
    let mut params = sampling::params(&Fields::root(&Map::new()), options, model)?;
    if let Some(temp) = temperature {
        let range = 0.0..=2.0;
        let wrong = || Refusal::param("temperature", format!("temperature is {temp}; expected a number from 0 to 2"));
        params.sampling.temp = Some(temp).filter(|temp| range.contains(temp)).ok_or_else(wrong)?;
    }
    params.sampling.seed = seed.unwrap_or(params.sampling.seed);
    if let Some(limit) = max_tokens {
        let wrong = || Refusal::param("max_tokens", "max_tokens is 0; expected a whole number of at least 1");
        let limit = Some(limit).filter(|&limit| limit > 0).ok_or_else(wrong)?;
        params.max_tokens = usize::try_from(limit).unwrap_or(usize::MAX);
    }
    let system = system.map(|text| json!({"role": "system", "content": text}));
    let user = json!({"role": "user", "content": prompt});
    Ok(Ask {
        messages: system.into_iter().chain([user]).collect(),
        tools: Tools::default(),
        format: (Format::Text, "format"),
        thinking: Thinking { think: thinking, ..Thinking::default() },
        extra: Map::new(),
        params,
    })
}

/// Waits for the answer and tells how far it is: the loading is one step, then each token of the prompt, then each piece of the answer.
async fn attend(call: &mut Call, mut running: Running, limit: Option<u64>) -> Result<Answered, Refusal> {
    let of = running.prompt_tokens as f64;
    let total = limit.map(|limit| 1.0 + of + limit as f64);
    let (mut text, mut thinking, mut pieces) = (String::new(), String::new(), 0.0);
    while let Some(event) = running.events.recv().await {
        for part in running.assembler.push(event) {
            let doing = match part {
                Part::Progress { read, of } => {
                    let doing = format!("reading the prompt: {read} of {of} tokens");
                    call.progress.tell(1.0 + read as f64, total, &doing).await;
                    continue;
                }
                Part::Thinking(piece) => {
                    thinking.push_str(&piece);
                    "thinking"
                }
                Part::Text(piece, _) => {
                    text.push_str(&piece);
                    "writing"
                }
                // Without tools there are no calls.
                Part::Call { .. } | Part::Arguments(_) | Part::CallEnd => continue,
                Part::Failed(refusal) => return Err(refusal),
                Part::Done(ending) => {
                    let app = call.desk.root.app();
                    usage::log(&app, &call.caller, &ending, text.is_empty());
                    let t = &ending.outcome.timings;
                    let Value::Object(timings) = usage::timings(&ending) else { return Err(vanished()) };
                    return Ok(Answered {
                        text,
                        thinking: (!thinking.is_empty()).then_some(thinking),
                        model: running.model.id,
                        finish: word(&ending.reason).to_owned(),
                        prompt_tokens: t.prompt_tokens,
                        cached_tokens: t.cached_tokens,
                        output_tokens: t.output_tokens,
                        timings,
                    });
                }
            };
            pieces += 1.0;
            call.progress.tell(1.0 + of + pieces, total, doing).await;
        }
    }
    Err(vanished())
}

fn word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Stop | Reason::StopText(_) | Reason::Calls => "stop",
        Reason::Length => "length",
        Reason::Context => "context",
    }
}

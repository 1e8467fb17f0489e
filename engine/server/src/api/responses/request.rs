//! What a request for a response says.

use super::input;
use crate::App;
use crate::api::ask::Ask;
use crate::api::fields::Fields;
use crate::api::openai::format::format;
use crate::api::openai::tools;
use crate::api::{sampling, turns};
use crate::backend::{ModelInfo, Refusal};
use crate::ids::{id, now};
use crate::thinking::Thinking;
use crate::tools::Tools;
use serde_json::{Map, Value, json};

/// Fields that say something this server cannot do, and why.
const UNSUPPORTED: [(&str, &str); 4] = [
    ("previous_response_id", "responses are not kept; send the whole conversation as input"),
    ("conversation", "conversations are not kept; send the whole conversation as input"),
    ("prompt", "prompt templates are not kept; send the prompt itself"),
    ("background", "answers are given at once, not later"),
];

/// What `include` calls log-probabilities.
const LOGPROBS: &str = "message.output_text.logprobs";

/// Reads a request.
///
/// # Errors
/// A field cannot be used; the refusal names it.
pub(crate) fn read(fields: &Fields<'_>, app: &App, model: &ModelInfo) -> Result<Ask, Refusal> {
    for (name, why) in UNSUPPORTED {
        fields.only(name, &[json!(false), json!("")], why)?;
    }
    let mut params = sampling::params(fields, &app.options, model)?;
    if let Some(limit) = sampling::limit(fields, &["max_output_tokens"])? {
        params.max_tokens = limit;
    }
    let included = fields.list("include")?.unwrap_or_default();
    let top = fields.whole("top_logprobs", 0..=20)?;
    if included.iter().any(|(_, name)| name.as_str() == Some(LOGPROBS)) {
        params.logprobs = Some(top.unwrap_or(0) as usize);
    } else if top.is_some_and(|n| n > 0) {
        return Err(Refusal::param("top_logprobs", format!("top_logprobs needs include to hold {LOGPROBS:?}")));
    }
    let effort = match fields.object("reasoning")? {
        Some(reasoning) => reasoning.text("effort")?,
        None => None,
    };
    let text = fields.object("text")?.map(|t| t.object("format")).transpose()?.flatten();
    let turns = input::read(fields)?;
    Ok(Ask {
        messages: turns::messages(turns, "input")?,
        tools: read_tools(fields, app)?,
        format: (format(text, None)?, "text.format"),
        thinking: effort.map(|e| Thinking::level(e, "reasoning.effort")).transpose()?.unwrap_or_default(),
        extra: Map::new(),
        params,
    })
}

fn read_tools(fields: &Fields<'_>, app: &App) -> Result<Tools, Refusal> {
    let mut list = Vec::new();
    for (at, tool) in fields.list("tools")?.unwrap_or_default() {
        let tool = Fields::of(tool, at)?;
        match tool.need_text("type")? {
            "function" => list.push(tools::function(&tool)?),
            // They would run on the server that knows them.
            kind => app.options.log.line(&format!("{} of type {kind:?} is ignored", tool.name("type"))),
        }
    }
    let named = |tool: &Fields<'_>| tool.need_text("name").map(str::to_owned);
    tools::choose(Tools { list, ..Tools::default() }, fields, named)
}

/// The response that is not begun yet: what was asked, and what holds where nothing was.
pub(crate) fn form(fields: &Fields<'_>, model: &ModelInfo, ask: &Ask) -> Value {
    let given = |key: &str, default: Value| fields.get(key).cloned().unwrap_or(default);
    let sampling = &ask.params.sampling;
    let nested = |key: &str, inner: &str| fields.get(key).and_then(|v| v.get(inner)).cloned();
    let format = nested("text", "format").filter(|f| !f.is_null()).unwrap_or_else(|| json!({"type": "text"}));
    let number = |value: f32| (f64::from(value) * 1e6).round() / 1e6;
    json!({
        "id": id("resp_"), "object": "response", "created_at": now(), "status": "in_progress", "background": false,
        "error": null, "incomplete_details": null, "instructions": given("instructions", Value::Null),
        "max_output_tokens": given("max_output_tokens", Value::Null), "max_tool_calls": null, "model": model.id,
        "output": [], "parallel_tool_calls": !ask.tools.single, "previous_response_id": null,
        "prompt_cache_key": given("prompt_cache_key", Value::Null),
        "reasoning": {"effort": nested("reasoning", "effort"), "summary": null},
        "safety_identifier": given("safety_identifier", Value::Null), "service_tier": "default", "store": false,
        "temperature": number(sampling.temp),
        "text": {"format": format, "verbosity": nested("text", "verbosity").unwrap_or_else(|| json!("medium"))},
        "tool_choice": given("tool_choice", json!("auto")), "tools": given("tools", json!([])),
        "top_logprobs": ask.params.logprobs.unwrap_or(0), "top_p": number(sampling.top_p), "truncation": "disabled",
        "usage": null, "user": given("user", Value::Null), "metadata": given("metadata", json!({})),
    })
}

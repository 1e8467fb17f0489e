//! What a request to the chat says.

use super::{format, messages, tools};
use crate::App;
use crate::api::ask::Ask;
use crate::api::fields::Fields;
use crate::api::{sampling, turns};
use crate::backend::{ModelInfo, Refusal};
use crate::thinking::Thinking;
use crate::tools::Tools;
use serde_json::{Map, Value, json};

/// A request, taken apart.
pub(crate) struct ChatRequest {
    pub(crate) ask: Ask,
    pub(crate) include_usage: bool,
    pub(crate) logprobs: bool,
}

/// Fields that say something this server cannot do, the values that say nothing, and why.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("functions", "the older way to give tools is not supported; use tools"),
    ("function_call", "the older way to choose a function is not supported; use tool_choice"),
    ("audio", "this model writes text only"),
    ("web_search_options", "this server does not search the web"),
    ("input_audio", "this model reads text only"),
];

/// Reads a request.
///
/// # Errors
/// A field cannot be used; the refusal names it.
pub(crate) fn read(fields: &Fields<'_>, app: &App, model: &ModelInfo) -> Result<ChatRequest, Refusal> {
    for (name, why) in UNSUPPORTED {
        fields.only(name, &[json!([]), json!("none")], why)?;
    }
    fields.only("n", &[json!(1)], "one answer at a time is given")?;
    fields.only("modalities", &[json!(["text"]), json!([])], "this model writes text only")?;
    let mut extra = Map::new();
    let thinking = Thinking::of_chat(fields, &mut extra)?;
    let mut params = sampling::params(fields, &app.options, model)?;
    if let Some(limit) = sampling::limit(fields, &["max_completion_tokens", "max_tokens"])? {
        params.max_tokens = limit;
    }
    params.stop = sampling::stop(fields, "stop", Some(4))?;
    let logprobs = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=20)?;
    if top.is_some_and(|n| n > 0) && !logprobs {
        return Err(Refusal::param("top_logprobs", "top_logprobs needs logprobs to be true"));
    }
    params.logprobs = logprobs.then(|| top.unwrap_or(0) as usize);
    let usage = match fields.object("stream_options")? {
        Some(options) => options.flag("include_usage")?.unwrap_or(false),
        None => false,
    };
    let ask = Ask {
        messages: turns::messages(messages::read(fields)?, "messages")?,
        tools: read_tools(fields)?,
        format: (format::format(fields.object("response_format")?, Some("json_schema"))?, "response_format"),
        thinking,
        extra,
        params,
    };
    Ok(ChatRequest { ask, include_usage: usage, logprobs })
}

fn read_tools(fields: &Fields<'_>) -> Result<Tools, Refusal> {
    let mut list = Vec::new();
    for (at, tool) in fields.list("tools")?.unwrap_or_default() {
        let tool = Fields::of(tool, at)?;
        tool.only("type", &[Value::from("function")], "only tools of type \"function\" are known")?;
        match tool.object("function")? {
            Some(function) => list.push(tools::function(&function)?),
            None => {
                tool.need("function")?;
            }
        }
    }
    let named = |tool: &Fields<'_>| match tool.object("function")? {
        Some(function) => function.need_text("name").map(|name| name.to_owned()),
        None => tool.need("function").map(|_| String::new()),
    };
    tools::choose(Tools { list, ..Tools::default() }, fields, named)
}

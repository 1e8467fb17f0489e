//! What a request for a message says.

use super::input;
use crate::App;
use crate::api::ask::Ask;
use crate::api::fields::{Fields, wrong};
use crate::api::openai::format::format;
use crate::api::openai::tools::name;
use crate::api::{sampling, turns};
use crate::backend::{ModelInfo, Refusal};
use crate::thinking::Thinking;
use crate::tools::{Choice, Tool, Tools};
use serde_json::{Map, Value};

/// Reads a request; `counted` says that it is only to be counted, and needs no limit.
///
/// # Errors
/// A field cannot be used; the refusal names it.
pub(crate) fn read(fields: &Fields<'_>, app: &App, model: &ModelInfo, counted: bool) -> Result<Ask, Refusal> {
    let mut params = sampling::params(fields, &app.options, model)?;
    match sampling::limit(fields, &["max_tokens"])? {
        Some(limit) => params.max_tokens = limit,
        None if counted => {}
        None => {
            fields.need("max_tokens")?;
        }
    }
    params.stop = sampling::stop(fields, "stop_sequences", None)?;
    let config = fields.object("output_config")?;
    let output = config.map(|c| c.object("format")).transpose()?.flatten();
    Ok(Ask {
        messages: turns::messages(input::read(fields)?, "messages")?,
        tools: tools(fields, app)?,
        format: (format(output, None)?, "output_config.format"),
        thinking: Thinking::of_messages(fields)?,
        extra: Map::new(),
        params,
    })
}

fn tools(fields: &Fields<'_>, app: &App) -> Result<Tools, Refusal> {
    let mut tools = Tools::default();
    for (at, tool) in fields.list("tools")?.unwrap_or_default() {
        let tool = Fields::of(tool, at)?;
        match tool.text("type")? {
            None | Some("custom") => tools.list.push(Tool {
                name: name(&tool)?,
                description: tool.text("description")?.map(str::to_owned),
                parameters: match tool.need("input_schema")? {
                    schema @ Value::Object(_) => schema.clone(),
                    other => return Err(wrong(&tool.name("input_schema"), "an object", other)),
                },
                strict: tool.flag("strict")?.unwrap_or(false),
            }),
            // They would run on the server that knows them.
            Some(kind) => app.options.log.line(&format!("{} of type {kind:?} is ignored", tool.name("type"))),
        }
    }
    let Some(choice) = fields.object("tool_choice")? else { return Ok(tools) };
    tools.single = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    tools.choice = match choice.need_text("type")? {
        "auto" => Choice::Auto,
        "any" => Choice::Required,
        "none" => Choice::None,
        "tool" => Choice::Named(choice.need_text("name")?.to_owned()),
        other => {
            let message = format!("tool_choice.type is {other:?}, and none of: auto, any, tool, none");
            return Err(Refusal::param("tool_choice.type", message));
        }
    };
    Ok(tools)
}

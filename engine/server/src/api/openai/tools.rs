//! `tools` and `tool_choice`, as chat and responses have them.

use crate::api::fields::{Fields, wrong};
use crate::backend::Refusal;
use crate::tools::{Choice, Tool, Tools};
use serde_json::{Value, json};

/// A function, given the object that holds its name.
pub(crate) fn function(fields: &Fields<'_>) -> Result<Tool, Refusal> {
    let parameters = match fields.get("parameters") {
        None => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => return Err(wrong(&fields.name("parameters"), "an object", other)),
    };
    Ok(Tool {
        name: name(fields)?,
        description: fields.text("description")?.map(str::to_owned),
        parameters,
        strict: fields.flag("strict")?.unwrap_or(false),
    })
}

/// The name of a function, which has to fit into the tags of a call.
pub(crate) fn name(fields: &Fields<'_>) -> Result<String, Refusal> {
    let name = fields.need_text("name")?;
    if name.is_empty() || name.len() > 128 || name.contains(|c: char| c.is_control() || "<>=\"".contains(c)) {
        let at = fields.name("name");
        return Err(Refusal::param(at.clone(), format!("{at} is {name:?}, which is no name of a function")));
    }
    Ok(name.to_owned())
}

/// What is to be done with tools. `named` finds the name in an object that names one.
pub(crate) fn choose<'a>(
    mut tools: Tools,
    fields: &Fields<'a>,
    named: impl Fn(&Fields<'a>) -> Result<String, Refusal>,
) -> Result<Tools, Refusal> {
    tools.single = fields.flag("parallel_tool_calls")? == Some(false);
    let Some(choice) = fields.get("tool_choice") else { return Ok(tools) };
    tools.choice = match choice {
        Value::String(word) => mode(word, "tool_choice")?,
        Value::Object(_) => {
            let choice = Fields::of(choice, "tool_choice".to_owned())?;
            match choice.need_text("type")? {
                "allowed_tools" => {
                    let nested = choice.object("allowed_tools")?;
                    let allowed = nested.as_ref().unwrap_or(&choice);
                    let mut names = Vec::new();
                    for (at, tool) in allowed.list("tools")?.unwrap_or_default() {
                        names.push(named(&Fields::of(tool, at)?)?);
                    }
                    tools.list.retain(|t| names.contains(&t.name));
                    mode(allowed.text("mode")?.unwrap_or("auto"), "tool_choice.mode")?
                }
                "function" => Choice::Named(named(&choice)?),
                other => {
                    let message = format!("tool_choice.type is {other:?}, and none of: function, allowed_tools");
                    return Err(Refusal::param("tool_choice.type", message));
                }
            }
        }
        other => return Err(wrong("tool_choice", "a string or an object", other)),
    };
    Ok(tools)
}

fn mode(word: &str, at: &str) -> Result<Choice, Refusal> {
    match word {
        "auto" => Ok(Choice::Auto),
        "none" => Ok(Choice::None),
        "required" => Ok(Choice::Required),
        other => Err(Refusal::param(at, format!("{at} is {other:?}, and none of: none, auto, required"))),
    }
}

//! The tools, each in a file of its own.

mod list_models;
mod load_model;
mod run_experiment;
mod run_prompt;
mod start_serving;
mod status;
mod stop_serving;

use super::call::Call;
use rmcp::handler::server::common::{schema_for_empty_input, schema_for_input};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool as About, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::Serialize;
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

/// What comes of a call; an error is a sentence.
type Answer = Pin<Box<dyn Future<Output = Result<CallToolResult, String>> + Send>>;

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// What clients are told of it.
    pub(super) about: fn() -> About,
    pub(super) run: fn(Call) -> Answer,
}

/// All, in the order in which they are listed.
pub(super) const ALL: &[Tool] = &[
    status::TOOL,
    list_models::TOOL,
    load_model::TOOL,
    start_serving::TOOL,
    stop_serving::TOOL,
    run_prompt::TOOL,
    run_experiment::TOOL,
];

/// The tool of this name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name)
}

/// What a tool does to the world, as clients want to know before they call it.
#[derive(Debug, Clone, Copy)]
enum Effect {
    /// Nothing.
    None,
    /// Something comes about.
    Adds,
    /// Something is not there any more.
    Ends,
}

/// What clients are told of a tool with arguments of type `A`.
fn about<A: JsonSchema + Any>(name: &'static str, title: &str, description: &'static str, effect: Effect) -> About {
    // The schema of a struct is always that of an object.
    let input = schema_for_input::<A>().unwrap_or_else(|_| schema_for_empty_input());
    described(name, title, description, input, effect)
}

/// The same for one without arguments.
fn about_plain(name: &'static str, title: &str, description: &'static str, effect: Effect) -> About {
    let mut input = (*schema_for_empty_input()).clone();
    input.insert("additionalProperties".to_owned(), false.into());
    described(name, title, description, Arc::new(input), effect)
}

fn described(
    name: &'static str,
    title: &str,
    description: &'static str,
    input: Arc<JsonObject>,
    effect: Effect,
) -> About {
    let annotations = ToolAnnotations::with_title(title)
        .read_only(matches!(effect, Effect::None))
        .destructive(matches!(effect, Effect::Ends))
        .open_world(false);
    About::new(name, description, input).with_title(title).with_annotations(annotations)
}

/// Refuses arguments where a tool has none.
fn no_arguments(call: &Call) -> Result<(), String> {
    match call.arguments.keys().next() {
        None => Ok(()),
        Some(name) => Err(format!("{name} is wrong: this tool takes no arguments")),
    }
}

/// A result as an object that programs read, with a sentence for models that see text only.
fn result(sentence: impl Into<String>, object: &impl Serialize) -> Result<CallToolResult, String> {
    let value = serde_json::to_value(object).map_err(|e| format!("the result cannot be written as JSON: {e}"))?;
    let mut result = CallToolResult::structured(value);
    result.content = vec![ContentBlock::text(sentence)];
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_says_what_it_does_and_what_it_takes() {
        for tool in ALL {
            let about = (tool.about)();
            assert_eq!(about.name, tool.name);
            assert!(about.description.as_ref().is_some_and(|text| text.len() > 40), "{}", tool.name);
            let annotations = about.annotations.unwrap_or_default();
            assert!(annotations.read_only_hint.is_some() && annotations.destructive_hint.is_some(), "{}", tool.name);
            assert_eq!(about.input_schema["type"], "object", "{}", tool.name);
            assert_eq!(about.input_schema["additionalProperties"], false, "{}", tool.name);
            let properties = about.input_schema["properties"].as_object().cloned().unwrap_or_default();
            for (name, schema) in properties {
                let described = schema["description"].as_str().is_some_and(|text| !text.is_empty());
                assert!(described, "{} does not say what {name} is", tool.name);
            }
            // Programs may rely on what a schema of results says, so only objects have one.
            assert!(about.output_schema.is_none_or(|schema| schema["type"] == "object"), "{}", tool.name);
        }
    }
}

//! `load_model`: another model in the place of the one that answers.

use super::{Effect, Tool, about, result};
use crate::mcp::call::Call;
use crate::mcp::control::Loaded;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;

pub(super) const TOOL: Tool = Tool {
    name: "load_model",
    about: || {
        about::<Arguments>("load_model", "Load a model", DESCRIPTION, Effect::Ends).with_output_schema::<Loaded>()
    },
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Loads a model and has it answer in the place of the one before, for every client. Answers that run come to their end on the \
old model. If the new one cannot be loaded, or both do not fit into memory, an error says why and the old one stays. It \
takes from seconds to minutes.";

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The model: a .gguf file, any shard of a set, the folder of one model, or nano, which is built in.
    model: String,
}

async fn run(mut call: Call) -> Result<CallToolResult, String> {
    let Arguments { model } = call.arguments()?;
    call.desk.rights.steer?;
    if model.trim().is_empty() {
        return Err("model is empty; expected a .gguf file, a folder with one model, or nano".to_owned());
    }
    let loaded = call.attend(|control, told| control.load(model, told)).await?;
    let Loaded { model, context, seconds, .. } = &loaded;
    result(format!("{model} answers now: loaded in {seconds:.1} s, context of {context} tokens."), &loaded)
}

//! `list_models`: what could be loaded.

use super::{Effect, Tool, about, result};
use crate::backend::{Refusal, RefusalKind};
use crate::blocking::blocking;
use crate::mcp::call::Call;
use crate::mcp::control::Models;
use rmcp::model::CallToolResult;
use rmcp::schemars::{self, JsonSchema};
use serde::Deserialize;
use std::path::PathBuf;

pub(super) const TOOL: Tool = Tool {
    name: "list_models",
    about: || {
        about::<Arguments>("list_models", "List models", DESCRIPTION, Effect::None).with_output_schema::<Models>()
    },
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Lists the models (.gguf files; the shards of a set are one model) in a folder, and the built-in model nano. What it says \
under `model` is what load_model takes.";

#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "schemars")]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder, without those inside it. Left out: the folder of the model in the settings, or the one in which the program was
    /// started.
    #[serde(default)]
    folder: Option<PathBuf>,
}

async fn run(call: Call) -> Result<CallToolResult, String> {
    let Arguments { folder } = call.arguments()?;
    if folder.is_some() {
        call.desk.rights.steer?;
    }
    let control = call.control();
    let list = move || control.models(folder).map_err(|why| Refusal::new(RefusalKind::Invalid, why));
    let found = blocking(list).await.map_err(|refusal| refusal.message)?;
    let mut text = format!("In {}, and built in:\n", found.folder);
    for model in &found.models {
        let remark = match model.missing.as_slice() {
            _ if model.draft_layer => ", a draft layer alone".to_owned(),
            [] => String::new(),
            missing => format!(", {} of its {} shards are missing", missing.len(), model.shards_declared),
        };
        text.push_str(&format!("- {} ({:.1} MB{remark}): {}\n", model.name, model.bytes as f64 / 1e6, model.model));
    }
    result(text, &found)
}

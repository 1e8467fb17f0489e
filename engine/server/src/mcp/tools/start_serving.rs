//! `start_serving`: the model over HTTP.

use super::{Effect, Tool, about, result};
use crate::mcp::call::Call;
use crate::mcp::control::{Serving, Start};
use rmcp::model::CallToolResult;

pub(super) const TOOL: Tool = Tool {
    name: "start_serving",
    about: || {
        about::<Start>("start_serving", "Start serving", DESCRIPTION, Effect::Adds).with_output_schema::<Serving>()
    },
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Serves the model over HTTP, for programs that speak OpenAI's or Anthropic's interface, and for browsers. It is the same model \
that run_prompt asks, loaded once. It is served until stop_serving, or until this program ends. If it is served already, the \
answer says where.";

async fn run(mut call: Call) -> Result<CallToolResult, String> {
    let how: Start = call.arguments()?;
    if how != Start::default() {
        call.desk.rights.steer?;
    }
    let serving = call.attend(|control, _| control.start(how)).await?;
    let Serving { url, already, key_needed } = &serving;
    let since = if *already { "already serves" } else { "serves" };
    let key = if *key_needed { "with a key" } else { "no key is needed" };
    result(format!("It {since} at {url} ({key}). OpenAI clients take {url}/v1, Anthropic clients {url}."), &serving)
}

//! `stop_serving`: no longer over HTTP.

use super::{Effect, Tool, about_plain, no_arguments, result};
use crate::mcp::call::Call;
use crate::mcp::control::Stopped;
use rmcp::model::CallToolResult;

pub(super) const TOOL: Tool = Tool {
    name: "stop_serving",
    about: || about_plain("stop_serving", "Stop serving", DESCRIPTION, Effect::Ends).with_output_schema::<Stopped>(),
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Stops serving over HTTP. No more requests are taken, and running answers may finish within the time that the settings give \
them. Called over HTTP, it stops the very server that the call came to.";

async fn run(mut call: Call) -> Result<CallToolResult, String> {
    no_arguments(&call)?;
    call.desk.rights.steer?;
    let wait = !call.over_http();
    let stopped = call.attend(|control, _| control.stop(wait)).await?;
    let Stopped { url, ended } = &stopped;
    let how =
        if *ended { "It is no longer served" } else { "Running answers are finished, then it is no longer served" };
    result(format!("{how} at {url}."), &stopped)
}

//! `status`: how things stand.

use super::{Effect, Tool, about_plain, no_arguments, result};
use crate::api::status::report;
use crate::mcp::call::Call;
use rmcp::model::CallToolResult;
use serde::Serialize;

pub(super) const TOOL: Tool = Tool {
    name: "status",
    about: || about_plain("status", "Status", DESCRIPTION, Effect::None),
    run: |call| Box::pin(run(call)),
};

const DESCRIPTION: &str = "\
Says how things stand: which model is loaded (or how much of it), whether and where it is served over HTTP, who waits, how \
fast the last answers were, and what is worse than it could be. Loads nothing.";

/// What `GET /v1/status` says, and where it is served.
#[derive(Serialize)]
struct Standing {
    serving: Option<String>,
    #[serde(flatten)]
    report: crate::api::status::Report,
}

async fn run(call: Call) -> Result<CallToolResult, String> {
    no_arguments(&call)?;
    let standing = Standing { serving: call.control().serving(), report: report(&call.desk.root.app()) };
    let value = serde_json::to_value(&standing).map_err(|e| format!("the status cannot be written as JSON: {e}"))?;
    // Here the text is all of it: models look for this and that in it.
    result(value.to_string(), &value)
}

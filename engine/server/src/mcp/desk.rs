//! Where calls come in, by whichever way.

use super::call::Call;
use super::control::Control;
use super::progress::Progress;
use super::{Rights, tools};
use crate::Root;
use crate::http::security::Caller;
use crate::ids::id;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use std::sync::Arc;

/// How a client reached the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    /// It started the program.
    Pipe,
    /// It found the server.
    Http,
}

/// What every call has.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) root: Root,
    pub(super) control: Arc<dyn Control>,
    pub(super) rights: Rights,
    pub(super) via: Via,
}

/// What a client is told of the program as a whole.
const INSTRUCTIONS: &str = "\
Strata runs a language model on this machine. run_prompt asks it; the first call may take as long as loading the model does. \
status says what is loaded and how it does, list_models what else there is, and load_model puts another model in its place. \
start_serving serves the model to programs that speak OpenAI's or Anthropic's interface.";

impl Desk {
    pub(super) fn new(root: Root, control: Arc<dyn Control>, rights: Rights, via: Via) -> Desk {
        Desk { root, control, rights, via }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Caller {
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let known = parts.and_then(|parts| parts.extensions.get::<Caller>());
        known.cloned().unwrap_or_else(|| Caller { client: "mcp".to_owned(), request: id("req_") })
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        let program = Implementation::new("strata", env!("CARGO_PKG_VERSION")).with_title("Strata");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(program)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::ALL.iter().map(|tool| (tool.about)()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find(name).map(|tool| (tool.about)())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::find(&request.name) else {
            let names: Vec<&str> = tools::ALL.iter().map(|tool| tool.name).collect();
            let message = format!("there is no tool {:?}; there are: {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let call = Call {
            desk: self.clone(),
            arguments: request.arguments.unwrap_or_default(),
            caller: self.caller(&context),
            progress: Progress::of(&context),
        };
        let answer = tokio::select! {
            answer = (tool.run)(call) => answer,
            // Dropping the call ends what it began. Nobody reads this.
            () = context.ct.cancelled() => Err("the call was cancelled".to_owned()),
        };
        Ok(CallToolResponse::from(answer.unwrap_or_else(|why| CallToolResult::error(vec![ContentBlock::text(why)]))))
    }
}

//! From a request to a running answer.

use super::answer::Assembler;
use crate::App;
use crate::backend::{ChatInput, Event, ModelInfo, Refusal, RefusalKind, Request, State};
use crate::blocking::blocking;
use crate::http::security::Caller;
use crate::thinking::Thinking;
use crate::tools::{Format, Tools, marked};
use serde_json::{Map, Value};
use strata_runtime::{GenerateParams, Prompt};
use tokio::sync::mpsc::UnboundedReceiver;

/// A request to any of the chat interfaces.
pub(crate) struct Ask {
    /// Messages for the template.
    pub(crate) messages: Vec<Value>,
    pub(crate) tools: Tools,
    /// What the text must be, and the name of the field that says so.
    pub(crate) format: (Format, &'static str),
    pub(crate) thinking: Thinking,
    /// Further variables of the template.
    pub(crate) extra: Map<String, Value>,
    pub(crate) params: GenerateParams,
}

/// An answer on its way.
pub(crate) struct Running {
    pub(crate) events: UnboundedReceiver<Event>,
    pub(crate) assembler: Assembler,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
    pub(crate) model: ModelInfo,
}

/// The model, if it can answer now.
pub(crate) fn model(app: &App) -> Result<ModelInfo, Refusal> {
    let not_ready = |message: String| Err(Refusal::new(RefusalKind::NotReady, message));
    match app.backend.state() {
        State::Ready => {
            let gone = || Refusal::new(RefusalKind::NotReady, "the model is not loaded yet");
            app.backend.model().ok_or_else(gone)
        }
        State::Empty => not_ready("no model is loaded".to_owned()),
        State::Loading { share } => not_ready(format!("the model is being loaded: {:.0} % are done", share * 100.0)),
        State::Stopping => not_ready("the server is stopping".to_owned()),
        State::Failed(why) => Err(Refusal::new(RefusalKind::Engine, format!("the model cannot be used: {why}"))),
    }
}

/// The prompt of a request.
pub(crate) fn render(app: &App, model: &ModelInfo, ask: &mut Ask) -> Result<Prompt, Refusal> {
    let thinking = ask.thinking.for_model(model, app.options.think);
    thinking.tell(&mut ask.extra);
    ask.thinking = thinking;
    let input = ChatInput {
        messages: std::mem::take(&mut ask.messages),
        tools: ask.tools.for_template(model),
        think: thinking.think,
        extra: std::mem::take(&mut ask.extra),
    };
    app.backend.render(&input)
}

/// Queues a request.
pub(crate) async fn start(app: &App, caller: &Caller, model: ModelInfo, ask: Ask) -> Result<Running, Refusal> {
    let (app, caller) = (app.clone(), caller.clone());
    blocking(move || queue(&app, &caller, model, ask)).await
}

fn queue(app: &App, caller: &Caller, model: ModelInfo, mut ask: Ask) -> Result<Running, Refusal> {
    let prompt = render(app, &model, &mut ask)?;
    let mut params = ask.params;
    params.think_budget = ask.thinking.budget;
    params.constraint = ask.tools.constraint(&ask.format.0, &model, "tools")?;
    if let Some(literal) = ask.tools.forbidden(&model)
        && let [token] = app.backend.tokenize(literal, true)?[..]
    {
        params.sampling.logit_bias.push((token, FORBIDDEN));
    }
    let constrained = params.constraint.is_some();
    let parser = ask.tools.callable().then(|| crate::tools::parser::Parser::new(&ask.tools, marked(&model)));
    let assembler = Assembler::new(parser);
    submit(app, caller, model, prompt, params, assembler).map_err(|mut refusal| {
        // Backends do not know what the constraint was made of.
        let blamed = refusal.param.as_deref().is_none_or(|p| p == "constraint");
        if constrained && blamed && refusal.kind == RefusalKind::Invalid {
            let field = if ask.format.0 == Format::Text { "tools" } else { ask.format.1 };
            refusal.param = Some(field.to_owned());
        }
        refusal
    })
}

/// Far below every logit, and finite.
const FORBIDDEN: f32 = -1.0e9;

/// Queues a prompt.
pub(crate) fn submit(
    app: &App,
    caller: &Caller,
    model: ModelInfo,
    prompt: Prompt,
    params: GenerateParams,
    assembler: Assembler,
) -> Result<Running, Refusal> {
    let prompt_tokens = prompt.tokens.len();
    if prompt_tokens == 0 {
        return Err(Refusal::new(RefusalKind::Invalid, "the prompt is empty"));
    }
    if prompt_tokens >= model.context {
        // The words that agents look for before they shorten a conversation.
        let message = format!(
            "prompt is too long: {prompt_tokens} tokens > {} maximum; the context holds {} and the answer needs one at least",
            model.context.saturating_sub(1),
            model.context
        );
        return Err(Refusal::new(RefusalKind::TooLong, message));
    }
    let request = Request { id: caller.request.clone(), prompt, params, client: caller.client.clone() };
    let events = app.backend.submit(request)?;
    Ok(Running { events, assembler, prompt_tokens, model })
}

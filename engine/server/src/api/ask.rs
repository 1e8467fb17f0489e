//! From a request to what the backend is asked.

use super::answer::Assembler;
use crate::App;
use crate::backend::{ChatInput, ModelInfo, Refusal, RefusalKind, Request, State};
use crate::http::security::Caller;
use crate::thinking::Thinking;
use crate::tools::{Format, Tools, marked};
use serde_json::{Map, Value};
use strata_runtime::{Constraint, GenerateParams, Prompt};

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

/// What the backend is asked, and what will take its answer apart.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) assembler: Assembler,
    /// The field to blame if the constraint is refused: backends do not know what it was made of.
    pub(crate) constrained_by: Option<&'static str>,
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

/// The prompt of a request. One that must have more than `most` tokens is refused before they are counted.
pub(crate) fn render(app: &App, model: &ModelInfo, ask: &mut Ask, most: Option<usize>) -> Result<Prompt, Refusal> {
    let thinking = ask.thinking.for_model(model, app.options.think);
    thinking.tell(&mut ask.extra);
    ask.thinking = thinking;
    let input = ChatInput {
        messages: std::mem::take(&mut ask.messages),
        tools: ask.tools.for_template(model),
        think: thinking.think,
        extra: std::mem::take(&mut ask.extra),
        most,
    };
    app.backend.render(&input)
}

/// What is to be answered, and what will take the answer apart.
///
/// # Errors
/// The prompt cannot be made or does not fit, or what the answer must be cannot be enforced.
pub(crate) fn begin(app: &App, caller: &Caller, model: &ModelInfo, mut ask: Ask) -> Result<Prepared, Refusal> {
    let prompt = render(app, model, &mut ask, Some(model.context))?;
    let mut params = ask.params;
    params.think_budget = ask.thinking.budget;
    params.constraint = ask.tools.constraint(&ask.format, model, "tools", &app.options.log)?;
    if let Some(literal) = ask.tools.forbidden(model)
        && let [token] = app.backend.tokenize(literal, true)?[..]
    {
        params.sampling.logit_bias.push((token, FORBIDDEN));
    }
    let parser = ask.tools.callable().then(|| crate::tools::parser::Parser::new(&ask.tools, marked(model)));
    let constrained_by = params.constraint.as_ref().map(|constraint| match constraint {
        Constraint::Json(_) => ask.format.1,
        Constraint::Lark(_) => "tools",
    });
    let request = request(caller, model, prompt, params)?;
    Ok(Prepared { request, assembler: Assembler::new(parser), constrained_by })
}

/// Far below every logit, and finite.
const FORBIDDEN: f32 = -1.0e9;

/// A request to the backend.
///
/// # Errors
/// The prompt is empty, or leaves no room for an answer.
pub(crate) fn request(
    caller: &Caller,
    model: &ModelInfo,
    prompt: Prompt,
    params: GenerateParams,
) -> Result<Request, Refusal> {
    match prompt.tokens.len() {
        0 => Err(Refusal::new(RefusalKind::Invalid, "the prompt is empty")),
        tokens if tokens >= model.context => Err(Refusal::too_long(tokens, model.context)),
        _ => Ok(Request { id: caller.request.clone(), prompt, params, client: caller.client.clone() }),
    }
}

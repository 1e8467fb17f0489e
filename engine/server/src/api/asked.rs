//! What requests for answers begin and end with, whatever their interface.

use super::answer::{Assembler, Whole, collect};
use super::ask::{Ask, Prepared, begin, model};
use super::fields::Fields;
use super::usage;
use crate::App;
use crate::backend::{Event, ModelInfo, Refusal, RefusalKind};
use crate::blocking::blocking;
use crate::http::body::Body;
use crate::http::errors::ApiError;
use crate::http::security::Caller;
use crate::sse::{self, Encoder};
use axum::extract::{Extension, FromRef, FromRequest, FromRequestParts, Request as HttpRequest};
use axum::response::Response;
use serde_json::{Map, Value};
use tokio::sync::mpsc::UnboundedReceiver;

/// A request for an answer, with the model that is there to give it. Whatever refuses it is counted.
pub(crate) struct Asked {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) model: ModelInfo,
    body: Map<String, Value>,
}

impl<S: Send + Sync> FromRequest<S> for Asked
where
    App: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request(request: HttpRequest, state: &S) -> Result<Self, ApiError> {
        let app = &App::from_ref(state);
        let (mut parts, body) = request.into_parts();
        let nobody = |_| Refusal::new(RefusalKind::Engine, "the server does not know who asks");
        let Extension(caller) = Extension::<Caller>::from_request_parts(&mut parts, app).await.map_err(nobody)?;
        let Body(body) =
            Body::from_request(HttpRequest::from_parts(parts, body), state).await.inspect_err(|error| {
                app.backend.refused(if error.is_clients() { RefusalKind::Invalid } else { RefusalKind::Engine });
            })?;
        let model = counted(app, model(app))?;
        Ok(Asked { app: app.clone(), caller, model, body })
    }
}

/// The same, with a refusal counted that the backend does not know of.
pub(crate) fn counted<T>(app: &App, result: Result<T, Refusal>) -> Result<T, Refusal> {
    result.inspect_err(|refusal| app.backend.refused(refusal.kind))
}

impl Asked {
    /// A request that did not come as a body of fields.
    pub(crate) fn without_body(app: App, caller: Caller) -> Result<Asked, Refusal> {
        let model = counted(&app, model(&app))?;
        Ok(Asked { app, caller, model, body: Map::new() })
    }

    /// The fields of the request.
    pub(crate) fn fields(&self) -> Fields<'_> {
        Fields::root(&self.body)
    }

    /// Takes the request apart, and says whether it asks for a stream.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Fields<'_>, &App, &ModelInfo) -> Result<T, Refusal>,
    ) -> Result<(T, bool), Refusal> {
        let fields = self.fields();
        let read = || Ok((read(&fields, &self.app, &self.model)?, fields.flag("stream")?.unwrap_or(false)));
        counted(&self.app, read())
    }

    /// Queues what was asked of a chat interface.
    pub(crate) async fn chat(self, ask: Ask) -> Result<Running, Refusal> {
        self.queue(|app, caller, model| begin(app, caller, model, ask)).await
    }

    /// Queues what `prepare` makes of it, on a thread for such work.
    pub(crate) async fn queue(
        self,
        prepare: impl FnOnce(&App, &Caller, &ModelInfo) -> Result<Prepared, Refusal> + Send + 'static,
    ) -> Result<Running, Refusal> {
        blocking(move || {
            let Asked { app, caller, model, .. } = self;
            let Prepared { request, assembler, constrained_by } = counted(&app, prepare(&app, &caller, &model))?;
            let prompt_tokens = request.prompt.tokens.len();
            let events = app.backend.submit(request).map_err(|refusal| blaming(refusal, constrained_by))?;
            Ok(Running { app, caller, model, events, assembler, prompt_tokens })
        })
        .await
    }
}

/// A refusal of the backend with the field that is to blame for a constraint.
fn blaming(mut refusal: Refusal, constrained_by: Option<&'static str>) -> Refusal {
    let nameless = refusal.param.as_deref().is_none_or(|param| param == "constraint");
    if let Some(field) = constrained_by.filter(|_| nameless && refusal.kind == RefusalKind::Invalid) {
        refusal.param = Some(field.to_owned());
        if field == "tools" {
            // What the backend says is about a grammar that nobody wrote.
            refusal.message = "calls of these tools cannot be enforced with this model".to_owned();
        }
    }
    refusal
}

/// An answer on its way.
pub(crate) struct Running {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) model: ModelInfo,
    pub(crate) events: UnboundedReceiver<Event>,
    pub(crate) assembler: Assembler,
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: usize,
}

impl Running {
    /// Answers with a stream.
    pub(crate) fn stream(self, encoder: impl Encoder) -> Response {
        sse::stream(self.events, self.assembler, encoder, sse::Pace::of(&self.app.options))
    }

    /// Waits for all of it, and tells the log what has to be told.
    ///
    /// # Errors
    /// It broke off.
    pub(crate) async fn whole(self) -> Result<Whole, Refusal> {
        let whole = collect(self.events, self.assembler).await?;
        usage::log(&self.app, &self.caller, &whole.ending, whole.items.is_empty());
        Ok(whole)
    }
}

//! Another model in the place of the one that answers.
//!
//! A request keeps to the model that it began with: its tokens mean nothing to another. So nothing is taken away from
//! requests that run; they come to their end on the old model while new ones begin on the new.

use crate::backend::{Backend, ChatInput, Event, ModelInfo, Refusal, RefusalKind, Request, State, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use strata_runtime::{Prompt, SamplingParams};
use tokio::sync::mpsc::UnboundedReceiver;

/// What holds where a request does not say. It depends on the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens of an answer; 0 is no limit but the context.
    pub max_tokens: usize,
    /// Whether the model thinks; `None` leaves it to the chat template.
    pub think: Option<bool>,
    /// The model's name while it is not loaded yet.
    pub name: String,
}

/// What answers now.
#[derive(Clone)]
pub struct Now {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// What holds where requests to it do not say.
    pub defaults: Arc<Defaults>,
}

/// A backend that passes on to another, which can be replaced. At first there is none.
pub struct Switch {
    started: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    now: Option<Now>,
    /// Those that were replaced and may have answers to finish.
    before: Vec<Weak<dyn Backend>>,
}

impl Switch {
    /// One that has nothing to pass on to yet.
    #[expect(clippy::new_without_default, reason = "it begins to count time")]
    pub fn new() -> Switch {
        Switch { started: Instant::now(), inner: Mutex::default() }
    }

    /// Has requests from now on answered by another backend. The one before is for the caller to end, once nobody but the
    /// caller holds it.
    pub fn put(&self, backend: Arc<dyn Backend>, defaults: Defaults) {
        let mut inner = self.inner();
        inner.before.retain(|before| before.strong_count() > 0);
        let old = inner.now.replace(Now { backend, defaults: Arc::new(defaults) });
        inner.before.extend(old.map(|old| Arc::downgrade(&old.backend)));
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing is half-done in it when a thread panics.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn some(&self) -> Result<Arc<dyn Backend>, Refusal> {
        let empty = || Refusal::new(RefusalKind::NotReady, "no model is loaded");
        self.now().map(|now| now.backend).ok_or_else(empty)
    }
}

impl Backend for Switch {
    fn model(&self) -> Option<ModelInfo> {
        self.now()?.backend.model()
    }

    fn state(&self) -> State {
        self.now().map_or(State::Empty, |now| now.backend.state())
    }

    fn render(&self, chat: &ChatInput) -> Result<Prompt, Refusal> {
        self.some()?.render(chat)
    }

    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        self.some()?.tokenize(text, special)
    }

    fn detokenize(&self, tokens: &[u32]) -> Result<String, Refusal> {
        self.some()?.detokenize(tokens)
    }

    fn submit(&self, request: Request) -> Result<UnboundedReceiver<Event>, Refusal> {
        self.some()?.submit(request)
    }

    fn refused(&self, kind: RefusalKind) {
        if let Ok(backend) = self.some() {
            backend.refused(kind);
        }
    }

    /// That of the backend that answers now, with the requests of all.
    fn status(&self) -> Status {
        let (now, before) = {
            let inner = self.inner();
            let before: Vec<_> = inner.before.iter().filter_map(Weak::upgrade).collect();
            (inner.now.clone(), before)
        };
        let mut status = now.map_or_else(Status::default, |now| now.backend.status());
        status.uptime = self.started.elapsed().as_secs_f64();
        for queue in before.iter().map(|before| before.status().queue) {
            status.queue.waiting += queue.waiting;
            status.queue.running += queue.running;
        }
        status
    }

    fn now(&self) -> Option<Now> {
        self.inner().now.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Script, Scripted, Step};
    use std::time::Duration;

    fn defaults(name: &str) -> Defaults {
        Defaults { sampling: SamplingParams::default(), max_tokens: 0, think: None, name: name.to_owned() }
    }

    fn request() -> Request {
        Request { id: "r".into(), prompt: vec![65].into(), params: Default::default(), client: "c".into() }
    }

    #[test]
    fn with_nothing_behind_it_nothing_is_answered() {
        let switch = Switch::new();
        assert_eq!((switch.state(), switch.model()), (State::Empty, None));
        let refused = switch.submit(request()).expect_err("nothing answers");
        assert_eq!((refused.kind, refused.message.as_str()), (RefusalKind::NotReady, "no model is loaded"));
    }

    #[tokio::test]
    async fn what_runs_comes_to_its_end_on_the_old_and_is_counted() {
        let old = Script::new([Step::Wait(Duration::from_millis(200)), Step::Text("old".into())]);
        let switch = Switch::new();
        switch.put(Arc::new(Scripted::always(old)), defaults("old"));
        let before = switch.now().expect("one answers");
        let mut running = before.backend.submit(request()).expect("it is taken");
        switch.put(Arc::new(Scripted::always(Script::text(["new"]))), defaults("new"));
        assert_eq!(switch.status().queue.running, 1);
        assert_eq!(switch.now().map(|now| now.defaults.name.clone()), Some("new".to_owned()));
        let mut texts = Vec::new();
        while let Some(event) = running.recv().await {
            if let Event::Text(text) = event {
                texts.push(text);
            }
        }
        assert_eq!(texts, ["old"]);
        drop(before);
        assert_eq!(switch.status().queue.running, 0);
    }
}

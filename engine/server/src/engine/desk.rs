//! Where requests wait, and what becomes of them when the engine ends.

use super::running::Running;
use super::{Job, Loaded, Ready, Shared, refusal};
use crate::backend::{
    Degradation, Event, KeptConversations, LayerCache, ModelInfo, Queue, Refusal, RefusalKind, Request, State, Status,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use strata_gguf::TokenKind;
use strata_runtime::Ops;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The name of the degradation that drafts come from earlier text alone.
const NO_DRAFT_LAYER: &str = "no_draft_layer";

impl<O: Ops> Shared<O> {
    /// Puts a request into the queue.
    pub(super) fn submit(&self, request: Request) -> Result<UnboundedReceiver<Event>, Refusal> {
        let ready = self.loaded()?;
        let (prompt, context) = (request.prompt.tokens.len(), ready.info.context);
        let fits = match prompt {
            0 => Err(strata_runtime::Error::EmptyPrompt),
            _ if prompt >= context => Err(strata_runtime::Error::PromptTooLong { prompt, context }),
            _ => request.params.check(&ready.engine),
        };
        fits.map_err(|e| refusal(&e))?;
        let vocab = ready.engine.model().config().vocab;
        if let Some(id) = request.prompt.tokens.iter().find(|&&id| id as usize >= vocab) {
            return Err(Refusal::param("prompt", format!("token {id} is outside the vocabulary of {vocab}")));
        }
        let (events, receiver) = unbounded_channel();
        let mut desk = self.desk();
        let left = desk.queue.remove(|job| job.events.is_closed()).len();
        let refused = match &desk.state {
            State::Ready if desk.queue.len() < self.options.queue.max(1) => None,
            State::Ready => Some(desk.queue.len()),
            state => return Err(unready(state)),
        };
        if refused.is_none() {
            let client = request.client.clone();
            desk.queue.push(&client, Job { request, events, since: Instant::now() });
        }
        drop(desk);
        let mut board = self.board();
        board.counters.cancelled += left as u64;
        if let Some(waiting) = refused {
            let message = format!("{waiting} requests wait already, and no more may; try again later");
            let wait = board.wait(waiting, self.options.parallel);
            return Err(Refusal { retry_after: Some(wait), ..Refusal::new(RefusalKind::Busy, message) });
        }
        board.counters.requests += 1;
        drop(board);
        self.bell.notify_all();
        Ok(receiver)
    }

    /// Waits for the next request; `None` when there will be none.
    pub(super) fn next(&self) -> Option<(Job, Arc<Running>)> {
        let mut desk = self.desk();
        loop {
            if desk.state != State::Ready {
                return None;
            }
            if let Some(job) = desk.queue.pop() {
                if job.events.is_closed() {
                    drop(desk);
                    self.board().counters.cancelled += 1;
                    desk = self.desk();
                    continue;
                }
                let running = Arc::new(Running::new(job.request.id.clone()));
                desk.running.push(Arc::clone(&running));
                return Some((job, running));
            }
            desk = self.bell.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An answer is over.
    pub(super) fn done(&self, running: &Arc<Running>) {
        self.desk().running.retain(|other| !Arc::ptr_eq(other, running));
        self.bell.notify_all();
    }

    /// Lets those go who do not listen any more while they wait.
    pub(super) fn sweep(&self) {
        let left = self.desk().queue.remove(|job| job.events.is_closed()).len();
        if left > 0 {
            self.board().counters.cancelled += left as u64;
        }
    }

    /// Tells who asked that nothing comes of it.
    pub(super) fn refuse(&self, job: &Job, refusal: Refusal) {
        self.board().refused(refusal.kind);
        if refusal.kind == RefusalKind::Engine {
            self.log(&format!("{}: {refusal}", job.request.id));
        }
        drop(job.events.send(Event::Failed(refusal)));
    }

    /// How much of the model is loaded.
    pub(super) fn loaded_share(&self, share: f32) {
        self.share.store(share.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
    }

    /// The model is loaded; `false` if nobody needs it any more.
    pub(super) fn ready(&self, loaded: Loaded<O>) -> bool {
        let engine = loaded.engine;
        let tokenizer = engine.tokenizer();
        let visible = |literal: &&str| {
            let kind = tokenizer.id_of(literal).and_then(|id| tokenizer.kind(id));
            kind == Some(TokenKind::Visible)
        };
        let mut marks: Vec<String> = tokenizer.literals().iter().filter(visible).map(str::to_owned).collect();
        marks.sort_unstable();
        let info = ModelInfo {
            id: loaded.id,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            context: loaded.conversations.context,
            vocab: engine.model().config().vocab,
            longest_token: tokenizer.longest_token(),
            has_template: engine.template().is_some(),
            can_think: engine.think_ids().is_some(),
            marks,
        };
        let mut degradations = loaded.degradations;
        let no_drafts = !degradations.iter().any(|d| d.name == NO_DRAFT_LAYER);
        let mut degraded = |name: &str, text: &str| {
            degradations.push(Degradation { name: name.to_owned(), count: 1, text: text.to_owned() });
        };
        if engine.template().is_none() {
            degraded("no_chat_template", "the model has no chat template that can be used: only prompts as they are");
        }
        if engine.draft_layer().is_none() && no_drafts {
            degraded(NO_DRAFT_LAYER, "there is no draft layer, so drafts come from earlier text alone");
        }
        degradations.iter().for_each(|d| self.log(&format!("warning: {}", d.text)));
        let (device, tiers, expert_cache) = (loaded.device, loaded.tiers, loaded.expert_cache);
        // It is set once, here.
        let _ = self.ready.set(Ready { engine, info, device, tiers, degradations, expert_cache });
        let mut desk = self.desk();
        if matches!(desk.state, State::Loading { .. }) {
            desk.state = State::Ready;
        }
        desk.state == State::Ready
    }

    /// Nothing can be answered any more, for this reason; who waits is told.
    pub(super) fn fail(&self, why: String) {
        let mut desk = self.desk();
        desk.state = State::Failed(why.clone());
        let waiting = desk.queue.remove(|_| true);
        desk.running.iter().for_each(|running| running.cancel.store(true, Ordering::Relaxed));
        drop(desk);
        self.log(&format!("error: {why}"));
        for job in waiting {
            self.refuse(&job, Refusal::new(RefusalKind::Engine, why.clone()));
        }
        self.bell.notify_all();
    }

    /// No more requests are taken, and who waits is told. Tells whether the model is still being loaded.
    pub(super) fn stop(&self) -> bool {
        let mut desk = self.desk();
        let loading = matches!(desk.state, State::Loading { .. });
        if !matches!(desk.state, State::Failed(_)) {
            desk.state = State::Stopping;
        }
        let waiting = desk.queue.remove(|_| true);
        drop(desk);
        for job in waiting {
            self.refuse(&job, unready(&State::Stopping));
        }
        self.bell.notify_all();
        loading
    }

    /// The threads that answer have ended.
    pub(super) fn ended(&self) {
        self.desk().ended = true;
        self.bell.notify_all();
    }

    /// What is kept of conversations now.
    pub(super) fn keep(&self, kept: KeptConversations) {
        self.desk().kept = kept;
    }

    /// What is known of the model, if it is loaded and answers.
    pub(super) fn loaded(&self) -> Result<&Ready<O>, Refusal> {
        let state = self.desk().state.clone();
        match self.ready.get() {
            Some(ready) if state == State::Ready => Ok(ready),
            _ => Err(unready(&state)),
        }
    }

    /// How things stand.
    pub(super) fn status(&self) -> Status {
        self.sweep();
        let ready = self.ready.get();
        let after = self.options.stuck_after;
        let (queue, kept, stuck) = {
            let desk = self.desk();
            let (waiting, running) = (desk.queue.len(), desk.running.len());
            let stuck: Vec<Degradation> = desk.running.iter().filter_map(|r| stuck(r, after)).collect();
            (Queue { waiting, running, limit: self.options.queue.max(1) }, desk.kept, stuck)
        };
        let (expert_cache, expert_cache_on_paper) = ready.map(layers).unwrap_or_default();
        let board = self.board();
        let from_start = ready.into_iter().flat_map(|ready| ready.degradations.iter().cloned());
        Status {
            uptime: self.started.elapsed().as_secs_f64(),
            model: ready.map(|ready| ready.info.id.clone()),
            device: ready.map(|ready| ready.device.clone()),
            tiers: ready.map(|ready| ready.tiers).unwrap_or_default(),
            queue,
            counters: board.counters.clone(),
            speeds: board.speeds(),
            drafts: board.drafts,
            conversations: kept,
            degradations: from_start.chain(board.degradations()).chain(stuck).collect(),
            rounds: board.rounds(),
            expert_cache_on_paper,
            expert_cache,
        }
    }
}

/// How each layer's expert cache does, and whether it is one on paper, which only a recording has.
fn layers<O: Ops>(ready: &Ready<O>) -> (Vec<LayerCache>, bool) {
    let there = ready.engine.model().ops().found();
    if !there.is_empty() {
        let layers = there.into_iter().enumerate();
        return (layers.map(|(layer, (lookups, hits))| LayerCache { layer, hits, lookups }).collect(), false);
    }
    let counted = ready.expert_cache.iter().flat_map(|cache| cache.layers()).enumerate();
    let layers: Vec<_> = counted.map(|(layer, n)| LayerCache { layer, hits: n.hits, lookups: n.accesses }).collect();
    let on_paper = !layers.is_empty();
    (layers, on_paper)
}

/// What there is to say of an answer that does not get on.
fn stuck(running: &Running, after: std::time::Duration) -> Option<Degradation> {
    let idle = running.idle();
    (idle > after).then(|| Degradation { name: "stuck".into(), count: 1, text: stuck_text(running) })
}

/// The same in words.
pub(super) fn stuck_text(running: &Running) -> String {
    let seconds = running.idle().as_secs_f64();
    format!("the answer to {} has made no progress for {seconds:.1} s: no round, no chunk of its prompt", running.id)
}

/// Why nothing is answered in this state.
fn unready(state: &State) -> Refusal {
    match state {
        State::Empty | State::Loading { .. } | State::Ready => {
            let wait = Some(std::time::Duration::from_secs(2));
            Refusal { retry_after: wait, ..Refusal::new(RefusalKind::NotReady, "the model is being loaded") }
        }
        State::Stopping => Refusal::new(RefusalKind::NotReady, "the server is stopping"),
        State::Failed(why) => Refusal::new(RefusalKind::Engine, why.clone()),
    }
}

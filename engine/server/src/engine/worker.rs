//! The threads that answer.
//!
//! One thread loads the model and then waits for those that answer, which borrow it. There are as many as answers may
//! be made at once. All of them share the conversations: a thread takes the one that its prompt belongs to out of the
//! others, answers, and puts it back, so a conversation is found whichever thread answers next. Only a prompt that comes
//! while its own conversation is being answered does not find it.

use super::miss::{costly, miss};
use super::running::Running;
use super::{Job, Loaded, Shared, SharedOps, refusal};
use crate::backend::{Drafts, Event, KeptConversations, Outcome, Refusal, RefusalKind, State};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strata_runtime::{Answer, Conversations, Finish, Near};

/// Loads the model and answers until there is nothing to answer any more.
pub(super) fn host<O: SharedOps>(
    shared: &Arc<Shared<O>>,
    load: impl FnOnce(&dyn Fn(f32)) -> Result<Loaded<O>, String>,
) {
    let loaded = catch_unwind(AssertUnwindSafe(|| load(&|share| shared.loaded_share(share))));
    match loaded {
        Ok(Ok(loaded)) => serve(shared, loaded),
        Ok(Err(why)) => shared.fail(why),
        Err(panic) => shared.fail(format!("loading broke off: {}", said(&*panic))),
    }
    shared.ended();
}

fn serve<O: SharedOps>(shared: &Arc<Shared<O>>, loaded: Loaded<O>) {
    let (engine, limits, speculation) = (Arc::clone(&loaded.engine), loaded.conversations, loaded.speculation);
    if !shared.ready(loaded) {
        return;
    }
    // Ready for the first answer that must be of some form, which else would wait for it. Nothing depends on its end.
    let prepared = Arc::clone(&engine);
    let builder = std::thread::Builder::new().name("constraints".into());
    // Without the thread, the first such answer does it.
    let _ = builder.spawn(move || prepared.prepare_constraints());
    let conversations = Conversations::new(&engine, limits).with_speculation(speculation);
    let worker = Worker { shared, conversations: Mutex::new(conversations) };
    std::thread::scope(|scope| {
        for n in 1..shared.options.parallel.max(1) {
            let builder = std::thread::Builder::new().name(format!("answers-{n}"));
            if let Err(e) = builder.spawn_scoped(scope, || worker.work()) {
                let text = format!("a thread could not be started ({e}), so fewer answers are made at once");
                shared.degraded("fewer_threads", text);
            }
        }
        worker.work();
    });
}

struct Worker<'a, 'e, O: SharedOps> {
    shared: &'a Arc<Shared<O>>,
    conversations: Mutex<Conversations<'e, O>>,
}

impl<'e, O: SharedOps> Worker<'_, 'e, O> {
    fn work(&self) {
        while let Some((job, running)) = self.shared.next() {
            let answered = catch_unwind(AssertUnwindSafe(|| self.answer(&job, &running)));
            if let Err(panic) = answered {
                let why = format!("the engine broke off: {}", said(&*panic));
                self.shared.refuse(&job, Refusal::new(RefusalKind::Engine, why.clone()));
                self.shared.fail(why);
            }
            self.shared.done(&running);
        }
    }

    fn conversations(&self) -> MutexGuard<'_, Conversations<'e, O>> {
        // After a panic nothing is answered any more.
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, job: &Job, running: &Running) {
        let (request, waited) = (&job.request, job.since.elapsed());
        // Who left is noticed at the next round or chunk.
        let tell = |event: Event| drop(job.events.send(event));
        tell(Event::Started { waited });
        let begun = self.conversations().begin(&request.prompt, &request.params);
        let mut turn = match begun {
            Ok(turn) => turn,
            Err(e) => return self.shared.refuse(job, refusal(&e)),
        };
        let near = turn.near();
        let mut on_event = |event: strata_runtime::Event<'_>| {
            use strata_runtime::Event as E;
            running.progress();
            if job.events.is_closed() {
                running.cancel.store(true, Ordering::Relaxed);
            }
            tell(match event {
                E::Round(pace) => return self.shared.board().round(pace),
                E::Prompt { read, of } => Event::Prompt { read, of },
                E::Thinking(text) => Event::Thinking(text.to_owned()),
                E::Text(text) => Event::Text(text.to_owned()),
                E::Mark(text) => Event::Mark(text.to_owned()),
                E::Logprob(logprob) => Event::Logprob(logprob.clone()),
            });
        };
        let answer = turn.generate(&request.prompt, &request.params, &running.cancel, &mut on_event);
        let kept = {
            let mut conversations = self.conversations();
            conversations.end(turn);
            kept(&conversations)
        };
        self.shared.keep(kept);
        match answer {
            Ok(answer) => self.finish(job, &answer, near),
            Err(e) => {
                self.shared.refuse(job, refusal(&e));
                // The weights are not there any more, for no answer.
                if matches!(e, strata_runtime::Error::File(_)) {
                    self.shared.fail(e.to_string());
                }
            }
        }
    }

    fn finish(&self, job: &Job, answer: &Answer, near: Option<Near>) {
        let cancelled = answer.finish == Finish::Cancelled;
        let drafts = drafts(answer);
        let (prompt, cached) = (&job.request.prompt, answer.timings.cached_tokens);
        let miss = miss(prompt, near, cached).filter(|_| !cancelled);
        self.shared.board().answered(answer, drafts, cancelled, job.since.elapsed());
        if let Some(why) = miss.as_ref().filter(|_| costly(prompt, near, cached)) {
            self.shared.degraded("prompt_reread", format!("{}: {why}", job.request.id));
        }
        let event = match cancelled {
            // Who left does not hear it.
            true => Event::Failed(match self.shared.desk().state.clone() {
                State::Failed(why) => Refusal::new(RefusalKind::Engine, why),
                _ => Refusal::new(RefusalKind::Cancelled, "the answer was cancelled, since the server is stopping"),
            }),
            false => Event::Done(Outcome {
                finish: answer.finish,
                stop_text: answer.stop_text.clone(),
                timings: answer.timings,
                thinking_tokens: answer.thinking_tokens,
                drafts,
                miss,
            }),
        };
        drop(job.events.send(event));
    }
}

fn kept<O: SharedOps>(conversations: &Conversations<'_, O>) -> KeptConversations {
    let stats = conversations.stats();
    KeptConversations {
        kept: conversations.len(),
        bytes: conversations.bytes() as u64,
        started: stats.started,
        resumed: stats.resumed,
        branched: stats.branched + stats.replaced,
        evicted: stats.evicted,
    }
}

fn drafts(answer: &Answer) -> Drafts {
    let s = &answer.speculation;
    Drafts {
        proposed: (s.mtp.verified + s.lookup.verified) as u64,
        accepted: (s.mtp.accepted + s.lookup.accepted) as u64,
        rounds: s.rounds as u64,
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it did not say why".to_owned())
}

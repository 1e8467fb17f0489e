//! The decode loop: rounds of drafting, verifying and committing, until the answer ends.

use crate::error::Result;
use crate::recorder::{Lap, Pass, Times, nanos, observer};
use crate::sampler::Sampler;
use crate::session::{Event, Finish, GenerateParams, Session, Writer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use strata_model::{Ops, Silent, Want};
use strata_trace::Phase;

/// An answer on its way.
pub(crate) struct Answering<'a> {
    pub(crate) params: &'a GenerateParams,
    pub(crate) writer: &'a mut Writer,
    pub(crate) on_event: &'a mut dyn FnMut(Event<'_>),
    pub(crate) cancel: &'a AtomicBool,
}

impl<O: Ops> Session<'_, O> {
    /// Writes the answer behind a prompt that was read, given the logits behind its last token.
    ///
    /// The state then holds every token but the last one, as it would after decoding token by token.
    pub(crate) fn decode(&mut self, logits: &[f32], answering: &mut Answering<'_>) -> Result<Finish> {
        let mut lap = Lap::start();
        self.speculator.prompt_is_read();
        let sampler = Sampler::new(answering.params.sampling.clone());
        let model = self.engine.model();
        let (vocab, capacity) = (model.config().vocab, self.state.capacity());
        if answering.cancel.load(Ordering::Relaxed) {
            return Ok(Finish::Cancelled);
        }
        let mut newest = sampler.pick(logits, self.speculator.text(), 0);
        if let Some(finish) = self.emit(newest, self.state.tokens().len(), answering) {
            return Ok(finish);
        }
        loop {
            if answering.cancel.load(Ordering::Relaxed) {
                return Ok(Finish::Cancelled);
            }
            let (before, answered) = (self.state.tokens().len(), answering.writer.tokens().len());
            let remaining = match answering.params.max_tokens {
                0 => capacity - before,
                most => (capacity - before).min(most - answered),
            };
            let round = self.speculator.draft(self.engine, &sampler, answered, remaining);
            let mut window = vec![newest];
            window.extend_from_slice(&round.drafts);
            model.prefetch(&self.state, &window);
            let alone = round.drafts.is_empty();
            let mut silent = Silent;
            let observer = observer(&mut self.recorder, window.len(), &mut silent);
            let output = match alone {
                true => model.forward(&mut self.state, &window, Want::Last, observer)?,
                false => model.verify(&mut self.state, &window, observer)?,
            };
            let (mut committed, mut finish) = (Vec::with_capacity(window.len()), None);
            for (row, logits) in output.logits.chunks_exact(vocab).enumerate() {
                let token = round.token(row, &sampler, logits, self.speculator.text(), answered + row);
                committed.push(token);
                finish = self.emit(token, before + row + 1, answering);
                if finish.is_some() || round.drafts.get(row) != Some(&token) {
                    break;
                }
            }
            let (keep, committing) = (committed.len(), Instant::now());
            if !alone {
                model.commit(&mut self.state, keep)?;
            }
            let commit = nanos(committing.elapsed());
            let times = Times { total: lap.next(), draft: self.speculator.take_spent(), commit };
            if let Some(recorder) = &mut self.recorder {
                let (phase, source, tokens) = (Phase::Decode, round.source(), &window[..]);
                recorder.add(&Pass { phase, source, tokens, first: before, committed: keep, head: true }, times);
            }
            self.speculator.learn(&round, &committed, times);
            self.speculator.follow(self.engine, before, &window[..keep], &output.residual, capacity);
            match (finish, committed.last()) {
                (Some(finish), _) => return Ok(finish),
                (None, Some(&last)) => newest = last,
                // A pass has a row for every token, and one at least.
                (None, None) => return Ok(Finish::Length),
            }
        }
    }

    /// Adds a token to the answer; tells whether that ends it. `read` tokens are in the state when it is chosen.
    fn emit(&mut self, token: u32, read: usize, answering: &mut Answering<'_>) -> Option<Finish> {
        let Answering { params, writer, on_event, .. } = answering;
        let stops = self.engine.stop_ids().contains(&token) && !params.ignore_stop;
        writer.push(token, stops, *on_event);
        self.speculator.commit(token);
        if stops {
            return Some(Finish::Stop);
        }
        if params.max_tokens > 0 && writer.tokens().len() >= params.max_tokens {
            return Some(Finish::Length);
        }
        (read >= self.state.capacity()).then_some(Finish::Context)
    }
}

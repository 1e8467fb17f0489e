//! The decode loop: rounds of drafting, verifying and committing, until the answer ends.

use crate::error::Result;
use crate::guide::{Guide, Part, Rule};
use crate::logprobs::TokenLogprob;
use crate::params::GenerateParams;
use crate::recorder::{Lap, Pass, Times, Unseen, nanos, observer};
use crate::sampler::Sampler;
use crate::session::{Event, Finish, Session};
use crate::speculation::Round;
use crate::writer::Writer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use strata_model::{Ops, Want};
use strata_trace::Phase;

/// An answer on its way.
pub(crate) struct Answering<'a, 'e> {
    pub(crate) params: &'a GenerateParams,
    pub(crate) guide: &'a mut Guide,
    pub(crate) writer: &'a mut Writer<'e>,
    pub(crate) on_event: &'a mut dyn FnMut(Event<'_>),
    pub(crate) cancel: &'a AtomicBool,
}

impl<'e, O: Ops> Session<'e, O> {
    /// Writes the answer behind a prompt that was read, given the logits behind its last token.
    ///
    /// The state then holds every token but the last one, as it would after decoding token by token.
    pub(crate) fn decode(&mut self, logits: &[f32], answering: &mut Answering<'_, 'e>) -> Result<Finish> {
        let mut lap = Lap::start();
        self.speculator.prompt_is_read();
        let sampler = Sampler::new(answering.params.sampling.clone());
        let model = self.engine.model();
        let (vocab, capacity) = (model.config().vocab, self.state.capacity());
        if answering.cancel.load(Ordering::Relaxed) {
            return Ok(Finish::Cancelled);
        }
        let mut newest = self.choose(&Round::default(), 0, &sampler, logits, answering)?;
        if let Some(finish) = self.emit(newest, logits, self.state.tokens().len(), answering)? {
            return Ok(finish);
        }
        loop {
            if answering.cancel.load(Ordering::Relaxed) {
                return Ok(Finish::Cancelled);
            }
            self.engine.check_files()?;
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
            let mut unseen = Unseen(Phase::Decode);
            let observer = observer(&mut self.recorder, window.len(), &mut unseen);
            let output = match alone {
                true => model.forward(&mut self.state, &window, Want::Last, observer)?,
                false => model.verify(&mut self.state, &window, observer)?,
            };
            let (mut committed, mut finish) = (Vec::with_capacity(window.len()), None);
            for (row, logits) in output.logits.chunks_exact(vocab).enumerate() {
                let token = self.choose(&round, row, &sampler, logits, answering)?;
                committed.push(token);
                finish = self.emit(token, logits, before + row + 1, answering)?;
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
            (answering.on_event)(Event::Round(times.pace(window.len(), keep)));
            match (finish, committed.last()) {
                (Some(finish), _) => return Ok(finish),
                (None, Some(&last)) => newest = last,
                // A pass has a row for every token, and one at least.
                (None, None) => return Ok(Finish::Length),
            }
        }
    }

    /// The token that a row of a window chooses, all tokens before it being chosen.
    fn choose(
        &self,
        round: &Round,
        row: usize,
        sampler: &Sampler,
        logits: &[f32],
        answering: &mut Answering<'_, 'e>,
    ) -> Result<u32> {
        let (sequence, answered) = (self.speculator.text(), answering.writer.tokens().len());
        Ok(match answering.guide.rule()? {
            Rule::Only(token) => token,
            Rule::Free => round.token(row, sampler, logits, sequence, answered),
            Rule::Among(allowed) => round.token(row, sampler, &allowed.of(logits)?, sequence, answered),
        })
    }

    /// Adds a token to the answer, chosen by these logits; tells whether that ends it. `read` tokens are in the state
    /// when it is chosen.
    fn emit(
        &mut self,
        token: u32,
        logits: &[f32],
        read: usize,
        answering: &mut Answering<'_, 'e>,
    ) -> Result<Option<Finish>> {
        let Answering { params, guide, writer, on_event, .. } = answering;
        let (engine, tokenizer) = (self.engine, self.engine.tokenizer());
        self.speculator.commit(token);
        if engine.stop_ids().contains(&token) && (!params.ignore_stop || guide.constrained()) {
            writer.end(token);
            return Ok(Some(Finish::Stop));
        }
        let seen = |bytes: &[u8]| bytes.iter().any(|b| !b.is_ascii_whitespace());
        let blank = tokenizer.is_special(token) || !tokenizer.token_bytes(token).is_some_and(seen);
        let part = guide.advance(token, blank)?;
        let said = matches!(part, Part::Said | Part::SaidAtOnce);
        let most = params.logprobs.filter(|_| said);
        let logprob = most.map(|most| TokenLogprob::new(tokenizer, logits, token, most));
        writer.push(token, part, logprob, *on_event);
        Ok(if writer.stopped() {
            Some(Finish::StopText)
        } else if guide.over() {
            Some(Finish::Stop)
        } else if params.max_tokens > 0 && writer.tokens().len() >= params.max_tokens {
            Some(Finish::Length)
        } else {
            (read >= self.state.capacity()).then_some(Finish::Context)
        })
    }
}

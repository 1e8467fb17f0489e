//! Checkpoints of a session: where they are taken, which are kept, and which one a prompt resumes from.
//!
//! Keys and values can be cut back to any token; the recurrent states of the delta-net layers cannot. A checkpoint is a
//! copy of the latter at one point of the sequence. A prompt that leaves the known path is read from the last checkpoint
//! before it does.

use crate::error::{Error, Result};
use crate::recorder::{Lap, Pass, Times, Unseen, observer};
use crate::session::{Event, Session};
use crate::side::SidePoint;
use crate::speculation::Speculator;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strata_model::{Model, Ops, Output, Snapshot, State, Want};
use strata_trace::{DraftSource, Phase};

/// A checkpoint that would cost a pass of its own is not taken so few tokens behind another.
const GAP: usize = 16;

/// The beginning of a prompt is not worth a checkpoint that stays for good unless it has so many tokens.
const PINNED_FROM: usize = 64;

/// How many checkpoints a session keeps, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointParams {
    /// Tokens of a long prompt between checkpoints; 0 takes none inside it.
    pub every: usize,
    /// Checkpoints at most; 0 keeps none.
    pub count: usize,
    /// Bytes that they may take together. The latest is kept whatever it takes.
    pub bytes: usize,
}

/// Enough for a few turns back in a long conversation: eight of the published model's take 0.94 GB.
impl Default for CheckpointParams {
    fn default() -> CheckpointParams {
        CheckpointParams { every: 16_384, count: 8, bytes: 1 << 30 }
    }
}

impl CheckpointParams {
    /// No checkpoints: right where nothing will follow the answer.
    pub fn none() -> CheckpointParams {
        CheckpointParams { every: 0, count: 0, bytes: 0 }
    }
}

/// A prompt, and where checkpoints in it are worth their price.
///
/// Marks are only hints: wherever they stand, the answer is the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Length of the beginning that other prompts will share, such as the system message; 0 = unknown. Its checkpoint is
    /// pinned: others go before it does.
    pub shared: usize,
    /// Lengths at which another continuation is likely later, such as where the last question starts.
    pub marks: Vec<usize>,
    /// Whether it is a conversation, not a text that somebody wrote by hand.
    pub chat: bool,
    /// Length of what comes before the last message of a conversation, if that is known.
    pub last: Option<usize>,
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt { tokens, ..Prompt::default() }
    }
}

impl Prompt {
    /// Refuses a prompt that is empty or leaves no room for an answer.
    pub(crate) fn must_fit(&self, context: usize) -> Result<()> {
        match self.tokens.len() {
            0 => Err(Error::EmptyPrompt),
            prompt if prompt >= context => Err(Error::PromptTooLong { prompt, context }),
            _ => Ok(()),
        }
    }

    /// The next length behind `at` where reading pauses for a checkpoint, the last one being at `last`.
    fn next_stop(&self, at: usize, last: usize) -> Option<usize> {
        let marks = self.marks.iter().copied().filter(|&m| m >= last + GAP);
        marks.chain(self.pinned()).filter(|&stop| stop > at && stop < self.tokens.len()).min()
    }

    /// Where the checkpoint that stays for good belongs.
    fn pinned(&self) -> Option<usize> {
        Some(self.shared).filter(|&s| s >= PINNED_FROM)
    }

    /// Whether a mark stands just before the end.
    fn ends_with_mark(&self) -> bool {
        let of = self.tokens.len();
        self.marks.iter().any(|&m| m < of && m + GAP > of)
    }
}

/// A point to return to.
pub(crate) struct Checkpoint<O: Ops> {
    pub(crate) snapshot: Snapshot<O>,
    pub(crate) pinned: bool,
    /// At the end of a prompt: what the model said there, so that the same prompt again needs no reading.
    pub(crate) logits: Option<Vec<f32>>,
    /// Where the draft layer was, if it had read along.
    pub(crate) side: Option<SidePoint<O>>,
}

/// The checkpoints of one sequence, shortest first, which is oldest first too.
pub(crate) struct Checkpoints<O: Ops> {
    pub(crate) params: CheckpointParams,
    pub(crate) points: Vec<Arc<Checkpoint<O>>>,
}

impl<O: Ops> Clone for Checkpoints<O> {
    fn clone(&self) -> Self {
        Checkpoints { params: self.params, points: self.points.clone() }
    }
}

/// How a session would come to a prompt.
pub(crate) enum Way<O: Ops> {
    /// All that it knows is the prompt's beginning.
    On,
    /// By a checkpoint.
    Back(Arc<Checkpoint<O>>),
    /// From nothing.
    Afresh,
}

impl<O: Ops> Checkpoints<O> {
    pub(crate) fn new(params: CheckpointParams) -> Checkpoints<O> {
        Checkpoints { params, points: Vec::new() }
    }

    /// Bytes that all of them take; what two sessions share is counted in both.
    pub(crate) fn bytes(&self, model: &Model<O>) -> usize {
        let logits = self.points.iter().filter_map(|p| p.logits.as_ref()).map(|l| 4 * l.len());
        self.points.len() * model.snapshot_bytes() + logits.sum::<usize>()
    }

    /// Bytes that they will take at most.
    pub(crate) fn most_bytes(&self, model: &Model<O>) -> usize {
        let each = checkpoint_bytes(model);
        if self.params.count == 0 { 0 } else { (self.params.count * each).min(self.params.bytes.max(each)) }
    }

    /// Tokens at the last one; 0 without any.
    fn last(&self) -> usize {
        self.points.last().map_or(0, |p| p.snapshot.len())
    }

    /// The last one that leads to a prompt of `len` tokens whose first `common` are known.
    pub(crate) fn best(&self, common: usize, len: usize) -> Option<&Arc<Checkpoint<O>>> {
        let leads = |p: &&Arc<Checkpoint<O>>| {
            let at = p.snapshot.len();
            at <= common && (at < len || at == len && p.logits.is_some())
        };
        self.points.iter().rev().find(leads)
    }

    /// Drops those that a state cut back to `len` tokens has no history for.
    fn truncate(&mut self, len: usize) {
        self.points.retain(|p| p.snapshot.len() <= len);
    }

    /// Takes a checkpoint where the state is.
    fn take(
        &mut self,
        model: &Model<O>,
        state: &State<O>,
        pinned: bool,
        logits: Option<&[f32]>,
        side: Option<SidePoint<O>>,
    ) -> Result<()> {
        let len = state.tokens().len();
        if self.params.count == 0 || len == 0 {
            return Ok(());
        }
        if let Some(last) = self.points.last_mut().filter(|p| p.snapshot.len() == len) {
            // The same point, of which more may be known now. Shared ones are left as they are.
            if let Some(point) = Arc::get_mut(last) {
                point.pinned |= pinned;
                point.logits = point.logits.take().or_else(|| logits.map(<[f32]>::to_vec));
            }
            return Ok(());
        }
        self.make_room(checkpoint_bytes(model));
        let snapshot = model.snapshot(state)?;
        self.points.push(Arc::new(Checkpoint { snapshot, pinned, logits: logits.map(<[f32]>::to_vec), side }));
        Ok(())
    }

    /// Puts others in their place, as far as the limits allow.
    pub(crate) fn replace(&mut self, points: Vec<Checkpoint<O>>, each: usize) {
        self.points.clear();
        if self.params.count == 0 {
            return;
        }
        for point in points {
            self.make_room(each);
            self.points.push(Arc::new(point));
        }
    }

    /// Drops the oldest ones, pinned ones last, until one more fits.
    fn make_room(&mut self, each: usize) {
        let fits = |n: usize| n <= self.params.count && n.saturating_mul(each) <= self.params.bytes;
        while !self.points.is_empty() && !fits(self.points.len() + 1) {
            let oldest = self.points.iter().position(|p| !p.pinned).unwrap_or(0);
            self.points.remove(oldest);
        }
    }
}

/// Bytes of one checkpoint at most, but for the one row of residual streams that a draft layer starts from: a thousandth of it.
pub(crate) fn checkpoint_bytes<O: Ops>(model: &Model<O>) -> usize {
    model.snapshot_bytes() + 4 * model.config().vocab
}

impl<O: Ops> Session<'_, O> {
    /// How many of a prompt's first tokens this session could answer from without reading them again.
    pub fn reach(&self, prompt: &[u32]) -> usize {
        self.way(prompt).0
    }

    /// How many tokens of a prompt need no reading, how many are known, and the way there.
    pub(crate) fn way(&self, prompt: &[u32]) -> (usize, usize, Way<O>) {
        let known = self.state.tokens();
        let common = known.iter().zip(prompt).take_while(|(a, b)| a == b).count();
        if common == known.len() && common < prompt.len() {
            return (common, common, Way::On);
        }
        match self.checkpoints.best(common, prompt.len()) {
            Some(point) => (point.snapshot.len(), common, Way::Back(Arc::clone(point))),
            None => (0, common, Way::Afresh),
        }
    }

    /// Takes a checkpoint where the session is.
    fn checkpoint(&mut self, pinned: bool, logits: Option<&[f32]>) -> Result<()> {
        let side = self.speculator.point(self.engine, self.state.tokens().len());
        self.checkpoints.take(self.engine.model(), &self.state, pinned, logits, side)
    }

    /// Brings the state to the longest known beginning of a prompt. Returns its length, and the logits behind it if that
    /// is the whole prompt.
    pub(crate) fn resume(&mut self, prompt: &[u32]) -> Result<(usize, Option<Vec<f32>>)> {
        let (at, common, way) = self.way(prompt);
        self.reread += common - at;
        let model = self.engine.model();
        match way {
            // What comes now may be taken back: the end of what was known is a point to return to, and costs no pass.
            Way::On => self.checkpoint(false, None)?,
            Way::Back(point) => {
                model.restore(&mut self.state, &point.snapshot)?;
                self.checkpoints.truncate(at);
                self.speculator.restore(self.engine, point.side.as_ref());
                if at == prompt.len() {
                    return Ok((at, point.logits.clone()));
                }
            }
            Way::Afresh => self.clear(),
        }
        Ok((at, None))
    }

    /// Reads the rest of a prompt and takes checkpoints on the way; `None` when it was cancelled.
    pub(crate) fn read(
        &mut self,
        prompt: &Prompt,
        cancel: &AtomicBool,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<Vec<f32>>> {
        let (model, of, every) = (self.engine.model(), prompt.tokens.len(), self.checkpoints.params.every);
        let mut lap = Lap::start();
        self.speculator.take_spent();
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.engine.check_files()?;
            let at = self.state.tokens().len();
            let stop = prompt.next_stop(at, self.checkpoints.last());
            let rest = &prompt.tokens[at..];
            let now = rest.len().min(self.chunk).min(stop.unwrap_or(of) - at);
            model.prefetch(&self.state, &rest[..rest.len().min(now + self.chunk)]);
            let want = if now == rest.len() { Want::Last } else { Want::Nothing };
            let mut unseen = Unseen(Phase::Prefill);
            let observer = observer(&mut self.recorder, now, &mut unseen);
            let Output { logits, residual } = model.forward(&mut self.state, &rest[..now], want, observer)?;
            self.speculator.read(self.engine, at, &rest[..now], &residual, self.state.capacity());
            drop(residual);
            let read = at + now;
            on_event(Event::Prompt { read, of });
            let last = self.checkpoints.last();
            if read == of {
                // Where the answer starts, unless a mark just before it serves those who come back here.
                if !(prompt.ends_with_mark() && last > 0 && last + GAP > of) {
                    self.checkpoint(false, Some(&logits))?;
                }
            } else if stop == Some(read) || every > 0 && read - last >= every {
                self.checkpoint(prompt.pinned() == Some(read), None)?;
            }
            let times = Times { total: lap.next(), draft: self.speculator.take_spent(), commit: 0 };
            if let Some(recorder) = &mut self.recorder {
                let (phase, source, tokens) = (Phase::Prefill, DraftSource::None, &rest[..now]);
                let pass = Pass { phase, source, tokens, first: at, committed: now, head: want != Want::Nothing };
                recorder.add(&pass, times);
            }
            if read == of {
                return Ok(Some(logits));
            }
        }
    }
}

impl<'e, O: Ops> Session<'e, O> {
    /// A session of its own that stands at a checkpoint of this one.
    pub(crate) fn branch(&self, point: &Checkpoint<O>) -> Result<Session<'e, O>> {
        let state = self.engine.model().branch(&self.state, &point.snapshot)?;
        let mut checkpoints = self.checkpoints.clone();
        checkpoints.truncate(point.snapshot.len());
        let speculator = Speculator::new(self.speculator.params());
        let (engine, chunk) = (self.engine, self.chunk);
        Ok(Session { engine, state, checkpoints, chunk, reread: 0, speculator, recorder: None })
    }
}

//! The draft layer: guesses the tokens that the model will choose next.
//!
//! One more layer, trained behind the model (multi-token prediction, MTP). A *cell* of it joins the model's residual
//! streams of position i with the token of position i + 1 and predicts token i + 2; fed with its own streams and its
//! own guess it goes on from there, a little less sure at each step. The model then verifies several guesses in one
//! pass, so a guess never changes an answer, only the time that it takes.
//!
//! The layer has no embedding and no head: those are the model's. It keeps keys and values of its own, in a
//! [`DraftState`] beside the model's [`State`](crate::State). A round goes like this:
//!
//! 1. the model reads a window, and [`DraftLayer::catch_up`] turns what was kept of it into cells;
//! 2. a token is chosen from the model's logits, and [`DraftLayer::draft`] guesses what follows it;
//! 3. the model reads that token and the guesses as the next window.
//!
//! Cells of guesses are never kept: those of accepted ones are made anew from the model's own streams. Attention is
//! over all cells, without the model's selection.

mod convert;
mod load;
mod pack;
mod shapes;
mod state;

pub use convert::draft_from_safetensors;
pub use pack::pack_draft;
pub use shapes::check_draft_layer;
pub use state::{DraftSnapshot, DraftState};

use crate::error::{Error, Result};
use crate::forward::{Model, Silent};
use crate::ops::Ops;
use crate::weights::{AttentionWeights, Mixer, MoeWeights};

/// How the residual streams that enter a cell are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HiddenNorm {
    /// By one mean of squares over all streams, as the built-in model was trained.
    #[default]
    Whole,
    /// By a mean of squares for each stream, like every other norm of the streams.
    PerStream,
}

/// When to stop guessing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DraftLimits {
    /// Guesses at most.
    pub most: usize,
    /// The least probability of a guess; a guess below it is dropped and ends the chain. 0 keeps all.
    pub floor: f32,
}

/// A guess.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draft {
    /// The token.
    pub token: u32,
    /// Its probability among the candidates, by the layer's logits as they are (temperature 1).
    pub probability: f32,
}

/// What a guess may be chosen from.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// Position in the sequence, from 0, that the guess would take.
    pub position: usize,
    /// A logit for each candidate.
    pub logits: &'a [f32],
    ids: Option<&'a [u32]>,
}

impl Candidates<'_> {
    /// The token of a candidate; tokens ascend with the index.
    pub fn token(&self, index: usize) -> u32 {
        match self.ids {
            None => index as u32,
            Some(ids) => ids.get(index).copied().unwrap_or_default(),
        }
    }

    /// The candidate with the largest logit, of equal ones that with the lowest token: what greedy sampling takes.
    pub fn best(&self) -> usize {
        let larger = |best: (usize, f32), (i, &l): (usize, &f32)| if l > best.1 { (i, l) } else { best };
        self.logits.iter().enumerate().fold((0, f32::NEG_INFINITY), larger).0
    }

    /// The softmax of a candidate's logit; `None` when there is no such candidate.
    fn probability(&self, index: usize) -> Option<f32> {
        let chosen = f64::from(*self.logits.get(index)?);
        let sum: f64 = self.logits.iter().map(|&l| (f64::from(l) - chosen).exp()).sum();
        Some((1.0 / sum) as f32)
    }
}

/// A part of the vocabulary, and its rows of the head.
struct Subset<O: Ops> {
    ids: Vec<u32>,
    head: O::Matrix,
}

/// A draft layer on a device.
pub struct DraftLayer<O: Ops> {
    /// Its number among the blocks of the file: that of the model's layers.
    block: usize,
    embedding_norm: O::Buf,
    hidden_norm: O::Buf,
    norm: HiddenNorm,
    from_embedding: O::Matrix,
    from_hidden: O::Matrix,
    attention_in: Mixer<O>,
    attention: AttentionWeights<O>,
    moe_in: Mixer<O>,
    moe: MoeWeights<O>,
    head_in: Mixer<O>,
    subset: Option<Subset<O>>,
}

impl<O: Ops> DraftLayer<O> {
    /// How the residual streams that enter a cell are normalised.
    pub fn hidden_norm(&self) -> HiddenNorm {
        self.norm
    }

    /// Changes how the residual streams that enter a cell are normalised, in the states made from now on.
    pub fn set_hidden_norm(&mut self, norm: HiddenNorm) {
        self.norm = norm;
    }

    /// A state before the first token, for sequences of at most `capacity` tokens.
    pub fn new_state(&self, model: &Model<O>, capacity: usize) -> DraftState<O> {
        let a = model.config().attention;
        DraftState::new(model.ops(), a.kv_heads * a.dim, capacity, self.norm)
    }

    /// Takes note of tokens that the model has read: those at the positions from `first` on, which must be where the
    /// state ends. `residual` is [`Output::residual`](crate::Output::residual) of the pass that read them,
    /// `[rows][streams][hidden]`; rows behind those of `tokens`, of guesses that were not accepted, are left out.
    ///
    /// Any division of a sequence into calls gives the same state, bit for bit, whatever was drafted in between.
    ///
    /// # Errors
    /// The state does not end at `first` or has no room, a token is outside the vocabulary, or a value is no number.
    /// The state is then as it was.
    pub fn catch_up(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        first: usize,
        tokens: &[u32],
        residual: &O::Buf,
    ) -> Result<()> {
        if first != state.len() {
            return Err(Error::State("the draft layer's state does not end where these tokens begin"));
        }
        if first + tokens.len() > state.capacity() {
            return Err(Error::ContextFull { asked: first + tokens.len(), capacity: state.capacity() });
        }
        check_tokens(model, tokens)?;
        let Some(&newest) = tokens.first() else { return Ok(()) };
        let done = self.fill_window(model, state, newest, tokens, residual);
        match done {
            Ok(()) => {
                let (ops, len) = (model.ops(), model.config().residual_len());
                let last = (tokens.len() - 1) * len;
                state.commit(tokens.len(), ops.slice(residual, last..last + len));
            }
            Err(_) => state.drop_drafts(model.ops()),
        }
        done
    }

    fn fill_window(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        newest: u32,
        tokens: &[u32],
        residual: &O::Buf,
    ) -> Result<()> {
        let (ops, len, first) = (model.ops(), model.config().residual_len(), state.len());
        // The last cell lacked its token until now, unless a draft began with the same.
        if !state.keep_first_draft(ops, newest)
            && let Some(last) = state.last.take()
        {
            let filled = self.fill(model, state, &last, &[newest], first - 1);
            state.last = Some(last);
            filled?;
        }
        match tokens.len() - 1 {
            0 => Ok(()),
            rows => self.fill(model, state, &ops.slice(residual, 0..rows * len), &tokens[1..], first),
        }
    }

    /// Guesses the tokens behind `token`, the newest of the sequence, which the model has chosen and not read yet.
    ///
    /// `choose` picks one of the candidates of each step by index; [`Candidates::best`] is the usual choice. What it
    /// picks is fed to the next step. The guesses are as many as `limits` and the state's capacity allow.
    ///
    /// # Errors
    /// The state has no token yet, `token` is outside the vocabulary, `choose` picks what is no candidate, or a value
    /// is no number. Guesses leave nothing in the state that a later call would see, errors neither.
    pub fn draft(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        token: u32,
        limits: DraftLimits,
        choose: &mut dyn FnMut(&Candidates<'_>) -> usize,
    ) -> Result<Vec<Draft>> {
        self.draft_while(model, state, token, limits, choose, &mut |_| true)
    }

    /// [`draft`](DraftLayer::draft), asking before each step but the first whether it is worth making, given the guesses
    /// so far.
    ///
    /// # Errors
    /// As [`draft`](DraftLayer::draft).
    pub fn draft_while(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        token: u32,
        limits: DraftLimits,
        choose: &mut dyn FnMut(&Candidates<'_>) -> usize,
        go_on: &mut dyn FnMut(&[Draft]) -> bool,
    ) -> Result<Vec<Draft>> {
        check_tokens(model, &[token])?;
        let ops = model.ops();
        state.drop_drafts(ops);
        let Some(last) = &state.last else {
            return Err(Error::State("there is nothing to draft from: the state has no token yet"));
        };
        if limits.most == 0 {
            return Ok(Vec::new());
        }
        let last = ops.duplicate(last);
        let drafts = self.chain(model, state, (token, last), limits, choose, go_on);
        match &drafts {
            Ok(_) => state.end_draft(ops, token),
            Err(_) => state.drop_drafts(ops),
        }
        drafts
    }

    fn chain(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        (mut token, mut residual): (u32, O::Buf),
        limits: DraftLimits,
        choose: &mut dyn FnMut(&Candidates<'_>) -> usize,
        go_on: &mut dyn FnMut(&[Draft]) -> bool,
    ) -> Result<Vec<Draft>> {
        let (ids, head, count) = match &self.subset {
            None => (None, model.head_matrix(), model.config().vocab),
            Some(s) => (Some(s.ids.as_slice()), &s.head, s.ids.len()),
        };
        let mut drafts = Vec::new();
        for position in (state.len() - 1..state.capacity()).take(limits.most) {
            if !drafts.is_empty() && !go_on(&drafts) {
                break;
            }
            residual = self.cell(model, state, &residual, token, position)?;
            let logits = model.head(&self.head_in, head, count, &residual, position).map_err(drafting)?;
            let candidates = Candidates { position: position + 2, logits: &logits, ids };
            let index = choose(&candidates);
            let probability = candidates.probability(index);
            let probability = probability.ok_or(Error::State("a draft was chosen that is no candidate"))?;
            if probability < limits.floor {
                break;
            }
            token = candidates.token(index);
            drafts.push(Draft { token, probability });
        }
        Ok(drafts)
    }

    /// Residual streams joined with the tokens that follow them: what the layer works on.
    fn join(
        &self,
        model: &Model<O>,
        norm: HiddenNorm,
        residual: &O::Buf,
        tokens: &[u32],
        first: usize,
    ) -> Result<O::Buf> {
        let (c, ops) = (model.config(), model.ops());
        let groups = match norm {
            HiddenNorm::Whole => 1,
            HiddenNorm::PerStream => c.streams,
        };
        let embedding = ops.group_norm(&model.embed(tokens), &self.embedding_norm, 1, c.eps);
        let embedding = ops.mul(&self.from_embedding, &embedding);
        // One matrix for every stream: streams are rows of it.
        let hidden = ops.group_norm(residual, &self.hidden_norm, groups, c.eps);
        let mut r = ops.mul(&self.from_hidden, &hidden);
        ops.add(&mut r, &ops.repeat(&embedding, c.hidden, c.streams));
        model.check(&r, first, String::new).map_err(drafting)?;
        Ok(r)
    }

    /// Makes cells from position `first` on, as far as later cells see them: keys and values.
    fn fill(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        residual: &O::Buf,
        tokens: &[u32],
        first: usize,
    ) -> Result<()> {
        let r = self.join(model, state.hidden_norm(), residual, tokens, first)?;
        let (x, _) = model.mix(&self.attention_in, &r);
        let w = &self.attention;
        let [k, v] = model.ops().mul_all([&w.k, &w.v], &x);
        model.keep_keys(w, k, &v, first, &mut state.keys, &mut state.values);
        Ok(())
    }

    /// Makes one cell; gives its residual streams.
    fn cell(
        &self,
        model: &Model<O>,
        state: &mut DraftState<O>,
        residual: &O::Buf,
        token: u32,
        position: usize,
    ) -> Result<O::Buf> {
        let mut r = self.join(model, state.hidden_norm(), residual, &[token], position)?;
        let (x, weights) = model.mix(&self.attention_in, &r);
        let (keys, values) = (&mut state.keys, &mut state.values);
        let y = model.attention(self.block, &self.attention, &x, position, 1, keys, values, None).map_err(drafting)?;
        model.write(&mut r, weights.as_ref(), &y, Some(&self.moe_in), position, String::new).map_err(drafting)?;
        model
            .moe(self.block, &self.moe_in, &self.moe, &mut r, Some(&self.head_in), position, &mut Silent)
            .map_err(drafting)?;
        Ok(r)
    }
}

fn check_tokens<O: Ops>(model: &Model<O>, tokens: &[u32]) -> Result<()> {
    let vocab = model.config().vocab;
    match tokens.iter().find(|&&t| t as usize >= vocab) {
        Some(&id) => Err(Error::Token { id, vocab }),
        None => Ok(()),
    }
}

/// Says of a failure inside the model's parts that the draft layer made use of them.
fn drafting(error: Error) -> Error {
    match error {
        Error::NonFinite { value, position, .. } => {
            Error::NonFinite { value, place: "the draft layer".into(), position }
        }
        error => error,
    }
}

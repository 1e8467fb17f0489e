//! States as bytes: how large they are, how they are copied, and how they are written and read again.
//!
//! # Layout
//!
//! All numbers are little endian, floats are IEEE 754 binary32 with every bit kept, and nothing is padded. Every length
//! follows from the model's dimensions and the number of tokens, so none is stored.
//!
//! A state of `n` tokens:
//!
//! 1. `n` token ids, u32;
//! 2. for each layer in order: of a delta-net layer the convolution's past inputs and the recurrent state; of an
//!    attention layer `n` rows of keys, `n` rows of values and, if it has an indexer, `n` raw keys and one key for each
//!    complete block;
//! 3. the past inputs of the n-gram module's convolution, if there is one.
//!
//! A snapshot: the two parts of each delta-net layer in order, then the n-gram module's. Its number of tokens is kept by
//! whoever stores it.

use crate::config::{LayerKind, ModelConfig};
use crate::error::{Error, Result};
use crate::forward::Model;
use crate::ops::Ops;
use crate::state::{LayerState, Snapshot, State};
use std::io::{Read, Write};

/// Values that are moved at once: 1 MiB.
const PIECE: usize = 256 * 1024;

/// Lengths of a state's parts, in values.
#[derive(Clone, Copy)]
struct Lengths {
    /// Past inputs of a delta-net layer's convolution.
    conv: usize,
    /// The recurrent state of a delta-net layer.
    state: usize,
    /// One token's keys in an attention layer; values are as long.
    kv: usize,
    /// One key of the indexer, and the tokens of a block.
    index: Option<(usize, usize)>,
    /// Past inputs of the n-gram module's convolution.
    ngram: usize,
    delta_layers: usize,
    attention_layers: usize,
}

impl Lengths {
    fn of(c: &ModelConfig) -> Lengths {
        let shape = c.delta.shape();
        let delta_layers = c.layers.iter().filter(|&&kind| kind == LayerKind::Delta).count();
        Lengths {
            conv: (c.delta.taps - 1) * shape.channels(),
            state: shape.state_len(),
            kv: c.attention.kv_heads * c.attention.dim,
            index: c.attention.indexer.map(|i| (i.dim, i.block)),
            ngram: c.ngram.as_ref().map_or(0, |n| (n.taps - 1) * n.longest * c.residual_len()),
            delta_layers,
            attention_layers: c.layers.len() - delta_layers,
        }
    }

    /// Values of what does not grow.
    fn fixed(&self) -> usize {
        self.delta_layers * (self.conv + self.state) + self.ngram
    }

    /// Values of the caches for this many tokens.
    fn cached(&self, tokens: usize) -> usize {
        let index = self.index.map_or(0, |(dim, block)| (tokens + tokens / block) * dim);
        self.attention_layers * (2 * tokens * self.kv + index)
    }
}

impl<O: Ops> Model<O> {
    /// Bytes of a snapshot, in memory and when saved.
    pub fn snapshot_bytes(&self) -> usize {
        4 * Lengths::of(self.config()).fixed()
    }

    /// Bytes of a state of so many tokens when saved, and in memory without the room that caches keep for more.
    pub fn state_bytes(&self, tokens: usize) -> usize {
        let l = Lengths::of(self.config());
        4 * (tokens + l.fixed() + l.cached(tokens))
    }

    /// Bytes of memory that a state holds now, the room that its caches keep for more included.
    pub fn held_bytes(&self, state: &State<O>) -> usize {
        let l = Lengths::of(self.config());
        let caches = state.layers.iter().map(|layer| match layer {
            LayerState::Delta { .. } => 0,
            LayerState::Attention { keys, values, index } => {
                let index =
                    index.as_ref().map_or(0, |i| self.ops().cache_bytes(&i.raw) + self.ops().cache_bytes(&i.blocks));
                self.ops().cache_bytes(keys) + self.ops().cache_bytes(values) + index
            }
        });
        let window = 4 * state.window.values(self.config());
        4 * l.fixed() + caches.sum::<usize>() + window + 4 * state.tokens.capacity() + 8 * state.stamps.capacity()
    }

    /// A state of its own that stands where a snapshot of `state` was taken. Snapshots of `state` up to there are good
    /// for both.
    ///
    /// # Errors
    /// The snapshot is of a history that the state no longer has.
    pub fn branch(&self, state: &State<O>, snapshot: &Snapshot<O>) -> Result<State<O>> {
        let len = snapshot.len;
        if len > 0 && state.stamps.get(len - 1).copied() != snapshot.stamp {
            return Err(Error::State("the snapshot is of a history that this state no longer has"));
        }
        let l = Lengths::of(self.config());
        let mut copy = self.new_state(state.capacity());
        for (from, to) in state.layers.iter().zip(&mut copy.layers) {
            if let (
                LayerState::Attention { keys, values, index },
                LayerState::Attention { keys: to_keys, values: to_values, index: to_index },
            ) = (from, to)
            {
                self.copy_rows(keys, to_keys, len, l.kv);
                self.copy_rows(values, to_values, len, l.kv);
                if let (Some(index), Some(to), Some((dim, block))) = (index, to_index, l.index) {
                    self.copy_rows(&index.raw, &mut to.raw, len, dim);
                    self.copy_rows(&index.blocks, &mut to.blocks, len / block, dim);
                }
            }
        }
        copy.tokens = state.tokens[..len].to_vec();
        copy.stamps = state.stamps[..len].to_vec();
        copy.next_stamp = state.next_stamp;
        self.restore(&mut copy, snapshot)?;
        Ok(copy)
    }

    fn copy_rows(&self, from: &O::Cache, to: &mut O::Cache, rows: usize, len: usize) {
        let step = (PIECE / len.max(1)).max(1);
        for first in (0..rows).step_by(step) {
            let values = self.ops().cached(from, first..rows.min(first + step), len);
            self.ops().append(to, &self.ops().upload(&values));
        }
    }

    /// Writes [`Model::state_bytes`] bytes of a state, as the module `park` lays them out.
    ///
    /// # Errors
    /// The state is unusable after a failed pass or has a window that is not committed, or `out` fails.
    pub fn save_state(&self, state: &State<O>, out: &mut dyn Write) -> Result<()> {
        // Spelt out so that a new part of a state is not forgotten here.
        let State { tokens, stamps: _, next_stamp: _, layers, ngram, capacity: _, broken, window: _, kept: _ } = state;
        if *broken {
            return Err(Error::State("a state left by a failed pass cannot be saved"));
        }
        state.refuse_window()?;
        let l = Lengths::of(self.config());
        for part in tokens.chunks(PIECE) {
            let bytes: Vec<u8> = part.iter().flat_map(|t| t.to_le_bytes()).collect();
            out.write_all(&bytes)?;
        }
        for layer in layers {
            match layer {
                LayerState::Delta { conv, state } => {
                    self.put(conv, out)?;
                    self.put(state, out)?;
                }
                LayerState::Attention { keys, values, index } => {
                    self.put_rows(keys, tokens.len(), l.kv, out)?;
                    self.put_rows(values, tokens.len(), l.kv, out)?;
                    if let (Some(index), Some((dim, block))) = (index, l.index) {
                        self.put_rows(&index.raw, tokens.len(), dim, out)?;
                        self.put_rows(&index.blocks, tokens.len() / block, dim, out)?;
                    }
                }
            }
        }
        ngram.iter().try_for_each(|n| self.put(n, out))
    }

    /// Reads a state of so many tokens that [`Model::save_state`] wrote, for at most `capacity` tokens.
    ///
    /// What is read is taken at its word: whoever stores states sees to it that they are whole and of this model. Memory
    /// is only taken for what has been read.
    ///
    /// # Errors
    /// There are more tokens than `capacity`, a token is outside the vocabulary, or `input` fails or ends early.
    pub fn load_state(&self, tokens: usize, capacity: usize, input: &mut dyn Read) -> Result<State<O>> {
        if tokens > capacity {
            return Err(Error::ContextFull { asked: tokens, capacity });
        }
        let l = Lengths::of(self.config());
        let mut state = self.new_state(capacity);
        pieces(tokens, PIECE, input, &mut |bytes| {
            state.tokens.extend(bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)));
        })?;
        let vocab = self.config().vocab;
        if let Some(&id) = state.tokens.iter().find(|&&t| t as usize >= vocab) {
            return Err(Error::Token { id, vocab });
        }
        for layer in &mut state.layers {
            match layer {
                LayerState::Delta { conv, state } => {
                    self.ops().assign(conv, &self.take(l.conv, input)?);
                    *state = self.take(l.state, input)?;
                }
                LayerState::Attention { keys, values, index } => {
                    self.take_rows(keys, tokens, l.kv, input)?;
                    self.take_rows(values, tokens, l.kv, input)?;
                    if let (Some(index), Some((dim, block))) = (index, l.index) {
                        self.take_rows(&mut index.raw, tokens, dim, input)?;
                        self.take_rows(&mut index.blocks, tokens / block, dim, input)?;
                    }
                }
            }
        }
        if let Some(ngram) = &mut state.ngram {
            *ngram = self.take(l.ngram, input)?;
        }
        state.stamps = (0..tokens as u64).collect();
        state.next_stamp = tokens as u64;
        Ok(state)
    }

    /// Writes [`Model::snapshot_bytes`] bytes of a snapshot.
    ///
    /// # Errors
    /// `out` fails.
    pub fn save_snapshot(&self, snapshot: &Snapshot<O>, out: &mut dyn Write) -> Result<()> {
        let Snapshot { len: _, stamp: _, delta, ngram } = snapshot;
        for (conv, state) in delta {
            self.put(conv, out)?;
            self.put(state, out)?;
        }
        ngram.iter().try_for_each(|n| self.put(n, out))
    }

    /// Reads a snapshot that [`Model::save_snapshot`] wrote when `state`, just loaded, had `len` tokens.
    ///
    /// # Errors
    /// The state has fewer tokens, or `input` fails or ends early.
    pub fn load_snapshot(&self, len: usize, state: &State<O>, input: &mut dyn Read) -> Result<Snapshot<O>> {
        if len > state.tokens.len() {
            return Err(Error::State("the snapshot is of a longer history than the state has"));
        }
        let l = Lengths::of(self.config());
        let mut delta = Vec::with_capacity(l.delta_layers);
        for _ in 0..l.delta_layers {
            delta.push((self.take(l.conv, input)?, self.take(l.state, input)?));
        }
        let ngram = self.config().ngram.as_ref().map(|_| self.take(l.ngram, input)).transpose()?;
        Ok(Snapshot { len, stamp: len.checked_sub(1).and_then(|last| state.stamps.get(last).copied()), delta, ngram })
    }

    fn put(&self, buf: &O::Buf, out: &mut dyn Write) -> Result<()> {
        put(&self.ops().download(buf), out)
    }

    fn put_rows(&self, cache: &O::Cache, rows: usize, len: usize, out: &mut dyn Write) -> Result<()> {
        let step = (PIECE / len.max(1)).max(1);
        for first in (0..rows).step_by(step) {
            put(&self.ops().cached(cache, first..rows.min(first + step), len), out)?;
        }
        Ok(())
    }

    fn take(&self, len: usize, input: &mut dyn Read) -> Result<O::Buf> {
        let mut values = Vec::new();
        pieces(len, PIECE, input, &mut |bytes| extend(&mut values, bytes))?;
        Ok(self.ops().upload(&values))
    }

    fn take_rows(&self, cache: &mut O::Cache, rows: usize, len: usize, input: &mut dyn Read) -> Result<()> {
        let step = (PIECE / len.max(1)).max(1) * len;
        let mut values = Vec::new();
        pieces(rows * len, step, input, &mut |bytes| {
            values.clear();
            extend(&mut values, bytes);
            self.ops().append(cache, &self.ops().upload(&values));
        })
    }
}

fn put(values: &[f32], out: &mut dyn Write) -> Result<()> {
    let mut bytes = [0; 16 * 1024];
    for part in values.chunks(bytes.len() / 4) {
        let (places, _) = bytes.as_chunks_mut::<4>();
        places.iter_mut().zip(part).for_each(|(place, value)| *place = value.to_le_bytes());
        out.write_all(&bytes[..4 * part.len()])?;
    }
    Ok(())
}

fn extend(values: &mut Vec<f32>, bytes: &[u8]) {
    values.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
}

/// Reads `len` values of four bytes, at most `step` at once.
fn pieces(len: usize, step: usize, input: &mut dyn Read, each: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut bytes = vec![0; 4 * step.min(len)];
    let mut left = len;
    while left > 0 {
        let now = left.min(step);
        input.read_exact(&mut bytes[..4 * now])?;
        each(&bytes[..4 * now]);
        left -= now;
    }
    Ok(())
}

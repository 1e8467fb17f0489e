//! Recorded passes over the windows of one state.

use super::link::Link;
use super::recording::{Recording, lock};
use super::residency::Residency;
use super::{CudaOps, LayerExperts, looked_up};
use crate::error::{Error, Result};
use crate::forward::{Model, Observer, Output, Silent, Want};
use crate::ops::{Ops, Routing};
use crate::state::{LayerState, State};
use crate::window::Window;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strata_cuda::{Exchange, Floats, Graph, Inbox, Outbox, STREAMED, Sizes, Slots, Turns};
use strata_policy::cache::Phase;

/// How long the host waits for kernels before it gives a round up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The recorded passes of a state, by rows and whether its rows choose among positions.
#[derive(Default)]
pub struct Programs {
    made: HashMap<(usize, bool), Program>,
    round: u32,
}

/// A recorded pass over a window of some rows.
struct Program {
    graph: Graph,
    inbox: Inbox,
    layout: Layout,
    outbox: Arc<Outbox>,
    exchange: Arc<Exchange>,
    /// The link, if there was one when the pass was recorded: its kernels bring nothing otherwise.
    link: Option<Arc<Link>>,
    /// For each check the values of a row and a place in words.
    checks: Vec<(usize, String)>,
    found: Floats,
    residual: Floats,
}

/// Where the numbers of a round are in the inbox, in words.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// The round's number, and 0.
    round: usize,
    /// All ones, twice.
    found: usize,
    first: usize,
    turns: usize,
    turns_len: usize,
    block_turns: usize,
    block_turns_len: usize,
    blocks: usize,
    embedding: usize,
    embedding_len: usize,
    ngram: usize,
    ngram_len: usize,
    end: usize,
}

impl Layout {
    fn new(model: &Model<CudaOps>, rows: usize) -> Layout {
        let c = model.config();
        let half = c.attention.n_rot / 2;
        let blocks = c.attention.indexer.map_or(0, |i| rows.div_ceil(i.block));
        let (turns_len, embedding_len) = (rows * half * 2, rows * c.hidden);
        let ngram_len = model.weights.ngram.as_ref().map_or(0, |w| {
            let per_token = model.ngram_rows(&[], &[0]).len();
            rows * per_token * w.table.in_len()
        });
        let (round, found, first, turns) = (0, 2, 4, 6);
        let block_turns = turns + turns_len;
        let embedding = (block_turns + blocks * half * 2).next_multiple_of(4);
        let ngram = (embedding + embedding_len).next_multiple_of(4);
        let end = ngram + ngram_len;
        Layout {
            round,
            found,
            first,
            turns,
            turns_len,
            block_turns,
            block_turns_len: blocks * half * 2,
            blocks,
            embedding,
            embedding_len,
            ngram,
            ngram_len,
            end,
        }
    }
}

impl Model<CudaOps> {
    /// Keeps experts on the device: `ranking` names (layer, expert) pairs, best first, of which as many are kept as fit in
    /// `bytes` bytes. Returns how many that is. Answers do not change, bit for bit.
    ///
    /// # Errors
    /// There is no room for `bytes` bytes.
    pub fn keep_experts(&self, bytes: usize, ranking: impl IntoIterator<Item = (usize, usize)>) -> Result<usize> {
        let layers: Vec<&LayerExperts> = self.weights.layers.iter().map(|layer| &layer.moe.experts).collect();
        let slot = layers.iter().map(|e| Slots::bytes_for(&e.shapes())).max().unwrap_or(0);
        let experts = layers.iter().map(|e| e.count()).max().unwrap_or(0);
        let device = self.ops().device();
        let count = (bytes / slot.max(1)).min(layers.len() * experts);
        // What was kept before goes first.
        self.ops().stop_bringing();
        *lock(&self.ops().adapting) = None;
        *lock(&self.ops().bringer) = None;
        *lock(&self.ops().residency) = None;
        let mut ranking = ranking.into_iter();
        let slots = Slots::new(device, slot, count)?;
        let mut residency = Residency::new(slots, layers.len(), experts);
        let (mut used, mut named) = (0, Vec::new());
        while used < residency.slots().count()
            && let Some((layer, expert)) = ranking.next()
        {
            named.push((layer, expert));
            if let Some(of) = layers.get(layer).filter(|of| expert < of.count()) {
                residency.slots().fill(device, used, &of.shapes(), of.source.matrices(expert));
                residency.put(layer, expert, used);
                used += 1;
            }
        }
        device.synchronize()?;
        named.extend(ranking);
        residency.rank(&named);
        *lock(&self.ops().residency) = Some(Arc::new(residency));
        Ok(used)
    }

    /// The link to the host's memory; none if experts are not there, or not page-locked, or there is no room.
    fn link(&self) -> Option<Arc<Link>> {
        let ops = self.ops();
        if let Some(link) = &*lock(&ops.link) {
            return Some(Arc::clone(link));
        }
        let device = ops.device();
        let layers = self.weights.layers.iter().map(|layer| &layer.moe.experts);
        let mut streamed: Vec<&LayerExperts> = layers.filter(|e| e.streams() && !e.is_resident()).collect();
        streamed.sort_by_key(|e| std::cmp::Reverse(Slots::bytes_for(&e.shapes())));
        let first = streamed.first()?;
        let shapes = first.shapes();
        let slots = Slots::new(device, Slots::bytes_for(&shapes), STREAMED).ok()?;
        let experts: Vec<_> = (0..first.count().min(STREAMED)).filter_map(|e| first.addresses(e)).collect();
        let took = slots.time_stream(device, &shapes, &experts).ok()?;
        let rule = *lock(&ops.rule);
        let link = Arc::new(Link::new(slots, rule, took / u32::try_from(experts.len().max(1)).unwrap_or(1)));
        *lock(&ops.link) = Some(Arc::clone(&link));
        Some(link)
    }

    /// [`Model::verify`] by a recorded pass, which is recorded if it is the first of its kind.
    pub(super) fn verify_recorded(
        &self,
        state: &mut State<CudaOps>,
        tokens: &[u32],
        observer: &mut dyn Observer,
    ) -> Result<Output<CudaOps>> {
        self.ops().stop_bringing();
        let (c, first, rows) = (self.config(), state.tokens.len(), tokens.len());
        let chooses = c.attention.indexer.is_some_and(|i| (first + rows) / i.block > i.budget);
        let mut window = std::mem::replace(&mut state.window, Window::new());
        if window.reserve(c, self.ops(), rows) {
            // Recorded passes note rows in the buffers of before.
            state.kept.made.clear();
        }
        let key = (rows, chooses);
        let ready = match state.kept.made.contains_key(&key) {
            true => Ok(()),
            false => self.record_pass(state, &mut window, tokens, chooses).map(|program| {
                state.kept.made.insert(key, program);
            }),
        };
        state.kept.round = state.kept.round.wrapping_add(1).max(1);
        let (round, output) = (state.kept.round, ready);
        let output = output.and_then(|()| match state.kept.made.get(&key) {
            Some(program) => self.run(program, &state.tokens, tokens, round, observer),
            None => Err(Error::State("a recorded pass was lost")),
        });
        if output.is_ok() {
            window.tokens.extend_from_slice(tokens);
            for layer in &mut state.layers {
                if let LayerState::Attention { keys, values, index } = layer {
                    keys.appended(rows);
                    values.appended(rows);
                    if let (Some(index), Some(i)) = (index, c.attention.indexer) {
                        index.raw.appended(rows);
                        index.blocks.appended((first + rows) / i.block - first / i.block);
                    }
                }
            }
        }
        state.window = window;
        output
    }

    /// Records a pass over `tokens`, whose values do not matter.
    fn record_pass(
        &self,
        state: &mut State<CudaOps>,
        window: &mut Window<CudaOps>,
        tokens: &[u32],
        chooses: bool,
    ) -> Result<Program> {
        let (c, ops, rows, first) = (self.config(), self.ops(), tokens.len(), state.tokens.len());
        let device = ops.device();
        let layout = Layout::new(self, rows);
        let inbox = Inbox::new(device, layout.end)?;
        let outbox = Arc::new(Outbox::new(device, rows * c.vocab)?);
        let sizes =
            Sizes { rows, used: c.experts_used, hidden: c.hidden, width: c.expert_width, layers: c.layers.len() };
        let exchange = Arc::new(Exchange::new(device, sizes, inbox.floats(layout.round, 2))?);
        let width = match c.attention.indexer {
            Some(i) => (i.budget * i.block + i.block - 1).min(state.capacity),
            None => state.capacity,
        };
        exchange.begin();
        let link = self.link();
        let mut inputs = std::collections::VecDeque::from([inbox.floats(layout.embedding, layout.embedding_len)]);
        if layout.ngram_len > 0 {
            inputs.push_back(inbox.floats(layout.ngram, layout.ngram_len));
        }
        *lock(&ops.recording) = Some(Recording {
            rows,
            position: (inbox.floats(layout.first, 1), first),
            width,
            turns: Turns::within(inbox.floats(layout.turns, layout.turns_len), rows),
            block_turns: Turns::within(inbox.floats(layout.block_turns, layout.block_turns_len), layout.blocks),
            inputs,
            found: inbox.floats(layout.found, 2),
            checks: Vec::new(),
            routed: None,
            exchange: Arc::clone(&exchange),
            link,
            outbox: Arc::clone(&outbox),
        });
        debug_assert_eq!(chooses, c.attention.indexer.is_some_and(|i| (first + rows) / i.block > i.budget));
        let recorded = device.record(|| {
            inbox.fetch(device);
            self.pass(state, tokens, Want::All, &mut Silent, Some(window))
        });
        let recording = lock(&ops.recording).take();
        // Nothing ran: the caches' rows are those of before.
        state.cut_caches(c, ops, first);
        let (graph, output) = recorded?;
        let Output { residual, .. } = output?;
        let recording = recording.ok_or(Error::State("a recording was lost"))?;
        Ok(Program {
            graph,
            inbox,
            layout,
            outbox,
            exchange,
            link: recording.link,
            checks: recording.checks,
            found: recording.found,
            residual,
        })
    }

    /// Runs a recorded pass.
    fn run(
        &self,
        program: &Program,
        before: &[u32],
        tokens: &[u32],
        round: u32,
        observer: &mut dyn Observer,
    ) -> Result<Output<CudaOps>> {
        let (c, ops, first) = (self.config(), self.ops(), before.len());
        let Program { inbox, layout, .. } = program;
        let word = |bits: u32| f32::from_bits(bits);
        inbox.write(layout.round, &[word(round), 0.0]);
        inbox.write(layout.found, &[word(u32::MAX); 2]);
        inbox.write(layout.first, &[word(u32::try_from(first).unwrap_or(u32::MAX))]);
        inbox.write(layout.turns, &Turns::values(&self.rope, first..first + tokens.len()));
        if let Some(i) = c.attention.indexer {
            let blocks = first / i.block..first / i.block + layout.blocks;
            inbox.write(layout.block_turns, &Turns::values(&self.rope, blocks.map(|b| b * i.block)));
        }
        let rows: Vec<u64> = tokens.iter().map(|&t| t.into()).collect();
        inbox.write(layout.embedding, &looked_up(&self.weights.embedding, &rows));
        if let Some(w) = &self.weights.ngram {
            inbox.write(layout.ngram, &looked_up(&w.table, &self.ngram_rows(before, tokens)));
        }
        program.graph.launch();
        // Nothing runs that would come to any layer.
        ops.failure().map_or(Ok(()), Err)?;
        let served = self.serve(program, round, observer);
        if served.is_err() {
            program.exchange.give_up(round);
        }
        ops.device().synchronize()?;
        served?;
        if let Some(site) = program.exchange.failed() {
            return Err(Error::Device(format!("the GPU waited in vain for the host (wait {site} of a round)")));
        }
        let words = program.found.download();
        if let [low, high] = words[..]
            && let Some((site, found)) = Floats::noted([low.to_bits(), high.to_bits()])
        {
            let unknown = (1, "the model".to_owned());
            let (row_len, place) = program.checks.get(site as usize).unwrap_or(&unknown);
            let position = first + found.index / row_len.max(&1);
            return Err(Error::NonFinite { value: found.value, place: place.clone(), position });
        }
        ops.boundary(Phase::Decode, observer);
        let logits = program.outbox.read(tokens.len() * c.vocab);
        ops.failure().map_or(Ok(Output { logits, residual: program.residual.duplicate() }), Err)
    }

    /// The host's part of a round: layer after layer, what the kernels ask for.
    fn serve(&self, program: &Program, round: u32, observer: &mut dyn Observer) -> Result<()> {
        let (ops, exchange, link) = (self.ops(), &program.exchange, program.link.as_deref());
        let residency = lock(&ops.residency).clone();
        ops.forget_uses();
        let mut routing = Routing { used: self.config().experts_used, ..Routing::default() };
        for (i, layer) in self.weights.layers.iter().enumerate() {
            let experts = &layer.moe.experts;
            if experts.is_resident() {
                continue;
            }
            let began = Instant::now();
            let mut spins = 0u32;
            while !exchange.published(i, round) {
                std::hint::spin_loop();
                spins = spins.wrapping_add(1);
                if spins.is_multiple_of(4096) && began.elapsed() > PATIENCE {
                    return Err(Error::Device(format!(
                        "the GPU did not come to layer {i} in {} s",
                        PATIENCE.as_secs()
                    )));
                }
            }
            exchange.routing(&mut routing.ids, &mut routing.weights);
            observer.routing(i, &routing);
            ops.used_experts(experts.layer(), &routing.ids);
            experts.serve(&ops.cpu, exchange, residency.as_deref(), link, round, &routing);
            observer.experts(i);
        }
        Ok(())
    }
}

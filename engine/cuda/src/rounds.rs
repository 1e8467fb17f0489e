//! The exchange between a recorded graph and the host: which experts the rows of a window want, where the experts are, and
//! the results of those that the host computed.

use crate::buffer::{Floats, Memory, blocks, n};
use crate::device::{Arg, Device};
use crate::error::Result;
use crate::experts::{Experts, Kinds, run_at};
use crate::mapped::Mapped;
use crate::ops::{THREADS, fits};
use crate::routing::{DeviceRouting, Telling};
use crate::slots::Slots;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Clock cycles that a kernel waits for the host, in units of 2^20: some two seconds at 2 GHz.
const PATIENCE: u32 = 4096;

/// Experts of a layer that can be streamed in a round.
pub const STREAMED: usize = 16;

/// The numbers of a round, which the host writes before it starts the round's graph, whose first kernel fetches them.
pub struct Inbox {
    host: Mapped,
    there: Arc<Memory>,
    words: usize,
}

impl Inbox {
    /// Of so many words.
    ///
    /// # Errors
    /// There is no room, on the device or for page-locked memory.
    pub fn new(device: &Device, words: usize) -> Result<Inbox> {
        Ok(Inbox { host: Mapped::new(device, words)?, there: Memory::of(device, &vec![0u32; words]), words })
    }

    /// Writes words from one on, as floats or as the bits of integers.
    pub fn write(&self, at: usize, values: &[f32]) {
        self.host.write(at, values);
    }

    /// The words as kernels see them once they are fetched.
    pub fn floats(&self, at: usize, len: usize) -> Floats {
        Floats::within(&self.there, at.min(self.words), len.min(self.words - at.min(self.words)))
    }

    /// Records that all words are fetched.
    pub fn fetch(&self, device: &Device) {
        let args = [Arg::At(self.host.address(0)), self.there.arg(), n(self.words)];
        // SAFETY: both have so many words.
        unsafe { device.launch("fetch", [blocks(self.words, 256), 1, 1], 256, &args) };
    }
}

/// Floats that a round's graph leaves for the host.
pub struct Outbox {
    host: Mapped,
    words: usize,
}

impl Outbox {
    /// Of so many floats.
    ///
    /// # Errors
    /// There is no room for page-locked memory.
    pub fn new(device: &Device, words: usize) -> Result<Outbox> {
        Ok(Outbox { host: Mapped::new(device, words)?, words })
    }

    /// Records that values are put there.
    pub fn put(&self, values: &Floats) {
        let device = values.device();
        if fits(device, "results of a round", values.len() <= self.words) {
            let args = [values.arg(), Arg::At(self.host.address(0)), n(values.len())];
            // SAFETY: there is room for the values.
            unsafe { device.launch("fetch", [blocks(values.len(), 256), 1, 1], 256, &args) };
        }
    }

    /// The first `len` of them, once the graph has run.
    pub fn read(&self, len: usize) -> Vec<f32> {
        let mut values = vec![0.0; len.min(self.words)];
        self.host.read(0, &mut values);
        values
    }
}

/// Rows, columns and counts of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the window.
    pub rows: usize,
    /// Experts per row.
    pub used: usize,
    /// Values of a row.
    pub hidden: usize,
    /// Widest expert.
    pub width: usize,
    /// Layers that exchange.
    pub layers: usize,
}

impl Sizes {
    fn pairs(&self) -> usize {
        self.rows * self.used
    }

    /// Words that a layer's kernels publish: ids, weights, inputs.
    fn published(&self) -> usize {
        2 * self.pairs() + self.rows * self.hidden
    }

    /// Words of a plan.
    fn plan(&self) -> usize {
        PlanLayout::new(self).end
    }
}

/// Where the parts of a plan begin, in words; addresses take two.
struct PlanLayout {
    starts: usize,
    tokens: usize,
    gate: usize,
    up: usize,
    down: usize,
    results: usize,
    /// The number of experts that are streamed, in two words; addresses of their gate and up projections, then of the down
    /// projections.
    streamed: usize,
    end: usize,
}

impl PlanLayout {
    fn new(sizes: &Sizes) -> PlanLayout {
        let pairs = sizes.pairs();
        let starts = 0;
        let tokens = starts + (pairs + 1).next_multiple_of(2);
        let gate = tokens + pairs.next_multiple_of(2);
        let (up, down, results) = (gate + 2 * pairs, gate + 4 * pairs, gate + 6 * pairs);
        let streamed = results + 2 * sizes.rows * (sizes.used + 1);
        PlanLayout { starts, tokens, gate, up, down, results, streamed, end: streamed + 2 + 6 * STREAMED }
    }
}

/// An expert that the GPU computes: where its three matrices are, and the pairs (row, choice) that use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Address of the gate projection.
    pub gate: u64,
    /// Address of the up projection.
    pub up: u64,
    /// Address of the down projection.
    pub down: u64,
    /// Numbers of pairs: `row * used + choice`.
    pub pairs: Vec<usize>,
}

/// What the host's and the kernels' halves of an exchange share.
///
/// One round of one layer: the kernels publish and raise the layer's first flag; the host writes a plan and raises the
/// second; the kernels compute the plan's experts while the host computes the others, writes their results and raises the
/// third; the kernels add everything up. A flag is raised by storing the round's number, which no two rounds share.
pub struct Exchange {
    sizes: Sizes,
    device: Device,
    /// Three flags per layer, then published words, plan, results.
    host: Mapped,
    plan: Arc<Memory>,
    middle_results: Arc<Memory>,
    shared_results: Arc<Memory>,
    /// A word that is zero whenever no choice is being told.
    ready: Arc<Memory>,
    /// The round's number, then the number of the wait that failed, as kernels see them.
    words: Floats,
    next_layer: AtomicU32,
}

impl Exchange {
    /// An exchange for windows of one size. `words` are two words of an inbox: the round's number, and 0.
    ///
    /// # Errors
    /// There is no room, on the device or for page-locked memory.
    pub fn new(device: &Device, sizes: Sizes, words: Floats) -> Result<Exchange> {
        let numbers = words;
        let words = 3 * sizes.layers + sizes.published() + sizes.plan() + 2 + sizes.pairs() * sizes.hidden;
        let zeros = |words: usize| Memory::of(device, &vec![0u32; words]);
        let exchange = Exchange {
            sizes,
            device: device.clone(),
            host: Mapped::new(device, words)?,
            plan: zeros(sizes.plan()),
            middle_results: zeros(sizes.pairs() * sizes.hidden),
            shared_results: zeros(sizes.rows * sizes.hidden),
            ready: zeros(1),
            words: numbers,
            next_layer: AtomicU32::new(0),
        };
        device.failure().map_or(Ok(exchange), Err)
    }

    /// The sizes it was made for.
    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn flag(&self, layer: usize, which: usize) -> usize {
        3 * layer + which
    }

    fn published_at(&self) -> usize {
        3 * self.sizes.layers
    }

    /// Even, since addresses take two words.
    fn plan_at(&self) -> usize {
        (self.published_at() + self.sizes.published()).next_multiple_of(2)
    }

    fn results_at(&self) -> usize {
        self.plan_at() + self.sizes.plan()
    }

    // The kernels' half, while a graph is recorded.

    /// Begins a recording.
    pub fn begin(&self) {
        self.next_layer.store(0, Ordering::Relaxed);
    }

    /// Records a layer's experts: `routed` as the router left it on the device, `x` the rows; `shared` puts the results of
    /// the shared expert at an address. Experts that are all `resident` need no host; others can be brought to `streams`. Returns
    /// the rows of the sum.
    pub fn layer(
        &self,
        x: &Floats,
        routed: &DeviceRouting,
        opening: &Floats,
        kinds: &Kinds,
        resident: Option<&Experts>,
        streams: Option<&Slots>,
        shared: impl FnOnce(u64),
    ) -> Floats {
        let Sizes { rows, used, hidden, .. } = self.sizes;
        let (device, pairs) = (&self.device, self.sizes.pairs());
        let layer = self.next_layer.fetch_add(1, Ordering::Relaxed) as usize;
        let mut out = Floats::new(device, rows * hidden);
        let whole = x.len() == rows * hidden && opening.len() == rows && layer < self.sizes.layers;
        if !fits(device, "exchange", whole && kinds.width <= self.sizes.width) {
            return out;
        }
        let (host, round) = (|word: usize| Arg::At(self.host.address(word)), self.words.arg());
        let error = Arg::At(self.words.address() + 4);
        let layout = PlanLayout::new(&self.sizes);
        let part = |word: usize| Arg::At(self.plan.address() + word as u64 * 4);
        let plan = [part(layout.gate), part(layout.up), part(layout.down), part(layout.starts), part(layout.tokens)];
        self.plan.arg();
        let factor = Memory::new(device, rows * (used + 1) * 4);
        let factors = Some((opening, factor.arg()));
        let finish = |out: &mut Floats| {
            let args = [part(layout.results), factor.arg(), out.arg_mut(), n(used + 1), n(hidden)];
            // SAFETY: the plan names results that exist, or none.
            unsafe {
                device.launch("combine_at", [blocks(hidden, THREADS), blocks(rows, 1), 1], THREADS as u32, &args)
            };
        };
        if let Some(resident) = resident {
            let [(gate, gate_bytes), (up, up_bytes), (down, down_bytes)] = resident.places();
            let [gates, ups, downs, starts, tokens] = plan;
            let addresses = [gate, up, down, Arg::At(gate_bytes), Arg::At(up_bytes), Arg::At(down_bytes)];
            let results = [Arg::At(self.middle_results.arg_address()), Arg::At(self.shared_results.arg_address())];
            let lists = [starts, tokens, gates, ups, downs, part(layout.results)];
            let sizes = [n(pairs), n(used), n(hidden)];
            let ((), branch) = device.aside(|| shared(self.shared_results.arg_address()));
            routed.choose(factors, None);
            let args = [&[routed.ids.arg()][..], &addresses, &lists, &results, &sizes].concat();
            let one = fits(device, "pairs of a window", pairs <= 256);
            // SAFETY: the plan has room for a group, an entry and a result for each pair, and a thread takes one.
            unsafe { device.launch("plan_resident", [one.into(), 1, 1], 256, &args) };
            run_at(x, plan, pairs, pairs, kinds, self.middle_results.arg_address());
            device.join(branch);
            finish(&mut out);
            return out;
        }
        let telling = Telling {
            inputs: x.arg(),
            hidden,
            out: host(self.published_at()),
            flag: host(self.flag(layer, 0)),
            round,
            ready: self.ready.arg(),
        };
        routed.choose(factors, Some(telling));
        // While the host decides, what needs no decision.
        shared(self.shared_results.arg_address());
        let wait = |which: usize, from: usize, to: Arg, words: usize| {
            let site = n(1 + 2 * layer + which - 1);
            let args = [host(self.flag(layer, which)), round, error, host(from), to, n(words), site, Arg::N(PATIENCE)];
            // SAFETY: both sides have so many words; the wait ends by itself.
            unsafe { device.launch("wait_for", [1, 1, 1], 256, &args) };
        };
        wait(1, self.plan_at(), self.plan.arg(), self.sizes.plan());
        if let Some(streams) = streams {
            let at = layout.streamed;
            streams.stream(device, &kinds.shapes(), [part(at + 2), part(at + 2 + 4 * STREAMED), part(at)]);
        }
        run_at(x, plan, pairs, pairs, kinds, self.middle_results.arg_address());
        wait(2, self.plan_at(), self.plan.arg(), 0);
        finish(&mut out);
        out
    }

    // The host's half, while the graph runs.

    /// Whether the kernels have published what a layer wants in this round.
    pub fn published(&self, layer: usize, round: u32) -> bool {
        self.host.words().get(self.flag(layer, 0)).is_some_and(|flag| flag.load(Ordering::Acquire) == round)
    }

    /// The experts that the rows want, and their weights, `[rows][used]`, once they are published.
    pub fn routing(&self, ids: &mut Vec<u16>, weights: &mut Vec<f32>) {
        let pairs = self.sizes.pairs();
        let words = self.host.words().iter().skip(self.published_at());
        ids.clear();
        ids.extend(words.take(pairs).map(|w| u16::try_from(w.load(Ordering::Relaxed)).unwrap_or(u16::MAX)));
        weights.clear();
        weights.resize(pairs, 0.0);
        self.host.read(self.published_at() + pairs, weights);
    }

    /// The input of a row, once it is published.
    pub fn input(&self, row: usize, x: &mut [f32]) {
        self.host.read(self.published_at() + 2 * self.sizes.pairs() + row * self.sizes.hidden, x);
    }

    /// Tells the kernels which experts they compute; the results of all other pairs will be the host's. Before that they bring
    /// the experts whose matrices lie at the addresses of `streamed`, gate, up and down, into the slots for that, in order.
    pub fn plan(&self, layer: usize, round: u32, groups: &[Group], streamed: &[[u64; 3]]) {
        let Sizes { rows, used, hidden, .. } = self.sizes;
        let (pairs, layout, at) = (self.sizes.pairs(), PlanLayout::new(&self.sizes), self.plan_at());
        let words = self.host.words();
        let put = |word: usize, value: u32| {
            if let Some(place) = words.get(at + word) {
                place.store(value, Ordering::Relaxed);
            }
        };
        let put_address = |word: usize, value: u64| {
            put(word, value as u32);
            put(word + 1, (value >> 32) as u32);
        };
        let result =
            |pair: usize, value: u64| put_address(layout.results + 2 * (pair / used * (used + 1) + pair % used), value);
        for pair in 0..pairs {
            result(pair, self.host.address(self.results_at() + pair * hidden));
        }
        for row in 0..rows {
            let at = self.shared_results.address() + (row * hidden * 4) as u64;
            put_address(layout.results + 2 * (row * (used + 1) + used), at);
        }
        let mut entry = 0;
        for (g, group) in groups.iter().enumerate().take(pairs) {
            put(layout.starts + g, entry as u32);
            put_address(layout.gate + 2 * g, group.gate);
            put_address(layout.up + 2 * g, group.up);
            put_address(layout.down + 2 * g, group.down);
            for &pair in group.pairs.iter().filter(|&&pair| pair < pairs) {
                if entry < pairs {
                    put(layout.tokens + entry, (pair / used) as u32);
                    result(pair, self.middle_results.address() + (entry * hidden * 4) as u64);
                    entry += 1;
                }
            }
        }
        let at = layout.streamed;
        put(at, streamed.len().min(STREAMED) as u32);
        for (k, &[gate, up, down]) in streamed.iter().enumerate().take(STREAMED) {
            put_address(at + 2 + 4 * k, gate);
            put_address(at + 4 + 4 * k, up);
            put_address(at + 2 + 4 * STREAMED + 2 * k, down);
        }
        // Groups that do not exist have no entries.
        (groups.len().min(pairs)..=pairs).for_each(|g| put(layout.starts + g, entry as u32));
        self.host.announce(self.flag(layer, 1), round);
    }

    /// Writes the result of a pair that the host computes.
    pub fn result(&self, pair: usize, y: &[f32]) {
        self.host.write(self.results_at() + pair * self.sizes.hidden, y);
    }

    /// Tells the kernels that the results of all pairs of the host are there.
    pub fn done(&self, layer: usize, round: u32) {
        self.host.announce(self.flag(layer, 2), round);
    }

    /// Raises all flags, so that nothing waits for a host that gives up. The round's results are worth nothing.
    pub fn give_up(&self, round: u32) {
        self.plan(0, 0, &[], &[]);
        for flag in 0..3 * self.sizes.layers {
            self.host.announce(flag, round);
        }
    }

    /// The wait that failed in the last round, if one did. Waits for the device.
    pub fn failed(&self) -> Option<u32> {
        let words = self.words.download();
        words.get(1).map(|site| site.to_bits()).filter(|&site| site != 0)
    }
}

//! The experts of a layer: all on the host, all on the device, or some on both.

use super::link::Link;
use super::recording::lock;
use super::residency::Residency;
use super::{CudaOps, ExpertPlace, prefill};
use crate::error::Result;
use crate::ops::{ExpertTensors, Routing};
use std::sync::Arc;
use std::time::Instant;
use strata_cpu::experts::{Choices, Experts, GateUp};
use strata_cpu::{Cpu, Rows};
use strata_cuda::{
    Device, DeviceRouting, Exchange, ExpertSum, Floats, Group, Kinds, Pinned, Routed, Shape, SharedExpert, Slots,
};
use strata_gguf::Tensor;

/// The experts of a layer as the file has them.
pub(super) struct Source {
    pub(super) host: Experts,
    pub(super) shapes: [Shape; 3],
}

impl Source {
    /// The bytes of an expert's gate, up and down projections, as the file has them.
    pub(super) fn matrices(&self, expert: usize) -> [&[u8]; 3] {
        let Experts { gate_up, down, hidden, width, .. } = &self.host;
        let rows = |tensor: &'_ Tensor, first: usize, rows: usize| {
            let stride = tensor.row_bytes() as usize;
            first * stride..(first + rows) * stride
        };
        let (gate, up) = match gate_up {
            GateUp::Apart(gate, up) => {
                (gate.data().get(rows(gate, expert * width, *width)), up.data().get(rows(up, expert * width, *width)))
            }
            GateUp::Fused(both) => (
                both.data().get(rows(both, 2 * expert * width, *width)),
                both.data().get(rows(both, (2 * expert + 1) * width, *width)),
            ),
        };
        let down = down.data().get(rows(down, expert * hidden, *hidden));
        [gate, up, down].map(Option::unwrap_or_default)
    }
}

/// The routed experts of one layer.
pub struct LayerExperts {
    /// Its number among the layers that have experts.
    layer: usize,
    pub(super) source: Arc<Source>,
    kinds: Kinds,
    there: Option<strata_cuda::Experts>,
    /// The tensors of the host's, page-locked: gate and up, or both as one, and down. Empty if they are not.
    pinned: Vec<Pinned>,
}

impl LayerExperts {
    pub(super) fn new(
        device: &Device,
        cpu: &Cpu,
        t: ExpertTensors,
        place: ExpertPlace,
        layer: usize,
    ) -> Result<LayerExperts> {
        let ExpertTensors { mut gate_up, mut down, scales, count, hidden, width } = t;
        let mut pinned = Vec::new();
        if place == ExpertPlace::Host {
            let copies = match &gate_up {
                GateUp::Apart(gate, up) => vec![gate, up, &down],
                GateUp::Fused(both) => vec![both, &down],
            };
            let copies = copies.into_iter().map(|tensor| resident(cpu, tensor)).collect::<Result<Vec<_>>>()?;
            // Without page-locked memory the link cannot be used; the CPU does all then.
            let locked = copies.iter().map(|tensor| Pinned::new(device, tensor)).collect::<strata_cuda::Result<_>>();
            pinned = locked.unwrap_or_default();
            match copies.as_slice() {
                [gate, up, out] => (gate_up, down) = (GateUp::Apart(gate.clone(), up.clone()), out.clone()),
                [both, out] => (gate_up, down) = (GateUp::Fused(both.clone()), out.clone()),
                _ => {}
            }
        }
        let there = match place {
            ExpertPlace::Device => {
                Some(strata_cuda::Experts::new(device, &gate_up, &down, scales, [count, hidden, width])?)
            }
            ExpertPlace::Host => None,
        };
        let (gate, up) = match &gate_up {
            GateUp::Apart(gate, up) => (gate.ty(), up.ty()),
            GateUp::Fused(both) => (both.ty(), both.ty()),
        };
        let [gate_scale, up_scale, down_scale] = scales;
        let kinds =
            Kinds { gate: (gate, gate_scale), up: (up, up_scale), down: (down.ty(), down_scale), width, hidden };
        let host = Experts { gate_up, down, scales, count, hidden, width };
        let source = Arc::new(Source { host, shapes: kinds.shapes() });
        Ok(LayerExperts { layer, source, kinds, there, pinned })
    }

    /// Number of experts.
    pub(super) fn count(&self) -> usize {
        self.source.host.count
    }

    /// Whether the device has all of them.
    pub(super) fn is_resident(&self) -> bool {
        self.there.is_some()
    }

    /// The shapes of an expert's gate, up and down projections.
    pub(super) fn shapes(&self) -> [Shape; 3] {
        self.source.shapes
    }

    /// Its number among the layers that have experts.
    pub(super) fn layer(&self) -> usize {
        self.layer
    }

    /// Whether the GPU can bring its experts over the link.
    pub(super) fn streams(&self) -> bool {
        !self.pinned.is_empty() && Slots::streams(&self.shapes())
    }

    /// Where an expert's gate, up and down projections are, as the device sees the host's memory.
    pub(super) fn addresses(&self, expert: usize) -> Option<[u64; 3]> {
        let [gate, up, down] = self.shapes().map(|shape| shape.file_bytes());
        match self.pinned.as_slice() {
            [g, u, d] => Some([g.address(expert * gate), u.address(expert * up), d.address(expert * down)]),
            [both, d] => {
                let at = expert * (gate + up);
                Some([both.address(at), both.address(at + gate), d.address(expert * down)])
            }
            _ => None,
        }
    }

    /// The weighted sum, operation by operation.
    pub(super) fn forward(&self, ops: &CudaOps, x: &Floats, routing: &Routing, shared: &SharedExpert<'_>) -> Floats {
        let routed = Routed { used: routing.used, ids: &routing.ids, weights: &routing.weights };
        if let Some(there) = &self.there {
            return there.forward(x, routed, shared);
        }
        let Some(mut sum) = ExpertSum::new(x, routed, self.kinds, self.source.host.count) else {
            return Floats::zeros(&ops.device, x.len());
        };
        ops.used_experts(self.layer, &routing.ids);
        let brings = prefill::brings(ops, routing);
        let residency = lock(&ops.residency).clone();
        let mut resident = Vec::new();
        let mut missed: Vec<usize> = Vec::new();
        for expert in sum.wanted() {
            match residency.as_ref().and_then(|r| r.addresses(self.layer, expert, &self.shapes())) {
                Some(at) => resident.push((expert, at)),
                None => missed.push(expert),
            }
        }
        if missed.is_empty() || !brings {
            sum.add(&resident);
            let pairs: Vec<usize> = missed.iter().flat_map(|&e| sum.pairs(e)).map(|&pair| pair as usize).collect();
            if !pairs.is_empty() {
                let results = self.results(&ops.cpu, x.download(), routing, &pairs);
                sum.add_results(&missed, &results);
            }
            return sum.finish(shared);
        }
        prefill::bring(ops, self, &mut sum, &resident, &missed);
        sum.finish(shared)
    }

    /// Records the weighted sum.
    pub(super) fn record(
        &self,
        exchange: &Exchange,
        x: &Floats,
        routed: &DeviceRouting,
        shared: &SharedExpert<'_>,
        streams: Option<&Slots>,
    ) -> Floats {
        shared.prepare(x);
        let streams = streams.filter(|_| self.streams());
        exchange.layer(x, routed, shared.opening, &self.kinds, self.there.as_ref(), streams, |at| shared.results(x, at))
    }

    /// The results of some pairs (row, choice) on the CPU, `[pairs][hidden]`. `x` holds all rows.
    fn results(&self, cpu: &Cpu, x: Vec<f32>, routing: &Routing, pairs: &[usize]) -> Vec<f32> {
        let mut out = vec![0.0; pairs.len() * self.source.host.hidden];
        let choices = Choices { used: routing.used, ids: &routing.ids, weights: &routing.weights };
        self.source.host.results(cpu, &Rows::from(x), choices, pairs, &mut out);
        out
    }

    /// The host's part of a layer of a round: says which experts the device has or brings, and computes the others.
    pub(super) fn serve(
        &self,
        cpu: &Cpu,
        exchange: &Exchange,
        residency: Option<&Residency>,
        link: Option<&Link>,
        round: u32,
        routing: &Routing,
    ) {
        let mut groups: Vec<Group> = Vec::new();
        // Distinct experts in order of first appearance, and the pairs that use them.
        let mut wanted: Vec<(u16, Vec<usize>)> = Vec::new();
        for (pair, &id) in routing.ids.iter().enumerate() {
            match wanted.iter_mut().find(|(other, _)| *other == id) {
                Some((_, pairs)) => pairs.push(pair),
                None => wanted.push((id, vec![pair])),
            }
        }
        let shapes = self.shapes();
        let mut missed = Vec::new();
        for (id, pairs) in wanted {
            match residency.and_then(|r| r.addresses(self.layer, id.into(), &shapes)) {
                Some([gate, up, down]) => groups.push(Group { gate, up, down, pairs }),
                None => missed.push((id, pairs)),
            }
        }
        let mut streamed = Vec::new();
        if let Some(link) = link.filter(|_| self.streams()) {
            let tokens: Vec<u32> = missed.iter().map(|(_, pairs)| pairs.len() as u32).collect();
            let to_gpu = link.split(&tokens);
            let mut turn = to_gpu.into_iter();
            missed.retain_mut(|(id, pairs)| {
                let Some(from) = self.addresses((*id).into()).filter(|_| turn.next() == Some(true)) else {
                    return true;
                };
                let [gate, up, down] = link.slots().addresses(streamed.len(), &shapes);
                groups.push(Group { gate, up, down, pairs: std::mem::take(pairs) });
                streamed.push(from);
                false
            });
        }
        let began = Instant::now();
        exchange.plan(self.layer, round, &groups, &streamed);
        if !missed.is_empty() {
            let hidden = self.source.host.hidden;
            let rows = routing.ids.len() / routing.used.max(1);
            let mut x = vec![0.0; rows * hidden];
            x.chunks_exact_mut(hidden).enumerate().for_each(|(row, x)| exchange.input(row, x));
            let pairs: Vec<usize> = missed.iter().flat_map(|(_, pairs)| pairs).copied().collect();
            let results = self.results(cpu, x, routing, &pairs);
            for (&pair, y) in pairs.iter().zip(results.chunks_exact(hidden)) {
                exchange.result(pair, y);
            }
        }
        exchange.done(self.layer, round);
        if let Some(link) = link {
            link.learn(missed.len(), began.elapsed());
        }
    }
}

/// A copy of a tensor in memory of its own, made by all threads.
fn resident(cpu: &Cpu, tensor: &Tensor) -> Result<Tensor> {
    const PIECE: usize = 4 << 20;
    Ok(tensor.resident(|to, from| {
        let pieces: Vec<(&mut [u8], &[u8])> = to.chunks_mut(PIECE).zip(from.chunks(PIECE)).collect();
        cpu.pool().each(pieces, |(to, from)| to.copy_from_slice(from));
    })?)
}

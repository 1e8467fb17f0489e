//! The experts of a layer: all on the host, all on the device, or some on both.

use super::ExpertPlace;
use super::residency::Residency;
use crate::error::Result;
use crate::ops::{ExpertTensors, Routing};
use strata_cpu::experts::{Choices, Experts, GateUp};
use strata_cpu::{Cpu, Rows};
use strata_cuda::{Device, DeviceRouting, Exchange, Floats, Group, Kinds, Routed, Shape, SharedExpert};

/// The routed experts of one layer.
pub struct LayerExperts {
    /// Its number among the layers that have experts.
    layer: usize,
    /// As the file has them.
    host: Experts,
    kinds: Kinds,
    there: Option<strata_cuda::Experts>,
}

impl LayerExperts {
    pub(super) fn new(device: &Device, t: ExpertTensors, place: ExpertPlace, layer: usize) -> Result<LayerExperts> {
        let ExpertTensors { gate_up, down, scales, count, hidden, width } = t;
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
        Ok(LayerExperts { layer, host: Experts { gate_up, down, scales, count, hidden, width }, kinds, there })
    }

    /// Number of experts.
    pub(super) fn count(&self) -> usize {
        self.host.count
    }

    /// Whether the device has all of them.
    pub(super) fn is_resident(&self) -> bool {
        self.there.is_some()
    }

    /// The shapes of an expert's gate, up and down projections.
    pub(super) fn shapes(&self) -> [Shape; 3] {
        self.kinds.shapes()
    }

    /// The bytes of an expert's gate, up and down projections, as the file has them.
    pub(super) fn matrices(&self, expert: usize) -> [&[u8]; 3] {
        let Experts { gate_up, down, hidden, width, .. } = &self.host;
        let rows = |tensor: &'_ strata_gguf::Tensor, first: usize, rows: usize| {
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

    /// The weighted sum, operation by operation.
    pub(super) fn forward(&self, cpu: &Cpu, x: &Floats, routing: &Routing, shared: &SharedExpert<'_>) -> Floats {
        let routed = Routed { used: routing.used, ids: &routing.ids, weights: &routing.weights };
        match &self.there {
            Some(there) => there.forward(x, routed, shared),
            None => {
                let rows = x.download();
                let pairs: Vec<usize> = (0..routing.ids.len()).collect();
                let results = self.results(cpu, &rows, routing, &pairs);
                strata_cuda::sum_of(x, &results, routed, shared)
            }
        }
    }

    /// Records the weighted sum.
    pub(super) fn record(
        &self,
        exchange: &Exchange,
        x: &Floats,
        routed: &DeviceRouting,
        shared: &SharedExpert<'_>,
    ) -> Floats {
        shared.prepare(x);
        exchange.layer(x, routed, shared.opening, &self.kinds, self.there.as_ref(), |at| shared.results(x, at))
    }

    /// The results of some pairs (row, choice) on the CPU, `[pairs][hidden]`. `x` holds all rows.
    fn results(&self, cpu: &Cpu, x: &[f32], routing: &Routing, pairs: &[usize]) -> Vec<f32> {
        let hidden = self.host.hidden;
        let row = |&pair: &usize| x.get(pair / routing.used * hidden..).and_then(|rest| rest.get(..hidden));
        let inputs: Vec<f32> = pairs.iter().filter_map(row).flatten().copied().collect();
        let ids: Vec<u16> = pairs.iter().filter_map(|&pair| routing.ids.get(pair)).copied().collect();
        let ones = vec![1.0; ids.len()];
        let mut out = vec![0.0; inputs.len()];
        // A sum of one term with weight 1 is the term.
        let choices = Choices { used: 1, ids: &ids, weights: &ones };
        self.host.forward(cpu, &Rows::from(inputs), choices, None, &mut out);
        out
    }

    /// The host's part of a layer of a round: says which experts the device has and computes the others.
    pub(super) fn serve(
        &self,
        cpu: &Cpu,
        exchange: &Exchange,
        residency: Option<&Residency>,
        round: u32,
        routing: &Routing,
    ) {
        let mut groups: Vec<(u16, Group)> = Vec::new();
        let (mut missed, shapes) = (Vec::new(), self.shapes());
        for (pair, &id) in routing.ids.iter().enumerate() {
            if let Some((_, group)) = groups.iter_mut().find(|(other, _)| *other == id) {
                group.pairs.push(pair);
                continue;
            }
            match residency.and_then(|r| r.addresses(self.layer, id.into(), &shapes)) {
                Some([gate, up, down]) => groups.push((id, Group { gate, up, down, pairs: vec![pair] })),
                None => missed.push(pair),
            }
        }
        let groups: Vec<Group> = groups.into_iter().map(|(_, group)| group).collect();
        exchange.plan(self.layer, round, &groups);
        if !missed.is_empty() {
            let hidden = self.host.hidden;
            let rows = routing.ids.len() / routing.used.max(1);
            let mut x = vec![0.0; rows * hidden];
            x.chunks_exact_mut(hidden).enumerate().for_each(|(row, x)| exchange.input(row, x));
            let results = self.results(cpu, &x, routing, &missed);
            for (&pair, y) in missed.iter().zip(results.chunks_exact(hidden)) {
                exchange.result(pair, y);
            }
        }
        exchange.done(self.layer, round);
    }
}

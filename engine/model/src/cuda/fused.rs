//! Several operations of a pass together, as far as there are kernels that do them at once.

use super::recording::Recording;
use super::{CudaOps, LARGEST, RECORDED};
use crate::config::ModelConfig;
use crate::ops::Ops;
use crate::weights::{DeltaWeights, Mixer};
use crate::window::DeltaNotes;
use strata_cuda::{Act, DeltaInputs, DeltaWindow, Floats, Matrix, Note};

/// [`Ops::delta_noting`].
pub(super) fn delta_window(
    w: &DeltaWeights<CudaOps>,
    c: &ModelConfig,
    projected: [Floats; 4],
    history: &Floats,
    state: &Floats,
    notes: &mut DeltaNotes<Floats>,
) -> Floats {
    let [qkv, z, beta, alpha] = projected;
    let window = DeltaWindow {
        rule: DeltaInputs { qkv, beta: &beta, alpha: &alpha, a: &w.a, dt: &w.dt },
        z: &z,
        conv: &w.conv,
        taps: c.delta.taps,
        history,
        state,
        gamma: &w.norm,
        eps: c.eps,
    };
    window.run(c.delta.shape(), &mut notes.inputs, &mut notes.updates, &w.out)
}

impl CudaOps {
    /// [`Ops::mix`].
    pub(super) fn read_streams(&self, w: &Mixer<CudaOps>, r: &Floats, c: &ModelConfig) -> (Floats, Option<Floats>) {
        let divisor = c.streams as f32;
        let n = r.group_norm(&w.norm, c.streams, c.eps);
        let (low, weights) = match &w.inject {
            Some(inject) => {
                let [low, weights] = Matrix::mul_all([(&w.down, Act::Silu), (inject, Act::Inject)], &n, divisor);
                (low, Some(weights))
            }
            None => {
                let [low] = Matrix::mul_all([(&w.down, Act::Silu)], &n, divisor);
                (low, None)
            }
        };
        let mixed = w.up.mix(&low, &n, c.streams, c.hidden);
        (mixed.unwrap_or_else(|| w.up.mul(&low).mix_streams(&n, c.streams, c.hidden)), weights)
    }

    /// [`Ops::write`].
    pub(super) fn write_streams(
        &self,
        r: &mut Floats,
        weights: Option<&Floats>,
        y: &Floats,
        next: Option<&Mixer<CudaOps>>,
        c: &ModelConfig,
        place: &dyn Fn() -> String,
    ) -> Option<(usize, &'static str)> {
        // The norm of a long window would take memory sooner than it is wanted.
        let next = next.filter(|_| y.len() <= RECORDED * c.hidden);
        let add = |r: &mut Floats, a: &Floats, note: Option<Note<'_>>| match next {
            Some(next) => r.add_to_streams_normed(a, y, c.hidden, &next.norm, c.eps, note),
            None => r.add_to_streams(a, y, c.hidden, note),
        };
        let record = |recording: &mut Recording| {
            let Some(a) = weights else { return false };
            let site = recording.site(c.residual_len(), place());
            add(r, a, Some(Note { found: &recording.found, site, largest: LARGEST }));
            true
        };
        if self.recording(record) == Some(true) {
            return None;
        }
        if let Some(a) = weights {
            add(r, a, None);
        }
        self.nonfinite(r, c.residual_len(), place)
    }
}

//! Looks at every block of every tensor for values that are not finite.

use super::{Model, Report};
use crate::facts::is_routed;
use crate::{load, output};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use strata_gguf::{Tensor, quant, show_text};

/// Bytes that one thread takes at a time, at most.
const PIECE: usize = 8 << 20;

/// A run of blocks of one tensor.
struct Piece<'a> {
    tensor: usize,
    /// The expert whose matrix it is, for tensors that hold one for each.
    expert: Option<usize>,
    data: &'a [u8],
}

/// Counts bad blocks for each tensor and expert.
pub(super) fn finite(model: &Model<'_>) -> Result<Report> {
    let tensors = model.gguf.tensors();
    let pieces: Vec<Piece<'_>> = tensors.iter().enumerate().flat_map(|(i, t)| pieces_of(i, t)).collect();
    let bar = load::byte_bar(model.facts.sizes.tensor_bytes);
    // By tensor and expert, so that the report does not depend on which thread was first.
    let found: Mutex<BTreeMap<(usize, Option<usize>), usize>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let Some(tensor) = tensors.get(piece.tensor) else { continue };
            let bad = quant::nonfinite_blocks(tensor.ty(), piece.data)
                .with_context(|| format!("cannot check tensor {}", show_text(tensor.name())))?;
            if bad > 0 {
                // A thread that panicked left whole entries behind.
                let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
                *found.entry((piece.tensor, piece.expert)).or_default() += bad;
            }
            bar.inc(piece.data.len() as u64);
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let others = handles.into_iter().map(|h| h.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread died"))));
        others.fold(own, Result::and)
    })?;
    bar.finish_and_clear();
    let found = found.into_inner().unwrap_or_else(|e| e.into_inner());
    let problems = found.iter().filter_map(|(&(tensor, expert), &n)| Some(sentence(tensors.get(tensor)?, expert, n)));
    let good = format!("{} read, all values finite", output::bytes(model.facts.sizes.tensor_bytes));
    Ok(Report { good, problems: problems.collect() })
}

fn sentence(tensor: &Tensor, expert: Option<usize>, bad: usize) -> String {
    let what = if tensor.ty().block_values() == 1 { "value" } else { "block" };
    let is = if bad == 1 { "is" } else { "are" };
    let expert = expert.map_or_else(String::new, |e| format!(", expert {e}"));
    format!(
        "tensor {}{expert}: {} {is} not finite ({})",
        show_text(tensor.name()),
        output::count(bad, what),
        tensor.ty()
    )
}

/// Cuts a tensor at experts and at whole blocks.
fn pieces_of(index: usize, tensor: &Tensor) -> impl Iterator<Item = Piece<'_>> {
    let data = tensor.data();
    let experts =
        tensor.dims().get(2).and_then(|&n| usize::try_from(n).ok()).filter(|&n| n > 0 && is_routed(tensor.name()));
    let slice = (data.len() / experts.unwrap_or(1)).max(1);
    let step = PIECE - PIECE % tensor.ty().block_bytes();
    data.chunks(slice).enumerate().flat_map(move |(i, expert_data)| {
        let expert = experts.map(|_| i);
        expert_data.chunks(step).map(move |data| Piece { tensor: index, expert, data })
    })
}

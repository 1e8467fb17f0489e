//! Packs the draft layer of a published checkpoint into a GGUF file.

use super::convert::{decoded, draft_from_safetensors, finite, source_name};
use crate::error::Result;
use strata_gguf::{GgmlType, Gguf, SafeTensors, Tensor, Writer};

/// A GGUF file of the draft layer of a checkpoint, ready to be written: `trunk_layers` as for
/// [`draft_from_safetensors`], matrices as `ty` where their rows divide into its blocks. Norms and the router stay F32.
/// Tensors are converted one piece at a time while the file is written, which fails at a value that is not finite.
///
/// # Errors
/// As [`draft_from_safetensors`], or there is no encoder for `ty`.
pub fn pack_draft(source: &SafeTensors, trunk_layers: usize, ty: GgmlType) -> Result<Writer> {
    let draft = draft_from_safetensors(source, trunk_layers)?;
    let mut writer = Writer::new();
    for (key, value) in draft.meta().iter() {
        writer.meta(key, value.clone())?;
    }
    let own = format!("blk.{trunk_layers}.nextn.");
    let (embedding, hidden) = (format!("{own}fc_embedding.weight"), format!("{own}fc_hidden.weight"));
    let joined = join(&draft, &format!("{own}eh_proj.weight"), &embedding, &hidden)?;
    for tensor in std::iter::once(&joined).chain(draft.tensors()) {
        let name = tensor.name();
        if name == embedding || name == hidden {
            continue;
        }
        let vector = tensor.dims().iter().skip(1).all(|&d| d == 1);
        let exact = vector || name.ends_with("ffn_gate_inp.weight");
        let ty = if exact || ty.row_bytes(tensor.row_len()).is_none() { tensor.ty() } else { ty };
        // Under the name that the checkpoint has for it: that is where to look when a value is wrong.
        let called = tensor.part(&source_name(name), 0, tensor.dims())?;
        writer.converted(name, &called, ty)?;
    }
    Ok(writer)
}

/// Two matrices side by side: `[a | b]` in each row.
fn join(draft: &Gguf, name: &str, a: &str, b: &str) -> Result<Tensor> {
    let (a, b) = (draft.require(a)?, draft.require(b)?);
    if a.dims() != b.dims() {
        let what = format!("{} is {:?} and {} is {:?}, expected one shape", a.name(), a.dims(), b.name(), b.dims());
        return Err(draft.invalid(what).into());
    }
    // Here, as each half has a name of its own.
    for half in [a, b] {
        finite(&source_name(half.name()), &decoded(half)?).map_err(|what| draft.invalid(what))?;
    }
    let dims = [2 * a.row_len(), a.rows()];
    if a.ty() == b.ty() {
        let rows = (0..a.rows()).flat_map(|row| [a.row(row), b.row(row)]);
        return Ok(Tensor::owned(name, &dims, a.ty(), rows.flatten().flatten().copied().collect())?);
    }
    let (left, right, len) = (decoded(a)?, decoded(b)?, a.row_len() as usize);
    let rows = left.chunks(len).zip(right.chunks(len)).flat_map(|(l, r)| l.iter().chain(r));
    Ok(Tensor::owned(name, &dims, GgmlType::F32, rows.flat_map(|v| v.to_le_bytes()).collect())?)
}

//! The model that comes with the binary.

use anyhow::Result;
use std::path::Path;
use strata_config::{Knob, Layer, Value, registry::THINK};
use strata_gguf::{Gguf, SafeTensors};

/// Bytes at an address that any tensor type may be read from.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static NANO: &Aligned<[u8]> = &Aligned(*include_bytes!("../model/nano-IQ3_S.gguf"));

static NANO_MTP: &Aligned<[u8]> = &Aligned(*include_bytes!("../model/nano-mtp.safetensors"));

/// What stands for it where a path is asked for.
pub(crate) const NAME: &str = "nano";

/// What messages call it.
const TITLE: &str = "nano (built in)";

/// Bytes of its file.
pub(crate) fn bytes() -> u64 {
    NANO.0.len() as u64
}

/// Opens the model at a path, or the built-in one when there is no path or it is [`NAME`].
pub(crate) fn open_model(path: Option<&Path>) -> Result<Gguf> {
    match path {
        // A file of that name wins.
        Some(path) if path.as_os_str() != NAME || path.exists() => Ok(Gguf::open(path)?),
        _ => Ok(Gguf::from_static(TITLE, &NANO.0)?),
    }
}

/// Opens a model to run it, as [`open_model`] does.
///
/// # Errors
/// As there, or the file is a draft layer alone.
pub(crate) fn open_to_run(path: Option<&Path>) -> Result<Gguf> {
    let gguf = open_model(path)?;
    if gguf.is_draft_layer() {
        let what = "a draft layer without a model; give it with --draft-model, and its model with --model";
        return Err(gguf.invalid(what).into());
    }
    Ok(gguf)
}

/// Whether this is the built-in model.
pub(crate) fn is_nano(gguf: &Gguf) -> bool {
    gguf.name() == TITLE
}

/// The draft layer of the built-in model; `None` for any other.
pub(crate) fn draft_layer(gguf: &Gguf) -> Result<Option<SafeTensors>> {
    Ok(match is_nano(gguf) {
        true => Some(SafeTensors::from_bytes("nano's draft layer", NANO_MTP.0.to_vec())?),
        false => None,
    })
}

/// Adds what the built-in model works best with, if `gguf` is that model.
pub(crate) fn suggest(gguf: &Gguf, layer: &mut Layer) {
    if is_nano(gguf) {
        layer.set(&THINK, Value::Bool(false));
    }
}

/// Why it works best with what [`suggest`] adds.
pub(crate) fn suggestion(knob: &Knob) -> Option<&'static str> {
    (knob.key == THINK.key)
        .then_some("the built-in nano was trained to think about sums only, so it is not asked to think")
}

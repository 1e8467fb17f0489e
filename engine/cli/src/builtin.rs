//! The model that comes with the binary.

use anyhow::Result;
use std::path::Path;
use strata_config::{Layer, Value, registry::THINK};
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

/// Opens the model at a path, or the built-in one when there is no path or it is [`NAME`].
pub(crate) fn open_model(path: Option<&Path>) -> Result<Gguf> {
    match path {
        // A file of that name wins.
        Some(path) if path.as_os_str() != NAME || path.exists() => Ok(Gguf::open(path)?),
        _ => Ok(Gguf::from_static(TITLE, &NANO.0)?),
    }
}

/// The draft layer of the built-in model; `None` for any other.
pub(crate) fn draft_layer(gguf: &Gguf) -> Result<Option<SafeTensors>> {
    Ok(match gguf.name() == TITLE {
        true => Some(SafeTensors::from_bytes("nano's draft layer", NANO_MTP.0.to_vec())?),
        false => None,
    })
}

/// Adds what the built-in model works best with, if `gguf` is that model.
pub(crate) fn suggest(gguf: &Gguf, layer: &mut Layer) {
    if gguf.name() == TITLE {
        // Trained to think about sums only: on other questions its thoughts lead it astray.
        layer.set(&THINK, Value::Bool(false));
    }
}

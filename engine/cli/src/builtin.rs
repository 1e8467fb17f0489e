//! The model that comes with the binary.

use strata_gguf::{Gguf, Result};

/// Bytes at an address that any tensor type may be read from.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static NANO: &Aligned<[u8]> = &Aligned(*include_bytes!("../model/nano-IQ3_S.gguf"));

/// The name it goes by in messages and as `--model nano`.
pub(crate) const NAME: &str = "nano";

/// Opens the built-in model.
pub(crate) fn open() -> Result<Gguf> {
    Gguf::from_static("nano (built in)", &NANO.0)
}

//! Headers written field by field, for files that no writer would make.

/// Bytes of a header in the making.
#[derive(Clone)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub(crate) fn header(tensors: u64, keys: u64) -> Raw {
        Raw(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u32(self, v: u32) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(self, v: u64) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn str(self, text: &str) -> Raw {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// An entry of the table of tensors.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Raw {
        let entry = self.str(name).u32(dims.len() as u32);
        dims.iter().fold(entry, |r, &d| r.u64(d)).u32(ty).u64(offset)
    }

    /// Pads to `alignment` and appends data.
    pub(crate) fn data(mut self, alignment: usize, len: usize) -> Vec<u8> {
        let start = self.0.len().next_multiple_of(alignment);
        self.0.resize(start, 0);
        self.0.extend(crate::pattern(len));
        self.0
    }
}

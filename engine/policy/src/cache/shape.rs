//! Which experts there are, and how large they are.

use super::error::CacheError;
use serde::{Deserialize, Serialize};

/// An expert of a layer: `layer * experts + expert`.
pub type Key = u32;

/// Keys are 32 bits wide, and lists keep some values beyond them for themselves.
const MOST_KEYS: usize = 1 << 24;

/// The routed experts of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    layers: usize,
    experts: usize,
    bytes: Vec<u64>,
}

impl Shape {
    /// A model of `layers` layers with `experts` experts each, and the bytes of one expert in each layer.
    ///
    /// # Errors
    /// There is no layer or no expert, an expert has no bytes, or there are more than 2^24 experts in all.
    pub fn new(layers: usize, experts: usize, bytes: Vec<u64>) -> Result<Shape, CacheError> {
        let keys = layers.checked_mul(experts).filter(|&keys| (1..=MOST_KEYS).contains(&keys));
        // Layers are 16 bits wide in a trace.
        if keys.is_none() || layers > usize::from(u16::MAX) || experts > usize::from(u16::MAX) + 1 {
            let found = format!("{layers} layers of {experts} experts");
            return Err(CacheError::invalid("shape", found, "at least one expert and at most 16777216"));
        }
        if bytes.len() != layers {
            let found = format!("sizes of {} layers", bytes.len());
            return Err(CacheError::invalid("shape.bytes", found, format!("one size for each of {layers} layers")));
        }
        // The sum over all experts must fit, with room to spare for sums of sums.
        if let Some(layer) = bytes.iter().position(|&b| b == 0 || b > 1 << 36) {
            let found = format!("{} bytes in layer {layer}", bytes[layer]);
            return Err(CacheError::invalid("shape.bytes", found, "1 byte to 64 GiB for an expert"));
        }
        Ok(Shape { layers, experts, bytes })
    }

    /// A model whose experts all have the same size.
    ///
    /// # Errors
    /// As [`Shape::new`].
    pub fn uniform(layers: usize, experts: usize, bytes: u64) -> Result<Shape, CacheError> {
        // A number of layers that is refused must not be allocated first.
        Shape::new(layers, experts, vec![bytes; layers.min(usize::from(u16::MAX))])
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Experts of each layer.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Experts of all layers.
    pub fn keys(&self) -> usize {
        self.layers * self.experts
    }

    /// Bytes of one expert in each layer.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Bytes of an expert.
    pub fn bytes_of(&self, key: Key) -> u64 {
        self.bytes.get(self.layer_of(key)).copied().unwrap_or(0)
    }

    /// The key of an expert.
    pub fn key(&self, layer: usize, expert: usize) -> Key {
        (layer * self.experts + expert) as Key
    }

    /// The layer of a key.
    pub fn layer_of(&self, key: Key) -> usize {
        key as usize / self.experts
    }

    /// The expert of a key within its layer.
    pub fn expert_of(&self, key: Key) -> usize {
        key as usize % self.experts
    }

    /// How many slots fit into `bytes` when each must hold any expert, the largest included.
    pub fn uniform_slots(&self, bytes: u64) -> usize {
        let largest = self.bytes.iter().copied().max().unwrap_or(1);
        usize::try_from(bytes / largest).unwrap_or(usize::MAX).min(self.keys())
    }
}

//! Block types: scalar decoders to f32, and a few encoders.

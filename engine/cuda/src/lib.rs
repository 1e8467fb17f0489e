//! The forward pass's operations on an NVIDIA GPU.
//!
//! The crate compiles everywhere and links nothing: the driver's library is looked for when [`Device::open`] is called,
//! and its absence is an error with a sentence. Kernels are CUDA C++ in `cu/`, compiled to PTX that is committed in `ptx/`
//! and embedded here; the driver translates it for the card and keeps the translation. `scripts/ptx.py` compiles them again
//! and needs no GPU.
//!
//! Every kernel keeps the numeric contract of [`strata_cpu`]: an operation has the bits that the CPU's scalar code gives.
//!
//! # How failures are told
//!
//! Kernels run after the call that starts them has returned, so most operations return nothing. What the driver refuses,
//! or a buffer of the wrong length, is kept by the device; from then on nothing is started any more, downloads are zeros,
//! and [`Device::failure`] tells the first cause. Whoever runs a pass asks for it at the end.
//!
//! # One stream
//!
//! A device has one stream, on which all its kernels and copies run in the order in which they were started. So a buffer
//! can be given back while kernels that use it are still waiting: whoever gets it next comes later on the stream. A second one
//! has branches of graphs and the experts that a [`Ring`] brings, whose memory is given back only when it has come to its end.

mod attention;
mod buffer;
mod courier;
mod device;
mod error;
mod experts;
mod graph;
mod kernels;
mod loan;
mod many;
mod mapped;
mod matrix;
mod mixers;
mod ops;
mod pack;
mod pinned;
mod pool;
mod ring;
mod rounds;
mod routing;
mod slots;
mod sum;

pub use attention::Selection;
pub use buffer::{Cache, First, Floats};
pub use courier::Courier;
pub use device::{Device, KernelStart, KernelTime};
pub use error::{Error, Result};
pub use experts::{Experts, GateUp, Kinds, Routed, SharedExpert, Weights};
pub use graph::Graph;
pub use mapped::Mapped;
pub use matrix::{Act, Matrix};
pub use mixers::{DeltaInputs, DeltaWindow, Notes};
pub use ops::{Found, Turns};
pub use pack::Shape;
pub use pinned::Pinned;
pub use ring::Ring;
pub use rounds::{Exchange, Group, Inbox, Outbox, STREAMED, Sizes};
pub use routing::{DeviceRouting, Note};
pub use slots::Slots;
pub use sum::ExpertSum;

//! CPU kernels of the forward pass.
//!
//! Plain functions over slices, written for clarity first. Activations are f32; weights are decoded block by block
//! from the types a GGUF file holds, so a quantised file computes exactly what its weights mean.
//!
//! # What every kernel promises
//!
//! *A row's result does not depend on its neighbours.* A kernel that is given several rows (the tokens of a window)
//! performs for each row the same floating-point operations in the same order as for that row alone, and a
//! result element is computed by one thread from start to end. So windows, chunks and thread counts never change a
//! bit. The order of additions inside a dot product is fixed in [`dot`].

pub mod attention;
pub mod conv;
pub mod delta;
pub mod elementwise;
pub mod experts;
pub mod matrix;
pub mod norm;
pub mod pool;
pub mod rope;
pub mod router;

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod cpu;
mod dot;
mod isa;
pub mod math;
mod product;
mod rows;
mod units;

pub use activations::{Activations, Block};
pub use cpu::Cpu;
pub use dot::dot;
pub use isa::{ISA_NAMES, Isa};
pub use matrix::Matrix;
pub use pool::Pool;
pub use rows::Rows;

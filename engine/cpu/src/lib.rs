//! CPU kernels of the forward pass, and the numeric contract that every device keeps.
//!
//! A result does not depend on the instruction set, on the number of threads, on the tokens that were computed in the
//! same window, or on the device. That is possible because each operation has one written order, built from operations
//! that IEEE 754 rounds exactly: addition, multiplication, division, square root, fused multiply-add, and integers. This
//! page is that order. The scalar code is its definition, the tests compare every other implementation with it bit for
//! bit.
//!
//! # Rules
//!
//! - *Rows, not sums, are shared out.* A row of outputs is computed by one thread from start to end, and a token's row
//!   gets the operations it would get alone.
//! - *Partial sums are fixed.* Where a sum is long it is kept as a constant number of partial sums, which are joined by
//!   halving: the upper half is added to the lower until one is left.
//! - *Fusing is written, never left to a compiler.* `a * b + c` is two roundings, `a.mul_add(b, c)` is one.
//! - *Not a number stays not a number.* Nothing hides a NaN or an infinity.
//!
//! # Operations
//!
//! | operation | order |
//! |---|---|
//! | product with float weights (F32, F16, BF16) | element i meets partial sum i mod 32 by fused multiply-add, in order; then the tensor's factor |
//! | quantising activations | see [`Activations`]: blocks of 256 values beside 256-value weight blocks, else of 32; scale `max / 127`, nearest integer, ties to even |
//! | product with integer weights | a row of weights is a sequence of units (256 values, or 32; 16 for NVFP4); a unit's sum of scale × level × activation is an exact integer P, its sum of minimum × activation an exact integer M; unit u changes partial sum u mod 8 by `fma(d * a, P, sum)` and, in types with minimums, by `fma(d_min * a, -M, sum)`, where `a` is the activations' scale; then the tensor's factor |
//! | `exp`, logistic, `silu`, softplus | [`math`]: one polynomial each |
//! | root-mean-square norm | sum of squares as a float product; `1 / sqrt(sum / n + eps)`; then `x * scale * gamma` |
//! | length norm | sum of squares as a float product; `factor / sqrt(sum + eps)`; then `x * scale` |
//! | hyper-connection read | streams in order by fused multiply-add of the gate with the value, divided by their number |
//! | hyper-connection write, experts, shared expert | `fma(weight, y, sum)`, experts in routing order, the shared expert last |
//! | short convolution | oldest tap to newest by fused multiply-add, from zero |
//! | gated delta rule | decay, read, delta, write, output; both sums over keys as four partial sums, key i in sum i mod 4 |
//! | rotation | `fma(a, cos, -(b * sin))` and `fma(b, cos, a * sin)`; angles in f64, rounded once |
//! | attention | scores as float products times `1 / sqrt(dim)`; the largest is subtracted; positions in blocks of 128: weights in 32 partial sums, values in order by fused multiply-add; blocks in order; one division at the end |
//! | indexer | the positive parts of the heads' float products added in order, times `1 / sqrt(dim)`; equal scores to the lower block |
//! | router | largest logits first, equal ones to the lower index; weights `exp(logit - largest)` divided by their sum in order |
//!
//! Weights are read where the file's mapping has them. A processor without fused multiply-add runs the scalar code,
//! which then takes it from a library: right, and slow.

pub mod attention;
pub mod conv;
pub mod delta;
pub mod elementwise;
pub mod experts;
pub mod math;
pub mod matrix;
pub mod memory;
pub mod norm;
pub mod pool;
pub mod rope;
pub mod router;

mod activations;
mod ahead;
mod arranged;
mod cpu;
mod dot;
mod isa;
mod product;
mod rows;
mod scratch;
mod stripes;
mod units;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use activations::{Activations, Block};
pub use cpu::Cpu;
pub use dot::dot;
pub use isa::{ISA_NAMES, Isa};
pub use matrix::Matrix;
pub use pool::Pool;
pub use rows::Rows;

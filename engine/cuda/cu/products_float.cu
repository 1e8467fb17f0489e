// Products with float weights. Rows begin at addresses that the size of an element divides.
#include "kernels.cuh"

FLOAT_KERNELS(f32, Floats<F32>)
FLOAT_KERNELS(f16, Floats<F16>)
FLOAT_KERNELS(bf16, Floats<BF16>)

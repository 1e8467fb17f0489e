// Products with float weights.
// A lane has many weights under way.
#define BLOCKS_TOGETHER 4
#include "kernels.cuh"

FLOAT_KERNELS(f32, F32)
FLOAT_KERNELS(f16, F16)
FLOAT_KERNELS(bf16, BF16)

// The matrices may be of different types.
KERNEL __launch_bounds__(THREADS, 3) mul_floats(Matrices all, const float* x, u32 cols, u32 tokens, float divisor) {
    __shared__ FloatsPlace<10240> place;
    const Which which(all, 1);
    if (which.kind == 0) {
        mul<Floats<F32, 10240>>(which, x, place, cols, tokens, divisor);
    } else if (which.kind == 1) {
        mul<Floats<F16, 10240>>(which, x, place, cols, tokens, divisor);
    } else {
        mul<Floats<BF16, 10240>>(which, x, place, cols, tokens, divisor);
    }
}

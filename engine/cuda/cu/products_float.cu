// Products with float weights.
// A lane has many weights under way.
#define BLOCKS_TOGETHER 4
#include "kernels.cuh"

FLOAT_KERNELS(f32, F32)
FLOAT_KERNELS(f16, F16)
FLOAT_KERNELS(bf16, BF16)

// The matrices may be of different types.
template <u32 BLOCK, u32 PIECES>
__device__ __forceinline__ void mul_mixed(const Matrices& all, const float* x, FloatsPlace<10240>& place, u32 cols, u32 tokens,
                                          float divisor) {
    const Which which(all, WARPS);
    if (which.kind == 0) {
        mul<Floats<F32, 10240, BLOCK, PIECES>>(which, x, place, cols, tokens, divisor);
    } else if (which.kind == 1) {
        mul<Floats<F16, 10240, BLOCK, PIECES>>(which, x, place, cols, tokens, divisor);
    } else {
        mul<Floats<BF16, 10240, BLOCK, PIECES>>(which, x, place, cols, tokens, divisor);
    }
}

KERNEL __launch_bounds__(THREADS, 3) mul_floats(Matrices all, const float* x, u32 cols, u32 tokens, float divisor) {
    __shared__ FloatsPlace<10240> place;
    mul_mixed<THREADS, 5>(all, x, place, cols, tokens, divisor);
}

// Long rows: warps that compute nothing help to bring the inputs, and more weights are under way before those are there. Block: 256
// threads.
KERNEL __launch_bounds__(256, 1) mul_floats_long(Matrices all, const float* x, u32 cols, u32 tokens, float divisor) {
    __shared__ FloatsPlace<10240> place;
    mul_mixed<256, 10>(all, x, place, cols, tokens, divisor);
}

// Products of float weights with many inputs, with the bits of products.cuh: a lane has the partial sums of the elements that it
// would have there, of eight rows and eight inputs.
#include "many.cuh"

#define ROWS_TOGETHER 8
#define INPUTS_TOGETHER 8

// Warps of a block over rows, and over inputs.
#define DOWN 4
#define ACROSS 2
#define INPUTS (ACROSS * INPUTS_TOGETHER)

// Rows of a warp; behind the last there is the last again.
struct Rows {
    const u8* matrix;
    u32 first, last;
    u64 bytes;

    __device__ __forceinline__ const u8* at(u32 r) const { return matrix + min(first + r, last) * bytes; }
};

template <class F> struct ManyFloats {
    static constexpr u32 MOST = 16 / F::BYTES, PIECE = WARP * MOST;
    typedef float Sums[ROWS_TOGETHER][INPUTS_TOGETHER];

    // Adds a lane's next N elements, which begin with number `e`, of all rows, to those sums; its inputs begin at `x`.
    template <u32 N>
    static __device__ __forceinline__ void add(const Few<F, N> (&w)[ROWS_TOGETHER], const float* x, Sums& sums) {
#pragma unroll
        for (u32 e = 0; e < N; e++) {
            float in[INPUTS_TOGETHER];
#pragma unroll
            for (u32 t = 0; t < INPUTS_TOGETHER; t++) in[t] = x[t * PIECE + e * WARP];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) {
                const float a = w[r].at(e);
#pragma unroll
                for (u32 t = 0; t < INPUTS_TOGETHER; t++) sums[r][t] = fma_(a, in[t], sums[r][t]);
            }
        }
    }

    // What follows the whole pieces of a row, as Floats::Rest has it: N elements a lane, if there are so many, and so on.
    template <u32 N>
    static __device__ __forceinline__ void rest(const Rows& w, u32 at, u32 begin, u32 end, const float* x, Sums& sums) {
        const bool there = end - at >= WARP * N;
        if (there) {
            Few<F, N> few[ROWS_TOGETHER];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) few[r].load(w.at(r) + (at + N * lane()) * F::BYTES);
            add<N>(few, x + (at - begin), sums);
        }
        at += there ? WARP * N : 0;
        if constexpr (N > 1) {
            rest<N / 2>(w, at, begin, end, x, sums);
        } else if (at + lane() < end) {
            Few<F, 1> few[ROWS_TOGETHER];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) few[r].load(w.at(r) + (at + lane()) * F::BYTES);
            add<1>(few, x + (at - begin), sums);
        }
    }
};

template <class F>
__device__ __forceinline__ void many_floats(const u8* matrix, const float* x, float* y, u32 rows, u32 cols, u32 tokens, float scale,
                                            u32 act, float divisor) {
    typedef ManyFloats<F> P;
    __shared__ alignas(16) float inputs[INPUTS][P::PIECE];
    __shared__ uint4 weights[DOWN * ROWS_TOGETHER][WARP];
    const u32 warp = threadIdx.x / WARP, row = (blockIdx.x * DOWN + warp / ACROSS) * ROWS_TOGETHER;
    const u32 first = blockIdx.y * INPUTS, mine = warp % ACROSS * INPUTS_TOGETHER;
    const Rows w{matrix, row, rows - 1, Floats<F, 5120>::tile_bytes(cols)};
    typename P::Sums sums = {};
#pragma unroll 1
    for (u32 begin = 0; begin < cols; begin += P::PIECE) {
        const u32 here = min(P::PIECE, cols - begin);
        const bool whole = here == P::PIECE;
        if (begin > 0) __syncthreads();
#pragma unroll 1
        for (u32 i = thread_anew(); i < INPUTS * P::PIECE / 4; i += MANY) {
            const u32 t = i / (P::PIECE / 4), k = i % (P::PIECE / 4) * 4;
            const float* from = x + (u64)min(first + t, tokens - 1) * cols + begin;
            if (cols % 4 == 0 && k + 4 <= here) {
                bring16(inputs[t] + k, from + k);
            } else {
                for (u32 e = k; e < min(k + 4, here); e++) inputs[t][e] = __ldg(from + e);
            }
        }
        if (whole) {
            const Rows all{matrix, blockIdx.x * DOWN * ROWS_TOGETHER, rows - 1, w.bytes};
#pragma unroll 1
            for (u32 i = thread_anew(); i < DOWN * ROWS_TOGETHER * WARP; i += MANY) {
                bring16(weights[i / WARP] + i % WARP, all.at(i / WARP) + begin * F::BYTES + 16 * (i % WARP));
            }
        }
        arrived();
        __syncthreads();
        const float* in = inputs[mine] + lane();
        if (whole) {
            Few<F, P::MOST> few[ROWS_TOGETHER];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) *(uint4*)few[r].words = weights[warp / ACROSS * ROWS_TOGETHER + r][lane()];
            P::template add<P::MOST>(few, in, sums);
        } else {
            P::template rest<P::MOST / 2>(w, begin, begin, cols, in, sums);
        }
    }
    __syncwarp();
#pragma unroll
    for (u32 r = 0; r < ROWS_TOGETHER; r++) {
        const float sum = join_inputs(sums[r]);
        const u32 t = first + mine + lane() / 4;
        if (lane() % 4 == 0 && row + r < rows && t < tokens) y[(u64)t * rows + row + r] = acted(sum * scale, act, divisor);
    }
}

// y[t * rows + r] = act(scale * (row r of the matrix) · x[t]). Grid (rows / 32, tokens / 16), block MANY.
#define MANY_FLOATS(name, F)                                                                                                \
    KERNEL __launch_bounds__(MANY, 2) many_##name(const u8* matrix, const float* x, float* y, u32 rows, u32 cols, u32 tokens, \
                                                  float scale, u32 act, float divisor) {                                    \
        many_floats<F>(matrix, x, y, rows, cols, tokens, scale, act, divisor);                                              \
    }

MANY_FLOATS(f32, F32)
MANY_FLOATS(f16, F16)
MANY_FLOATS(bf16, BF16)

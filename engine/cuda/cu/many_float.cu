// Products of float weights with many inputs, with the bits of products.cuh: a lane has the partial sums of the elements that it
// would have there, of eight rows and eight inputs.
#include "many.cuh"

#define ROWS_TOGETHER 8
#define INPUTS_TOGETHER 8

// Warps of a block over rows, and over inputs.
#define DOWN 4
#define ACROSS 2
#define INPUTS (ACROSS * INPUTS_TOGETHER)
#define OUTPUTS (DOWN * ROWS_TOGETHER)

// Elements of a lane at a time.
#define EACH 4
#define PART (WARP * EACH)

// Rows of a warp; behind the last there is the last again.
struct Rows {
    const u8* matrix;
    u32 first, last;
    u64 bytes;

    __device__ __forceinline__ const u8* at(u32 r) const { return matrix + min(first + r, last) * bytes; }
};

template <class F> struct ManyFloats {
    static constexpr u32 MOST = 16 / F::BYTES, PIECE = WARP * MOST;
    // Bytes of a lane's elements of a part, and parts of a piece.
    static constexpr u32 LANE = EACH * F::BYTES, PARTS = PIECE / PART;
    typedef float Sums[ROWS_TOGETHER][INPUTS_TOGETHER];

    // Adds N of a lane's elements of all rows to the sums; its inputs begin at `x`, those of the next token `apart` further on.
    template <u32 N>
    static __device__ __forceinline__ void add(const Few<F, N> (&w)[ROWS_TOGETHER], const float* x, u32 apart, Sums& sums) {
#pragma unroll
        for (u32 e = 0; e < N; e++) {
            float in[INPUTS_TOGETHER];
#pragma unroll
            for (u32 t = 0; t < INPUTS_TOGETHER; t++) in[t] = x[t * apart + e * WARP];
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
    static __device__ __forceinline__ void rest(const Rows& w, u32 at, u32 begin, u32 end, const float* x, u32 apart, Sums& sums) {
        const bool there = end - at >= WARP * N;
        if (there) {
            Few<F, N> few[ROWS_TOGETHER];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) few[r].load(w.at(r) + (at + N * lane()) * F::BYTES);
            add<N>(few, x + (at - begin), apart, sums);
        }
        at += there ? WARP * N : 0;
        if constexpr (N > 1) {
            rest<N / 2>(w, at, begin, end, x, apart, sums);
        } else if (at + lane() < end) {
            Few<F, 1> few[ROWS_TOGETHER];
#pragma unroll
            for (u32 r = 0; r < ROWS_TOGETHER; r++) few[r].load(w.at(r) + (at + lane()) * F::BYTES);
            add<1>(few, x + (at - begin), apart, sums);
        }
    }
};

template <class F>
__device__ __forceinline__ void many_floats(const u8* matrix, const float* x, float* y, u32 rows, u32 cols, u32 tokens, float scale,
                                            u32 act, float divisor) {
    typedef ManyFloats<F> P;
    // Of two parts, of which one is under way; or what is left of rows.
    alignas(16) __shared__ float inputs[2 * INPUTS * PART];
    alignas(16) __shared__ u8 weights[2][OUTPUTS][WARP * P::LANE];
    const u32 warp = threadIdx.x / WARP, row = (blockIdx.x * DOWN + warp / ACROSS) * ROWS_TOGETHER;
    const u32 first = blockIdx.y * INPUTS, mine = warp % ACROSS * INPUTS_TOGETHER;
    const Rows w{matrix, row, rows - 1, Floats<F, 5120>::tile_bytes(cols)};
    typename P::Sums sums = {};
    const u32 whole = cols / P::PIECE * P::PIECE, parts = whole / PART;
    // Rows of the inputs begin at multiples of 16 bytes, or their values come one by one.
    const bool wide = cols % 4 == 0;
    auto bring = [&](u32 part) {
        const Rows all{matrix, blockIdx.x * OUTPUTS, rows - 1, w.bytes};
#pragma unroll 1
        for (u32 i = thread_anew(); i < OUTPUTS * WARP; i += MANY) {
            const u32 at = part / P::PARTS * P::PIECE + i % WARP * P::MOST + part % P::PARTS * EACH;
            bring_bytes<P::LANE>(weights[part % 2][i / WARP] + i % WARP * P::LANE, all.at(i / WARP) + at * F::BYTES);
        }
#pragma unroll 1
        for (u32 i = thread_anew(); i < INPUTS * WARP; i += MANY) {
            float* to = inputs + (part % 2 * INPUTS + i / WARP) * PART + i % WARP * EACH;
            const float* from = x + (u64)min(first + i / WARP, tokens - 1) * cols + part * PART + i % WARP * EACH;
            if (wide) {
                bring_bytes<16>(to, from);
            } else {
                for (u32 e = 0; e < EACH; e++) to[e] = __ldg(from + e);
            }
        }
    };
    // What is left comes like a part, if it is no longer than one.
    const u32 left = cols - whole;
    const bool small = wide && left <= PART;
    auto bring_rest = [&] {
#pragma unroll 1
        for (u32 i = thread_anew(); i < INPUTS * WARP; i += MANY) {
            float* to = inputs + (parts % 2 * INPUTS + i / WARP) * PART + i % WARP * EACH;
            const float* from = x + (u64)min(first + i / WARP, tokens - 1) * cols + whole + i % WARP * EACH;
            if (i % WARP * EACH < left) bring_bytes<16>(to, from);
        }
    };
    if (parts > 0) {
        bring(0);
    } else if (small) {
        bring_rest();
    }
#pragma unroll 1
    for (u32 part = 0; part < parts; part++) {
        arrived();
        __syncthreads();
        if (part + 1 < parts) {
            bring(part + 1);
        } else if (small) {
            bring_rest();
        }
        Few<F, EACH> few[ROWS_TOGETHER];
#pragma unroll
        for (u32 r = 0; r < ROWS_TOGETHER; r++) {
            const u8* from = weights[part % 2][warp / ACROSS * ROWS_TOGETHER + r] + lane() * P::LANE;
#pragma unroll
            for (u32 k = 0; k < P::LANE / 4; k += 2) *(uint2*)(few[r].words + k) = *(const uint2*)(from + 4 * k);
        }
        P::add(few, inputs + (part % 2 * INPUTS + mine) * PART + lane(), PART, sums);
    }
    if (left > 0) {
        arrived();
        __syncthreads();
        const float* in = inputs + (parts % 2 * INPUTS + mine) * PART + lane();
        u32 apart = PART;
        if (!small) {
#pragma unroll 1
            for (u32 i = thread_anew(); i < INPUTS * left; i += MANY) {
                const u32 t = i / left, k = i % left;
                inputs[t * P::PIECE + k] = __ldg(x + (u64)min(first + t, tokens - 1) * cols + whole + k);
            }
            __syncthreads();
            in = inputs + mine * P::PIECE + lane();
            apart = P::PIECE;
        }
        P::template rest<P::MOST / 2>(w, whole, whole, cols, in, apart, sums);
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
        follow();                                                                                                           \
        many_floats<F>(matrix, x, y, rows, cols, tokens, scale, act, divisor);                                              \
    }

MANY_FLOATS(f32, F32)
MANY_FLOATS(f16, F16)
MANY_FLOATS(bf16, BF16)

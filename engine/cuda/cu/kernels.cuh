// The kernels over any product type: a matrix, the experts' gate and up projections, their down projections.
//
// Grids. x: output rows / 4, rounded up, with blocks of 128 threads. The inputs (of a group) are taken in fours, and blocks
// share those out by `y` (`z` beside groups): 1 is right for a few inputs; more spreads many inputs over more blocks, each
// of which reads the weights.
//
// Element numbers of inputs are 32 bits: rows of inputs times columns stay below 2^32. Input arrays begin at addresses that 16
// divides.
#pragma once
#include "products.cuh"

// The output rows of this warp: `rows` shared out evenly, and at least one to each of the first. While one is computed the next
// is asked for.
struct Rows {
    u32 first, end;

    __device__ __forceinline__ Rows(u32 rows) {
        const u32 warps = gridDim.x * (THREADS / WARP), each = (rows + warps - 1) / warps;
        first = (blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP) * each;
        end = min(first + each, rows);
    }
};

// Calls `work` with the number of inputs to compute at once, as a constant.
template <class W> __device__ __forceinline__ void by_count(u32 count, W work) {
    if (count > 1) {
        work.template chunk<CHUNK>(count);
    } else {
        work.template chunk<1>(count);
    }
}

// Inputs `first` to `first + count` of a matrix product. Those that fill up a chunk are the last again, and are not written.
template <class P> struct MulChunk {
    const u8* w;
    typename P::Inputs x;
    float* y;
    u32 cols, first, y_stride;
    float scale;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) const {
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = (first + min(t, count - 1)) * cols;
        float out = P::template row<T>(w, x, at, cols) * scale;
        u32 t = P::template input<T>();
        if (P::template owns<T>() && t < count) y[(u64)(first + t) * y_stride] = out;
    }
};

template <class P>
__device__ __forceinline__ void mul(const u8* w, typename P::Inputs x, float* y, u32 rows, u32 cols, u32 tokens, u32 y_stride,
                                    float scale) {
    const Rows mine(rows);
    if (mine.first >= mine.end) return;
    const u64 bytes = P::row_bytes(cols);
    w += mine.first * bytes;
    const u32 x_first = min(CHUNK * blockIdx.y, tokens - 1) * cols;
    if (needed(ahead_shared(P::begin(x, x_first), P::input_bytes(cols)) ^ ahead(w, bytes), rows)) return;
#pragma unroll 1
    for (u32 row = mine.first; row < mine.end; row++, w += bytes) {
        Next next;
        next.ask(w + bytes, row + 1 < mine.end ? bytes : 0);
#pragma unroll 1
        for (u32 first = CHUNK * blockIdx.y; first < tokens; first += CHUNK * gridDim.y) {
            by_count(min(tokens - first, CHUNK), MulChunk<P>{w, x, y + row, cols, first, y_stride, scale});
        }
        if (needed(next.all(), rows)) return;
    }
}

// Entries of a group from `first` on; `tokens` names their inputs.
template <class P> struct GateUpChunk {
    const u8 *gate, *up;
    typename P::Inputs x;
    const u32* tokens;
    float* middle;
    u32 cols, first, width;
    float gate_scale, up_scale;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) const {
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = __ldg(tokens + first + min(t, count - 1)) * cols;
        float opened = 1.0f;
        // A loop, so that the code of a product is there once.
#pragma unroll 1
        for (u32 second = 0; second < 2; second++) {
            float out = P::template row<T>(second ? up : gate, x, at, cols);
            opened = second ? opened * (out * up_scale) : silu(out * gate_scale);
        }
        u32 t = P::template input<T>();
        if (P::template owns<T>() && t < count) middle[(u64)(first + t) * width] = opened;
    }
};

template <class P>
__device__ __forceinline__ void gate_up(const u64* gates, const u64* ups, const u32* starts, const u32* tokens,
                                        typename P::Inputs x, float* middle, u32 groups, u32 width, u32 cols, float gate_scale,
                                        float up_scale) {
    const Rows mine(width);
    const u32 group = blockIdx.y;
    if (mine.first >= mine.end || group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    u32 first = begin;
    if (first >= end) return;
    const u64 bytes = P::row_bytes(cols);
    const u8 *gate = (const u8*)__ldg(gates + group) + mine.first * bytes,
             *up = (const u8*)__ldg(ups + group) + mine.first * bytes;
    const u32 inputs = ahead_shared(P::begin(x, __ldg(tokens + first) * cols), P::input_bytes(cols));
    if (needed(inputs ^ ahead(gate, bytes) ^ ahead(up, bytes), width)) return;
#pragma unroll 1
    for (u32 row = mine.first; row < mine.end; row++, gate += bytes, up += bytes) {
        Next next_gate, next_up;
        const u64 further = row + 1 < mine.end ? bytes : 0;
        next_gate.ask(gate + bytes, further);
        next_up.ask(up + bytes, further);
#pragma unroll 1
        for (first = begin; first < end; first += CHUNK * gridDim.z) {
            by_count(min(end - first, CHUNK),
                     GateUpChunk<P>{gate, up, x, tokens, middle + row, cols, first, width, gate_scale, up_scale});
        }
        if (needed(next_gate.all() ^ next_up.all(), width)) return;
    }
}

template <class P>
__device__ __forceinline__ void down(const u64* downs, const u32* starts, typename P::Inputs x, float* results, u32 groups,
                                     u32 rows, u32 cols, float scale) {
    const Rows mine(rows);
    const u32 group = blockIdx.y;
    if (mine.first >= mine.end || group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    u32 first = begin;
    if (first >= end) return;
    const u64 bytes = P::row_bytes(cols);
    const u8* w = (const u8*)__ldg(downs + group) + mine.first * bytes;
    if (needed(ahead_shared(P::begin(x, first * cols), P::input_bytes(cols)) ^ ahead(w, bytes), rows)) return;
#pragma unroll 1
    for (u32 row = mine.first; row < mine.end; row++, w += bytes) {
        Next next;
        next.ask(w + bytes, row + 1 < mine.end ? bytes : 0);
#pragma unroll 1
        for (first = begin; first < end; first += CHUNK * gridDim.z) {
            by_count(min(end - first, CHUNK), MulChunk<P>{w, x, results + row, cols, first, rows, scale});
        }
        if (needed(next.all(), rows)) return;
    }
}

// Blocks of 128 threads that are to fit on a multiprocessor: eight leave 64 registers a thread, six 80.
#ifndef BLOCKS_TOGETHER
#define BLOCKS_TOGETHER 8
#endif
#define PRODUCT __launch_bounds__(THREADS, BLOCKS_TOGETHER)

// `mul_*`: y[t * y_stride + r] = scale * (row r of w) · x[t]. Grid (any, chunks), block 128.
// `gate_up_*`: for entry e of group g, whose input is tokens[e],
//     middle[e * width + r] = silu(gate_scale * (row r of gate[g]) · x) * (up_scale * (row r of up[g]) · x);
// the entries of group g are starts[g] to starts[g + 1]. Grid (any, groups, chunks), block 128.
// `down_*`: results[e * rows + r] = scale * (row r of down[g]) · x[e]. Grid (any, groups, chunks), block 128.
#define INTEGER_KERNELS(name, P)                                                                                                 \
    KERNEL PRODUCT mul_##name(const u8* w, const i8* values, const float* scales, const i16* sums, float* y, u32 rows, u32 cols, \
                              u32 tokens, u32 y_stride, float scale) {                                                           \
        mul<P>(w, Integers{values, scales, sums}, y, rows, cols, tokens, y_stride, scale);                                       \
    }                                                                                                                            \
    KERNEL PRODUCT gate_up_##name(const u64* gate, const u64* up, const u32* starts, const u32* tokens, const i8* values,        \
                                  const float* scales, const i16* sums, float* middle, u32 groups, u32 width, u32 cols,          \
                                  float gate_scale, float up_scale) {                                                            \
        gate_up<P>(gate, up, starts, tokens, Integers{values, scales, sums}, middle, groups, width, cols, gate_scale, up_scale); \
    }                                                                                                                            \
    KERNEL PRODUCT down_##name(const u64* down_, const u32* starts, const i8* values, const float* scales, const i16* sums,      \
                               float* results, u32 groups, u32 rows, u32 cols, float scale) {                                    \
        down<P>(down_, starts, Integers{values, scales, sums}, results, groups, rows, cols, scale);                              \
    }

#define FLOAT_KERNELS(name, P)                                                                                                   \
    KERNEL PRODUCT mul_##name(const void* w, const float* x, float* y, u32 rows, u32 cols, u32 tokens, u32 y_stride,             \
                              float scale) {                                                                                     \
        mul<P>((const u8*)w, x, y, rows, cols, tokens, y_stride, scale);                                                         \
    }                                                                                                                            \
    KERNEL PRODUCT gate_up_##name(const u64* gate, const u64* up, const u32* starts, const u32* tokens, const float* x,          \
                                  float* middle, u32 groups, u32 width, u32 cols, float gate_scale, float up_scale) {            \
        gate_up<P>(gate, up, starts, tokens, x, middle, groups, width, cols, gate_scale, up_scale);                              \
    }                                                                                                                            \
    KERNEL PRODUCT down_##name(const u64* down_, const u32* starts, const float* x, float* results, u32 groups, u32 rows,        \
                               u32 cols, float scale) {                                                                          \
        down<P>(down_, starts, x, results, groups, rows, cols, scale);                                                           \
    }

// The kernels over any product type: matrices with one input, the experts' gate and up projections, their down projections.
//
// Grids. x: tiles of output rows / 4, rounded up, with four warps of a block that compute. The inputs (of a group) are taken in fours, and
// blocks share those out by `y` (`z` beside groups): 1 is right for a few inputs; more spreads many inputs over more blocks, each
// of which reads the weights.
//
// Element numbers of inputs are 32 bits: rows of inputs times columns stay below 2^32. Input arrays begin at addresses that 16
// divides.
#pragma once
#include "products.cuh"

// Blocks of 128 threads that are to fit on a multiprocessor: eight leave 64 registers a thread, six 80, four 128.
#ifndef BLOCKS_TOGETHER
#define BLOCKS_TOGETHER 8
#endif
#define PRODUCT __launch_bounds__(THREADS, BLOCKS_TOGETHER)

// Blocks of a grid that are certain to run at once, so that it pays to ask for their weights before they can be used.
#define FIRST_BLOCKS 1024

// Up to four matrices with as many columns, whose products are wanted of the same inputs.
struct Matrices {
    const u8* w[4];
    float* y[4];
    u32 rows[4];
    float scale[4];
    // What becomes of a product: 0 nothing, 1 silu(y / divisor), 2 2 sigmoid(y / divisor).
    u32 act[4];
    // Types of floats, where those may be mixed: 0 F32, 1 F16, 2 BF16.
    u32 kind[4];
};

__device__ __forceinline__ float acted(float y, u32 act, float divisor) {
    if (act == 1) return silu(y / divisor);
    if (act == 2) return 2.0f * sigmoid(y / divisor);
    return y;
}

// The W tiles of this warp. A warp without any has the last ones again, and writes nothing.
template <class P, u32 W> struct Mine {
    u32 first, all;
    bool some;

    __device__ __forceinline__ Mine(u32 block, u32 rows) {
        const u32 tiles = (rows + P::ROWS - 1) / P::ROWS, mine = W * (block * WARPS + threadIdx.x / WARP);
        all = rows;
        some = mine < tiles && threadIdx.x < THREADS;
        first = some ? mine : tiles - 1;
    }
    // The number of a tile, and its rows; behind the last there is the last again.
    __device__ __forceinline__ u32 tile(u32 k) const { return min(first + k, (all + P::ROWS - 1) / P::ROWS - 1); }
    __device__ __forceinline__ u32 rows() const { return min(P::ROWS, all - first * P::ROWS); }
    // This lane's row of a tile, and whether it is there to be written.
    __device__ __forceinline__ u32 row(u32 k) const { return (first + k) * P::ROWS + P::row(); }
    __device__ __forceinline__ bool writes(u32 k) const { return some && row(k) < all; }
};

// Waits for kernels before this one, which make the inputs. Waiting again costs nothing.
__device__ __forceinline__ void wait_for(const float*& x) { wait_for_former(x); }
__device__ __forceinline__ void wait_for(Integers& x) {
    wait_for_former(x.values);
    wait_for_former(x.scales);
    wait_for_former(x.sums);
}

// Calls `work` with the number of inputs to compute at once, as a constant.
template <class W> __device__ __forceinline__ void by_count(u32 count, W&& work) {
    if (count > 1) {
        work.template chunk<CHUNK>(count);
    } else {
        work.template chunk<1>(count);
    }
}

// Inputs `first` to `first + count` of a matrix product. Those that fill up a chunk are the last again, and are not written.
template <class P, u32 W> struct MulChunk {
    const u8* w;
    typename P::Inputs x;
    float* y;
    typename P::Place& place;
    Mine<P, W> mine;
    u32 cols, first;
    float scale;
    u32 act;
    float divisor;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) {
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = (first + min(t, count - 1)) * cols;
        // Several tiles at once for one input; for several inputs there is enough to do.
        constexpr u32 AT_ONCE = T > 1 ? 1 : W;
        const u32 t = P::template input<T>();
#pragma unroll 1
        for (u32 from = 0; from < W; from += AT_ONCE) {
            const u8* tiles[AT_ONCE];
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) tiles[k] = anew(w + mine.tile(from + k) * P::tile_bytes(cols));
            float out[AT_ONCE];
            P::template tile<AT_ONCE, T>(tiles, x, at, cols, mine.rows(), place, out, [this] { wait_for(x); });
            if (!P::template owns<T>() || t >= count) continue;
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
                if (mine.writes(from + k)) {
                    y[(u64)(first + t) * mine.all + mine.row(from + k)] = acted(out[k] * scale, act, divisor);
                }
            }
        }
    }
};

// The matrix that a block is of, and which of that one's blocks it is, if a block takes so many rows.
struct Which {
    const u8* w = nullptr;
    float* y = nullptr;
    u32 block, rows = 0, act = 0, kind = 0;
    float scale = 0.0f;

    __device__ __forceinline__ Which(const Matrices& all, u32 block_rows) : block(blockIdx.x) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 blocks = (all.rows[k] + block_rows - 1) / block_rows;
            if (rows == 0 && block < blocks) {
                w = all.w[k], y = all.y[k], rows = all.rows[k], scale = all.scale[k], act = all.act[k], kind = all.kind[k];
            } else if (rows == 0) {
                block -= blocks;
            }
        }
    }
};

template <class P>
__device__ __forceinline__ void mul(const Which& which, typename P::Inputs x, typename P::Place& place, u32 cols, u32 tokens,
                                    float divisor) {
    const Mine<P, 1> mine(which.block, which.rows);
    announce();
    // The weights are no kernel's work: they come nearer while others still make the inputs.
    if (mine.some && blockIdx.x < FIRST_BLOCKS && lane() == 0) {
        fetch_ahead(which.w + mine.first * P::tile_bytes(cols), P::tile_bytes(cols));
    }
    if (which.rows == 0) wait_for_former();
    if (which.rows == 0) return;
#pragma unroll 1
    for (u32 first = CHUNK * blockIdx.y; first < tokens; first += CHUNK * gridDim.y) {
        MulChunk<P, 1> work{which.w, x, which.y, place, mine, cols, first, which.scale, which.act, divisor};
        by_count(min(tokens - first, CHUNK), work);
    }
}

// Entries of a group from `first` on; `tokens` names their inputs.
template <class P> struct GateUpChunk {
    const u8 *gate, *up;
    typename P::Inputs x;
    const u32* tokens;
    float* middle;
    typename P::Place& place;
    Mine<P, 1> mine;
    u32 cols, first, width;
    float gate_scale, up_scale;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) {
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = __ldg(tokens + first + min(t, count - 1)) * cols;
        const u8* const tiles[2] = {anew(gate), anew(up)};
        float out[2];
        P::template tile<2, T>(tiles, x, at, cols, mine.rows(), place, out, [] {});
        const u32 t = P::template input<T>();
        if (P::template owns<T>() && t < count && mine.writes(0)) {
            middle[(u64)(first + t) * width + mine.row(0)] = silu(out[0] * gate_scale) * (out[1] * up_scale);
        }
    }
};

template <class P>
__device__ __forceinline__ void gate_up(const u64* gates, const u64* ups, const u32* starts, const u32* tokens,
                                        typename P::Inputs x, float* middle, u32 groups, u32 width, u32 cols, float gate_scale,
                                        float up_scale) {
    __shared__ typename P::Place place;
    const u32 group = blockIdx.y;
    if (group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    if (begin >= end) return;
    const Mine<P, 1> mine(blockIdx.x, width);
    const u64 at = mine.first * P::tile_bytes(cols);
    const u8 *gate = (const u8*)__ldg(gates + group) + at, *up = (const u8*)__ldg(ups + group) + at;
#pragma unroll 1
    for (u32 first = begin; first < end; first += CHUNK * gridDim.z) {
        by_count(min(end - first, CHUNK),
                 GateUpChunk<P>{gate, up, x, tokens, middle, place, mine, cols, first, width, gate_scale, up_scale});
    }
}

template <class P>
__device__ __forceinline__ void down(const u64* downs, const u32* starts, typename P::Inputs x, float* results, u32 groups,
                                     u32 rows, u32 cols, float scale) {
    __shared__ typename P::Place place;
    const u32 group = blockIdx.y;
    if (group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    if (begin >= end) return;
    // Rows are short: a warp takes some tiles, so that more of them are under way.
    const Mine<P, P::TOGETHER> mine(blockIdx.x, rows);
    const u8* w = (const u8*)__ldg(downs + group);
#pragma unroll 1
    for (u32 first = begin; first < end; first += CHUNK * gridDim.z) {
        MulChunk<P, P::TOGETHER> work{w, x, results, place, mine, cols, first, scale, 0, 1.0f};
        by_count(min(end - first, CHUNK), work);
    }
}

// `mul_*`: y[t * rows + r] = act(scale * (row r of w) · x[t]) for each matrix. Grid (blocks of all matrices, chunks), block 128.
// `gate_up_*`: for entry e of group g, whose input is tokens[e],
//     middle[e * width + r] = silu(gate_scale * (row r of gate[g]) · x) * (up_scale * (row r of up[g]) · x);
// the entries of group g are starts[g] to starts[g + 1]. Grid (blocks of a matrix, groups, chunks), block 128.
// `down_*`: results[e * rows + r] = scale * (row r of down[g]) · x[e]. Grid (blocks of a matrix, groups, chunks), block 128.
#define INTEGER_KERNELS(name, P)                                                                                                 \
    KERNEL PRODUCT mul_##name(Matrices all, const i8* values, const float* scales, const i16* sums, u32 cols, u32 tokens,        \
                              float divisor) {                                                                                   \
        __shared__ IntegersPlace place;                                                                                          \
        mul<P>(Which(all, P::ROWS * WARPS), Integers{values, scales, sums}, place, cols, tokens, divisor);                               \
    }                                                                                                                            \
    KERNEL PRODUCT gate_up_##name(const u64* gate, const u64* up, const u32* starts, const u32* tokens, const i8* values,        \
                                  const float* scales, const i16* sums, float* middle, u32 groups, u32 width, u32 cols,          \
                                  float gate_scale, float up_scale) {                                                            \
        follow();                                                                                                                \
        gate_up<P>(gate, up, starts, tokens, Integers{values, scales, sums}, middle, groups, width, cols, gate_scale, up_scale); \
    }                                                                                                                            \
    KERNEL PRODUCT down_##name(const u64* down_, const u32* starts, const i8* values, const float* scales, const i16* sums,      \
                               float* results, u32 groups, u32 rows, u32 cols, float scale) {                                    \
        follow();                                                                                                                \
        down<P>(down_, starts, Integers{values, scales, sums}, results, groups, rows, cols, scale);                              \
    }

// Types that are arranged in tiles on the device have their products in products_tiles.cuh, and two more kernels. `pack_*`: from `matrices` matrices of `rows` rows as the file has
// them, `from_apart` bytes apart, to as many in tiles. Grid (any, matrices), block 128. `stream_*`: the same from host memory that
// the device sees, `each` matrices of each of `count` experts, whose addresses are in `from` one after another; an expert's
// matrices are `apart` bytes from each other, and experts `to_apart`. Four rows have at most STREAMED bytes. Grid (tiles, matrices
// that there is room for), block 128.
#define TILE_KERNELS(name, U)                                                                                                    \
    KERNEL pack_##name(const u8* from, u8* to, u32 rows, u32 cols, u64 from_apart, u64 to_apart) {                               \
        follow();                                                                                                                \
        pack_units<U>(from + blockIdx.y * from_apart, to + blockIdx.y * to_apart, rows, cols);                                   \
    }                                                                                                                            \
    KERNEL __launch_bounds__(THREADS) stream_##name(const u64* from, const u32* count, u32 each, u8* to, u64 to_apart, u64 apart, \
                                                    u32 rows, u32 cols) {                                                        \
        follow();                                                                                                                \
        stream_units<U>(from, *count * each, to + blockIdx.y / each * to_apart + blockIdx.y % each * apart, rows, cols);         \
    }

// Puts a unit of a row, of which only those below `rows` are there, into the row's tile at `w`.
template <class U>
__device__ __forceinline__ void pack_unit(const u8* from, u8* w, u32 row, u32 rows, u32 unit, u32 units) {
    typedef Tiles<U> P;
    const u32 eight = unit / 8, q = unit % 8, n = min(units - 8 * eight, 8u), r = row % P::ROWS, part = unit % U::PER_BLOCK;
    const bool there = row < rows;
    const u8* block = from + ((u64)min(row, rows - 1) * (units / U::PER_BLOCK) + unit / U::PER_BLOCK) * U::BYTES;
    w += (u64)eight * P::bytes(8);
    u8* levels = w + (r * n + q) * U::LEVELS;
    // Levels begin at multiples of two, but for types with a header of one byte.
    if constexpr (U::HEADER % 2 == 0 || U::PER_BLOCK > 1) {
        for (u32 k = 0; k < U::LEVELS; k += 4) {
            const u8* four = block + U::level_at(part) + k;
            *(u32*)(levels + k) = there ? *(const u16*)four | (u32) * (const u16*)(four + 2) << 16 : 0;
        }
    } else {
        for (u32 k = 0; k < U::LEVELS; k++) levels[k] = there ? block[U::level_at(part) + k] : 0;
    }
    if (q % U::SHARE) return;
    u8* header = w + P::level_bytes(n) + (r * ((n + U::SHARE - 1) / U::SHARE) + q / U::SHARE) * U::HEADER;
    for (u32 k = 0; k < U::HEADER; k++) header[k] = there ? block[U::header_at(part) + k] : 0;
}

// Puts a matrix into tiles.
template <class U> __device__ __forceinline__ void pack_units(const u8* from, u8* to, u32 rows, u32 cols) {
    typedef Tiles<U> P;
    const u32 units = cols / U::UNIT, tiles = (rows + P::ROWS - 1) / P::ROWS;
    const u64 all = (u64)tiles * P::ROWS * units;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (u64)gridDim.x * blockDim.x) {
        const u32 unit = i % units, row = i / units;
        pack_unit<U>(from, to + row / P::ROWS * P::tile_bytes(cols), row, rows, unit, units);
    }
}

#define STREAMED 16384

// Puts a tile of a matrix in host memory where tiles are, by way of shared memory: the link wants wide reads.
template <class U> __device__ __forceinline__ void stream_units(const u64* from, u32 count, u8* to, u32 rows, u32 cols) {
    typedef Tiles<U> P;
    alignas(16) __shared__ u8 place[STREAMED];
    if (blockIdx.y >= count) return;
    const u32 units = cols / U::UNIT, first = blockIdx.x * P::ROWS, here = min(P::ROWS, rows - first);
    const u32 row_bytes = units / U::PER_BLOCK * U::BYTES, bytes = here * row_bytes;
    const u8* w = (const u8*)from[blockIdx.y] + (u64)first * row_bytes;
    u32 done = 0;
    if ((u64)w % 16 == 0) {
        done = bytes / 16 * 16;
        for (u32 i = 16 * threadIdx.x; i < done; i += 16 * THREADS) *(uint4*)(place + i) = *(const uint4*)(w + i);
    }
    for (u32 i = done + threadIdx.x; i < bytes; i += THREADS) place[i] = w[i];
    __syncthreads();
    to += (u64)blockIdx.x * P::tile_bytes(cols);
    for (u32 i = threadIdx.x; i < P::ROWS * units; i += THREADS) pack_unit<U>(place, to, i / units, here, i % units, units);
}

// `mix_*`: with gate[s] = scale * (row s * width + c of w) · x[t], out[t * width + c] is the mean over the four streams of
// sigmoid(gate[s]) * n[t][s][c]. Grid (width / 4, chunks), block 128.
#define FLOAT_KERNELS(name, F)                                                                                                   \
    KERNEL PRODUCT gate_up_##name(const u64* gate, const u64* up, const u32* starts, const u32* tokens, const float* x,          \
                                  float* middle, u32 groups, u32 width, u32 cols, float gate_scale, float up_scale) {            \
        follow();                                                                                                                \
        gate_up<Floats<F, 4096>>(gate, up, starts, tokens, x, middle, groups, width, cols, gate_scale, up_scale);                      \
    }                                                                                                                            \
    KERNEL PRODUCT down_##name(const u64* down_, const u32* starts, const float* x, float* results, u32 groups, u32 rows,        \
                               u32 cols, float scale) {                                                                          \
        follow();                                                                                                                \
        down<Floats<F, 4096>>(down_, starts, x, results, groups, rows, cols, scale);                                                   \
    }                                                                                                                            \
    KERNEL PRODUCT mix_##name(const u8* w, const float* x, const float* n, float* out, u32 width, u32 cols, u32 tokens,          \
                              float scale) {                                                                                     \
        mix<F>(w, x, n, out, width, cols, tokens, scale);                                                                        \
    }                                                                                                                            \
    KERNEL pack_##name(const u8* from, u8* to, u32 rows, u32 cols, u64 from_apart, u64 to_apart) {                               \
        follow();                                                                                                                \
        pack_floats<F>(from + blockIdx.y * from_apart, to + blockIdx.y * to_apart, rows, cols);                                  \
    }

template <class F> __device__ __forceinline__ void pack_floats(const u8* from, u8* to, u32 rows, u32 cols) {
    typedef Floats<F, 0> P;
    const u64 all = (u64)rows * cols, row_bytes = P::tile_bytes(cols);
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += (u64)gridDim.x * blockDim.x) {
        const u32 row = i / cols, col = i % cols;
        u8* place = to + row * row_bytes + P::place(col, cols) * F::BYTES;
        for (u32 k = 0; k < F::BYTES; k++) place[k] = from[i * F::BYTES + k];
    }
}

// Gates have short inputs.
template <class F> using Gates = Floats<F, 2048>;

// Column c of the streams' gates, and what they let through.
template <class F> struct MixChunk {
    const u8* w;
    const float *x, *n;
    float* out;
    typename Gates<F>::Place& place;
    u32 c, width, cols, first;
    float scale;
    bool writes;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) {
        typedef Gates<F> P;
        const u32 t = P::template input<T>();
        const bool mine = P::template owns<T>() && t < count && writes;
        float through[4];
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = (first + min(t, count - 1)) * cols;
        const u64 apart = width * P::tile_bytes(cols);
        const u8* const first_tile = anew(w);
        const u8* const tiles[4] = {first_tile, first_tile + apart, first_tile + 2 * apart, first_tile + 3 * apart};
        float gate[4];
        P::template tile<4, T>(tiles, x, at, cols, 1, place, gate, [&] {
            wait_for(x);
            wait_for(n);
            // On their way while gates are computed.
#pragma unroll
            for (u32 s = 0; s < 4; s++) through[s] = mine ? n[((u64)(first + t) * 4 + s) * width + c] : 0.0f;
        });
        if (mine) {
            float sum = 0.0f;
#pragma unroll
            for (u32 s = 0; s < 4; s++) sum = fma_(sigmoid(gate[s] * scale), through[s], sum);
            out[(u64)(first + t) * width + c] = sum / 4.0f;
        }
    }
};

template <class F>
__device__ __forceinline__ void mix(const u8* w, const float* x, const float* n, float* out, u32 width, u32 cols, u32 tokens,
                                    float scale) {
    __shared__ typename Gates<F>::Place place;
    const u32 mine = blockIdx.x * WARPS + threadIdx.x / WARP, c = min(mine, width - 1);
    w += c * Gates<F>::tile_bytes(cols);
    announce();
#pragma unroll 1
    for (u32 first = CHUNK * blockIdx.y; first < tokens; first += CHUNK * gridDim.y) {
        by_count(min(tokens - first, CHUNK), MixChunk<F>{w, x, n, out, place, c, width, cols, first, scale, mine < width});
    }
}

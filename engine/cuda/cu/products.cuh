// Rows of weights times rows of inputs. A warp computes a *tile* of rows for one or four inputs at a time, reading and unpacking
// the weights once for them. (Eight at a time would save little: with four, unpacking is a third of the work, and registers
// would cost more than that.)
//
// A block's threads first put the inputs, or as much of them as fits, into shared memory, where all of its warps read them. So no
// thread may leave early: a warp without a tile computes the last one again, and writes nothing.
//
// A product type (`Floats`, `LargeUnits`) has
//   Inputs               the arrays of the inputs;
//   ROWS, TOGETHER       rows of a tile, and tiles that a warp has of a matrix with short rows;
//   tile_bytes           the bytes of a tile;
//   Place                where a block keeps inputs;
//   tile<W, T>           the products of the tiles at W places with T inputs, which begin at elements `at` of the input arrays; `ready`
//                        is called once the first weights are under way, and before inputs are read;
//   row, input<T>, owns<T>  which of a tile's rows and of the inputs it is that this lane has the product of, and whether this
//                        is the lane to write it.
#pragma once
#include "units.cuh"

// Threads of a block: four warps, so four tiles.
#define THREADS 128
#define WARPS (THREADS / WARP)

// Inputs at a time.
#define CHUNK 4

__device__ __forceinline__ u32 lane() { return threadIdx.x % WARP; }

// Adds up over the warp by halving (16 apart, then 8, 4, 2, 1), for T inputs at once: while there are several, each half of
// the lanes goes on with half of them. A lane's result is that of input `lane / (32 / T)`.
template <u32 T> __device__ __forceinline__ float join_inputs(float (&v)[T]) {
    u32 apart = WARP / 2;
#pragma unroll
    for (u32 n = T / 2; n > 0; n /= 2, apart /= 2) {
        bool upper = lane() & apart;
#pragma unroll
        for (u32 i = 0; i < n; i++) {
            float kept = upper ? v[i + n] : v[i], given = upper ? v[i] : v[i + n];
            v[i] = kept + __shfl_xor_sync(ALL, given, apart);
        }
    }
#pragma unroll
    for (; apart > 0; apart /= 2) v[0] += __shfl_xor_sync(ALL, v[0], apart);
    return v[0];
}

// Copies `words` words, at most MOST, to shared memory: some are asked for before the first arrives. By BLOCK threads.
template <u32 MOST, u32 BLOCK = THREADS> __device__ __forceinline__ void bring(u32* to, const u32* from, u32 words) {
    constexpr u32 EACH = (MOST + 4 * BLOCK - 1) / (4 * BLOCK), AT_ONCE = EACH < 5 || BLOCK > THREADS ? EACH : 5;
    if (((u64)from & 15) == 0 && words % 4 == 0) {
#pragma unroll 1
        for (u32 first = 4 * threadIdx.x; first < words; first += 4 * BLOCK * AT_ONCE) {
            uint4 four[AT_ONCE];
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
                if (first + 4 * BLOCK * k < words) four[k] = __ldg((const uint4*)(from + first + 4 * BLOCK * k));
            }
#pragma unroll
            for (u32 k = 0; k < AT_ONCE; k++) {
                if (first + 4 * BLOCK * k < words) *(uint4*)(to + first + 4 * BLOCK * k) = four[k];
            }
        }
        return;
    }
    // Such are only in models of odd sizes.
#pragma unroll 1
    for (u32 i = threadIdx.x; i < words; i += BLOCK) to[i] = __ldg(from + i);
}

// --- weights that are floats ---
//
// Element i meets partial sum i mod 32, which is lane i mod 32's. A row is arranged so that a lane finds what it needs side by
// side: pieces of 32 * N elements, N of them a lane's, for N as large as 16 bytes allow as long as the row has so many, then
// for N half as large, and so on; fewer than 32 at the end lie as they are. Rows begin at multiples of 16 bytes.

struct F32 {
    static constexpr u32 BYTES = 4;
    static __device__ __forceinline__ float value(const u32* words, u32 i) { return __uint_as_float(words[i]); }
};

struct F16 {
    static constexpr u32 BYTES = 2;
    static __device__ __forceinline__ float value(const u32* words, u32 i) { return low_half(words[i / 2] >> i % 2 * 16); }
};

struct BF16 {
    static constexpr u32 BYTES = 2;
    static __device__ __forceinline__ float value(const u32* words, u32 i) {
        return __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
    }
};

// N elements that are loaded at once, in whole words for as long as they are under way.
template <class F, u32 N> struct Few {
    u32 words[(N * F::BYTES + 3) / 4];

    __device__ __forceinline__ void load(const u8* w) {
        if constexpr (N * F::BYTES == 16) {
            *(uint4*)words = __ldg((const uint4*)w);
        } else if constexpr (N * F::BYTES == 8) {
            *(uint2*)words = __ldg((const uint2*)w);
        } else {
            words[0] = N * F::BYTES == 4 ? __ldg((const u32*)w) : read16(w);
        }
    }
    __device__ __forceinline__ float at(u32 i) const { return F::value(words, i); }
};

// Values of inputs in shared memory: the same part of each.
template <u32 ROOM> struct FloatsPlace {
    static constexpr u32 KEPT = ROOM;
    alignas(16) float values[KEPT];
};

// ROOM is for how many values of inputs a block has room: fewer parts one after another, or more blocks at a time. Of its BLOCK threads
// the first four warps compute, and all bring inputs. For one input a lane has PIECES pieces of weights under way.
template <class F, u32 ROOM, u32 BLOCK = THREADS, u32 PIECES = 8> struct Floats {
    typedef const float* Inputs;
    typedef FloatsPlace<ROOM> Place;
    static constexpr u32 ROWS = 1, TOGETHER = 1, MOST = 16 / F::BYTES;

    static __device__ __forceinline__ u32 row() { return 0; }
    template <u32 T> static __device__ __forceinline__ u32 input() { return lane() / (WARP / T); }
    template <u32 T> static __device__ __forceinline__ bool owns() { return lane() % (WARP / T) == 0; }
    static __device__ __forceinline__ u64 tile_bytes(u32 cols) { return ((u64)cols * F::BYTES + 15) / 16 * 16; }

    // Where element i of a row of `cols` lies.
    static __device__ __forceinline__ u32 place(u32 i, u32 cols) {
        u32 begin = 0;
        for (u32 n = MOST; n > 0; n /= 2) {
            u32 piece = WARP * n, whole = n == MOST ? (cols - begin) / piece * piece : cols - begin >= piece ? piece : 0;
            if (i < begin + whole) {
                u32 j = i - begin, within = j % piece;
                return begin + j / piece * piece + within % WARP * n + within / WARP;
            }
            begin += whole;
        }
        return i;
    }

    // Adds N of a lane's elements to the sums; the inputs begin at `x`, `apart` from each other.
    template <u32 N, u32 T>
    static __device__ __forceinline__ void add(const Few<F, N>& few, const float* x, u32 apart, float (&sums)[T]) {
#pragma unroll
        for (u32 e = 0; e < N; e++) {
            const float a = few.at(e);
#pragma unroll
            for (u32 t = 0; t < T; t++) sums[t] = fma_(a, x[t * apart + e * WARP + lane()], sums[t]);
        }
    }

    // What follows the whole pieces of a row: some of half their size, a quarter, an eighth, and less than 32 elements.
    template <u32 N, class = void> struct Rest {
        Few<F, N> few;
        Rest<N / 2> less;

        __device__ __forceinline__ void load(const u8* w, u32 at, u32 end) {
            const bool there = end - at >= WARP * N;
            if (there) few.load(w + (at + N * lane()) * F::BYTES);
            less.load(w, there ? at + WARP * N : at, end);
        }
        template <u32 T>
        __device__ __forceinline__ void add_to(u32 at, u32 end, const float* x, u32 apart, float (&sums)[T]) const {
            const bool there = end - at >= WARP * N;
            if (there) add(few, x + at, apart, sums);
            less.add_to(there ? at + WARP * N : at, end, x, apart, sums);
        }
    };
    template <class Nothing> struct Rest<0, Nothing> {
        Few<F, 1> few;

        __device__ __forceinline__ void load(const u8* w, u32 at, u32 end) {
            if (at + lane() < end) few.load(w + (at + lane()) * F::BYTES);
        }
        template <u32 T>
        __device__ __forceinline__ void add_to(u32 at, u32 end, const float* x, u32 apart, float (&sums)[T]) const {
            if (at + lane() < end) add(few, x + at, apart, sums);
        }
    };

    template <u32 W, u32 T, class Ready>
    static __device__ __forceinline__ void tile(const u8* const (&w)[W], Inputs& x, const u32 (&at)[T], u32 cols, u32 rows,
                                                Place& place, float (&out)[W], Ready ready) {
        // Pieces at a time, of each row; the next are under way meanwhile.
        constexpr u32 AHEAD = W > 1 ? 1 : T > 1 ? 2 : PIECES;
        const bool computes = BLOCK == THREADS || threadIdx.x < THREADS;
        constexpr u32 PIECE = WARP * MOST, PART = Place::KEPT / T / PIECE * PIECE;
        const u32 whole = cols / PIECE * PIECE;
        float sums[W][T] = {};
        Rest<MOST / 2> rest[W];
        Few<F, MOST> next[AHEAD][W];
        if (computes) {
#pragma unroll
            for (u32 r = 0; r < W; r++) rest[r].load(w[r], whole, cols);
            load_pieces(next, w, 0, whole);
        }
        ready();
        for (u32 from = 0; from < cols; from += PART) {
            const u32 end = min(from + PART, cols);
            __syncthreads();
#pragma unroll
            for (u32 t = 0; t < T; t++) {
                bring<PART, BLOCK>((u32*)(place.values + t * PART), (const u32*)(x + at[t] + from), end - from);
            }
            __syncthreads();
            if (!computes) continue;
            const float* here = place.values - from;
            const u32 until = min(end, whole);
#pragma unroll 1
            for (u32 i = from; i < until; i += AHEAD * PIECE) {
                Few<F, MOST> few[AHEAD][W];
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) {
#pragma unroll
                    for (u32 r = 0; r < W; r++) few[k][r] = next[k][r];
                }
                load_pieces(next, w, min(i + AHEAD * PIECE, until), whole);
                // All of them without a question in between, so that inputs are read ahead.
                if (i + AHEAD * PIECE <= until) {
#pragma unroll
                    for (u32 k = 0; k < AHEAD; k++) {
#pragma unroll
                        for (u32 r = 0; r < W; r++) add(few[k][r], here + i + k * PIECE, PART, sums[r]);
                    }
                    continue;
                }
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) {
                    if (i + k * PIECE >= until) break;
#pragma unroll
                    for (u32 r = 0; r < W; r++) add(few[k][r], here + i + k * PIECE, PART, sums[r]);
                }
            }
            if (end == cols) {
#pragma unroll
                for (u32 r = 0; r < W; r++) rest[r].add_to(whole, cols, here, PART, sums[r]);
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 r = 0; r < W; r++) out[r] = join_inputs(sums[r]);
    }

    template <u32 AHEAD, u32 W>
    static __device__ __forceinline__ void load_pieces(Few<F, MOST> (&pieces)[AHEAD][W], const u8* const (&w)[W], u32 from,
                                                       u32 whole) {
#pragma unroll
        for (u32 k = 0; k < AHEAD; k++) {
            if (from + k * WARP * MOST >= whole) continue;
#pragma unroll
            for (u32 r = 0; r < W; r++) pieces[k][r].load(w[r] + (from + k * WARP * MOST + MOST * lane()) * F::BYTES);
        }
    }
};

// --- weights that are integers ---

// Quantised inputs; element numbers count values, so a scale is at a 32nd of them and a sum at a 16th.
struct Integers {
    const i8* values;
    const float* scales;
    const i16* sums;
};

// Inputs in shared memory: the same part of each.
struct IntegersPlace {
    static constexpr u32 KEPT = 8192;
    alignas(16) i8 values[KEPT];
    alignas(16) float scales[KEPT / 32];
    alignas(16) i16 sums[KEPT / 16];

    // Brings elements `from` to `end` of T inputs, which lie KEPT / T apart then.
    template <u32 T> __device__ __forceinline__ void fill(const Integers& x, const u32 (&at)[T], u32 from, u32 end) {
        constexpr u32 PART = KEPT / T;
        const u32 count = end - from;
        // Inputs of an odd number of 32s have scales that begin at odd places.
        constexpr u32 EACH = (PART / 32 + THREADS - 1) / THREADS;
        __syncthreads();
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            const u32 begin = at[t] + from;
            float scale[EACH];
            u32 sum[EACH];
#pragma unroll
            for (u32 k = 0; k < EACH; k++) {
                const u32 i = threadIdx.x + k * THREADS;
                if (i >= count / 32) break;
                scale[k] = __ldg(x.scales + begin / 32 + i);
                sum[k] = __ldg((const u32*)x.sums + begin / 32 + i);
            }
            bring<PART / 4>((u32*)(values + t * PART), (const u32*)(x.values + begin), count / 4);
#pragma unroll
            for (u32 k = 0; k < EACH; k++) {
                const u32 i = threadIdx.x + k * THREADS;
                if (i >= count / 32) break;
                scales[t * PART / 32 + i] = scale[k];
                ((u32*)sums)[t * PART / 32 + i] = sum[k];
            }
        }
        __syncthreads();
    }
    __device__ __forceinline__ int4 sixteen(u32 at) const { return *(const int4*)(values + at); }
    __device__ __forceinline__ int2 eight(u32 at) const { return *(const int2*)(values + at); }
    __device__ __forceinline__ i32 four(u32 at) const { return *(const i32*)(values + at); }
    __device__ __forceinline__ float scale(u32 at) const { return scales[at / 32]; }
    // The sums of two neighbouring groups of 16.
    __device__ __forceinline__ short2 two_sums(u32 at) const { return *(const short2*)(sums + at / 16); }
};

// What integer weights have in common: a tile is four rows, each of which eight lanes share. Lane q of them has partial sum q,
// which units q, q + 8, ... of the row meet in order.
struct FourRows {
    typedef Integers Inputs;
    typedef IntegersPlace Place;
    static constexpr u32 ROWS = 4, LANES = WARP / ROWS;

    static __device__ __forceinline__ u32 row() { return lane() / LANES; }
    static __device__ __forceinline__ u32 part() { return lane() % LANES; }
    template <u32 T> static __device__ __forceinline__ u32 input() { return part() % T; }
    template <u32 T> static __device__ __forceinline__ bool owns() { return part() < T; }

    // Joins the eight partial sums by halving; each lane has the sum of its `input`.
    template <u32 T> static __device__ __forceinline__ float join(float (&sums)[T]) {
        float mine = 0.0f;
#pragma unroll
        for (u32 t = 0; t < T; t++) {
#pragma unroll
            for (u32 apart = 4; apart > 0; apart /= 2) sums[t] += __shfl_xor_sync(ALL, sums[t], apart);
            mine = input<T>() == t ? sums[t] : mine;
        }
        return mine;
    }
};

// Types with units of 32 values or fewer, arranged in tiles: for every eight units, the levels of all 32 (row by row), then
// their headers, which have the float scales. So a warp's loads are wide and side by side. Where a row has not eight units left,
// the last have the same order. Each part begins at a multiple of 16 bytes; rows that a matrix has not are zeros. What computes with
// them is in products_tiles.cuh and many.cuh.
template <class U> struct Tiles : FourRows {
    static __device__ __forceinline__ u32 level_bytes(u32 units) { return (ROWS * units * U::LEVELS + 15) / 16 * 16; }
    static __device__ __forceinline__ u32 bytes(u32 units) {
        return level_bytes(units) + (ROWS * ((units + U::SHARE - 1) / U::SHARE) * U::HEADER + 15) / 16 * 16;
    }
    static __device__ __forceinline__ u64 tile_bytes(u32 cols) {
        const u32 units = cols / U::UNIT;
        return (u64)(units / 8) * bytes(8) + (units % 8 ? bytes(units % 8) : 0);
    }

    // A lane's unit of eight.
    struct Unit {
        u32 levels[U::LEVELS / 4];
        u32 header[2];
    };

    static __device__ __forceinline__ void load_at(const u8* levels, const u8* header, Unit& unit) {
        if constexpr (U::LEVELS == 8) {
            *(uint2*)unit.levels = __ldg((const uint2*)levels);
        } else {
#pragma unroll
            for (u32 k = 0; k < U::LEVELS / 16; k++) ((uint4*)unit.levels)[k] = __ldg((const uint4*)levels + k);
        }
        if constexpr (U::HEADER == 1) {
            unit.header[0] = read8(header);
        } else if constexpr (U::HEADER == 2) {
            unit.header[0] = read16(header);
        } else if constexpr (U::HEADER == 4) {
            unit.header[0] = __ldg((const u32*)header);
        } else {
            unit.header[0] = read32(header);
            unit.header[1] = U::HEADER == 6 ? read16(header + 4) : read32(header + 4);
        }
    }

    // Where a lane's units of a row are, from the tile's beginning. Whole eights have them in the same places.
    struct Places {
        u32 whole, levels, header, rest_levels, rest_header;

        __device__ __forceinline__ explicit Places(u32 units) : whole(units / 8) {
            at(8, levels, header);
            at(max(units % 8, 1), rest_levels, rest_header);
        }
        // Of an eight with n units; lanes behind the last have it too.
        static __device__ __forceinline__ void at(u32 n, u32& levels, u32& header) {
            const u32 q = min(part(), n - 1), headers = (n + U::SHARE - 1) / U::SHARE;
            levels = (row() * n + q) * U::LEVELS;
            header = level_bytes(n) + (row() * headers + q / U::SHARE) * U::HEADER;
        }
        __device__ __forceinline__ void load(const u8* w, u32 eight, Unit& unit) const {
            const bool all = eight < whole;
            w += eight * bytes(8);
            load_at(w + (all ? levels : rest_levels), w + (all ? header : rest_header), unit);
        }
    };

    static __device__ __forceinline__ void load(const u8* w, u32 eight, u32 units, Unit& unit) { Places(units).load(w, eight, unit); }
};

// Products with weights in tiles (`Tiles` in products.cuh), for the few inputs of a window.
//
// Where there are enough of them, each warp has tiles of its own, W at a time. A matrix of few rows would leave most of the processor
// idle then: a partial sum meets its units in order. But what a unit brings to it, a factor and an exact integer, waits for nothing. So
// two, four or eight warps share out the eights of their tiles, and all work at the same time: each puts what its units bring into
// shared memory, and then one warp for each tile and input adds it up in order. The host says how many (src/matrix.rs).
#pragma once
#include "kernels.cuh"

// Threads of a block.
#define TILE_THREADS 256
#define TILE_WARPS (TILE_THREADS / WARP)

// Tiles that a warp works on together: two of a matrix, or one of the gate and one of the up projections.
#define TILE_PAIR 2

// How the warps of a block share out rows: 2^share of them are a group, which has tiles of its own.
struct Shares {
    u32 share;

    __device__ __forceinline__ u32 warps() const { return 1 << share; }
    __device__ __forceinline__ u32 groups() const { return TILE_WARPS >> share; }
    // Which eight of a row is this warp's first, and which group it is of.
    __device__ __forceinline__ u32 first() const { return threadIdx.x / WARP & (warps() - 1); }
    __device__ __forceinline__ u32 group() const { return threadIdx.x / WARP >> share; }
    // Rows of a matrix that a block takes, `tiles` of them to a warp.
    __device__ __forceinline__ u32 rows(u32 tiles) const { return FourRows::ROWS * tiles * groups(); }
};

// What a unit brings to a partial sum: `fma(factor, product, sum)`, and for types with minimums the same of those.
template <bool MINS> struct Term {
    float2 main;
    static constexpr u32 WORDS = 2;
    __device__ __forceinline__ float onto(float sum) const { return fma_(main.x, main.y, sum); }
};
template <> struct Term<true> {
    float4 both;
    static constexpr u32 WORDS = 4;
    __device__ __forceinline__ float onto(float sum) const { return fma_(both.z, both.w, fma_(both.x, both.y, sum)); }
};

template <class U> struct TileProducts {
    typedef Tiles<U> P;
    typedef Term<U::MINS> Brought;
    // Terms of a warp that there is room for.
    static constexpr u32 KEPT = 192 / Brought::WORDS;

    // Terms by tile, eight, input and lane.
    struct Place {
        Brought terms[KEPT][WARP];
    };

    // Whether the sums of inputs are wanted: for minimums, or since levels are taken as they are stored, with no offset.
    static constexpr bool SUMS = U::MINS || U::OFFSET != 0;

    // An input's values under a lane's unit.
    struct Input {
        i32 values[U::UNIT / 4];
        float scale;
        i32 sum;

        // From an element on.
        __device__ __forceinline__ void load(const Integers& x, u32 at) {
#pragma unroll
            for (u32 j = 0; j < U::UNIT / 16; j++) *(int4*)(values + 4 * j) = *(const int4*)(x.values + at + 16 * j);
            scale = x.scales[at / 32];
            if constexpr (SUMS) {
                const u32 two = *(const u32*)(x.sums + at / 16);
                sum = (i16)two + ((i32)two >> 16);
            }
        }
        // In the order of the planes that levels of two bits lie in.
        __device__ __forceinline__ void turn() {
            if constexpr (U::PLANES) {
#pragma unroll
                for (u32 j = 0; j < U::UNIT / 4; j += 4) {
                    const u32 a = values[j], b = values[j + 1], c = values[j + 2], d = values[j + 3];
                    const u32 low = bytes_of(a, b, 0x5140), high = bytes_of(a, b, 0x7362);
                    const u32 low_too = bytes_of(c, d, 0x5140), high_too = bytes_of(c, d, 0x7362);
                    values[j] = bytes_of(low, low_too, 0x5410), values[j + 1] = bytes_of(low, low_too, 0x7632);
                    values[j + 2] = bytes_of(high, high_too, 0x5410), values[j + 3] = bytes_of(high, high_too, 0x7632);
                }
            }
        }
    };

    static __device__ __forceinline__ Brought term(const i32 (&words)[U::UNIT / 4], float d, float d_min, const Input& input) {
        i32 p = 0;
        if constexpr (U::OFFSET != 0) p = -(i32)U::OFFSET * input.sum;
#pragma unroll
        for (u32 j = 0; j < U::UNIT / 4; j++) p = __dp4a(words[j], input.values[j], p);
        if constexpr (U::MINS) {
            return {float4{d * input.scale, (float)p, d_min * input.scale, -(float)input.sum}};
        } else {
            return {float2{d * input.scale, (float)p}};
        }
    }

    // Products that a warp ends up with, where rows are shared out: some groups' and inputs', of W tiles each.
    template <u32 T> static __device__ constexpr u32 sums() { return T == 1 ? 1 : (TILE_WARPS / 2 * T + TILE_WARPS - 1) / TILE_WARPS; }

    // The units of W tiles in AHEAD eights.
    template <u32 W, u32 AHEAD> struct Batch {
        typename P::Unit unit[AHEAD][W];

        // From an eight on, `apart` from each other; the last again where there are no more, so that nothing is asked in between.
        __device__ __forceinline__ void load(const u8* const (&w)[W], const typename P::Places& places, u32 eight, u32 apart,
                                             u32 eights) {
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) {
#pragma unroll
                for (u32 r = 0; r < W; r++) places.load(w[r], min(eight + k * apart, eights - 1), unit[k][r]);
            }
        }
    };

    // What inputs have under a lane's unit of an eight. Lanes behind the last unit have it too, and nobody adds what they bring.
    template <u32 T>
    static __device__ __forceinline__ void load_inputs(Input (&input)[T], const Integers& x, const u32 (&at)[T], u32 eight, u32 units) {
        const u32 first = min(8 * eight + P::part(), units - 1) * U::UNIT;
#pragma unroll
        for (u32 t = 0; t < T; t++) input[t].load(x, at[t] + first);
    }

    // Calls `take` with each tile and input and what a lane's units of an eight bring to its sum.
    template <u32 W, u32 T, class Take>
    static __device__ __forceinline__ void open(const typename P::Unit (&unit)[W], Input (&input)[T], Take take) {
#pragma unroll
        for (u32 t = 0; t < T; t++) input[t].turn();
#pragma unroll
        for (u32 r = 0; r < W; r++) {
            i32 words[U::UNIT / 4];
            float d, d_min = 0.0f;
            if constexpr (U::OFFSET != 0) {
                U::stored(unit[r].levels, unit[r].header, words, d);
            } else {
                U::open(unit[r].levels, unit[r].header, words, d, d_min);
            }
#pragma unroll
            for (u32 t = 0; t < T; t++) take(r, t, term(words, d, d_min, input[t]));
        }
    }

    // Words of a unit, and units that fit into so many registers.
    static constexpr u32 WORDS = U::LEVELS / 4 + (U::HEADER > 4 ? 2 : 1);
    static __device__ constexpr u32 fit(u32 registers, u32 tiles, u32 most) {
        return registers / (tiles * WORDS) < 1 ? 1 : registers / (tiles * WORDS) > most ? most : registers / (tiles * WORDS);
    }

    static __device__ __forceinline__ float join(float v) {
#pragma unroll
        for (u32 apart = 4; apart > 0; apart /= 2) v += __shfl_xor_sync(ALL, v, apart);
        return v;
    }

    // The products of the tiles at W places with T inputs, which begin at elements `at`, where each warp has its own: sum t is that of
    // input t. `ready` is called once the first weights are under way, and before inputs are read. Eight lanes share each row, and have
    // its product.
    template <u32 W, u32 T, class Ready>
    static __device__ __forceinline__ void alone(const u8* const (&w)[W], Integers& x, const u32 (&at)[T], u32 cols,
                                                 float (&out)[T][W], Ready ready) {
        constexpr u32 AHEAD = T > 1 ? 1 : fit(U::MINS || U::HEADER > 4 ? 24 : 30, W, 3);
        const u32 units = cols / U::UNIT, eights = (units + 7) / 8;
        const typename P::Places places(units);
        float sum[T][W] = {};
#pragma unroll 1
        for (u32 first = 0; first < eights; first += AHEAD) {
            Batch<W, AHEAD> batch;
            batch.load(w, places, first, 1, eights);
            ready();
            Input input[AHEAD][T];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) load_inputs(input[k], x, at, first + k, units);
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) {
                const bool live = 8 * (first + k) + P::part() < units;
                open<W, T>(batch.unit[k], input[k], [&](u32 r, u32 t, const Brought& brought) {
                    const float more = brought.onto(sum[t][r]);
                    sum[t][r] = live ? more : sum[t][r];
                });
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 t = 0; t < T; t++) {
#pragma unroll
            for (u32 r = 0; r < W; r++) out[t][r] = join(sum[t][r]);
        }
    }

    // The same where warps share rows out: sum s of warp v is that of group (v + 8 s) / T and input (v + 8 s) % T.
    template <u32 W, u32 T, class Ready>
    static __device__ __forceinline__ void shared(const u8* const (&w)[W], Integers& x, const u32 (&at)[T], u32 cols,
                                                  const Shares& shares, Place& place, float (&out)[sums<T>()][W], Ready ready) {
        constexpr u32 AHEAD = T > 1 ? 1 : fit(U::MINS || U::HEADER > 4 ? 24 : 30, W, 3);
        const u32 units = cols / U::UNIT, eights = (units + 7) / 8, warp = threadIdx.x / WARP, part = P::part();
        // Eights that there is room for, of all groups.
        const u32 segment = KEPT / (W * T) >> (3 - shares.share), mine = shares.group() * W;
        const typename P::Places places(units);
        float sum[sums<T>()][W] = {};
#pragma unroll 1
        for (u32 from = 0; from < eights; from += segment) {
            const u32 end = min(from + segment, eights);
            // All have read what was there.
            __syncthreads();
#pragma unroll 1
            for (u32 e = from + shares.first(); e < end; e += AHEAD << shares.share) {
                Batch<W, AHEAD> batch;
                batch.load(w, places, e, shares.warps(), eights);
                ready();
                Input input[AHEAD][T];
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) load_inputs(input[k], x, at, e + (k << shares.share), units);
#pragma unroll
                for (u32 k = 0; k < AHEAD; k++) {
                    const u32 eight = e + (k << shares.share);
                    open<W, T>(batch.unit[k], input[k], [&](u32 r, u32 t, const Brought& brought) {
                        const u32 slot = ((mine + r) * segment + eight - from) * T + t;
                        if (eight < end) place.terms[slot][lane()] = brought;
                    });
                }
            }
            // Those that had nothing to load wait like all others.
            ready();
            __syncthreads();
#pragma unroll
            for (u32 s = 0; s < sums<T>(); s++) {
                const u32 which = warp + TILE_WARPS * s;
                if (which >= shares.groups() * T) break;
#pragma unroll 4
                for (u32 eight = from; eight < end; eight++) {
                    const bool live = 8 * eight + part < units;
#pragma unroll
                    for (u32 r = 0; r < W; r++) {
                        const u32 slot = ((which / T * W + r) * segment + eight - from) * T + which % T;
                        const float more = place.terms[slot][lane()].onto(sum[s][r]);
                        sum[s][r] = live ? more : sum[s][r];
                    }
                }
            }
        }
        __syncwarp();
#pragma unroll
        for (u32 s = 0; s < sums<T>(); s++) {
#pragma unroll
            for (u32 r = 0; r < W; r++) out[s][r] = join(sum[s][r]);
        }
    }

    // Calls `write` with the group, the input and the products of W tiles of the group.
    template <u32 W, u32 T, class Ready, class Write>
    static __device__ __forceinline__ void products(const u8* const (&w)[W], Integers& x, const u32 (&at)[T], u32 cols,
                                                    const Shares& shares, Place& place, Ready ready, Write write) {
        if (shares.share == 0) {
            float out[T][W];
            alone<W, T>(w, x, at, cols, out, ready);
            // Each of a row's lanes writes those of some inputs.
#pragma unroll
            for (u32 t = 0; t < T; t++) {
                if (P::part() == t) write(threadIdx.x / WARP, t, out[t]);
            }
        } else {
            float out[sums<T>()][W];
            shared<W, T>(w, x, at, cols, shares, place, out, ready);
#pragma unroll
            for (u32 s = 0; s < sums<T>(); s++) {
                const u32 which = threadIdx.x / WARP + TILE_WARPS * s;
                if (which < shares.groups() * T && P::part() == 0) write(which / T, which % T, out[s]);
            }
        }
    }
};

// Inputs `first` to `first + count` of a matrix product, for a block's rows from tile `begin` on.
template <class U> struct TileMulChunk {
    const u8* w;
    Integers x;
    float* y;
    typename TileProducts<U>::Place& place;
    const Shares& shares;
    u32 begin, rows, cols, first;
    float scale;
    u32 act;
    float divisor;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) {
        typedef TileProducts<U> Q;
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = (first + min(t, count - 1)) * cols;
        // Behind the last tile there is the last again.
        const u32 last = (rows + Q::P::ROWS - 1) / Q::P::ROWS - 1, mine = begin + TILE_PAIR * shares.group();
        const u8* tiles[TILE_PAIR];
#pragma unroll
        for (u32 r = 0; r < TILE_PAIR; r++) tiles[r] = anew(w + min(mine + r, last) * Q::P::tile_bytes(cols));
        const auto write = [&](u32 group, u32 t, const float (&out)[TILE_PAIR]) {
            if (t >= count) return;
#pragma unroll
            for (u32 r = 0; r < TILE_PAIR; r++) {
                const u32 row = (begin + TILE_PAIR * group + r) * Q::P::ROWS + Q::P::row();
                if (row < rows) y[(u64)(first + t) * rows + row] = acted(out[r] * scale, act, divisor);
            }
        };
        Q::template products<TILE_PAIR, T>(tiles, x, at, cols, shares, place, [this] { wait_for(x); }, write);
    }
};

template <class U>
__device__ __forceinline__ void mul_tiles(const Matrices& all, Integers x, u32 cols, u32 tokens, float divisor, Shares shares) {
    __shared__ typename TileProducts<U>::Place place;
    const Which which(all, shares.rows(TILE_PAIR));
    announce();
    const u32 begin = which.block * TILE_PAIR * shares.groups(), tile = begin + TILE_PAIR * shares.group();
    // The weights are no kernel's work: they come nearer while others still make the inputs.
    const u32 tiles = (which.rows + FourRows::ROWS - 1) / FourRows::ROWS;
    if (blockIdx.x < FIRST_BLOCKS && shares.first() == 0 && lane() == 0 && tile < tiles) {
        fetch_ahead(which.w + tile * Tiles<U>::tile_bytes(cols), min(TILE_PAIR, tiles - tile) * Tiles<U>::tile_bytes(cols));
    }
    if (which.rows == 0) wait_for_former();
    if (which.rows == 0) return;
#pragma unroll 1
    for (u32 first = CHUNK * blockIdx.y; first < tokens; first += CHUNK * gridDim.y) {
        by_count(min(tokens - first, CHUNK), TileMulChunk<U>{which.w, x, which.y, place, shares, begin, which.rows, cols, first,
                                                             which.scale, which.act, divisor});
    }
}

// Entries of a group from `first` on; `tokens` names their inputs.
template <class U> struct TileGateUpChunk {
    const u8 *gate, *up;
    Integers x;
    const u32* tokens;
    float* middle;
    typename TileProducts<U>::Place& place;
    const Shares& shares;
    u32 width, cols, first;
    float gate_scale, up_scale;

    template <u32 T> __device__ __forceinline__ void chunk(u32 count) {
        typedef TileProducts<U> Q;
        u32 at[T];
#pragma unroll
        for (u32 t = 0; t < T; t++) at[t] = __ldg(tokens + first + min(t, count - 1)) * cols;
        const u32 last = (width + Q::P::ROWS - 1) / Q::P::ROWS - 1, begin = blockIdx.x * shares.groups();
        const u64 tile = min(begin + shares.group(), last) * Q::P::tile_bytes(cols);
        const u8* const tiles[2] = {anew(gate + tile), anew(up + tile)};
        const auto write = [&](u32 group, u32 t, const float (&out)[2]) {
            const u32 row = (begin + group) * Q::P::ROWS + Q::P::row();
            if (t < count && row < width) {
                middle[(u64)(first + t) * width + row] = silu(out[0] * gate_scale) * (out[1] * up_scale);
            }
        };
        Q::template products<2, T>(tiles, x, at, cols, shares, place, [] {}, write);
    }
};

template <class U>
__device__ __forceinline__ void gate_up_tiles(const u64* gates, const u64* ups, const u32* starts, const u32* tokens, Integers x,
                                              float* middle, u32 groups, u32 width, u32 cols, float gate_scale, float up_scale,
                                              Shares shares) {
    __shared__ typename TileProducts<U>::Place place;
    const u32 group = blockIdx.y;
    if (group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    if (begin >= end) return;
    const u8 *gate = (const u8*)__ldg(gates + group), *up = (const u8*)__ldg(ups + group);
#pragma unroll 1
    for (u32 first = begin; first < end; first += CHUNK * gridDim.z) {
        by_count(min(end - first, CHUNK), TileGateUpChunk<U>{gate, up, x, tokens, middle, place, shares, width, cols, first,
                                                             gate_scale, up_scale});
    }
}

template <class U>
__device__ __forceinline__ void down_tiles(const u64* downs, const u32* starts, Integers x, float* results, u32 groups, u32 rows,
                                           u32 cols, float scale, Shares shares) {
    __shared__ typename TileProducts<U>::Place place;
    const u32 group = blockIdx.y;
    if (group >= groups) return;
    const u32 end = __ldg(starts + group + 1), begin = __ldg(starts + group) + CHUNK * blockIdx.z;
    if (begin >= end) return;
    const u8* w = (const u8*)__ldg(downs + group);
    const u32 tile = blockIdx.x * TILE_PAIR * shares.groups();
#pragma unroll 1
    for (u32 first = begin; first < end; first += CHUNK * gridDim.z) {
        by_count(min(end - first, CHUNK),
                 TileMulChunk<U>{w, x, results, place, shares, tile, rows, cols, first, scale, 0, 1.0f});
    }
}

// The kernels of kernels.cuh, which take a power of two more: that of the warps that share rows out. Blocks of TILE_THREADS take
// `Shares::rows` rows: TILE_PAIR tiles to a warp, one of each projection for `gate_up_*`.
#define TILE_PRODUCT __launch_bounds__(TILE_THREADS, 2)
#define TILE_PRODUCTS(name, U)                                                                                                   \
    KERNEL TILE_PRODUCT mul_##name(Matrices all, const i8* values, const float* scales, const i16* sums, u32 cols, u32 tokens,   \
                                   float divisor, u32 share) {                                                                   \
        mul_tiles<U>(all, Integers{values, scales, sums}, cols, tokens, divisor, Shares{share});                                 \
    }                                                                                                                            \
    KERNEL TILE_PRODUCT gate_up_##name(const u64* gate, const u64* up, const u32* starts, const u32* tokens, const i8* values,   \
                                       const float* scales, const i16* sums, float* middle, u32 groups, u32 width, u32 cols,     \
                                       float gate_scale, float up_scale, u32 share) {                                            \
        follow();                                                                                                                \
        gate_up_tiles<U>(gate, up, starts, tokens, Integers{values, scales, sums}, middle, groups, width, cols, gate_scale,      \
                         up_scale, Shares{share});                                                                               \
    }                                                                                                                            \
    KERNEL TILE_PRODUCT down_##name(const u64* down_, const u32* starts, const i8* values, const float* scales, const i16* sums, \
                                    float* results, u32 groups, u32 rows, u32 cols, float scale, u32 share) {                    \
        follow();                                                                                                                \
        down_tiles<U>(down_, starts, Integers{values, scales, sums}, results, groups, rows, cols, scale, Shares{share});         \
    }

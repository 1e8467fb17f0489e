// Rows of weights times rows of inputs: one warp computes a row of outputs for one or four inputs at a time, reading and
// unpacking the weights once for them. What it reads again for more inputs is in a cache by then. (Eight at a time would save
// little: with four, unpacking is a third of the work, and registers would cost more than that.)
//
// A product type (`Floats`, `SmallUnits`, `LargeUnits`) has
//   Inputs             the arrays of the inputs;
//   row_bytes          the bytes of a row of weights;
//   begin, input_bytes where an input's values lie, and how many bytes they are;
//   row<T>             the product of a row with one of T inputs, which begin at elements `at` of the input arrays;
//   input<T>, owns<T>  which of them it is that this lane has, and whether this is the lane to write it.
#pragma once
#include "units.cuh"

// Threads of a block: four warps, so four rows.
#define THREADS 128

// Inputs at a time.
#define CHUNK 4

__device__ __forceinline__ u32 lane() { return threadIdx.x % WARP; }

// Loads a word of every 32 bytes of a row, so that its own loads, which are small and in steps, find them in the nearest cache
// and do not each wait for memory. The result depends on all words: whoever calls must seem to need it.
__device__ __forceinline__ u32 ahead(const u8* w, u64 bytes) {
    constexpr u32 AT_ONCE = 8;
    // Whole sectors; memory begins at multiples of them.
    const u8 *from = (const u8*)((u64)w & ~(u64)31) + 32 * lane(), *end = w + bytes;
    u32 all = 0;
#pragma unroll 1
    for (; from < end; from += 32 * WARP * AT_ONCE) {
        u32 words[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            const u8* at = from + 32 * WARP * k;
            words[k] = __ldg((const u32*)(at < end ? at : from));
        }
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) all ^= words[k];
    }
    return all;
}

// A short row that is asked for while another is computed: at most 2,048 bytes of it.
struct Next {
    u32 words[2];

    __device__ __forceinline__ void ask(const u8* w, u64 bytes) {
        const u8 *from = (const u8*)((u64)w & ~(u64)31) + 32 * lane(), *end = w + bytes;
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u8* at = from + 32 * WARP * k;
            words[k] = at < end ? __ldg((const u32*)at) : 0;
        }
    }
    __device__ __forceinline__ u32 all() const { return words[0] ^ words[1]; }
};

// [`ahead`] of the inputs, of which each of a block's warps asks for its share: all of them want all of it.
__device__ __forceinline__ u32 ahead_shared(const u8* x, u64 bytes) {
    constexpr u32 WARPS = THREADS / WARP;
    const u64 share = (bytes / WARPS + 31) & ~(u64)31, from = share * (threadIdx.x / WARP);
    return from < bytes ? ahead(x + from, min(share, bytes - from)) : 0;
}

// Keeps what was loaded ahead: true for no kernel that has rows to compute.
__device__ __forceinline__ bool needed(u32 all, u32 rows) { return rows == 0 && all == 1; }

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

struct F32 {
    static constexpr u32 BYTES = 4;
    static __device__ __forceinline__ float at(const u8* w, u32 i) { return __ldg((const float*)w + i); }
};

struct F16 {
    static constexpr u32 BYTES = 2;
    static __device__ __forceinline__ float at(const u8* w, u32 i) { return read_half(w + 2 * (u64)i); }
};

struct BF16 {
    static constexpr u32 BYTES = 2;
    static __device__ __forceinline__ float at(const u8* w, u32 i) { return bf16_to_float((u16)read16(w + 2 * (u64)i)); }
};

// Float weights: element i meets partial sum i mod 32, which is lane i mod 32's.
template <class F> struct Floats {
    typedef const float* Inputs;
    template <u32 T> static __device__ __forceinline__ u32 input() { return lane() / (WARP / T); }
    template <u32 T> static __device__ __forceinline__ bool owns() { return lane() % (WARP / T) == 0; }
    static __device__ __forceinline__ u64 row_bytes(u32 cols) { return (u64)cols * F::BYTES; }
    static __device__ __forceinline__ const u8* begin(const float* x, u32 at) { return (const u8*)(x + at); }
    static __device__ __forceinline__ u64 input_bytes(u32 cols) { return (u64)cols * 4; }

    template <u32 T>
    static __device__ __forceinline__ float row(const u8* w, Inputs x, const u32 (&at)[T], u32 cols) {
        // Weights under way at a time. Inputs are in a cache already.
        constexpr u32 AHEAD = T == 1 ? 16 : 4;
        float sums[T] = {};
        u32 i = lane(), whole = cols / (WARP * AHEAD) * (WARP * AHEAD);
#pragma unroll 1
        for (; i < whole; i += WARP * AHEAD) {
            float a[AHEAD];
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) a[k] = F::at(w, i + WARP * k);
#pragma unroll
            for (u32 k = 0; k < AHEAD; k++) {
#pragma unroll
                for (u32 t = 0; t < T; t++) sums[t] = fma_(a[k], __ldg(x + (at[t] + i + WARP * k)), sums[t]);
            }
        }
#pragma unroll 1
        for (; i < cols; i += WARP) {
            float a = F::at(w, i);
#pragma unroll
            for (u32 t = 0; t < T; t++) sums[t] = fma_(a, __ldg(x + (at[t] + i)), sums[t]);
        }
        __syncwarp();
        return join_inputs(sums);
    }
};

// Quantised inputs; element numbers count values, so a scale is at a 32nd of them and a sum at a 16th.
struct Integers {
    const i8* values;
    const float* scales;
    const i16* sums;

    __device__ __forceinline__ i32 four(u32 at) const { return __ldg((const i32*)(values + at)); }
    __device__ __forceinline__ int2 eight(u32 at) const { return __ldg((const int2*)(values + at)); }
    __device__ __forceinline__ float scale(u32 at) const { return __ldg(scales + at / 32); }
    // The sums of two neighbouring groups of 16.
    __device__ __forceinline__ short2 two_sums(u32 at) const { return __ldg((const short2*)(sums + at / 16)); }
};

// Integer weights. Every four lanes share units: four `q` has partial sum q. When a unit's integers are added up over the four,
// its lanes go on with one of the T inputs each, or all with the only one.
template <class U> struct Units {
    typedef Integers Inputs;

    // Lanes of a four that go on with the same input, and which of them this is.
    template <u32 T> static constexpr u32 COPIES = 4 / T;
    template <u32 T> static __device__ __forceinline__ u32 copy() { return lane() % COPIES<T>; }

    template <u32 T> static __device__ __forceinline__ u32 input() { return lane() % 4 / COPIES<T>; }
    template <u32 T> static __device__ __forceinline__ bool owns() { return lane() < 4 && copy<T>() == 0; }

    // The element at which this lane's input begins.
    template <u32 T> static __device__ __forceinline__ u32 own(const u32 (&at)[T]) {
        u32 mine = at[0];
#pragma unroll
        for (u32 t = 1; t < T; t++) mine = input<T>() == t ? at[t] : mine;
        return mine;
    }

    // The sum over a four's lanes of the integers of this lane's input.
    template <u32 T> static __device__ __forceinline__ i32 add_up(i32 (&v)[T]) {
        u32 apart = 2;
#pragma unroll
        for (u32 n = T / 2; n > 0; n /= 2, apart /= 2) {
            bool upper = lane() & apart;
#pragma unroll
            for (u32 i = 0; i < n; i++) {
                i32 kept = upper ? v[i + n] : v[i], given = upper ? v[i] : v[i + n];
                v[i] = kept + __shfl_xor_sync(ALL, given, apart);
            }
        }
#pragma unroll
        for (; apart > 0; apart /= 2) v[0] += __shfl_xor_sync(ALL, v[0], apart);
        return v[0];
    }

    // Joins the eight partial sums by halving; the first four has the result.
    static __device__ __forceinline__ float join(float sum) {
#pragma unroll
        for (u32 apart = 16; apart >= 4; apart /= 2) sum += __shfl_down_sync(ALL, sum, apart);
        return sum;
    }
};

// Types with units of 32 values or fewer: each lane takes a unit, and adds its integers up by itself. What is left is the order:
// partial sum q takes units q, q + 8, q + 16, q + 24 of the warp's 32, so every lane with `lane % 8 == q` follows it.
template <class U> struct SmallUnits {
    typedef Integers Inputs;

    template <u32 T> static __device__ __forceinline__ u32 input() { return lane() / 8; }
    template <u32 T> static __device__ __forceinline__ bool owns() { return lane() % 8 == 0 && lane() / 8 < T; }

    static __device__ __forceinline__ u64 row_bytes(u32 cols) { return (u64)(cols / (U::UNIT * U::PER_BLOCK)) * U::BYTES; }

    // The levels of a unit, four to a word, in the order of the values.
    static __device__ __forceinline__ void levels(const u8* b, u32 part, i32 (&words)[U::UNIT / 4], float& d, float& d_min) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            i32 w[U::WORDS];
            U::take(b, part, j, w, d, d_min);
            if constexpr (U::WORDS == 1) {
                words[j] = w[0];
            } else if constexpr (U::APART == 4) {
                words[2 * j] = w[0], words[2 * j + 1] = w[1];
            } else {
                words[j] = w[0], words[j + 4] = w[1];
            }
        }
    }

    template <u32 T>
    static __device__ __forceinline__ float row(const u8* w, Integers x, const u32 (&at)[T], u32 cols) {
        const u32 units = cols / U::UNIT, q = lane() % 8;
        float sums[T] = {};
#pragma unroll 1
        for (u32 base = 0; base < units; base += WARP) {
            // Lanes behind the last unit take it too, and nobody follows them.
            const u32 u = min(base + lane(), units - 1), unit = u * U::UNIT;
            i32 words[U::UNIT / 4];
            float d, d_min = 0.0f;
            levels(w + (u64)(u / U::PER_BLOCK) * U::BYTES, u % U::PER_BLOCK, words, d, d_min);
#pragma unroll
            for (u32 t = 0; t < T; t++) {
                i32 p = 0;
#pragma unroll
                for (u32 k = 0; k < U::UNIT / 16; k++) {
                    int4 v = __ldg((const int4*)(x.values + at[t] + unit) + k);
                    p = __dp4a(words[4 * k], v.x, p);
                    p = __dp4a(words[4 * k + 1], v.y, p);
                    p = __dp4a(words[4 * k + 2], v.z, p);
                    p = __dp4a(words[4 * k + 3], v.w, p);
                }
                float a = x.scale(at[t] + unit), da = d * a, product = (float)p, dm = 0.0f, m = 0.0f;
                if constexpr (U::MINS) {
                    short2 two = x.two_sums(at[t] + unit);
                    dm = d_min * a;
                    m = -(float)(two.x + two.y);
                }
#pragma unroll
                for (u32 from = q; from < WARP; from += 8) {
                    float next = fma_(__shfl_sync(ALL, da, from), __shfl_sync(ALL, product, from), sums[t]);
                    if constexpr (U::MINS) next = fma_(__shfl_sync(ALL, dm, from), __shfl_sync(ALL, m, from), next);
                    sums[t] = base + from < units ? next : sums[t];
                }
            }
        }
        float mine = 0.0f;
#pragma unroll
        for (u32 t = 0; t < T; t++) {
#pragma unroll
            for (u32 apart = 4; apart > 0; apart /= 2) sums[t] += __shfl_xor_sync(ALL, sums[t], apart);
            mine = input<T>() == t ? sums[t] : mine;
        }
        return mine;
    }

    static __device__ __forceinline__ const u8* begin(Integers x, u32 at) { return (const u8*)x.values + at; }
    static __device__ __forceinline__ u64 input_bytes(u32 cols) { return cols; }
};

// Types with units of 256 values: eight units at a time, one for each four of lanes, whose pieces its lanes take in turn. When
// fewer are left, each has more lanes, up to sixteen.
template <class U> struct LargeUnits : Units<U> {
    typedef Units<U> Base;

    static __device__ __forceinline__ u64 row_bytes(u32 cols) { return (u64)(cols / U::UNIT) * U::BYTES; }
    static __device__ __forceinline__ const u8* begin(Integers x, u32 at) { return (const u8*)x.values + at; }
    static __device__ __forceinline__ u64 input_bytes(u32 cols) { return cols; }

    // Adds a piece of a unit, whose values begin at `unit`, to the integer sums of T inputs.
    template <u32 T>
    static __device__ __forceinline__ void add_piece(const u8* b, u32 piece, Integers x, const u32 (&at)[T], u32 unit,
                                                     i32 (&p)[T]) {
        i32 words[2], s[2];
        u32 first = U::piece(b, piece, words, s) + unit;
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            int2 v;
            if constexpr (U::APART == 4) {
                v = x.eight(at[t] + first);
            } else {
                v.x = x.four(at[t] + first);
                v.y = x.four(at[t] + first + U::APART);
            }
            if constexpr (U::ONE_SCALE) {
                p[t] += s[0] * __dp4a(words[1], v.y, __dp4a(words[0], v.x, 0));
            } else {
                p[t] += s[0] * __dp4a(words[0], v.x, 0) + s[1] * __dp4a(words[1], v.y, 0);
            }
        }
    }

    // The integer sum of a unit's minimums with the sums of this lane's input.
    template <u32 T> static __device__ __forceinline__ i32 mins(const u8* b, Integers x, u32 unit) {
        i32 out = 0;
#pragma unroll 2
        for (u32 p = Base::template copy<T>(); p < 8; p += Base::template COPIES<T>) {
            i32 first, second;
            U::mins(b, p, first, second);
            short2 m = x.two_sums(unit + 32 * p);
            out += first * m.x + second * m.y;
        }
#pragma unroll
        for (u32 apart = 1; apart < Base::template COPIES<T>; apart *= 2) out += __shfl_xor_sync(ALL, out, apart);
        return out;
    }

    template <u32 T>
    static __device__ __forceinline__ float row(const u8* w, Integers x, const u32 (&at)[T], u32 cols) {
        const u32 units = cols / U::UNIT, mine = Base::template own<T>(at);
        float sum = 0.0f;
#pragma unroll 1
        for (u32 base = 0; base < units; base += 8) {
            const u32 left = units - base, lanes = left > 4 ? 4 : left > 2 ? 8 : 16;
            const u32 group = lane() / lanes;
            i32 p[T] = {};
            if (group < left) {
                const u8* b = w + (u64)(base + group) * U::BYTES;
                // Each group begins elsewhere: units are 256 bytes of inputs apart, which are the same banks of the cache.
#pragma unroll 1
                for (u32 turn = 0; turn < WARP / lanes; turn += 2) {
#pragma unroll
                    for (u32 k = 0; k < 2; k++) {
                        u32 piece = (lanes * (turn + k + group) + lane() % lanes) % 32;
                        add_piece(b, piece, x, at, (base + group) * U::UNIT, p);
                    }
                }
            }
            __syncwarp();
            i32 product = Base::add_up(p);
#pragma unroll 1
            for (u32 apart = 4; apart < lanes; apart *= 2) product += __shfl_xor_sync(ALL, product, apart);
            // Four q goes on with unit base + q, wherever it was computed.
            const u32 four = lane() / 4, u = min(base + four, units - 1), unit = mine + u * U::UNIT;
            product = __shfl_sync(ALL, product, four * lanes + lane() % 4);
            const u8* b = w + (u64)u * U::BYTES;
            float d, d_min;
            U::scales(b, d, d_min);
            float a = x.scale(unit);
            float next = fma_(d * a, (float)product, sum);
            if constexpr (U::MINS) next = fma_(d_min * a, -(float)mins<T>(b, x, unit), next);
            sum = base + four < units ? next : sum;
        }
        return Base::join(sum);
    }
};

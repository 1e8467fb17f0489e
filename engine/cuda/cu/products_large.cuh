// Products with types of 256 values to a unit; see products.cuh for what a product type is.
#pragma once
#include "products.cuh"

// Loads a word of every 32 bytes, so that later loads, which are small and in steps, find them in the nearest cache and do not each
// wait for memory. The result depends on all words: whoever calls must seem to need it.
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

// Types with units of 256 values, as the file has them. Eight lanes share each unit, and the one whose partial sum it meets takes
// the result.
template <class U> struct LargeUnits : FourRows {
    static constexpr u32 TOGETHER = 1;

    static __device__ __forceinline__ u64 row_bytes(u32 cols) { return (u64)(cols / U::UNIT) * U::BYTES; }
    static __device__ __forceinline__ u64 tile_bytes(u32 cols) { return ROWS * row_bytes(cols); }

    // Adds a piece of a unit, whose values begin at `unit`, to the integer sums of T inputs.
    template <u32 T>
    static __device__ __forceinline__ void add_piece(const u8* b, u32 piece, const Place& place, u32 unit, i32 (&p)[T]) {
        constexpr u32 PART = Place::KEPT / T;
        i32 words[2], s[2];
        u32 first = U::piece(b, piece, words, s) + unit;
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            int2 v;
            if constexpr (U::APART == 4) {
                v = place.eight(t * PART + first);
            } else {
                v.x = place.four(t * PART + first);
                v.y = place.four(t * PART + first + U::APART);
            }
            if constexpr (U::ONE_SCALE) {
                p[t] += s[0] * __dp4a(words[1], v.y, __dp4a(words[0], v.x, 0));
            } else {
                p[t] += s[0] * __dp4a(words[0], v.x, 0) + s[1] * __dp4a(words[1], v.y, 0);
            }
        }
    }

    static __device__ __forceinline__ i32 over_lanes(i32 v) {
#pragma unroll
        for (u32 apart = 4; apart > 0; apart /= 2) v += __shfl_xor_sync(ALL, v, apart);
        return v;
    }

    template <u32 W, u32 T, class Ready>
    static __device__ __forceinline__ void tile(const u8* const (&tiles)[W], Integers& x, const u32 (&at)[T], u32 cols, u32 rows,
                                                Place& place, float (&out)[W], Ready ready) {
        constexpr u32 PART = Place::KEPT / T;
        const u32 units = cols / U::UNIT;
        u32 all = 0;
#pragma unroll
        for (u32 r = 0; r < W; r++) all ^= ahead(tiles[r], rows * row_bytes(cols));
        ready();
        // Kept: true for no tile that has rows.
        if (rows == 0 && all == 1) return;
        // One after the other, so that the code is there once.
#pragma unroll 1
        for (u32 r = 0; r < W; r++) {
            const u8* b = tiles[0];
#pragma unroll
            for (u32 k = 1; k < W; k++) b = r == k ? tiles[k] : b;
            // Rows that the matrix has not are its last.
            b += min(row(), rows - 1) * row_bytes(cols);
            float sums[T] = {};
#pragma unroll 1
            for (u32 u = 0; u < units; u++, b += U::BYTES) {
                const u32 begin = u * U::UNIT / PART * PART, unit = u * U::UNIT - begin;
                if (unit == 0) place.template fill<T>(x, at, begin, min(begin + PART, cols));
                add_unit(b, place, unit, u % 8 == part(), sums);
            }
            __syncwarp();
            const float sum = join(sums);
#pragma unroll
            for (u32 k = 0; k < W; k++) out[k] = r == k ? sum : out[k];
        }
    }

    // Adds a unit to the partial sums of T inputs in the lane that it `meets`.
    template <u32 T>
    static __device__ __forceinline__ void add_unit(const u8* b, const Place& place, u32 unit, bool meets, float (&sums)[T]) {
        constexpr u32 PART = Place::KEPT / T;
        i32 p[T] = {}, m[T] = {};
#pragma unroll
        for (u32 k = 0; k < 4; k++) add_piece(b, 8 * k + part(), place, unit, p);
        if constexpr (U::MINS) {
            i32 first, second;
            U::mins(b, part(), first, second);
#pragma unroll
            for (u32 t = 0; t < T; t++) {
                short2 two = place.two_sums(t * PART + unit + 32 * part());
                m[t] = first * two.x + second * two.y;
            }
        }
        float d, d_min;
        U::scales(b, d, d_min);
#pragma unroll
        for (u32 t = 0; t < T; t++) {
            const float a = place.scale(t * PART + unit);
            float next = fma_(d * a, (float)over_lanes(p[t]), sums[t]);
            if constexpr (U::MINS) next = fma_(d_min * a, -(float)over_lanes(m[t]), next);
            sums[t] = meets ? next : sums[t];
        }
    }
};

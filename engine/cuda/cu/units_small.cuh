// Types of 16 to 64 values under one float scale. Four lanes share a unit: lane `j` of them takes its levels, and every one
// of the four knows the scales.
#pragma once
#include "units.cuh"

// What most of these types have: 32 values in a unit, one unit in a block, words of nibbles 16 values apart.
struct Small {
    static constexpr u32 UNIT = 32, PER_BLOCK = 1, WORDS = 2, APART = 16;
    static constexpr bool MINS = false;
};

struct Q8_0 : Small {
    static constexpr u32 BYTES = 34, APART = 4;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float&) {
        d = read_half(b);
        w[0] = read32(b + 2 + 8 * j);
        w[1] = read32(b + 6 + 8 * j);
    }
};

struct Q4_0 : Small {
    static constexpr u32 BYTES = 18;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float&) {
        d = read_half(b);
        u32 q = read32(b + 2 + 4 * j);
        w[0] = less(q & 0x0f0f0f0fu, 8);
        w[1] = less(q >> 4 & 0x0f0f0f0fu, 8);
    }
};

struct Q4_1 : Small {
    static constexpr u32 BYTES = 20;
    static constexpr bool MINS = true;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float& d_min) {
        d = read_half(b);
        d_min = -read_half(b + 2);
        u32 q = read32(b + 4 + 4 * j);
        w[0] = q & 0x0f0f0f0fu;
        w[1] = q >> 4 & 0x0f0f0f0fu;
    }
};

// Nibbles, and fifth bits: those of the low nibbles come first.
__device__ __forceinline__ void five_bits(const u8* fifth, u32 j, u32& low, u32& high) {
    u32 q = read32(fifth + 4 + 4 * j);
    low = (q & 0x0f0f0f0fu) | four_bytes(read16(fifth) >> 4 * j) << 4;
    high = (q >> 4 & 0x0f0f0f0fu) | four_bytes(read16(fifth + 2) >> 4 * j) << 4;
}

struct Q5_0 : Small {
    static constexpr u32 BYTES = 22;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float&) {
        d = read_half(b);
        u32 low, high;
        five_bits(b + 2, j, low, high);
        w[0] = less(low, 16);
        w[1] = less(high, 16);
    }
};

struct Q5_1 : Small {
    static constexpr u32 BYTES = 24;
    static constexpr bool MINS = true;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float& d_min) {
        d = read_half(b);
        d_min = -read_half(b + 2);
        u32 low, high;
        five_bits(b + 4, j, low, high);
        w[0] = low;
        w[1] = high;
    }
};

struct IQ4_NL : Small {
    static constexpr u32 BYTES = 18;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float&) {
        d = read_half(b);
        iq4_levels().of(read32(b + 2 + 4 * j), w[0], w[1]);
    }
};

struct MXFP4 : Small {
    static constexpr u32 BYTES = 17;

    static __device__ __forceinline__ void take(const u8* b, u32, u32 j, i32 (&w)[2], float& d, float&) {
        // Half of what the exponent says, since levels are doubled; subnormal for the two smallest.
        u32 e = read8(b);
        d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        fp4_levels().of(read32_anywhere(b + 1 + 4 * j), w[0], w[1]);
    }
};

// Units of 16: lanes 0 and 1 of the four take the low nibbles of eight bytes, lanes 2 and 3 the high ones.
struct NVFP4 : Small {
    static constexpr u32 BYTES = 36, UNIT = 16, PER_BLOCK = 4, WORDS = 1, APART = 4;

    static __device__ __forceinline__ void take(const u8* b, u32 run, u32 j, i32 (&w)[1], float& d, float&) {
        u32 s = read8(b + run), e = s >> 3 & 15;
        float m = (float)(s & 7);
        float scale = e == 0 ? m / 512.0f : (1.0f + m / 8.0f) * __uint_as_float((e + 120) << 23);
        d = s == 0 || s == 0x7f ? 0.0f : scale * 0.5f;
        i32 low, high;
        fp4_levels().of(read32(b + 4 + 8 * run + 4 * (j & 1)), low, high);
        w[0] = j < 2 ? low : high;
    }
};

// Two bits a value: a level is the byte of a table of four.
struct Q2_0 : Small {
    static constexpr u32 BYTES = 18, PER_BLOCK = 2, APART = 4;

    static __device__ __forceinline__ void take(const u8* b, u32 part, u32 j, i32 (&w)[2], float& d, float&) {
        d = read_half(b);
        u32 q = read16(b + 2 + 8 * part + 2 * j);
        q = (q | q << 8) & 0x00ff00ffu;
        q = (q | q << 4) & 0x0f0f0f0fu;
        q = (q | q << 2) & 0x33333333u;
        w[0] = bytes_of(0x020100ffu, 0, q);
        w[1] = bytes_of(0x020100ffu, 0, q >> 16);
    }
};

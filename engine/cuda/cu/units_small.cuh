// Types of 16 to 64 values under one float scale.
//
// A type says how its blocks are made up: BYTES, in which PER_BLOCK units lie one after another; a unit has UNIT values in LEVELS
// bytes, and a header of HEADER bytes, which SHARE units have together. `level_at` and `header_at` say where in a block they
// are. `open` takes a unit apart: its levels, four to a word in the order of the values, and its float scales. Types with an OFFSET
// have `stored` too: levels before it is taken off, and with PLANES word 4 k + j has values 16 k + 4 b + j.
#pragma once
#include "units.cuh"

// What most of these types have: blocks of 32 values, header first.
struct Small {
    static constexpr u32 UNIT = 32, PER_BLOCK = 1, SHARE = 1, LEVELS = 16, HEADER = 2;
    static constexpr bool MINS = false, PLANES = false;
    static constexpr u32 OFFSET = 0;
    static __device__ __forceinline__ u32 header_at(u32) { return 0; }
};

struct Q8_0 : Small {
    static constexpr u32 BYTES = 34, LEVELS = 32;
    static __device__ __forceinline__ u32 level_at(u32) { return 2; }

    static __device__ __forceinline__ void open(const u32 (&q)[8], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 8; k++) w[k] = q[k];
    }
};

struct Q4_0 : Small {
    static constexpr u32 BYTES = 18, OFFSET = 8;
    static __device__ __forceinline__ u32 level_at(u32) { return 2; }

    static __device__ __forceinline__ void stored(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            w[k] = q[k] & 0x0f0f0f0fu;
            w[4 + k] = q[k] >> 4 & 0x0f0f0f0fu;
        }
    }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            w[k] = less(q[k] & 0x0f0f0f0fu, 8);
            w[4 + k] = less(q[k] >> 4 & 0x0f0f0f0fu, 8);
        }
    }
};

struct Q4_1 : Small {
    static constexpr u32 BYTES = 20, HEADER = 4;
    static constexpr bool MINS = true;
    static __device__ __forceinline__ u32 level_at(u32) { return 4; }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float& d_min) {
        d = low_half(h[0]);
        d_min = -low_half(h[0] >> 16);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            w[k] = q[k] & 0x0f0f0f0fu;
            w[4 + k] = q[k] >> 4 & 0x0f0f0f0fu;
        }
    }
};

// Nibbles, and fifth bits: those of the low nibbles come first.
__device__ __forceinline__ void five_bits(const u32 (&q)[4], u32 fifth, i32 (&w)[8]) {
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        w[k] = (q[k] & 0x0f0f0f0fu) | four_bytes(fifth >> 4 * k) << 4;
        w[4 + k] = (q[k] >> 4 & 0x0f0f0f0fu) | four_bytes(fifth >> (16 + 4 * k)) << 4;
    }
}

struct Q5_0 : Small {
    static constexpr u32 BYTES = 22, HEADER = 6, OFFSET = 16;
    static __device__ __forceinline__ u32 level_at(u32) { return 6; }

    static __device__ __forceinline__ void stored(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d) {
        d = low_half(h[0]);
        five_bits(q, h[0] >> 16 | h[1] << 16, w);
    }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        d = low_half(h[0]);
        five_bits(q, h[0] >> 16 | h[1] << 16, w);
#pragma unroll
        for (u32 k = 0; k < 8; k++) w[k] = less(w[k], 16);
    }
};

struct Q5_1 : Small {
    static constexpr u32 BYTES = 24, HEADER = 8;
    static constexpr bool MINS = true;
    static __device__ __forceinline__ u32 level_at(u32) { return 8; }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float& d_min) {
        d = low_half(h[0]);
        d_min = -low_half(h[0] >> 16);
        five_bits(q, h[1], w);
    }
};

struct IQ4_NL : Small {
    static constexpr u32 BYTES = 18;
    static __device__ __forceinline__ u32 level_at(u32) { return 2; }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 4; k++) iq4_levels().of(q[k], w[k], w[4 + k]);
    }
};

struct MXFP4 : Small {
    static constexpr u32 BYTES = 17, HEADER = 1;
    static __device__ __forceinline__ u32 level_at(u32) { return 1; }

    static __device__ __forceinline__ void open(const u32 (&q)[4], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        // Half of what the exponent says, since levels are doubled; subnormal for the two smallest.
        u32 e = h[0];
        d = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
#pragma unroll
        for (u32 k = 0; k < 4; k++) fp4_levels().of(q[k], w[k], w[4 + k]);
    }
};

// Four units of 16, a byte of scale for each in front; low nibbles are the first eight values.
struct NVFP4 : Small {
    static constexpr u32 BYTES = 36, UNIT = 16, PER_BLOCK = 4, LEVELS = 8, HEADER = 1;
    static __device__ __forceinline__ u32 header_at(u32 unit) { return unit; }
    static __device__ __forceinline__ u32 level_at(u32 unit) { return 4 + 8 * unit; }

    static __device__ __forceinline__ void open(const u32 (&q)[2], const u32 (&h)[2], i32 (&w)[4], float& d, float&) {
        u32 s = h[0], e = s >> 3 & 15;
        float m = (float)(s & 7);
        float scale = e == 0 ? m / 512.0f : (1.0f + m / 8.0f) * __uint_as_float((e + 120) << 23);
        d = s == 0 || s == 0x7f ? 0.0f : scale * 0.5f;
#pragma unroll
        for (u32 k = 0; k < 2; k++) fp4_levels().of(q[k], w[k], w[2 + k]);
    }
};

// Two bits a value, two units under one scale: a level is the byte of a table of four.
struct Q2_0 : Small {
    static constexpr u32 BYTES = 18, PER_BLOCK = 2, SHARE = 2, LEVELS = 8, OFFSET = 1;
    static constexpr bool PLANES = true;
    static __device__ __forceinline__ u32 level_at(u32 unit) { return 2 + 8 * unit; }

    static __device__ __forceinline__ void stored(const u32 (&q)[2], const u32 (&h)[2], i32 (&w)[8], float& d) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 8; k++) w[k] = q[k / 4] >> 2 * (k % 4) & 0x03030303u;
    }

    static __device__ __forceinline__ void open(const u32 (&q)[2], const u32 (&h)[2], i32 (&w)[8], float& d, float&) {
        d = low_half(h[0]);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            u32 two = k % 2 ? q[k / 2] >> 16 : q[k / 2] & 0xffffu;
            two = (two | two << 8) & 0x00ff00ffu;
            two = (two | two << 4) & 0x0f0f0f0fu;
            two = (two | two << 2) & 0x33333333u;
            w[2 * k] = bytes_of(0x020100ffu, 0, two);
            w[2 * k + 1] = bytes_of(0x020100ffu, 0, two >> 16);
        }
    }
};

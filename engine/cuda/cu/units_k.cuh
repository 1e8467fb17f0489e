// The k-quants and IQ4_XS: units of 256 values with integer scales, some with minimums.
//
// A unit is 32 pieces of eight levels, in two words with a scale each. `piece` takes piece `i` apart and says at which of the
// unit's values its first word begins; `mins` gives the minimums of groups 2p and 2p + 1.
#pragma once
#include "units.cuh"

struct Large {
    static constexpr u32 UNIT = 256;
    static constexpr bool MINS = false, ONE_SCALE = false;
    // Values that have an integer scale together.
    static constexpr u32 GROUP = 16;

    // What types without minimums never ask for.
    static __device__ __forceinline__ void mins(const u8*, u32, i32&, i32&) {}
};

// Levels of two bits lie in planes: byte c of a half of the unit has values c, 32 + c, 64 + c and 96 + c. A piece is two
// planes of four bytes.
struct Planes {
    u32 half, plane, c, run;

    __device__ __forceinline__ explicit Planes(u32 i) : half(i / 16), plane(i / 8 % 2 * 2), c(i % 8 * 4), run(4 * half + plane) {}

    __device__ __forceinline__ u32 first() const { return 32 * run + c; }

    __device__ __forceinline__ u32 group() const { return 2 * run + c / 16; }
};

struct Q2_K : Large {
    static constexpr u32 BYTES = 84, APART = 32;
    static constexpr bool MINS = true;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float& d_min) {
        d = read_half(b + 80);
        d_min = read_half(b + 82);
    }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        Planes at(i);
        u32 q = read32(b + 16 + 32 * at.half + at.c) >> 2 * at.plane;
        w[0] = q & 0x03030303u;
        w[1] = q >> 2 & 0x03030303u;
        s[0] = read8(b + at.group()) & 15;
        s[1] = read8(b + at.group() + 2) & 15;
        return at.first();
    }

    static __device__ __forceinline__ void mins(const u8* b, u32 p, i32& first, i32& second) {
        u32 both = read16(b + 2 * p);
        first = both >> 4 & 15;
        second = both >> 12;
    }
};

struct Q3_K : Large {
    static constexpr u32 BYTES = 110, APART = 32;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b + 108); }

    static __device__ __forceinline__ i32 scale(const u8* b, u32 g) {
        u32 low = read8(b + 96 + g % 8) >> (g < 8 ? 0 : 4) & 15, high = read8(b + 104 + g % 4) >> 2 * (g / 4) & 3;
        return (i32)(low | high << 4) - 32;
    }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        Planes at(i);
        u32 q = read32(b + 32 + 32 * at.half + at.c) >> 2 * at.plane, mask = read32(b + at.c) >> at.run;
        // Where the mask's bit is clear the level is lower by four.
        w[0] = less((q & 0x03030303u) | (mask & 0x01010101u) << 2, 4);
        w[1] = less((q >> 2 & 0x03030303u) | (mask >> 1 & 0x01010101u) << 2, 4);
        s[0] = scale(b, at.group());
        s[1] = scale(b, at.group() + 2);
        return at.first();
    }
};

// The 6-bit scales and minimums of eight sub-blocks, packed into twelve bytes.
struct SixBits : Large {
    static constexpr u32 APART = 32, GROUP = 32;
    static constexpr bool MINS = true;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float& d_min) {
        d = read_half(b);
        d_min = read_half(b + 2);
    }

    // Of sub-blocks 2m and 2m + 1.
    static __device__ __forceinline__ void two_scales(const u8* b, u32 m, i32 (&s)[2]) {
        u32 own = read16(b + 4 + 2 * m + (m < 2 ? 0 : 4)), other = read16(b + (m < 2 ? 4 : 2 * m));
        u32 both = m < 2 ? own & 0x3f3fu : (own & 0x0f0fu) | (other >> 2 & 0x3030u);
        s[0] = both & 255;
        s[1] = both >> 8;
    }

    static __device__ __forceinline__ void mins(const u8* b, u32 p, i32& first, i32& second) {
        u32 own = read8(b + 8 + p), other = read8(b + 4 + p);
        first = p < 4 ? own & 63 : own >> 4 | (other >> 6) << 4;
        second = first;
    }
};

// Sub-blocks 2m and 2m + 1 are the low and high nibbles of the same 32 bytes.
struct Q4_K : SixBits {
    static constexpr u32 BYTES = 144;

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        u32 q = read32(b + 16 + 4 * i);
        w[0] = q & 0x0f0f0f0fu;
        w[1] = q >> 4 & 0x0f0f0f0fu;
        two_scales(b, i / 8, s);
        return i / 8 * 64 + i % 8 * 4;
    }
};

// Q4_K with a fifth bit: bit j of byte c belongs to value c of sub-block j.
struct Q5_K : SixBits {
    static constexpr u32 BYTES = 176;

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        u32 q = read32(b + 48 + 4 * i), fifth = read32(b + 16 + i % 8 * 4) >> i / 8 * 2;
        w[0] = (q & 0x0f0f0f0fu) | (fifth & 0x01010101u) << 4;
        w[1] = (q >> 4 & 0x0f0f0f0fu) | (fifth >> 1 & 0x01010101u) << 4;
        two_scales(b, i / 8, s);
        return i / 8 * 64 + i % 8 * 4;
    }
};

// Nibbles in planes: the low ones of 32 bytes are one plane of a half, the high ones the plane after the next. Two more
// bits are in planes as Q2_K's.
struct Q6_K : Large {
    static constexpr u32 BYTES = 210, APART = 64;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b + 208); }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        u32 half = i / 16, plane = i / 8 % 2, c = i % 8 * 4, run = 4 * half + plane;
        u32 low = read32(b + 64 * half + 32 * plane + c), high = read32(b + 128 + 32 * half + c) >> 2 * plane;
        w[0] = less((low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4, 32);
        w[1] = less((low >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u), 32);
        const u8* scale = b + 192 + 2 * run + c / 16;
        s[0] = (i8)read8(scale);
        s[1] = (i8)read8(scale + 4);
        return 32 * run + c;
    }
};

// Eight sub-blocks of 32 with 6-bit scales, offset by 32.
struct IQ4_XS : Large {
    static constexpr u32 BYTES = 136, APART = 16, GROUP = 32;
    static constexpr bool ONE_SCALE = true;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b); }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 i, i32 (&w)[2], i32 (&s)[2]) {
        u32 sub = i / 4;
        iq4_levels().of(read32(b + 8 + 4 * i), w[0], w[1]);
        u32 low = read8(b + 4 + sub / 2) >> 4 * (sub % 2) & 15, high = read16(b + 2) >> 2 * sub & 3;
        s[0] = (i32)(low | high << 4) - 32;
        return 32 * sub + i % 4 * 4;
    }
};

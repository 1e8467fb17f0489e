// Integer weights taken apart by lanes: what the files about types share. The definition is strata_cpu's `units`.
//
// A lane takes eight levels of a unit at a time, as bytes of two words, so that two 4-way integer products multiply them.
// Which eight is free, since integer sums are exact: a lane takes what lies together in the file. A type says where its two
// words belong: APART is the distance of their values in the unit, 4 where they are neighbours.
//
// Blocks lie at any even address (at any address where they have an odd size), so nothing wider than two bytes is read.
#pragma once
#include "common.cuh"

__device__ __forceinline__ u32 read8(const u8* p) { return __ldg(p); }

__device__ __forceinline__ u32 read16(const u8* p) { return __ldg((const u16*)p); }

__device__ __forceinline__ u32 read32(const u8* p) { return read16(p) | read16(p + 2) << 16; }

__device__ __forceinline__ float read_half(const u8* p) { return low_half(read16(p)); }

// x - n in each byte, for bytes of x below 128 and n up to 128.
__device__ __forceinline__ u32 less(u32 x, u32 n) { return ((x | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u; }

// The lowest bit of each byte from the lowest four bits of x, the rest zeros.
__device__ __forceinline__ u32 four_bytes(u32 x) { return ((x & 15) * 0x00204081u) & 0x01010101u; }

// A table of sixteen bytes as four words, and the lookup of eight nibbles: `low` has the bytes for the low nibbles of q's
// bytes, `high` those for the high nibbles. No memory is involved, so lanes with different nibbles take the same time.
struct Sixteen {
    u32 a, b, c, d;

    __device__ __forceinline__ void of(u32 q, i32& low, i32& high) const {
        u32 row = q & 0x77777777u, half = 0x32103210u | (q & 0x88888888u) >> 1;
        u32 first = bytes_of(bytes_of(a, b, row), bytes_of(c, d, row), half);
        row >>= 16, half >>= 16;
        u32 second = bytes_of(bytes_of(a, b, row), bytes_of(c, d, row), half);
        low = bytes_of(first, second, 0x6420);
        high = bytes_of(first, second, 0x7531);
    }
};

// -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113
__device__ __forceinline__ Sixteen iq4_levels() { return {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}; }

// 0 1 2 3 | 4 6 8 12 | 0 -1 -2 -3 | -4 -6 -8 -12
__device__ __forceinline__ Sixteen fp4_levels() { return {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}; }

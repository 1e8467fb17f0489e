// The i-quants: units of 256 values in groups of eight, looked up in code books, with signs. A piece is a group.
#pragma once
#include "grids.cuh"
#include "units_k.cuh"

struct Grid : Large {
    static constexpr u32 APART = 4;
    static constexpr bool ONE_SCALE = true;
};

// Seven stored signs and an eighth that makes the number of negative values even.
__device__ __forceinline__ u32 even_signs(u32 seven) { return seven | (__popc(seven) & 1) << 7; }

// The integer scale of group l from nibbles of which each serves 16 values.
__device__ __forceinline__ i32 odd_scale(const u8* nibbles, u32 l) {
    return 2 * (read8(nibbles + l / 4) >> l / 2 % 2 * 4 & 15) + 1;
}

// Eight levels of three magnitudes: a nibble of the row picks one, its third bit says which sign.
__device__ __forceinline__ void of_three(u32 row, u32 signs, i32 (&w)[2]) {
    const u32 positive = 0x002b1908, negative = 0x00d5e7f8;
    signs = (signs | signs << 12) & 0x000f000fu;
    signs = (signs | signs << 6) & 0x03030303u;
    signs = (signs | signs << 3) & 0x11111111u;
    row |= signs << 2;
    w[0] = bytes_of(positive, negative, row);
    w[1] = bytes_of(positive, negative, row >> 16);
}

// `d * (s + 1/2) / 4`
struct IQ2_XXS : Grid {
    static constexpr u32 BYTES = 66, GROUP = 32;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b) * 0.125f; }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        const u8* sub = b + 2 + l / 4 * 8;
        u32 word = read32(sub + 4);
        of_three(row_of(IQ2XXS_ROWS, read8(sub + l % 4)), even_signs(word >> 7 * (l % 4) & 127), w);
        s[0] = 2 * (word >> 28) + 1;
        return 8 * l;
    }
};

// `d * (s + 1/2) / 4`
struct IQ2_XS : Grid {
    static constexpr u32 BYTES = 74;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b) * 0.125f; }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 q = read16(b + 2 + 2 * l);
        of_three(row_of(IQ2XS_ROWS, q & 511), even_signs(q >> 9), w);
        s[0] = odd_scale(b + 66, l);
        return 8 * l;
    }
};

// `d * (s + 1/2) / 4`
struct IQ2_S : Grid {
    static constexpr u32 BYTES = 82;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b) * 0.125f; }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 high = read8(b + 66 + l / 4) >> 2 * (l % 4) & 3;
        of_three(row_of(IQ2S_ROWS, read8(b + 2 + l) | high << 8), read8(b + 34 + l), w);
        s[0] = odd_scale(b + 74, l);
        return 8 * l;
    }
};

// `d * (s + 1/2) / 2`
struct IQ3_XXS : Grid {
    static constexpr u32 BYTES = 98, GROUP = 32;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b) * 0.25f; }

    // Four magnitudes out of 4, 12, 20, 28, 36, 44, 52 and 62 with signs: a negative byte is its complement plus one.
    static __device__ __forceinline__ i32 levels(u32 row, u32 signs) {
        u32 ones = four_bytes(signs);
        return (bytes_of(0x1c140c04u, 0x3e342c24u, row) ^ ones * 255) + ones;
    }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 word = read32(b + 66 + l / 4 * 4), signs = even_signs(word >> 7 * (l % 4) & 127), rows = read16(b + 2 + 2 * l);
        w[0] = levels(row_of(IQ3XXS_ROWS, rows & 255), signs);
        w[1] = levels(row_of(IQ3XXS_ROWS, rows >> 8), signs >> 4);
        s[0] = 2 * (word >> 28) + 1;
        return 8 * l;
    }
};

// `d * (2 s + 1)`
struct IQ3_S : Grid {
    static constexpr u32 BYTES = 110, GROUP = 32;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b); }

    // Four odd magnitudes from 1 to 15 with signs: an odd number is negated by turning over all bits but the last.
    static __device__ __forceinline__ i32 levels(u32 row, u32 signs) {
        return bytes_of(0x07050301u, 0x0f0d0b09u, row) ^ four_bytes(signs) * 254;
    }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 rows = read16(b + 2 + 2 * l), ninth = read8(b + 66 + l / 4) >> l % 4 * 2, signs = read8(b + 74 + l);
        w[0] = levels(row_of(IQ3S_ROWS, (rows & 255) | (ninth & 1) << 8), signs);
        w[1] = levels(row_of(IQ3S_ROWS, rows >> 8 | (ninth & 2) << 7), signs >> 4);
        s[0] = 2 * (read8(b + 106 + l / 8) >> l / 4 % 2 * 4 & 15) + 1;
        return 8 * l;
    }
};

// Eight of -1, 0 and 1, moved up or down by an eighth, in eighths. The fourth code stands for zero too.
__device__ __forceinline__ void shifted(u32 row, bool down, i32 (&w)[2]) {
    u32 table = down ? 0xff07fff7u : 0x010901f9u;
    w[0] = bytes_of(table, 0, row);
    w[1] = bytes_of(table, 0, row >> 16);
}

// `d * (2 s + 1)` in eighths
struct IQ1_S : Grid {
    static constexpr u32 BYTES = 50, GROUP = 32;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) { d = read_half(b) * 0.125f; }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 h = read16(b + 34 + l / 4 * 2);
        shifted(row_of(IQ1S_ROWS, read8(b + 2 + l) | (h >> 3 * (l % 4) & 7) << 8), h & 0x8000, w);
        s[0] = 2 * (h >> 12 & 7) + 1;
        return 8 * l;
    }
};

// `d * (2 s + 1)` in eighths; the bits of `d` are spread over the scale words.
struct IQ1_M : Grid {
    static constexpr u32 BYTES = 56;

    static __device__ __forceinline__ void scales(const u8* b, float& d, float&) {
        u32 bits = 0;
        for (u32 i = 0; i < 4; i++) bits |= read16(b + 48 + 2 * i) >> 12 << 4 * i;
        d = half_to_float((u16)bits) * 0.125f;
    }

    static __device__ __forceinline__ u32 piece(const u8* b, u32 l, i32 (&w)[2], i32 (&s)[2]) {
        u32 n = read8(b + 32 + l / 2) >> 4 * (l % 2) & 15;
        shifted(row_of(IQ1S_ROWS, read8(b + l) | (n & 7) << 8), n & 8, w);
        s[0] = 2 * (read16(b + 48 + l / 8 * 2) >> 3 * (l / 2 % 4) & 7) + 1;
        return 8 * l;
    }
};

// What all kernels share: integer types, the numeric contract's functions of single values, and its sums.
//
// Every operation is written with the rounding it has: `__fmaf_rn` where the contract fuses, and plain operators elsewhere,
// which the compiler must leave apart (-fmad=false). Division and square root are IEEE 754's.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define KERNEL extern "C" __global__ void
#define WARP 32
#define ALL 0xffffffffu

#include "instructions.cuh"

__device__ __forceinline__ float fma_(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// 2^n for n from -126 to 127.
__device__ __forceinline__ float power_of_two(i32 n) { return __int_as_float((n + 127) << 23); }

// e^x, the polynomial of strata_cpu::math::exp.
__device__ __forceinline__ float exp_(float x) {
    const float round = 12582912.0f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float t = fma_(x, 1.44269504088896340736f, round);
    float n = t - round;
    float r = fma_(n, -0.693359375f, x);
    r = fma_(n, 2.1219444e-4f, r);
    float p = 1.0f / 5040.0f;
    p = fma_(p, r, 1.0f / 720.0f);
    p = fma_(p, r, 1.0f / 120.0f);
    p = fma_(p, r, 1.0f / 24.0f);
    p = fma_(p, r, 1.0f / 6.0f);
    p = fma_(p, r, 0.5f);
    p = fma_(p, r, 1.0f);
    p = fma_(p, r, 1.0f);
    i32 e = __float_as_int(t) - __float_as_int(round);
    i32 half = e >> 1;
    return p * power_of_two(half) * power_of_two(e - half);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }

__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

// ln(1 + e^x), as strata_cpu::math::softplus.
__device__ __forceinline__ float softplus(float x) {
    float t = exp_(-fabsf(x));
    float s = t / (2.0f + t);
    float z = s * s;
    float p = 1.0f / 15.0f;
    p = fma_(p, z, 1.0f / 13.0f);
    p = fma_(p, z, 1.0f / 11.0f);
    p = fma_(p, z, 1.0f / 9.0f);
    p = fma_(p, z, 1.0f / 7.0f);
    p = fma_(p, z, 1.0f / 5.0f);
    p = fma_(p, z, 1.0f / 3.0f);
    p = fma_(p, z, 1.0f);
    float positive = x > 0.0f ? x : 0.0f;
    positive = x != x ? x : positive;
    return fma_(2.0f * s, p, positive);
}

// Joins the partial sums of a warp's lanes: the upper half is added to the lower until one is left, which lane 0 has.
__device__ __forceinline__ float join32(float v) {
#pragma unroll
    for (int width = 16; width > 0; width /= 2) v += __shfl_down_sync(ALL, v, width);
    return v;
}

// The value that lane 0 has, for every lane.
__device__ __forceinline__ float lane0(float v) { return __shfl_sync(ALL, v, 0); }

// The dot product of `n` values by one warp: element i meets partial sum i mod 32, in order. Every lane has it.
__device__ __forceinline__ float dot_warp(const float* __restrict__ a, const float* __restrict__ b, u32 n) {
    float sum = 0.0f;
#pragma unroll 8
    for (u32 i = threadIdx.x % WARP; i < n; i += WARP) sum = fma_(a[i], b[i], sum);
    return lane0(join32(sum));
}

// The value of a half.
__device__ __forceinline__ float half_to_float(u16 h) {
    u32 sign = (u32)(h & 0x8000) << 16, rest = h & 0x7fff;
    float normal = __uint_as_float((rest << 13) + (112u << 23));
    float subnormal = (float)rest * (1.0f / 16777216.0f);
    float special = __uint_as_float((rest << 13) | 0x7f800000u);
    float magnitude = rest < 0x0400 ? subnormal : normal;
    magnitude = rest >= 0x7c00 ? special : magnitude;
    return __uint_as_float(__float_as_uint(magnitude) | sign);
}

__device__ __forceinline__ float bf16_to_float(u16 h) { return __uint_as_float((u32)h << 16); }

// The position of a window's first row: the word at `window`, which a captured graph reads anew each round, or `first`.
__device__ __forceinline__ u32 position(const u32* window, u32 first) { return window ? *window : first; }

// Notes a value that is no number or larger than `largest`, if it is the first: the least of `site << 48 | index << 2 | kind`,
// kinds being 0 for NaN, 1 for infinity, 2 for too large.
__device__ __forceinline__ void note(float x, u64 index, u64* found, u32 site, float largest) {
    float m = fabsf(x);
    if (!(m <= largest)) {
        u64 kind = m != m ? 0 : isinf(m) ? 1 : 2;
        atomicMin(found, (u64)site << 48 | index << 2 | kind);
    }
}

// Inputs as 8-bit integers, as strata_cpu::Activations has them, and the weighted sums of the experts' results.
#include "products.cuh"

// Blocks of EACH * LANES values: a lane has EACH neighbouring values of its block.
template <u32 EACH, u32 LANES>
__device__ __forceinline__ void quantise(const float* x, i8* values, float* scales, i16* sums, u32 blocks) {
    const u32 thread = blockIdx.x * THREADS + threadIdx.x, block = thread / LANES, part = thread % LANES;
    // Lanes without a block help to add up.
    const bool live = block < blocks;
    const u64 first = (u64)EACH * thread;
    float v[EACH];
#pragma unroll
    for (u32 i = 0; i < EACH; i += 4) {
        float4 four = live ? *(const float4*)(x + first + i) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        v[i] = four.x, v[i + 1] = four.y, v[i + 2] = four.z, v[i + 3] = four.w;
    }
    // Zero times a number is zero, times NaN or infinity NaN. NaN is larger than nothing.
    float top = 0.0f, poison = 0.0f;
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        float m = fabsf(v[i]);
        top = m > top ? m : top;
        poison += v[i] * 0.0f;
    }
#pragma unroll
    for (u32 apart = LANES / 2; apart > 0; apart /= 2) {
        float m = __shfl_xor_sync(ALL, top, apart);
        top = m > top ? m : top;
        poison += __shfl_xor_sync(ALL, poison, apart);
    }
    const bool some = top > 1e-30f;
    const float scale = some ? top / 127.0f : 0.0f, inverse = some ? 127.0f / top : 0.0f;
    i32 sum = 0;
    u32 words[EACH / 4] = {};
#pragma unroll
    for (u32 i = 0; i < EACH; i++) {
        // 1.5 * 2^23: the sum has the nearest integer, ties to even, in its low bits.
        i32 q = (i8)__float_as_uint(v[i] * inverse + 12582912.0f);
        words[i / 4] |= (u32)(q & 255) << 8 * (i % 4);
        sum += q;
    }
#pragma unroll
    for (u32 apart = 8 / EACH; apart > 0; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
    if (!live) return;
#pragma unroll
    for (u32 i = 0; i < EACH / 4; i++) ((u32*)(values + first))[i] = words[i];
    if (part % (16 / EACH) == 0) sums[first / 16] = (i16)sum;
    if (part % (32 / EACH) == 0) scales[first / 32] = scale + poison;
}

// Blocks of 32 values. Grid (blocks / 16, rounded up), block 128; x begins at an address that 16 divides.
KERNEL __launch_bounds__(THREADS) quantise_short(const float* x, i8* values, float* scales, i16* sums, u32 blocks) {
    follow();
    quantise<4, 8>(x, values, scales, sums, blocks);
}

// Blocks of 256 values. Grid (blocks / 4, rounded up), block 128; x begins at an address that 16 divides.
KERNEL __launch_bounds__(THREADS) quantise_long(const float* x, i8* values, float* scales, i16* sums, u32 blocks) {
    follow();
    quantise<8, 32>(x, values, scales, sums, blocks);
}

// out[t][i] = sum over j, in order, of weights[t][j] * results[index[t][j]][i], from zero. Grid (hidden / 128, tokens), block
// 128.
KERNEL __launch_bounds__(THREADS) combine(const float* results, const u32* index, const float* weights, float* out, u32 tokens,
                                          u32 per_row, u32 hidden) {
    follow();
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= hidden) return;
    for (u32 t = blockIdx.y; t < tokens; t += gridDim.y) {
        const u64 terms = (u64)t * per_row;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 j = 0; j < per_row; j++) {
            sum = fma_(__ldg(weights + terms + j), __ldg(results + (u64)__ldg(index + terms + j) * hidden + i), sum);
        }
        out[(u64)t * hidden + i] = sum;
    }
}

// [`stream_*`] for types that the device has as the file does: matrices of `bytes` bytes. Grid (any, matrices that there is room
// for), block 128.
KERNEL __launch_bounds__(THREADS) stream_plain(const u64* from, const u32* count, u32 each, u8* to, u64 to_apart, u64 apart,
                                               u64 bytes) {
    follow();
    if (blockIdx.y >= *count * each) return;
    to += blockIdx.y / each * to_apart + blockIdx.y % each * apart;
    const u8* w = (const u8*)from[blockIdx.y];
    u64 done = 0;
    if ((u64)w % 16 == 0) {
        done = bytes / 16 * 16;
        for (u64 i = 16 * ((u64)blockIdx.x * THREADS + threadIdx.x); i < done; i += (u64)16 * gridDim.x * THREADS) {
            *(uint4*)(to + i) = *(const uint4*)(w + i);
        }
    }
    for (u64 i = done + (u64)blockIdx.x * THREADS + threadIdx.x; i < bytes; i += (u64)gridDim.x * THREADS) to[i] = w[i];
}

// up[i] = silu(gate[i]) * up[i]. Grid (n / 256), block 256.
KERNEL __launch_bounds__(256) swiglu(const float* gate, float* up, u32 n) {
    follow();
    const u32 i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) up[i] = silu(gate[i]) * up[i];
}

// Attention of many rows over selected positions, with the bits of attention.cu: what the query heads of a key/value head need is
// read once for all of them. With so many rows no row's positions have to be spread over blocks.
#include "products.cuh"

// Positions whose weighted values are added up before they meet the others'.
#define BLOCK 128

// Positions that a warp has at a time, and heads whose products it joins at once.
#define AT_ONCE 8
#define HEADS 4

// Query heads that a thread adds up values for.
#define VALUE_HEADS 12

// Scaled products of each head's query with the selected keys, for heads of 32 * EACH values. The lanes have the keys' values; those
// of a head's query are in shared memory. Grid: (any, key/value heads, rows). Block: 128 threads.
template <u32 EACH>
__device__ __forceinline__ void scores_of(const float* q, const float* keys, const u32* counts, const u32* list, float* scores,
                                          u32 heads, u32 kv_heads, u32 width) {
    constexpr u32 DIM = EACH * WARP;
    __shared__ float query[HEADS * 3][DIM];
    const u32 kv = blockIdx.y, t = blockIdx.z, n = counts[t], group = heads / kv_heads;
    if (blockIdx.x * WARPS * AT_ONCE >= n) return;
    const float scale = 1.0f / sqrtf((float)DIM);
    keys += (u64)kv * DIM + lane();
    list += (u64)t * width;
    for (u32 first_head = 0; first_head < group; first_head += HEADS * 3) {
        const u64 head = (u64)t * heads + kv * group + first_head;
        const u32 here = min(group - first_head, HEADS * 3);
        __syncthreads();
        for (u32 i = threadIdx.x; i < here * DIM; i += THREADS) query[i / DIM][i % DIM] = q[head * DIM + i];
        __syncthreads();
        for (u32 first = (blockIdx.x * WARPS + threadIdx.x / WARP) * AT_ONCE; first < n; first += gridDim.x * WARPS * AT_ONCE) {
            float key[AT_ONCE][EACH];
#pragma unroll
            for (u32 p = 0; p < AT_ONCE; p++) {
                const float* from = keys + (u64)list[min(first + p, n - 1)] * kv_heads * DIM;
#pragma unroll
                for (u32 e = 0; e < EACH; e++) key[p][e] = __ldg(from + e * WARP);
            }
#pragma unroll 1
            for (u32 h = 0; h < here; h += HEADS) {
                float sums[HEADS * AT_ONCE];
#pragma unroll
                for (u32 k = 0; k < HEADS; k++) {
                    const float* in = query[min(h + k, here - 1)] + lane();
#pragma unroll
                    for (u32 p = 0; p < AT_ONCE; p++) sums[k * AT_ONCE + p] = 0.0f;
#pragma unroll
                    for (u32 e = 0; e < EACH; e++) {
                        const float a = in[e * WARP];
#pragma unroll
                        for (u32 p = 0; p < AT_ONCE; p++) sums[k * AT_ONCE + p] = fma_(a, key[p][e], sums[k * AT_ONCE + p]);
                    }
                }
                const float s = join_inputs(sums) * scale;
                const u32 k = h + lane() / AT_ONCE, i = first + lane() % AT_ONCE;
                if (k < here && i < n) scores[(head + k) * width + i] = s;
            }
        }
    }
}

#define ROW_SCORES(dim)                                                                                                       \
    KERNEL __launch_bounds__(THREADS, 4) row_scores_##dim(const float* q, const float* keys, const u32* counts,               \
                                                          const u32* list, float* scores, u32 heads, u32 kv_heads, u32 width) { \
        follow();                                                                                                             \
        scores_of<dim / WARP>(q, keys, counts, list, scores, heads, kv_heads, width);                                         \
    }
ROW_SCORES(32)
ROW_SCORES(64)
ROW_SCORES(128)
ROW_SCORES(256)

// The weighted values: those of a block of positions are added up, the blocks' sums in order, divided by the weights' sum, times
// sigmoid(gate). Grid: (key/value heads times VALUE_HEADS in theirs, rows). Block: `dim` threads.
KERNEL row_values(const float* weights, const float* values, const u32* counts, const u32* list, const float* sums, const float* gate,
                  float* out, u32 heads, u32 kv_heads, u32 dim, u32 width) {
    follow();
    alignas(16) __shared__ float weight[BLOCK][VALUE_HEADS];
    __shared__ u32 place[BLOCK];
    const u32 t = blockIdx.y, n = counts[t], group = heads / kv_heads, parts = (group + VALUE_HEADS - 1) / VALUE_HEADS;
    const u32 kv = blockIdx.x / parts, first_head = blockIdx.x % parts * VALUE_HEADS, here = min(group - first_head, VALUE_HEADS);
    const u64 head = (u64)t * heads + kv * group + first_head;
    weights += head * width;
    list += (u64)t * width;
    values += (u64)kv * dim + threadIdx.x;
    float all[VALUE_HEADS] = {};
    for (u32 b = 0; b < n; b += BLOCK) {
        const u32 count = min(n - b, BLOCK);
        __syncthreads();
        for (u32 i = threadIdx.x; i < here * BLOCK; i += blockDim.x) {
            if (i % BLOCK < count) weight[i % BLOCK][i / BLOCK] = weights[(u64)(i / BLOCK) * width + b + i % BLOCK];
        }
        for (u32 i = threadIdx.x; i < count; i += blockDim.x) place[i] = list[b + i];
        __syncthreads();
        float part[VALUE_HEADS] = {};
#pragma unroll 4
        for (u32 i = 0; i < count; i++) {
            const float v = __ldg(values + (u64)place[i] * kv_heads * dim);
            float w[VALUE_HEADS];
#pragma unroll
            for (u32 k = 0; k < VALUE_HEADS; k += 4) *(float4*)(w + k) = *(const float4*)(weight[i] + k);
#pragma unroll
            for (u32 k = 0; k < VALUE_HEADS; k++) part[k] = fma_(w[k], v, part[k]);
        }
#pragma unroll
        for (u32 k = 0; k < VALUE_HEADS; k++) all[k] += part[k];
    }
#pragma unroll
    for (u32 k = 0; k < VALUE_HEADS; k++) {
        if (k >= here) break;
        const u64 at = (head + k) * dim + threadIdx.x;
        out[at] = all[k] / sums[head + k] * sigmoid(gate[at]);
    }
}

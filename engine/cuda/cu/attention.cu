// Attention over selected positions, and the indexer that selects them.
//
// A row's selection is `counts[t]` positions, ascending, in `list[t * width ...]`. The position of the window's first row is
// the word at `window`, or `first` if there is none.
#include "common.cuh"

// Positions whose weighted values are added up before they meet the others'.
#define BLOCK 128

// Selects every position up to the row's own. Grid: (any, rows). Block: any.
KERNEL select_all(u32* counts, u32* list, const u32* window, u32 first, u32 width) {
    follow();
    u32 t = blockIdx.y, n = position(window, first) + t + 1;
    if (n > width) n = width;
    if (blockIdx.x == 0 && threadIdx.x == 0) counts[t] = n;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) list[(u64)t * width + i] = i;
}

// The score of each complete block of positions for each row: the positive parts of the heads' products with the block's
// key, added in order, times 1 / sqrt(dim). Grid: (any, rows). Block: any multiple of 32; a warp takes a block at a time.
KERNEL block_scores(const float* q, const float* keys, float* scores, const u32* window, u32 first, u32 heads, u32 dim,
                    u32 block, u32 stride) {
    follow();
    u32 t = blockIdx.y, blocks = (position(window, first) + t + 1) / block, warps = blockDim.x / WARP;
    q += (u64)t * heads * dim;
    float scale = 1.0f / sqrtf((float)dim);
    for (u32 b = blockIdx.x * warps + threadIdx.x / WARP; b < blocks; b += gridDim.x * warps) {
        float sum = 0.0f;
        for (u32 h = 0; h < heads; h++) {
            float s = dot_warp(q + h * dim, keys + (u64)b * dim, dim);
            sum += s > 0.0f ? s : 0.0f;
        }
        if (threadIdx.x % WARP == 0) scores[(u64)t * stride + b] = sum * scale;
    }
}

// The number of set flags in threads before this one, and of all in the block, 1,024 threads; `shared` has 33 words.
__device__ __forceinline__ u32 rank(bool flag, u32* shared, u32* all) {
    u32 votes = __ballot_sync(ALL, flag), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    __syncthreads();
    if (lane == 0) shared[warp] = __popc(votes);
    __syncthreads();
    if (warp == 0) {
        u32 mine = shared[lane], sum = mine;
#pragma unroll
        for (int step = 1; step < WARP; step *= 2) {
            u32 other = __shfl_up_sync(ALL, sum, step);
            if (lane >= step) sum += other;
        }
        shared[lane] = sum - mine;
        if (lane == WARP - 1) shared[WARP] = sum;
    }
    __syncthreads();
    *all = shared[WARP];
    return shared[warp] + __popc(votes & ((1u << lane) - 1));
}

// The positions of the `budget` best-scoring complete blocks and of the incomplete one; equal scores to the lower block.
// Grid: rows. Block: 1,024 threads.
KERNEL select_blocks(const float* scores, u32* counts, u32* list, const u32* window, u32 first, u32 block, u32 budget,
                     u32 stride, u32 width) {
    follow();
    __shared__ u32 histogram[256];
    __shared__ u32 shared[WARP + 1];
    __shared__ u32 chosen;
    u32 t = blockIdx.x, n = position(window, first) + t + 1, blocks = n / block;
    scores += (u64)t * stride;
    list += (u64)t * width;
    if (blocks <= budget) {
        for (u32 i = threadIdx.x; i < n && i < width; i += blockDim.x) list[i] = i;
        if (threadIdx.x == 0) counts[t] = n < width ? n : width;
        return;
    }
    // Scores are not negative, so their bits are ordered as they are. Byte by byte from the top: which value has just
    // `budget` scores at or above it, and how many of its equals are among them.
    u32 value = 0, wanted = budget;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (u32 i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        u32 mask = shift == 24 ? 0 : 0xffffffffu << (shift + 8);
        for (u32 b = threadIdx.x; b < blocks; b += blockDim.x) {
            u32 bits = __float_as_uint(scores[b]);
            if ((bits & mask) == (value & mask)) atomicAdd(&histogram[bits >> shift & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 byte = 255, left = wanted;
            while (byte > 0 && histogram[byte] < left) left -= histogram[byte--];
            chosen = byte;
            shared[0] = left;
        }
        __syncthreads();
        value |= chosen << shift;
        wanted = shared[0];
        __syncthreads();
    }
    u32 equal = 0, written = 0;
    for (u32 from = 0; from < blocks; from += blockDim.x) {
        u32 b = from + threadIdx.x, all;
        u32 bits = b < blocks ? __float_as_uint(scores[b]) : 0;
        bool same = b < blocks && bits == value;
        u32 before = rank(same, shared, &all);
        bool take = b < blocks && (bits > value || (same && equal + before < wanted));
        equal += all;
        u32 at = written + rank(take, shared, &all);
        written += all;
        if (take && (at + 1) * block <= width)
            for (u32 i = 0; i < block; i++) list[at * block + i] = b * block + i;
    }
    u32 whole = budget * block, tail = n - blocks * block;
    for (u32 i = threadIdx.x; i < tail && whole + i < width; i += blockDim.x) list[whole + i] = blocks * block + i;
    if (threadIdx.x == 0) counts[t] = whole + tail < width ? whole + tail : width;
}

// Scaled products of each head's query with the selected keys. Grid: (any, heads, rows). Block: any multiple of 32; a warp
// takes a position at a time.
KERNEL attend_scores(const float* q, const float* keys, const u32* counts, const u32* list, float* scores, u32 heads,
                     u32 kv_heads, u32 dim, u32 width) {
    follow();
    u32 h = blockIdx.y, t = blockIdx.z, n = counts[t], warps = blockDim.x / WARP;
    q += ((u64)t * heads + h) * dim;
    keys += (u64)(h / (heads / kv_heads)) * dim;
    list += (u64)t * width;
    scores += ((u64)t * heads + h) * width;
    float scale = 1.0f / sqrtf((float)dim);
    for (u32 i = blockIdx.x * warps + threadIdx.x / WARP; i < n; i += gridDim.x * warps) {
        float s = dot_warp(q, keys + (u64)list[i] * kv_heads * dim, dim) * scale;
        if (threadIdx.x % WARP == 0) scores[i] = s;
    }
}

// Replaces scores by e^(score - largest) and puts their sum into `sums`. Grid: (heads, rows). Block: 256 threads.
KERNEL attend_softmax(float* scores, const u32* counts, float* sums, float* parts, u32 heads, u32 width) {
    follow();
    __shared__ float tops[8];
    u32 h = blockIdx.x, t = blockIdx.y, n = counts[t], lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 blocks = (width + BLOCK - 1) / BLOCK;
    scores += ((u64)t * heads + h) * width;
    parts += ((u64)t * heads + h) * blocks;
    float top = __int_as_float(0xff800000);
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) top = scores[i] > top ? scores[i] : top;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(ALL, top, step);
        top = other > top ? other : top;
    }
    if (lane == 0) tops[warp] = top;
    __syncthreads();
    for (u32 w = 0; w < blockDim.x / WARP; w++) top = tops[w] > top ? tops[w] : top;
    for (u32 b = warp; b * BLOCK < n; b += blockDim.x / WARP) {
        float sum = 0.0f;
        u32 end = (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
        for (u32 i = b * BLOCK + lane; i < end; i += WARP) {
            float e = exp_(scores[i] - top);
            scores[i] = e;
            sum += e;
        }
        sum = join32(sum);
        if (lane == 0) parts[b] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (u32 b = 0; b * BLOCK < n; b++) sum += parts[b];
        sums[t * heads + h] = sum;
    }
}

// The weighted values of each block of positions. Grid: (blocks, heads, rows). Block: `dim` threads.
KERNEL attend_values(const float* weights, const float* values, const u32* counts, const u32* list, float* parts, u32 heads,
                     u32 kv_heads, u32 dim, u32 width) {
    follow();
    u32 b = blockIdx.x, h = blockIdx.y, t = blockIdx.z, n = counts[t], blocks = (width + BLOCK - 1) / BLOCK;
    if (b * BLOCK >= n) return;
    const u32 count = min(n - b * BLOCK, BLOCK);
    // Near first, so that values wait for nothing but memory.
    __shared__ float weight[BLOCK];
    __shared__ u32 place[BLOCK];
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        weight[i] = weights[((u64)t * heads + h) * width + b * BLOCK + i];
        place[i] = list[(u64)t * width + b * BLOCK + i];
    }
    __syncthreads();
    values += (u64)(h / (heads / kv_heads)) * dim + threadIdx.x;
    constexpr u32 AT_ONCE = 16;
    float sum = 0.0f;
    for (u32 first = 0; first < count; first += AT_ONCE) {
        float v[AT_ONCE];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) v[k] = values[(u64)place[min(first + k, count - 1)] * kv_heads * dim];
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) {
            if (first + k < count) sum = fma_(weight[first + k], v[k], sum);
        }
    }
    parts[(((u64)t * heads + h) * blocks + b) * dim + threadIdx.x] = sum;
}

// The blocks' values in order, divided by the weights' sum, times sigmoid(gate). Grid: (heads, rows). Block: `dim` threads.
KERNEL attend_finish(const float* parts, const float* sums, const float* gate, const u32* counts, float* out, u32 heads,
                     u32 dim, u32 width) {
    follow();
    u32 h = blockIdx.x, t = blockIdx.y, n = counts[t], blocks = (width + BLOCK - 1) / BLOCK;
    parts += ((u64)t * heads + h) * blocks * dim + threadIdx.x;
    float sum = 0.0f;
    for (u32 b = 0; b * BLOCK < n; b++) sum += parts[(u64)b * dim];
    u64 at = ((u64)t * heads + h) * dim + threadIdx.x;
    out[at] = sum / sums[t * heads + h] * sigmoid(gate[at]);
}

// Norms, rotations, gates and sums over rows of floats.
//
// Where a kernel takes `window` and `first`, the position of the window's first row is the word at `window`, so that a
// captured graph serves every round, or `first` if there is none.
#include "common.cuh"

// Threads of a block that takes a part, and values that each keeps: parts of up to 4,096 values are read once.
#define PART 512
#define KEPT 8

// What a thread has of a part: values threadIdx.x, threadIdx.x + PART, ...
struct Part {
    float v[KEPT], gamma[KEPT];

    // v / sqrt(mean(v²) + eps) * gamma, by all threads of the block. The values are added up where they are near, by one warp, since
    // 32 partial sums are the rule; the others wait.
    __device__ __forceinline__ void norm(float* y, u32 width, float eps) const {
        __shared__ float values[PART * KEPT];
        __shared__ float shared;
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) values[threadIdx.x + PART * k] = v[k];
        __syncthreads();
        if (threadIdx.x < WARP) {
            float sum = 0.0f;
            // Behind the last value there are zeros, which add nothing: so many are read before the first is needed.
            constexpr u32 AT_ONCE = PART / WARP;
#pragma unroll 1
            for (u32 first = 0; first < width; first += PART) {
                float some[AT_ONCE];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) some[i] = values[first + WARP * i + threadIdx.x];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; i++) sum = fma_(some[i], some[i], sum);
            }
            sum = lane0(join32(sum));
            if (threadIdx.x == 0) shared = 1.0f / sqrtf(sum / (float)width + eps);
        }
        __syncthreads();
        const float scale = shared;
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            const u32 i = threadIdx.x + PART * k;
            if (i < width) y[i] = v[k] * scale * gamma[k];
        }
    }
};

// y = x / sqrt(mean(x²) + eps) * gamma for parts of `width` values; part p has the gammas of part p mod `groups`.
// Grid: one block per part. Block: 512 threads.
KERNEL __launch_bounds__(PART) group_norm(const float* x, const float* gamma, float* y, u32 width, u32 groups, float eps) {
    follow();
    x += (u64)blockIdx.x * width;
    y += (u64)blockIdx.x * width;
    gamma += (u64)(blockIdx.x % groups) * width;
    if (width <= PART * KEPT) {
        Part part;
#pragma unroll
        for (u32 k = 0; k < KEPT; k++) {
            const u32 i = threadIdx.x + PART * k;
            part.v[k] = i < width ? x[i] : 0.0f;
            part.gamma[k] = i < width ? gamma[i] : 0.0f;
        }
        part.norm(y, width, eps);
        return;
    }
    __shared__ float shared;
    if (threadIdx.x < WARP) {
        const float sum = dot_warp(x, x, width);
        if (threadIdx.x == 0) shared = 1.0f / sqrtf(sum / (float)width + eps);
    }
    __syncthreads();
    const float scale = shared;
    for (u32 i = threadIdx.x; i < width; i += PART) y[i] = x[i] * scale * gamma[i];
}

// `add_to_streams`, then `group_norm` of what the streams are then, for streams of up to 4,096 values.
// Grid: one block per stream of each row. Block: 512 threads.
KERNEL __launch_bounds__(PART) write_norm(float* r, const float* a, const float* y, const float* gamma, float* n, u32 streams,
                                          u32 width, float eps, u64* found, u32 site, float largest) {
    const u64 first = (u64)blockIdx.x * width;
    gamma += (u64)(blockIdx.x % streams) * width;
    announce();
    if (threadIdx.x * 8 < width) prefetch(gamma + threadIdx.x * 8);
    wait_for_former();
    r += first;
    y += (u64)(blockIdx.x / streams) * width;
    const float weight = a[blockIdx.x];
    Part part;
    float written[KEPT];
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        const u32 i = threadIdx.x + PART * k;
        part.v[k] = i < width ? r[i] : 0.0f;
        written[k] = i < width ? y[i] : 0.0f;
        part.gamma[k] = i < width ? gamma[i] : 0.0f;
    }
#pragma unroll
    for (u32 k = 0; k < KEPT; k++) {
        const u32 i = threadIdx.x + PART * k;
        if (i >= width) break;
        part.v[k] = fma_(weight, written[k], part.v[k]);
        r[i] = part.v[k];
        if (found) note(part.v[k], first + i, found, site, largest);
    }
    part.norm(n + first, width, eps);
}

// A head in a warp's registers: lane l has values l, l + 32, ... of up to 256.
#define MINE 8

struct Head {
    float v[MINE];

    __device__ __forceinline__ void load(const float* x, u32 dim) {
#pragma unroll
        for (u32 k = 0; k < MINE; k++) {
            const u32 i = threadIdx.x % WARP + WARP * k;
            v[k] = i < dim ? x[i] : 0.0f;
        }
    }
    // Root-mean-square norm.
    __device__ __forceinline__ void norm(const Head& gamma, u32 dim, float eps) {
        float sum = 0.0f;
#pragma unroll
        for (u32 k = 0; k < MINE; k++) {
            if (threadIdx.x % WARP + WARP * k < dim) sum = fma_(v[k], v[k], sum);
        }
        const float scale = 1.0f / sqrtf(lane0(join32(sum)) / (float)dim + eps);
#pragma unroll
        for (u32 k = 0; k < MINE; k++) v[k] = v[k] * scale * gamma.v[k];
    }
    __device__ __forceinline__ void store(float* x, u32 dim) const {
#pragma unroll
        for (u32 k = 0; k < MINE; k++) {
            const u32 i = threadIdx.x % WARP + WARP * k;
            if (i < dim) x[i] = v[k];
        }
    }
};

// Root-mean-square norm of a head of any width in place by one warp.
__device__ __forceinline__ void norm_head(float* x, const float* gamma, u32 dim, float eps) {
    if (dim <= WARP * MINE) {
        Head head, factors;
        head.load(x, dim);
        factors.load(gamma, dim);
        head.norm(factors, dim, eps);
        head.store(x, dim);
        return;
    }
    float scale = 1.0f / sqrtf(dot_warp(x, x, dim) / (float)dim + eps);
    for (u32 i = threadIdx.x % WARP; i < dim; i += WARP) x[i] = x[i] * scale * gamma[i];
}

// Rotates the first `2 * half` values of a head in place by one warp; `turn` holds the cosine and the sine of each pair.
__device__ __forceinline__ void rotate_head(float* x, const float2* turn, u32 half) {
    __syncwarp();
    for (u32 i = threadIdx.x % WARP; i < half; i += WARP) {
        float a = x[i], b = x[i + half];
        float cos = turn[i].x, sin = turn[i].y;
        x[i] = fma_(a, cos, -(b * sin));
        x[i + half] = fma_(b, cos, a * sin);
    }
}

// Norm of each head with one gamma, then the row's rotation, `[rows][half]`, in place.
// Grid and block: one warp per head of each row.
KERNEL norm_rope(float* x, const float* gamma, const float2* rotations, u32 rows, u32 heads, u32 dim, u32 half, float eps) {
    follow();
    u32 head = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (head >= rows * heads) return;
    x += (u64)head * dim;
    norm_head(x, gamma, dim, eps);
    rotate_head(x, rotations + (u64)(head / heads) * half, half);
}

// Appends the keys of the blocks of `block` positions that the window's rows complete: mean of their raw keys, norm,
// rotation at the block's first position, of which `rotations` holds one for each such block. Grid and block: one warp per
// block of positions, enough for all.
KERNEL pool_blocks(const float* raw, float* blocks, const float* gamma, const float2* rotations, const u32* window,
                   u32 first, u32 rows, u32 block, u32 dim, u32 half, float eps) {
    follow();
    first = position(window, first);
    u32 n = (blockIdx.x * blockDim.x + threadIdx.x) / WARP, b = first / block + n;
    if (b >= (first + rows) / block) return;
    float* key = blocks + (u64)b * dim;
    raw += (u64)b * block * dim;
    for (u32 i = threadIdx.x % WARP; i < dim; i += WARP) {
        float sum = 0.0f;
        for (u32 r = 0; r < block; r++) sum += raw[(u64)r * dim + i];
        key[i] = sum / (float)block;
    }
    __syncwarp();
    norm_head(key, gamma, dim, eps);
    rotate_head(key, rotations + (u64)n * half, half);
}

// Norm of each head with `gamma`, times sigmoid(z), in place. Grid and block: one warp per head.
KERNEL gated_norm(float* x, const float* gamma, const float* z, u32 heads, u32 dim, float eps) {
    follow();
    u32 head = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (head >= heads) return;
    x += (u64)head * dim;
    z += (u64)head * dim;
    if (dim <= WARP * MINE) {
        Head head, factors, gates;
        head.load(x, dim);
        factors.load(gamma, dim);
        gates.load(z, dim);
        head.norm(factors, dim, eps);
#pragma unroll
        for (u32 k = 0; k < MINE; k++) head.v[k] *= sigmoid(gates.v[k]);
        head.store(x, dim);
        return;
    }
    norm_head(x, gamma, dim, eps);
    for (u32 i = threadIdx.x % WARP; i < dim; i += WARP) x[i] *= sigmoid(z[i]);
}

// silu(x / divisor) in place. Grid and block: one thread per value.
KERNEL silu_scaled(float* x, u32 n, float divisor) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = silu(x[i] / divisor);
}

// 2 sigmoid(x / divisor) in place. Grid and block: one thread per value.
KERNEL inject_weights(float* x, u32 n, float divisor) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2.0f * sigmoid(x[i] / divisor);
}

// The mean over streams of sigmoid(gate) * n. Grid and block: one thread per value of `out`, `[rows][width]`.
KERNEL mix_streams(const float* gate, const float* n, float* out, u32 values, u32 streams, u32 width) {
    follow();
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= values) return;
    u64 from = (u64)(at / width) * streams * width + at % width;
    float sum = 0.0f;
    for (u32 s = 0; s < streams; s++, from += width) sum = fma_(sigmoid(gate[from]), n[from], sum);
    out[at] = sum / (float)streams;
}

// r[stream] += a[stream] * y. If there is a place for what is `found`, each value of r is looked at as by `nonfinite`. Grid and
// block: one thread per value of `y`, `[rows][width]`.
KERNEL add_to_streams(float* r, const float* a, const float* y, u32 values, u32 streams, u32 width, u64* found, u32 site,
                      float largest) {
    follow();
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= values) return;
    u32 row = at / width;
    u64 to = (u64)row * streams * width + at % width;
    for (u32 s = 0; s < streams; s++, to += width) {
        float sum = fma_(a[row * streams + s], y[at], r[to]);
        r[to] = sum;
        if (found) note(sum, to, found, site, largest);
    }
}

// x += y. Grid and block: one thread per value.
KERNEL add(float* x, const float* y, u32 n) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}

// Each row of `width` values `times` times. Grid and block: one thread per value of `y`.
KERNEL repeat(const float* x, float* y, u32 n, u32 width, u32 times) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(u64)(i / (width * times)) * width + i % width];
}

// Heads of 2 * dim values into their halves. Grid and block: one thread per value of `a`.
KERNEL split_heads(const float* x, float* a, float* b, u32 n, u32 dim) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 from = (u64)(i / dim) * 2 * dim + i % dim;
    a[i] = x[from];
    b[i] = x[from + dim];
}

// Rows behind those of earlier windows. Grid and block: one thread per value of `rows`.
KERNEL append(float* cache, const float* rows, const u32* window, u32 first, u32 n, u32 row_len) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) cache[(u64)position(window, first) * row_len + i] = rows[i];
}

// The n-gram module's gated value. Grid: one block per stream of each row. Block: any multiple of 32 threads.
KERNEL ngram_gate(const float* k, const float* q, const float* v, float* out, u32 streams, u32 width) {
    follow();
    __shared__ float shared;
    u64 at = (u64)blockIdx.x * width;
    v += (u64)(blockIdx.x / streams) * width;
    if (threadIdx.x < WARP) {
        float s = dot_warp(k + at, q + at, width) / sqrtf((float)width);
        float magnitude = fabsf(s);
        float root = sqrtf(magnitude < 1e-6f ? 1e-6f : magnitude);
        if (threadIdx.x == 0) shared = sigmoid(s == 0.0f ? 0.0f : copysignf(root, s));
    }
    __syncthreads();
    float gate = shared;
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) out[at + i] = gate * v[i];
}

// Notes the first value that is no number or larger than `largest`; see `note`. Grid and block: any.
KERNEL nonfinite(const float* x, u64* found, u32 n, u32 site, float largest) {
    follow();
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        note(x[i], i, found, site, largest);
    }
}

// Puts each row's weight of the shared expert, sigmoid(opening), behind the weights of its `used` experts, and the numbers
// of the results that they weigh: routed pairs have `place`, the shared expert's follow them. Grid and block: one thread
// per row.
KERNEL terms(const float* weights, const u32* place, const float* opening, u32* index, float* factor, u32 rows, u32 used) {
    follow();
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= rows) return;
    for (u32 n = 0; n < used; n++) {
        index[t * (used + 1) + n] = place[t * used + n];
        factor[t * (used + 1) + n] = weights[t * used + n];
    }
    index[t * (used + 1) + used] = rows * used + t;
    factor[t * (used + 1) + used] = sigmoid(opening[t]);
}

// The delta-net layers: short convolution and gated delta rule.
#include "common.cuh"

// silu of a causal depthwise convolution over "history, then x"; `w` is `[taps][channels]`, the oldest tap first.
// Grid and block: one thread per value.
KERNEL conv_silu(const float* x, const float* w, const float* history, float* out, u32 rows, u32 channels, u32 taps,
                 u32 dilation) {
    follow();
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (u64)rows * channels) return;
    u32 t = at / channels, c = at % channels, kept = (taps - 1) * dilation;
    float sum = 0.0f;
    for (u32 k = 0; k < taps; k++) {
        u32 row = t + k * dilation;
        float v = row < kept ? history[(u64)row * channels + c] : x[(u64)(row - kept) * channels + c];
        sum = fma_(w[(u64)k * channels + c], v, sum);
    }
    out[at] = silu(sum);
}

// Brings queries and keys to unit length in place; queries are divided by the root of the width, too. `qkv` is
// `[rows][channels]`, of which the first `2 * key_heads` heads are meant. Grid and block: one warp per head of each row.
KERNEL unit_heads(float* qkv, u32 rows, u32 channels, u32 key_heads, u32 dim) {
    follow();
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (at >= rows * 2 * key_heads) return;
    u32 head = at % (2 * key_heads);
    float* x = qkv + (u64)(at / (2 * key_heads)) * channels + (u64)head * dim;
    float factor = head < key_heads ? 1.0f / sqrtf((float)dim) : 1.0f;
    float scale = factor / sqrtf(dot_warp(x, x, dim) + 1e-6f);
    for (u32 i = threadIdx.x % WARP; i < dim; i += WARP) x[i] *= scale;
}

// What a token's gates say: the decay of the state and the rate of writing.
struct Gates {
    float decay, rate;

    __device__ __forceinline__ Gates(float alpha, float beta, float a, float dt)
        : decay(exp_(a * softplus(alpha + dt))), rate(sigmoid(beta)) {}
};

// N values in shared memory, where that many begin at a multiple of 16 bytes.
template <int N> __device__ __forceinline__ void read(const float* from, float (&to)[N]) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const float4 four = *(const float4*)(from + i);
            to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = from[i];
    }
}

// The gated delta rule of one value head over `rows` tokens, for 32 columns of its state.
//
// Four neighbouring threads share a column: thread p of them holds the state of keys p, p + 4, ... in registers, so the partial sums
// are its own and the state is read once and written once, whatever the number of tokens. While a token is computed, the next
// one's query, key and gates are on their way. `keys`, `deltas` and `decays` take what the tokens do to the state; the state is
// then left as it is (see strata_cpu::delta::scan_noting).
// Grid: (value heads, columns / 32). Block: 128 threads.
template <int DIM>
__device__ __forceinline__ void scan(const float* qkv, const float* beta, const float* alpha, const float* a,
                                     const float* dt, float* state, float* out, float* keys, float* deltas, float* decays,
                                     u32 rows, u32 key_heads, u32 value_heads) {
    constexpr int MINE = DIM / 4, EACH = (DIM + 127) / 128;
    // Queries and keys of two tokens, element 4 i + p at [p][i]; rows of p lie in different banks.
    alignas(16) __shared__ float pairs[2][2][4][MINE + 4];
    const u32 j = blockIdx.x, p = threadIdx.x % 4, c = blockIdx.y * 32 + threadIdx.x / 4, head = j % key_heads;
    const bool live = c < DIM, notes = keys && blockIdx.y == 0 && j < key_heads;
    const u32 channels = (2 * key_heads + value_heads) * DIM;
    const float a_j = a[j], dt_j = dt[j];
    state += (u64)j * DIM * DIM;
    float s[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) s[i] = live ? state[(u64)(4 * i + p) * DIM + c] : 0.0f;

    float query[EACH], key[EACH], v = 0.0f;
    auto load = [&](u32 t) {
        const float* row = qkv + (u64)t * channels;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u32 i = threadIdx.x + 128 * e;
            if (i >= DIM) break;
            query[e] = row[head * DIM + i];
            key[e] = row[(key_heads + head) * DIM + i];
        }
        v = live ? row[(2 * key_heads + j) * DIM + c] : 0.0f;
    };
    auto keep = [&](u32 t) {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u32 i = threadIdx.x + 128 * e;
            if (i >= DIM) break;
            pairs[t % 2][0][i % 4][i / 4] = query[e];
            pairs[t % 2][1][i % 4][i / 4] = key[e];
            if (notes) keys[((u64)t * key_heads + head) * DIM + i] = key[e];
        }
    };
    if (rows == 0) return;
    load(0);
    keep(0);
    Gates gates(alpha[j], beta[j], a_j, dt_j);
    __syncthreads();
    for (u32 t = 0; t < rows; t++) {
        const u32 at = t * value_heads + j, next = min(t + 1, rows - 1), next_at = next * value_heads + j;
        const float mine = v;
        load(next);
        const Gates then(alpha[next_at], beta[next_at], a_j, dt_j);
        float k[MINE], sum = 0.0f;
        read(pairs[t % 2][1][p], k);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            s[i] *= gates.decay;
            sum = fma_(s[i], k[i], sum);
        }
        sum += __shfl_xor_sync(ALL, sum, 2);
        sum += __shfl_xor_sync(ALL, sum, 1);
        const float delta = gates.rate * (mine - sum);
        float q[MINE];
        read(pairs[t % 2][0][p], q);
        sum = 0.0f;
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            s[i] = fma_(k[i], delta, s[i]);
            sum = fma_(s[i], q[i], sum);
        }
        sum += __shfl_xor_sync(ALL, sum, 2);
        sum += __shfl_xor_sync(ALL, sum, 1);
        if (p == 0 && live) {
            out[(u64)at * DIM + c] = sum;
            if (deltas) deltas[(u64)at * DIM + c] = delta;
            if (decays && c == 0) decays[at] = gates.decay;
        }
        if (t + 1 < rows) keep(t + 1);
        gates = then;
        __syncthreads();
    }
    if (deltas || !live) return;
#pragma unroll
    for (int i = 0; i < MINE; i++) state[(u64)(4 * i + p) * DIM + c] = s[i];
}

#define SCAN(DIM)                                                                                                         \
    KERNEL __launch_bounds__(128) delta_scan_##DIM(const float* qkv, const float* beta, const float* alpha,               \
                                                   const float* a, const float* dt, float* state, float* out,             \
                                                   float* keys, float* deltas, float* decays, u32 rows, u32 key_heads,    \
                                                   u32 value_heads) {                                                     \
        follow();                                                                                                         \
        scan<DIM>(qkv, beta, alpha, a, dt, state, out, keys, deltas, decays, rows, key_heads, value_heads);               \
    }
SCAN(8)
SCAN(16)
SCAN(32)
SCAN(64)
SCAN(128)
SCAN(256)

// Arrays of up to 32 layers.
struct Layers {
    float* to[32];
    const float* from[32];
    const float* deltas[32];
    const float* decays[32];
};

// Moves the histories of several layers, of `kept` rows, on behind `rows` rows of x. Grid: (any, layers). Block: any; one thread
// per channel, which reads ahead of where it writes.
KERNEL advance_layers(Layers layers, u32 rows, u32 channels, u32 kept) {
    follow();
    float* history = layers.to[blockIdx.y];
    const float* x = layers.from[blockIdx.y];
    u32 c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    for (u32 r = 0; r < kept; r++) {
        u32 from = r + rows;
        history[(u64)r * channels + c] =
            from < kept ? history[(u64)from * channels + c] : x[(u64)(from - kept) * channels + c];
    }
}

// Does to the states of several layers what the first `rows` noted tokens did. Grid: (any, layers). Block: any; one thread per
// value of a state.
KERNEL replay_layers(Layers layers, u32 rows, u32 key_heads, u32 value_heads, u32 dim) {
    follow();
    float* state = layers.to[blockIdx.y];
    const float *keys = layers.from[blockIdx.y], *deltas = layers.deltas[blockIdx.y], *decays = layers.decays[blockIdx.y];
    u32 at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= value_heads * dim * dim) return;
    u32 j = at / (dim * dim), i = at / dim % dim, c = at % dim;
    float s = state[at];
    for (u32 t = 0; t < rows; t++) {
        float k = keys[(t * key_heads + j % key_heads) * dim + i];
        float d = deltas[(t * value_heads + j) * dim + c];
        s = fma_(k, d, s * decays[t * value_heads + j]);
    }
    state[at] = s;
}

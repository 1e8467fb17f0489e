// The delta-net layers: short convolution and gated delta rule, and both with what is between and behind them.
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

// Rows of the longest window that one kernel takes, and taps of the longest convolution that it knows.
constexpr u32 WINDOW = 8, TAPS = 4;

// A channel of a window: all that its convolution reads, so that no read waits for another. What is not there is zero.
struct Channel {
    float w[TAPS], before[TAPS - 1], x[WINDOW];

    // `w` and `history` have `taps` and `taps - 1` rows of so many channels; `from` has rows that are `apart`.
    __device__ __forceinline__ void load(const float* from, u32 apart, u32 rows, const float* w_, const float* history,
                                         u32 channels, u32 taps) {
        const u32 none = TAPS - taps;
#pragma unroll
        for (u32 t = 0; t < WINDOW; t++) x[t] = t < rows ? from[(u64)t * apart] : 0.0f;
#pragma unroll
        for (u32 k = 0; k < TAPS; k++) w[k] = k >= none ? w_[(u64)(k - none) * channels] : 0.0f;
#pragma unroll
        for (u32 k = 0; k < TAPS - 1; k++) before[k] = k >= none ? history[(u64)(k - none) * channels] : 0.0f;
    }
    // The sum of `conv_silu` for row t.
    __device__ __forceinline__ float sum(u32 t, u32 taps) const {
        float sum = 0.0f;
#pragma unroll
        for (u32 k = 0; k < TAPS; k++) {
            const float v = t + k < TAPS - 1 ? before[t + k] : x[t + k - (TAPS - 1)];
            if (k >= TAPS - taps) sum = fma_(w[k], v, sum);
        }
        return sum;
    }
};

// A block of 32 values as `quantise_short` makes it, lane l having value l; `at` is the number of the lane's value.
__device__ __forceinline__ void quantise32(float v, u64 at, i8* values, float* scales, i16* sums) {
    // Zero times a number is zero, times NaN or infinity NaN. NaN is larger than nothing.
    float top = fabsf(v) > 0.0f ? fabsf(v) : 0.0f, poison = 0.0f + v * 0.0f;
#pragma unroll
    for (u32 apart = WARP / 2; apart > 0; apart /= 2) {
        const float m = __shfl_xor_sync(ALL, top, apart);
        top = m > top ? m : top;
        poison += __shfl_xor_sync(ALL, poison, apart);
    }
    const bool some = top > 1e-30f;
    const float scale = some ? top / 127.0f : 0.0f, inverse = some ? 127.0f / top : 0.0f;
    const i32 q = (i8)__float_as_uint(v * inverse + 12582912.0f);
    i32 sum = q;
#pragma unroll
    for (u32 apart = 8; apart > 0; apart /= 2) sum += __shfl_xor_sync(ALL, sum, apart);
    values[at] = (i8)q;
    if (threadIdx.x % 16 == 0) sums[at / 16] = (i16)sum;
    if (threadIdx.x % WARP == 0) scales[at / WARP] = scale + poison;
}

// What a delta-net layer does between its projections, for one value head and a window of up to 8 rows: `conv_silu` of the head's
// channels, `unit_heads`, the noting scan, `gated_norm`. The state and the history stay as they are; `inputs` takes the rows of `x`.
// Blocks that share a head of queries and keys each compute it; the first of them notes it. If there is a place for `scales`, the
// results are left quantised, too.
//
// All that is read from memory is asked for at once, and what the projections do not make even before they have ended. Of a large state
// a thread has two columns, so that a query or key that it reads serves for both.
// Grid: value heads, at least as many as key heads. Block: 4 * DIM / COLUMNS threads, of which four share COLUMNS columns of the state.
template <u32 DIM, u32 COLUMNS>
__device__ __forceinline__ void window_of_head(const float* x, const float* w, const float* history, float* inputs, const float* beta,
                                               const float* alpha, const float* a, const float* dt, const float* state,
                                               const float* gamma, const float* z, float* out, float* keys, float* deltas,
                                               float* decays, i8* values, float* scales, i16* sums, u32 rows, u32 key_heads,
                                               u32 value_heads, u32 taps, float eps) {
    constexpr u32 THREADS = 4 * DIM / COLUMNS, WARPS = THREADS / WARP, MINE = DIM / 4, EACH = (DIM + WARP - 1) / WARP;
    // Queries and keys, element 4 i + p at [p][i]; rows of p lie in different banks.
    alignas(16) __shared__ float pairs[WINDOW][2][4][MINE + 4];
    __shared__ float wanted[WINDOW][DIM], opening[WINDOW][DIM], results[WINDOW][DIM], kept[WINDOW], rates[WINDOW];
    const u32 j = blockIdx.x, head = j % key_heads, channels = (2 * key_heads + value_heads) * DIM;
    const u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, i = threadIdx.x % DIM;
    const bool first = j < key_heads;
    // A thread's n'th part of a row: 0 is the query, 1 the key, 2 the value, 3 what opens the result.
    const auto part_of = [](u32 n) { return (threadIdx.x + n * THREADS) / DIM; };
    const auto channel_of = [=](u32 part) {
        return (part == 0 ? head : part == 1 ? key_heads + head : 2 * key_heads + j) * DIM + i;
    };
    state += (u64)j * DIM * DIM;
    announce();
    if (threadIdx.x < 4) fetch_ahead(state + threadIdx.x * (DIM * DIM / 4), DIM * DIM);
#pragma unroll
    for (u32 n = 0; n < COLUMNS; n++) {
        const u32 part = part_of(n), c = channel_of(part);
        if (i % 8 > 0 || part == 3) continue;
        for (u32 k = 0; k < taps; k++) {
            prefetch(w + (u64)k * channels + c);
            if (k > 0) prefetch(history + (u64)(k - 1) * channels + c);
        }
    }
    wait_for_former();

    Channel channel[COLUMNS];
#pragma unroll
    for (u32 n = 0; n < COLUMNS; n++) {
        const u32 part = part_of(n), c = channel_of(part);
        const bool convolved = part < 3;
        channel[n].load(convolved ? x + c : z + j * DIM + i, convolved ? channels : value_heads * DIM, rows, w + c, history + c,
                        channels, convolved ? taps : 0);
    }
    // The last threads have a row's gates each.
    const u32 row = THREADS - 1 - threadIdx.x;
    float written = 0.0f, forgotten = 0.0f;
    if (row < rows) written = beta[row * value_heads + j], forgotten = alpha[row * value_heads + j];
    const float a_j = a[j], dt_j = dt[j];
    const u32 p = threadIdx.x % 4;
    float s[COLUMNS][MINE], factor[EACH];
    const float* column = state + p * DIM + threadIdx.x / 4;
#pragma unroll
    for (u32 n = 0; n < COLUMNS; n++) {
#pragma unroll
        for (u32 k = 0; k < MINE; k++) s[n][k] = column[4 * DIM * k + n * (DIM / COLUMNS)];
    }
#pragma unroll
    for (u32 k = 0; k < EACH; k++) factor[k] = lane + WARP * k < DIM ? gamma[lane + WARP * k] : 0.0f;

#pragma unroll
    for (u32 t = 0; t < WINDOW; t++) {
        if (t >= rows) break;
        float sum[COLUMNS], open[COLUMNS];
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            sum[n] = part_of(n) < 3 ? channel[n].sum(t, taps) : channel[n].x[t];
            open[n] = sigmoid(sum[n]);
        }
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const u32 part = part_of(n), c = channel_of(part);
            if (part < 2) {
                pairs[t][part][i % 4][i / 4] = sum[n] * open[n];
            } else if (part == 2) {
                wanted[t][i] = sum[n] * open[n];
            } else {
                opening[t][i] = open[n];
            }
            if (part == 2 || (part < 2 && first)) inputs[(u64)t * channels + c] = channel[n].x[t];
        }
    }
    __syncthreads();
    for (u32 at = warp; at < 2 * rows; at += WARPS) {
        float(&v)[4][MINE + 4] = pairs[at / 2][at % 2];
        float sum = 0.0f;
        for (u32 e = lane; e < DIM; e += WARP) sum = fma_(v[e % 4][e / 4], v[e % 4][e / 4], sum);
        const float unit = at % 2 == 0 ? 1.0f / sqrtf((float)DIM) : 1.0f;
        const float scale = unit / sqrtf(lane0(join32(sum)) + 1e-6f);
        for (u32 e = lane; e < DIM; e += WARP) {
            const float scaled = v[e % 4][e / 4] * scale;
            v[e % 4][e / 4] = scaled;
            if (first && at % 2 == 1) keys[((u64)(at / 2) * key_heads + head) * DIM + e] = scaled;
        }
    }
    if (row < rows) {
        const Gates gates(forgotten, written, a_j, dt_j);
        kept[row] = gates.decay, rates[row] = gates.rate;
        decays[row * value_heads + j] = gates.decay;
    }
    __syncthreads();
#pragma unroll 1
    for (u32 t = 0; t < rows; t++) {
        const float decay = kept[t], rate = rates[t];
        float k[MINE], sum[COLUMNS], delta[COLUMNS];
        read(pairs[t][1][p], k);
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            sum[n] = 0.0f;
#pragma unroll
            for (u32 e = 0; e < MINE; e++) {
                s[n][e] *= decay;
                sum[n] = fma_(s[n][e], k[e], sum[n]);
            }
        }
        float q[MINE];
        read(pairs[t][0][p], q);
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const u32 c = threadIdx.x / 4 + n * (DIM / COLUMNS);
            sum[n] += __shfl_xor_sync(ALL, sum[n], 2);
            sum[n] += __shfl_xor_sync(ALL, sum[n], 1);
            delta[n] = rate * (wanted[t][c] - sum[n]);
            sum[n] = 0.0f;
#pragma unroll
            for (u32 e = 0; e < MINE; e++) {
                s[n][e] = fma_(k[e], delta[n], s[n][e]);
                sum[n] = fma_(s[n][e], q[e], sum[n]);
            }
        }
#pragma unroll
        for (u32 n = 0; n < COLUMNS; n++) {
            const u32 c = threadIdx.x / 4 + n * (DIM / COLUMNS);
            sum[n] += __shfl_xor_sync(ALL, sum[n], 2);
            sum[n] += __shfl_xor_sync(ALL, sum[n], 1);
            if (p == 0) {
                results[t][c] = sum[n];
                deltas[((u64)t * value_heads + j) * DIM + c] = delta[n];
            }
        }
    }
    __syncthreads();
    for (u32 t = warp; t < rows; t += WARPS) {
        const u64 at = ((u64)t * value_heads + j) * DIM + lane;
        float v[EACH], sum = 0.0f;
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            const u32 e = lane + WARP * k;
            v[k] = e < DIM ? results[t][e] : 0.0f;
            if (e < DIM) sum = fma_(v[k], v[k], sum);
        }
        const float scale = 1.0f / sqrtf(lane0(join32(sum)) / (float)DIM + eps);
#pragma unroll
        for (u32 k = 0; k < EACH; k++) {
            const u32 e = lane + WARP * k;
            if (e >= DIM) break;
            v[k] = v[k] * scale * factor[k];
            v[k] *= opening[t][e];
            out[at + WARP * k] = v[k];
            if constexpr (DIM % WARP == 0) {
                if (scales) quantise32(v[k], at + WARP * k, values, scales, sums);
            }
        }
    }
}

#define WINDOW_OF_HEAD(DIM, COLUMNS)                                                                                              \
    KERNEL __launch_bounds__(4 * DIM / COLUMNS)                                                                                   \
        delta_window_##DIM(const float* x, const float* w, const float* history, float* inputs, const float* beta,                \
                           const float* alpha, const float* a, const float* dt, const float* state, const float* gamma,           \
                           const float* z, float* out, float* keys, float* deltas, float* decays, i8* values, float* scales,      \
                           i16* sums, u32 rows, u32 key_heads, u32 value_heads, u32 taps, float eps) {                            \
        window_of_head<DIM, COLUMNS>(x, w, history, inputs, beta, alpha, a, dt, state, gamma, z, out, keys, deltas, decays,       \
                                     values, scales, sums, rows, key_heads, value_heads, taps, eps);                              \
    }
WINDOW_OF_HEAD(8, 1)
WINDOW_OF_HEAD(16, 1)
WINDOW_OF_HEAD(32, 1)
WINDOW_OF_HEAD(64, 2)
WINDOW_OF_HEAD(128, 2)

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

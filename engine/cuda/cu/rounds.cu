// Where kernels of a recorded graph and the host answer each other, layer by layer.
//
// Host memory that both see is read and written as volatile: nothing of it may stay in a cache. A side writes what it has to
// say, then a flag with the number of the round, in that order as the other side sees it.
#include "common.cuh"

// Copies words from host memory. Grid and block: one thread per word.
KERNEL fetch(const volatile u32* from, u32* to, u32 n) {
    follow();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}

// A logit and its number as one number: larger for larger logits, and of equal ones for the lower number.
__device__ __forceinline__ u64 key(float logit, u32 number) {
    u32 bits = __float_as_uint(logit == 0.0f ? 0.0f : logit);
    return (u64)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | (0xffffffffu - number);
}

__device__ __forceinline__ float logit_of(u64 key) {
    u32 bits = (u32)(key >> 32);
    return __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}

// One step of a bitonic sort over a warp's lanes: the larger of two keys `apart` from each other goes to the lower lane if
// `down`, else to the upper.
__device__ __forceinline__ u64 exchanged(u64 mine, u32 apart, bool down) {
    u64 other = __shfl_xor_sync(ALL, mine, apart);
    bool lower = !(threadIdx.x & apart);
    return (mine > other) == (lower == down) ? mine : other;
}

// What each row of the window chooses, and the telling of it.
//
// The `used` largest of each row of `experts` logits, best first, equal ones by lower index, and their softmax among themselves.
// Every warp sorts 32 of them; then pairs of warps keep the best 32 of both, until one is left. Values that are no numbers are
// noted in `found`, if that is there, as by `nonfinite`; whatever is chosen then is in range.
//
// If there is an `opening`, `factor` takes the weights of the row's terms: those of its experts, then sigmoid(opening).
//
// If there is a place to publish, the host is told which experts the rows want, and their inputs: `out` takes `pairs` ids, `pairs`
// weights and `rows * hidden` floats; `flag` then takes the round's number. `ready` counts the rows that are told, and is zero
// again when all are.
//
// Grid: one block per row. Block: one thread per expert, rounded up to whole warps; at most 1,024, and 32 used.
KERNEL __launch_bounds__(1024) route(const float* logits, u32* ids, float* weights, u32 experts, u32 used, u64* found, u32 site,
                                     float largest, const float* opening, float* factor, const float* x, u32 hidden,
                                     volatile u32* out, volatile u32* flag, const u32* round, u32* ready) {
    follow();
    __shared__ u64 best[32][32];
    const u32 row = blockIdx.x, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, pairs = gridDim.x * used;
    if (out) {
        volatile u32* inputs = out + 2 * pairs + row * hidden;
        for (u32 i = threadIdx.x; i < hidden; i += blockDim.x) inputs[i] = __float_as_uint(x[row * hidden + i]);
    }
    u64 mine = 0;
    if (threadIdx.x < experts) {
        float logit = logits[row * experts + threadIdx.x];
        mine = key(logit, threadIdx.x);
        if (found) note(logit, row * experts + threadIdx.x, found, site, largest);
    }
#pragma unroll
    for (u32 size = 2; size <= WARP; size *= 2) {
#pragma unroll
        for (u32 apart = size / 2; apart > 0; apart /= 2) mine = exchanged(mine, apart, size == WARP || !(lane & size));
    }
    best[warp][lane] = mine;
    for (u32 warps = blockDim.x / WARP; warps > 1; warps = (warps + 1) / 2) {
        __syncthreads();
        const u32 half = (warps + 1) / 2;
        if (warp + half < warps) {
            // Descending beside ascending: the larger of each two are the best of all, up and down again.
            const u64 other = best[warp + half][WARP - 1 - lane];
            mine = mine > other ? mine : other;
#pragma unroll
            for (u32 apart = WARP / 2; apart > 0; apart /= 2) mine = exchanged(mine, apart, true);
        }
        // Only those that the next turn reads are written, and nobody reads them in this one.
        if (warp < half) best[warp][lane] = mine;
    }
    if (warp == 0) {
        const u32 number = 0xffffffffu - (u32)mine, id = number < experts ? number : 0;
        const float chosen = logit_of(mine);
        float w = exp_(chosen - __shfl_sync(ALL, chosen, 0)), sum = 0.0f;
        for (u32 n = 0; n < used; n++) sum += __shfl_sync(ALL, w, n);
        const float weight = w / sum;
        if (lane < used) {
            ids[row * used + lane] = id;
            weights[row * used + lane] = weight;
            if (out) {
                out[row * used + lane] = id;
                out[pairs + row * used + lane] = __float_as_uint(weight);
            }
            if (opening) factor[row * (used + 1) + lane] = weight;
        }
        if (opening && lane == 0) factor[row * (used + 1) + used] = sigmoid(opening[row]);
    }
    if (!out) return;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(ready, gridDim.x - 1) == gridDim.x - 1) {
        __threadfence_system();
        *flag = *round;
    }
}

// Waits until `flag` has the round's number, then copies `n` words from host memory.
//
// The wait has a bound: after `cycles` of the processor's clock, or once an earlier wait of the round has failed, it leaves
// `site` in `error` and fills `to` with zeros, which the kernels that follow take for "nothing to do". So a host that died
// leaves no kernel behind. Grid: 1. Block: any.
KERNEL wait_for(const volatile u32* flag, const u32* round, u32* error, const volatile u32* from, u32* to, u32 n, u32 site,
                u32 megacycles) {
    follow();
    __shared__ u32 failed;
    if (threadIdx.x == 0) {
        u32 bad = *error, wanted = *round;
        i64 start = clock64(), limit = (i64)megacycles << 20;
        while (!bad && *flag != wanted) {
            if (clock64() - start > limit) bad = *error = site;
        }
        failed = bad;
        __threadfence_system();
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) to[i] = failed ? 0 : from[i];
}

// The weighted sum of results wherever they lie, in order, by fused multiply-add from zero: `results` has the address of each
// row's `terms` results; one without an address is left out, which only happens after a failed wait. Those of the host are far
// away, so up to 16 are asked for before the first is there. Grid: (hidden / 256, rows). Block: 256 threads.
KERNEL __launch_bounds__(256) combine_at(const u64* results, const float* factor, float* out, u32 terms, u32 hidden) {
    follow();
    constexpr u32 TOGETHER = 16;
    __shared__ u64 from[TOGETHER];
    __shared__ float by[TOGETHER];
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    float sum = 0.0f;
    for (u32 first = 0; first < terms; first += TOGETHER) {
        if (threadIdx.x < TOGETHER) {
            const u32 n = first + threadIdx.x;
            from[threadIdx.x] = n < terms ? results[t * terms + n] : 0;
            by[threadIdx.x] = n < terms ? factor[t * terms + n] : 0.0f;
        }
        __syncthreads();
        // Reads under a condition would each be put off until the value is wanted: those that are none read something else. The
        // barrier keeps additions from coming between reads.
        float y[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) {
            y[k] = *(const volatile float*)(from[k] && i < hidden ? from[k] + (u64)i * 4 : (u64)factor);
        }
        __syncthreads();
#pragma unroll
        for (u32 k = 0; k < TOGETHER; k++) {
            if (from[k]) sum = fma_(by[k], y[k], sum);
        }
        if (first + TOGETHER < terms) __syncthreads();
    }
    if (i < hidden) out[(u64)t * hidden + i] = sum;
}

// The plan of a layer whose experts all lie on the device, in one piece each: every pair (row, choice) is a group of its own.
// Grid: 1. Block: at least one thread per pair.
KERNEL plan_resident(const u32* ids, u64 gate, u64 up, u64 down, u64 gate_bytes, u64 up_bytes, u64 down_bytes, u32* starts,
                     u32* tokens, u64* gates, u64* ups, u64* downs, u64* results, u64 pair_results, u64 shared_results,
                     u32 pairs, u32 used, u32 hidden) {
    follow();
    const u32 p = threadIdx.x;
    if (p < pairs) {
        u32 id = ids[p], row = p / used;
        starts[p] = p;
        if (p == 0) starts[pairs] = pairs;
        tokens[p] = row;
        gates[p] = gate + id * gate_bytes;
        ups[p] = up + id * up_bytes;
        downs[p] = down + id * down_bytes;
        results[row * (used + 1) + p % used] = pair_results + (u64)p * hidden * 4;
        if (p % used == 0) results[row * (used + 1) + used] = shared_results + (u64)row * hidden * 4;
    }
}

// Where kernels of a recorded graph and the host answer each other, layer by layer.
//
// Host memory that both see is read and written as volatile: nothing of it may stay in a cache. A side writes what it has to
// say, then a flag with the number of the round, in that order as the other side sees it.
#include "common.cuh"

// Copies words from host memory. Grid and block: one thread per word.
KERNEL fetch(const volatile u32* from, u32* to, u32 n) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i];
}

// Tells the host which experts the rows want, and their inputs: `out` takes `pairs` ids, `pairs` weights and `values` floats;
// `flag` then takes the round's number. Grid: 1. Block: any.
KERNEL publish(const float* x, const u32* ids, const float* weights, volatile u32* out, volatile u32* flag, const u32* round,
               u32 values, u32 pairs) {
    for (u32 i = threadIdx.x; i < pairs; i += blockDim.x) {
        out[i] = ids[i];
        out[pairs + i] = __float_as_uint(weights[i]);
    }
    for (u32 i = threadIdx.x; i < values; i += blockDim.x) out[2 * pairs + i] = __float_as_uint(x[i]);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *flag = *round;
}

// Waits until `flag` has the round's number, then copies `n` words from host memory.
//
// The wait has a bound: after `cycles` of the processor's clock, or once an earlier wait of the round has failed, it leaves
// `site` in `error` and fills `to` with zeros, which the kernels that follow take for "nothing to do". So a host that died
// leaves no kernel behind. Grid: 1. Block: any.
KERNEL wait_for(const volatile u32* flag, const u32* round, u32* error, const volatile u32* from, u32* to, u32 n, u32 site,
                u32 megacycles) {
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

// The weights of each row's terms: those of its `used` experts, then sigmoid(opening). Grid and block: one thread per row.
KERNEL factors(const float* weights, const float* opening, float* factor, u32 rows, u32 used) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= rows) return;
    for (u32 n = 0; n < used; n++) factor[t * (used + 1) + n] = weights[t * used + n];
    factor[t * (used + 1) + used] = sigmoid(opening[t]);
}

// The weighted sum of results wherever they lie, in order, by fused multiply-add from zero: `results` has the address of each
// row's `terms` results; one without an address is left out, which only happens after a failed wait. Grid: (hidden / block,
// rows). Block: any.
KERNEL combine_at(const u64* results, const float* factor, float* out, u32 terms, u32 hidden) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
    if (i >= hidden) return;
    float sum = 0.0f;
    for (u32 n = 0; n < terms; n++) {
        const volatile float* y = (const volatile float*)results[t * terms + n];
        if (y) sum = fma_(factor[t * terms + n], y[i], sum);
    }
    out[(u64)t * hidden + i] = sum;
}

// The plan of a layer whose experts all lie on the device, in one piece each: every pair (row, choice) is a group of its own.
// Grid and block: one thread per pair.
KERNEL plan_resident(const u32* ids, u64 gate, u64 up, u64 down, u64 gate_bytes, u64 up_bytes, u64 down_bytes, u32* starts,
                     u32* tokens, u64* gates, u64* ups, u64* downs, u64* results, u64 pair_results, u64 shared_results,
                     u32 pairs, u32 used, u32 hidden) {
    u32 p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
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

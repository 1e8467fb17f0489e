// Stands in for cu/instructions.cuh where kernels run on the CPU.

__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 pick) {
    const u64 all = (u64)high << 32 | low;
    u32 out = 0;
    for (u32 i = 0; i < 4; i++) out |= (u32)(all >> (pick >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

__device__ __forceinline__ float low_half(u32 word) {
    const u32 sign = (word & 0x8000) << 16, rest = word & 0x7fff;
    const float magnitude = rest < 0x0400   ? (float)rest * (1.0f / 16777216.0f)
                            : rest < 0x7c00 ? __uint_as_float((rest << 13) + (112u << 23))
                                            : __uint_as_float((rest << 13) | 0x7f800000u);
    return __uint_as_float(__float_as_uint(magnitude) | sign);
}

__device__ __forceinline__ void load_matrices(u32 (&r)[4], const i8* row) {
    emulator::together([](const void* const* given, void* const* got, uint32_t) {
        for (u32 lane = 0; lane < 32; lane++) {
            for (u32 m = 0; m < 4; m++) memcpy((u32*)got[lane] + m, (const i8*)given[8 * m + lane / 4] + lane % 4 * 4, 4);
        }
    }, row, r);
}

// Lane l has values l % 4 * 4 to + 3 of row l / 4 of the weights, of row 8 + l / 4, and the same 16 further on; the same of input l / 4; and of
// results rows l / 4 and 8 + l / 4, inputs l % 4 * 2 and the next.
template <u32 VALUES> inline void multiply(i32 (&p)[4], const u32 (&w)[4], u32 x0, u32 x1, i32 c) {
    const u32 given[7] = {w[0], w[1], w[2], w[3], x0, x1, (u32)c};
    emulator::together([](const void* const* given, void* const* got, uint32_t) {
        i32 rows[VALUES][16], inputs[8][VALUES];
        for (u32 lane = 0; lane < 32; lane++) {
            const u32* words = (const u32*)given[lane];
            for (u32 i = 0; i < VALUES / 8; i++) {
                for (u32 k = 0; k < 4; k++) {
                    const u32 value = i / 2 * 16 + lane % 4 * 4 + k;
                    rows[value][lane / 4 + i % 2 * 8] = (i8)(words[i] >> 8 * k);
                    if (i % 2 == 0) inputs[lane / 4][value] = (i8)(words[4 + i / 2] >> 8 * k);
                }
            }
        }
        for (u32 input = 0; input < 8; input++) {
            i32 sums[16];
            for (u32 row = 0; row < 16; row++) sums[row] = ((const i32*)given[row % 8 * 4 + input / 2])[6];
            for (u32 value = 0; value < VALUES; value++) {
                for (u32 row = 0; row < 16; row++) sums[row] += rows[value][row] * inputs[input][value];
            }
            for (u32 row = 0; row < 16; row++) ((i32*)got[row % 8 * 4 + input / 2])[row / 8 * 2 + input % 2] = sums[row];
        }
    }, given, p);
}

__device__ __forceinline__ void multiply32(i32 (&p)[4], const u32 (&w)[4], u32 x0, u32 x1, i32 c) { multiply<32>(p, w, x0, x1, c); }

__device__ __forceinline__ void multiply16(i32 (&p)[4], u32 w0, u32 w1, u32 x, i32 c) {
    const u32 w[4] = {w0, w1, 0, 0};
    multiply<16>(p, w, x, 0, c);
}

__device__ __forceinline__ void bring16(void* to, const void* from) { emulator::bring(to, from, 16); }
__device__ __forceinline__ void bring4(void* to, const void* from) { emulator::bring(to, from, 4); }
template <u32 BYTES> __device__ __forceinline__ void bring_bytes(void* to, const void* from) { emulator::bring(to, from, BYTES); }
__device__ __forceinline__ void arrived() { emulator::arrived(); }

__device__ __forceinline__ void prefetch(const void*) {}
__device__ __forceinline__ void announce() {}
__device__ __forceinline__ void wait_for_former() {}
__device__ __forceinline__ const u8* anew(const u8* p) { return p; }
template <class A> __device__ __forceinline__ void wait_for_former(A*&) {}
__device__ __forceinline__ void follow() {}
__device__ __forceinline__ void fetch_ahead(const void*, u32) {}

__device__ __forceinline__ u32 thread_anew() { return threadIdx.x; }

// Single instructions that C++ has no words for. Elsewhere kernels are plain C++, so that they can also run where there is no GPU:
// what stands in for this file there is emulator/instructions.h.
#pragma once
#ifdef EMULATED
#include "instructions.h"
#else

// What older processors lack stands behind `// sm_90: `, where it is a comment; where it is known, the program uncovers it before the
// driver translates the kernels (src/device/launch.rs).

// The kernel behind this one may be started as soon as all blocks of this one have been.
__device__ __forceinline__ void announce() { asm volatile("// sm_90: griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until all kernels before this one have ended, and what they wrote is there.
__device__ __forceinline__ void wait_for_former() { asm volatile("// sm_90: griddepcontrol.wait;" ::: "memory"); }

// The same for kernels that have read weights before: what is read at an address from here on is read behind the wait, whatever the
// compiler knows of the address.
template <class A> __device__ __forceinline__ void wait_for_former(A*& inputs) {
    wait_for_former();
    // It stays known that it is device memory.
    u64 at = __cvta_generic_to_global((const void*)inputs);
    asm volatile("" : "+l"(at)::"memory");
    inputs = (A*)__cvta_global_to_generic(at);
}

// The same address, of which the compiler knows nothing: it would read what is at one before a loop and keep all of it in registers.
__device__ __forceinline__ const u8* anew(const u8* p) {
    u64 at = __cvta_generic_to_global(p);
    asm volatile("" : "+l"(at));
    return (const u8*)__cvta_global_to_generic(at);
}

// What every kernel does before it reads or writes anything that changes, in all of its threads: one that ended sooner would end before
// those ahead of it, and kernels behind it would not wait for them.
__device__ __forceinline__ void follow() {
    announce();
    wait_for_former();
}

// Has memory bring some bytes nearer, and what is around them up to multiples of 16; they may never be wanted.
__device__ __forceinline__ void fetch_ahead(const void* p, u32 bytes) {
    const u32 more = (u64)p & 15;
    asm volatile("// sm_90: cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((u64)p - more), "r"((more + bytes + 15) & ~15u));
}

// Four bytes out of the eight of `low` and `high`; the top bit of each nibble of `pick` must be clear.
__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 pick) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(pick));
    return out;
}

// The value of the half in a word's low bits; one instruction, since all halves are floats.
__device__ __forceinline__ float low_half(u32 word) {
    float out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"((u16)word));
    return out;
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Four matrices of 8 rows of 16 bytes: lane l names the l'th row, and gets word l % 4 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(u32 (&r)[4], const i8* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row)));
}

// 16 rows times 8 inputs over 32 values, on top of `c` for all.
__device__ __forceinline__ void multiply32(i32 (&p)[4], const u32 (&w)[4], u32 x0, u32 x1, i32 c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1), "r"(c));
}

// The same over 16 values.
__device__ __forceinline__ void multiply16(i32 (&p)[4], u32 w0, u32 w1, u32 x, i32 c) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(p[0]), "=r"(p[1]), "=r"(p[2]), "=r"(p[3])
        : "r"(w0), "r"(w1), "r"(x), "r"(c));
}

// Brings 16 bytes to shared memory; they are there behind `arrived`.
__device__ __forceinline__ void bring16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

// The same for a word.
__device__ __forceinline__ void bring4(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from));
}

// Has memory bring a sector nearer.
__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

__device__ __forceinline__ void arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// This thread's number, read anew: what follows from it is then not kept in registers from one part to the next.
__device__ __forceinline__ u32 thread_anew() {
    u32 x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// Brings 8 or 16 bytes to shared memory; they are there behind `arrived`.
template <u32 BYTES> __device__ __forceinline__ void bring_bytes(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES));
}

#endif

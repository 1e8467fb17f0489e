// What kernels see when they run on the CPU: the words of CUDA C++ that they use, over threads that take turns.
//
// A block's threads are fibers of one thread of the system. They run until they wait for each other: at a barrier, or at an
// operation of their warp, which the last of its lanes to come does for all. So a kernel that forgets a barrier mostly gives wrong
// results here, as its threads run one after another up to the next one.
#pragma once
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#define EMULATED 1
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

// Not aligned as on a GPU: there, local variables of other types that are read through these are registers. Where memory is read,
// `__ldg` checks.
struct char2 { signed char x, y; };
struct char4 { signed char x, y, z, w; };
struct short2 { short x, y; };
struct ushort2 { unsigned short x, y; };
struct short4 { short x, y, z, w; };
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

namespace emulator {

struct Place {
    unsigned x, y, z;
};

extern Place thread_now, block_now, block_size, grid_size;

// Waits for all threads of the block.
void sync_block();

// Has the last lane that comes do `all` with what every lane of the warp gave, and with where each wants its result; `lanes` are there.
// Lanes that ask for different operations at once are an error.
typedef void (*Operation)(const void* const* given, void* const* got, uint32_t lanes);
void together(Operation all, const void* given, void* got);

// A copy to shared memory that is made when `arrived` is called, no sooner.
void bring(void* to, const void* from, unsigned bytes);
void arrived();

// Ends the program: a kernel read from an address that a GPU refuses.
[[noreturn]] void misaligned();

// Notes a kernel under its name: with the addresses of its arguments it makes what a thread runs.
typedef std::function<void()> Bound;
bool note(const char* name, std::function<Bound(void**)> bind);

template <class... A, size_t... I> Bound bound(void (*f)(A...), void** args, std::index_sequence<I...>) {
    std::tuple<A...> values{};
    (memcpy((void*)&std::get<I>(values), args[I], sizeof(A)), ...);
    return [=] { std::apply(f, values); };
}

template <class... A> bool kernel(const char* name, void (*f)(A...)) {
    return note(name, [f](void** args) { return bound(f, args, std::index_sequence_for<A...>()); });
}

// A value of another lane: the one that `From::lane` says, or the lane's own if there is none.
template <class T, class From> T of_other(T value, unsigned by) {
    struct Given {
        T value;
        unsigned by;
    } given{value, by};
    T got;
    together([](const void* const* given, void* const* got, uint32_t lanes) {
        for (unsigned lane = 0; lane < 32; lane++) {
            if (!(lanes >> lane & 1)) continue;
            const unsigned other = From::lane(lane, ((const Given*)given[lane])->by);
            *(T*)got[lane] = ((const Given*)given[other < 32 && lanes >> other & 1 ? other : lane])->value;
        }
    }, &given, &got);
    return got;
}

struct Xor {
    static unsigned lane(unsigned lane, unsigned by) { return lane ^ by; }
};
struct Down {
    static unsigned lane(unsigned lane, unsigned by) { return lane + by; }
};
struct Up {
    static unsigned lane(unsigned lane, unsigned by) { return lane < by ? lane : lane - by; }
};
struct Of {
    static unsigned lane(unsigned, unsigned by) { return by % 32; }
};

}

#define threadIdx (::emulator::thread_now)
#define blockIdx (::emulator::block_now)
#define blockDim (::emulator::block_size)
#define gridDim (::emulator::grid_size)

inline void __syncthreads() { emulator::sync_block(); }

inline void __syncwarp(unsigned = 0xffffffffu) {
    emulator::together([](const void* const*, void* const*, uint32_t) {}, nullptr, nullptr);
}

template <class T> T __shfl_xor_sync(unsigned, T value, unsigned by) { return emulator::of_other<T, emulator::Xor>(value, by); }
template <class T> T __shfl_down_sync(unsigned, T value, unsigned by) { return emulator::of_other<T, emulator::Down>(value, by); }
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by) { return emulator::of_other<T, emulator::Up>(value, by); }
template <class T> T __shfl_sync(unsigned, T value, unsigned lane) { return emulator::of_other<T, emulator::Of>(value, lane); }

inline unsigned __ballot_sync(unsigned, bool yes) {
    unsigned got;
    emulator::together([](const void* const* given, void* const* got, uint32_t lanes) {
        unsigned all = 0;
        for (unsigned lane = 0; lane < 32; lane++) all |= (lanes >> lane & 1 && *(const bool*)given[lane] ? 1u : 0u) << lane;
        for (unsigned lane = 0; lane < 32; lane++) {
            if (lanes >> lane & 1) *(unsigned*)got[lane] = all;
        }
    }, &yes, &got);
    return got;
}

using std::isinf;
using std::isnan;

template <class T> T __ldg(const T* p) {
    if ((uintptr_t)p % sizeof(T)) emulator::misaligned();
    return *p;
}

inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 32; i += 8) sum += (signed char)(a >> i) * (signed char)(b >> i);
    return sum;
}

// Two 16-bit numbers with the lower, or the upper, two bytes of `b`.
inline int __dp2a_lo(int a, int b, int sum) { return sum + (short)a * (signed char)b + (short)(a >> 16) * (signed char)(b >> 8); }
inline int __dp2a_hi(int a, int b, int sum) { return __dp2a_lo(a, b >> 16, sum); }

inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline long long clock64() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Blocks come one after another, so nothing needs to be atomic for the others' sake.
template <class T, class U> T atomicAdd(T* p, U by) { T old = *p; *p = old + by; return old; }
template <class T, class U> T atomicMin(T* p, U other) { T old = *p; *p = (T)other < old ? (T)other : old; return old; }
inline unsigned atomicInc(unsigned* p, unsigned most) { unsigned old = *p; *p = old >= most ? 0 : old + 1; return old; }

template <class A, class B> constexpr auto min(A a, B b) { typedef std::common_type_t<A, B> T; return (T)b < (T)a ? (T)b : (T)a; }
template <class A, class B> constexpr auto max(A a, B b) { typedef std::common_type_t<A, B> T; return (T)a < (T)b ? (T)b : (T)a; }

// Runs the threads of a block as fibers that take turns, and the blocks of a grid one after another.
#include "device.h"
#include "run.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <vector>

namespace emulator {

Place thread_now, block_now, block_size, grid_size;

namespace {

struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
};

struct Fiber {
    void* stack;
    unsigned number;
    Fiber *next, *before;
    std::vector<Copy> copies;
};

struct Warp {
    uint32_t there;
    unsigned came, turn;
    Operation operation;
    const void* given[32];
    void* got[32];
};

constexpr unsigned MOST = 1024;
constexpr size_t STACK = 256 << 10;
// Turns without any thread getting on, after which a block hangs.
constexpr uint64_t HANGS = 200'000'000;

Fiber fibers[MOST];
Warp warps[MOST / 32];
Fiber* now;
void* outside;
char* stacks;
const Bound* body;
const char* kernel_name = "";
unsigned alive, waiting, turn;
uint64_t idle;

[[noreturn]] void fail(const char* what) {
    fprintf(stderr, "emulated GPU: %s in kernel %s, block (%u, %u, %u), thread %u\n", what, kernel_name, block_now.x, block_now.y, block_now.z,
            now ? now->number : 0);
    abort();
}

}

extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.globl emulator_switch
.hidden emulator_switch
.type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

namespace {

void go_to(Fiber* fiber) {
    Fiber* from = now;
    now = fiber;
    thread_now.x = fiber->number;
    emulator_switch(&from->stack, fiber->stack);
}

// Lets the other threads go on.
void wait_turn() {
    if (++idle > HANGS) fail("threads wait for each other");
    go_to(now->next);
}

void release_if_all() {
    if (waiting > 0 && waiting == alive) {
        waiting = 0;
        turn++;
        idle = 0;
    }
}

void run_fiber() {
    (*body)();
    if (!now->copies.empty()) fail("a copy to shared memory that nobody waited for");
    Warp& warp = warps[now->number / 32];
    warp.there &= ~(1u << now->number % 32);
    if (warp.came > 0) fail("a thread ended while its warp waits for it");
    alive--;
    release_if_all();
    Fiber* next = now->next;
    next->before = now->before;
    now->before->next = next;
    void* never;
    if (alive == 0) {
        now = nullptr;
        emulator_switch(&never, outside);
    }
    now = next;
    thread_now.x = next->number;
    emulator_switch(&never, next->stack);
    __builtin_unreachable();
}

void run_block(unsigned threads) {
    for (unsigned i = 0; i < threads; i++) {
        void** top = (void**)(stacks + STACK * (i + 1));
        *--top = nullptr;
        *--top = (void*)run_fiber;
        top -= 6;
        fibers[i].stack = top;
        fibers[i].number = i;
        fibers[i].next = &fibers[(i + 1) % threads];
        fibers[i].before = &fibers[(i + threads - 1) % threads];
    }
    for (unsigned w = 0; w < (threads + 31) / 32; w++) {
        const unsigned lanes = std::min(32u, threads - 32 * w);
        warps[w].there = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
        warps[w].came = 0;
    }
    alive = threads;
    waiting = 0;
    idle = 0;
    now = &fibers[0];
    thread_now = {0, 0, 0};
    emulator_switch(&outside, now->stack);
}

}

void sync_block() {
    const unsigned mine = turn;
    waiting++;
    release_if_all();
    while (turn == mine) wait_turn();
}

void together(Operation all, const void* given, void* got) {
    const unsigned lane = now->number % 32;
    Warp& warp = warps[now->number / 32];
    if (warp.came == 0) warp.operation = all;
    if (warp.operation != all) fail("lanes of a warp are at different operations");
    const unsigned mine = warp.turn;
    warp.given[lane] = given;
    warp.got[lane] = got;
    if (++warp.came == (unsigned)__builtin_popcount(warp.there)) {
        all(warp.given, warp.got, warp.there);
        warp.came = 0;
        warp.turn++;
        idle = 0;
    }
    while (warp.turn == mine) wait_turn();
}

void bring(void* to, const void* from, unsigned bytes) {
    if ((uintptr_t)to % bytes || (uintptr_t)from % bytes) fail("a copy from or to an address that is not aligned");
    now->copies.push_back({to, from, bytes});
}

void misaligned() { fail("a read from an address that is not aligned"); }

void arrived() {
    for (const Copy& copy : now->copies) memcpy(copy.to, copy.from, copy.bytes);
    now->copies.clear();
}

namespace {
std::map<std::string, std::function<Bound(void**)>>& kernels() {
    static std::map<std::string, std::function<Bound(void**)>> all;
    return all;
}
}

bool note(const char* name, std::function<Bound(void**)> bind) {
    kernels()[name] = std::move(bind);
    return true;
}

const std::function<Bound(void**)>* find(const std::string& name) {
    auto found = kernels().find(name);
    return found == kernels().end() ? nullptr : &found->second;
}

void run_grid(const char* name, const Bound& f, Place grid, unsigned threads, uint64_t order) {
    if (!stacks) {
        stacks = (char*)mmap(nullptr, STACK * MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) {
            perror("emulated GPU: stacks");
            abort();
        }
    }
    kernel_name = name;
    if (threads == 0 || threads > MOST) fail("a block of no or too many threads");
    if (grid.y > 65535 || grid.z > 65535) fail("a grid that is too large");
    body = &f;
    block_size = {threads, 1, 1};
    grid_size = grid;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        // Blocks come in no order that a kernel may rely on.
        const uint64_t b = order % 2 ? blocks - 1 - i : i;
        block_now = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
        run_block(threads);
    }
}

}

// The calls of the CUDA driver that Strata makes, over memory of the host and kernels that run on the CPU.
//
// One thread is the GPU. It runs what streams hold, one thing at a time: of those that may run next one that a random number picks, so
// that what relies on an order that nobody asked for fails sooner or later. EMULATED_GPU_SEED sets the numbers; 0 is the order of the
// calls.
#include "run.h"
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#define CALL extern "C" __attribute__((visibility("default"))) int

namespace {

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, NOT_READY = 600 };

constexpr size_t TOTAL = (size_t)16 << 30;
// Bytes of a piece of memory that are filled when it is taken and given back.
constexpr size_t POISONED = (size_t)64 << 20;

typedef std::shared_ptr<std::atomic<bool>> Flag;

struct Work {
    std::function<void()> run;
    // It waits for this, if it is there.
    Flag after;
    uint64_t number;
};

struct Graph {
    struct Node {
        std::function<void()> run;
        std::set<size_t> after;
    };
    std::vector<Node> nodes;
};

struct Stream {
    std::deque<Work> work;
    bool busy = false;
    // While a graph is recorded: it, and the nodes that the next one comes behind.
    Graph* graph = nullptr;
    std::set<size_t> after;
    bool origin = false;
};

struct Event {
    Flag flag;
    Graph* graph = nullptr;
    std::set<size_t> after;
    std::shared_ptr<std::atomic<int64_t>> time;
};

struct Function {
    std::string name;
    const std::function<emulator::Bound(void**)>* bind;
};

struct Gpu {
    std::mutex lock;
    std::condition_variable changed;
    std::set<Stream*> streams;
    std::map<uintptr_t, size_t> memory, pinned;
    size_t taken = 0;
    uint64_t number = 0;
    std::mt19937_64 random;
    bool shuffled = false;
    std::thread thread;

    Gpu() {
        if (const char* seed = getenv("EMULATED_GPU_SEED")) {
            random.seed(strtoull(seed, nullptr, 10));
            shuffled = strtoull(seed, nullptr, 10) != 0;
        }
        thread = std::thread([this] { live(); });
        thread.detach();
    }

    void live() {
        std::unique_lock held(lock);
        for (;;) {
            std::vector<Stream*> ready;
            for (Stream* stream : streams) {
                if (!stream->work.empty() && (!stream->work.front().after || *stream->work.front().after)) ready.push_back(stream);
            }
            if (ready.empty()) {
                changed.wait(held);
                continue;
            }
            Stream* next = shuffled ? ready[random() % ready.size()]
                                    : *std::min_element(ready.begin(), ready.end(), [](Stream* a, Stream* b) {
                                          return a->work.front().number < b->work.front().number;
                                      });
            Work work = std::move(next->work.front());
            next->work.pop_front();
            next->busy = true;
            held.unlock();
            if (work.run) work.run();
            work.run = nullptr;
            held.lock();
            next->busy = false;
            changed.notify_all();
        }
    }

    void add(Stream* stream, std::function<void()> run, Flag after = nullptr) {
        if (stream->graph) {
            stream->graph->nodes.push_back({std::move(run), stream->after});
            stream->after = {stream->graph->nodes.size() - 1};
            return;
        }
        stream->work.push_back({std::move(run), std::move(after), number++});
        changed.notify_all();
    }

    void wait(std::unique_lock<std::mutex>& held, Stream* stream) {
        changed.wait(held, [&] { return stream->work.empty() && !stream->busy; });
    }

    void wait_all(std::unique_lock<std::mutex>& held) {
        changed.wait(held, [&] {
            return std::all_of(streams.begin(), streams.end(), [](Stream* s) { return s->work.empty() && !s->busy; });
        });
    }

    static bool within(const std::map<uintptr_t, size_t>& ranges, const void* p, size_t bytes) {
        auto it = ranges.upper_bound((uintptr_t)p);
        if (it == ranges.begin()) return false;
        --it;
        return (uintptr_t)p + bytes <= it->first + it->second;
    }

    uint64_t order() { return shuffled ? random() : 0; }
};

Gpu& gpu() {
    static Gpu* all = new Gpu;
    return *all;
}

void run_graph(const Graph& graph) {
    Gpu& g = gpu();
    std::vector<bool> done(graph.nodes.size());
    std::vector<size_t> left(graph.nodes.size());
    for (size_t i = 0; i < left.size(); i++) left[i] = i;
    while (!left.empty()) {
        std::vector<size_t> ready;
        for (size_t k = 0; k < left.size() && (g.shuffled || ready.empty()); k++) {
            const auto& after = graph.nodes[left[k]].after;
            if (std::all_of(after.begin(), after.end(), [&](size_t n) { return done[n]; })) ready.push_back(k);
        }
        const size_t k = g.shuffled ? ready[g.random() % ready.size()] : ready[0];
        const size_t node = left[k];
        left.erase(left.begin() + k);
        if (graph.nodes[node].run) graph.nodes[node].run();
        done[node] = true;
    }
}

}

#define HELD std::unique_lock held(gpu().lock)

CALL cuInit(unsigned) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && !*visible ? NO_DEVICE : SUCCESS;
}
CALL cuDriverGetVersion(int* version) { return *version = 12080, SUCCESS; }
CALL cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
CALL cuDeviceGet(int* device, int) { return *device = 0, SUCCESS; }
CALL cuDeviceGetName(char* name, int length, int) { return snprintf(name, length, "emulated GPU"), SUCCESS; }
CALL cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = TOTAL, SUCCESS; }
CALL cuDeviceGetAttribute(int* value, int which, int) {
    // Multiprocessors; the parts of the compute capability.
    *value = which == 16 ? 4 : which == 75 ? 8 : which == 76 ? 0 : 0;
    return SUCCESS;
}
CALL cuDevicePrimaryCtxRetain(void** context, int) { return *context = &gpu(), SUCCESS; }
CALL cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
CALL cuCtxSetCurrent(void*) { return SUCCESS; }
CALL cuCtxGetStreamPriorityRange(int* least, int* most) { return *least = 0, *most = -1, SUCCESS; }
CALL cuGetErrorString(int error, const char** text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : error == NOT_FOUND ? "not found" : error == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid value";
    return SUCCESS;
}
CALL cuGetErrorName(int error, const char** text) { return cuGetErrorString(error, text); }

CALL cuModuleLoadData(void** module, const void*) { return *module = &gpu(), SUCCESS; }
CALL cuModuleUnload(void*) { return SUCCESS; }
CALL cuModuleGetFunction(void** function, void*, const char* name) {
    const auto* bind = emulator::find(name);
    if (!bind) return NOT_FOUND;
    return *function = new Function{name, bind}, SUCCESS;
}
CALL cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned, Stream* stream,
                    void** args, void**) {
    HELD;
    emulator::Bound bound = (*function->bind)(args);
    gpu().add(stream, [=, name = function->name.c_str()] { emulator::run_grid(name, bound, {x, y, z}, threads, gpu().order()); });
    return SUCCESS;
}
// As CUlaunchConfig. Attributes say how kernels may overlap, which these never do.
struct Configuration {
    unsigned grid[3], block[3], shared;
    Stream* stream;
};
CALL cuLaunchKernelEx(const Configuration* c, Function* function, void** args, void** more) {
    return cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream, args, more);
}

CALL cuStreamCreate(Stream** stream, unsigned) {
    HELD;
    gpu().streams.insert(*stream = new Stream);
    return SUCCESS;
}
CALL cuStreamCreateWithPriority(Stream** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
CALL cuStreamDestroy_v2(Stream* stream) {
    HELD;
    gpu().wait(held, stream);
    gpu().streams.erase(stream);
    delete stream;
    return SUCCESS;
}
CALL cuStreamSynchronize(Stream* stream) {
    HELD;
    if (stream->graph) return INVALID_VALUE;
    gpu().wait(held, stream);
    return SUCCESS;
}
CALL cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    HELD;
    if (event->graph) {
        stream->graph = event->graph;
        stream->after.insert(event->after.begin(), event->after.end());
    } else if (event->flag) {
        gpu().add(stream, nullptr, event->flag);
    }
    return SUCCESS;
}

CALL cuEventCreate(Event** event, unsigned) { return *event = new Event, SUCCESS; }
CALL cuEventDestroy_v2(Event* event) { return delete event, SUCCESS; }
CALL cuEventRecord(Event* event, Stream* stream) {
    HELD;
    if (stream->graph) {
        event->graph = stream->graph;
        event->after = stream->after;
        return SUCCESS;
    }
    event->graph = nullptr;
    event->flag = std::make_shared<std::atomic<bool>>(false);
    event->time = std::make_shared<std::atomic<int64_t>>(0);
    gpu().add(stream, [flag = event->flag, time = event->time] {
        *time = clock64();
        *flag = true;
    });
    return SUCCESS;
}
CALL cuEventElapsedTime_v2(float* ms, Event* from, Event* to) { return *ms = (float)(*to->time - *from->time) / 1e6f, SUCCESS; }
CALL cuEventElapsedTime(float* ms, Event* from, Event* to) { return cuEventElapsedTime_v2(ms, from, to); }

CALL cuStreamBeginCapture_v2(Stream* stream, int) {
    HELD;
    if (stream->graph) return INVALID_VALUE;
    stream->graph = new Graph;
    stream->origin = true;
    stream->after.clear();
    return SUCCESS;
}
CALL cuStreamEndCapture(Stream* stream, Graph** graph) {
    HELD;
    if (!stream->graph || !stream->origin) return INVALID_VALUE;
    *graph = stream->graph;
    stream->origin = false;
    // What a branch did last must be behind what the stream did last.
    std::set<size_t> before = stream->after;
    for (std::vector<size_t> rest(before.begin(), before.end()); !rest.empty();) {
        const size_t node = rest.back();
        rest.pop_back();
        for (size_t earlier : (*graph)->nodes[node].after) {
            if (before.insert(earlier).second) rest.push_back(earlier);
        }
    }
    for (Stream* other : gpu().streams) {
        if (other->graph != *graph) continue;
        if (!std::includes(before.begin(), before.end(), other->after.begin(), other->after.end())) {
            fprintf(stderr, "emulated GPU: a branch of a graph was not joined\n");
            abort();
        }
        other->graph = nullptr;
        other->after.clear();
    }
    return SUCCESS;
}
CALL cuGraphGetNodes(Graph* graph, void**, size_t* count) { return *count = graph->nodes.size(), SUCCESS; }
CALL cuGraphInstantiateWithFlags(Graph** exec, Graph* graph, unsigned long long) { return *exec = new Graph(*graph), SUCCESS; }
CALL cuGraphDestroy(Graph* graph) { return delete graph, SUCCESS; }
CALL cuGraphExecDestroy(Graph* exec) { return delete exec, SUCCESS; }
CALL cuGraphUpload(Graph*, Stream*) { return SUCCESS; }
CALL cuGraphLaunch(Graph* exec, Stream* stream) {
    HELD;
    gpu().add(stream, [exec] { run_graph(*exec); });
    return SUCCESS;
}

CALL cuMemGetInfo_v2(size_t* free, size_t* total) {
    HELD;
    return *free = TOTAL - gpu().taken, *total = TOTAL, SUCCESS;
}
CALL cuMemAlloc_v2(void** address, size_t bytes) {
    HELD;
    if (bytes == 0) return INVALID_VALUE;
    const size_t size = (bytes + 511) / 512 * 512;
    if (gpu().taken + size > TOTAL) return OUT_OF_MEMORY;
    *address = aligned_alloc(512, size);
    if (!*address) return OUT_OF_MEMORY;
    // What nobody wrote is no number.
    memset(*address, 0xff, std::min(size, POISONED));
    gpu().memory[(uintptr_t)*address] = size;
    gpu().taken += size;
    return SUCCESS;
}
CALL cuMemFree_v2(void* address) {
    HELD;
    auto it = gpu().memory.find((uintptr_t)address);
    if (it == gpu().memory.end()) return INVALID_VALUE;
    gpu().wait_all(held);
    memset(address, 0xff, std::min(it->second, POISONED));
    gpu().taken -= it->second;
    gpu().memory.erase(it);
    free(address);
    return SUCCESS;
}
CALL cuMemHostAlloc(void** host, size_t bytes, unsigned) {
    HELD;
    *host = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*host) return OUT_OF_MEMORY;
    gpu().pinned[(uintptr_t)*host] = bytes;
    return SUCCESS;
}
CALL cuMemFreeHost(void* host) {
    HELD;
    gpu().wait_all(held);
    gpu().pinned.erase((uintptr_t)host);
    free(host);
    return SUCCESS;
}
CALL cuMemHostRegister_v2(void* host, size_t bytes, unsigned) {
    HELD;
    if (gpu().pinned.count((uintptr_t)host)) return INVALID_VALUE;
    gpu().pinned[(uintptr_t)host] = bytes;
    return SUCCESS;
}
CALL cuMemHostUnregister(void* host) {
    HELD;
    return gpu().pinned.erase((uintptr_t)host) ? SUCCESS : INVALID_VALUE;
}
CALL cuMemHostGetDevicePointer_v2(void** address, void* host, unsigned) {
    HELD;
    if (!Gpu::within(gpu().pinned, host, 1)) return INVALID_VALUE;
    return *address = host, SUCCESS;
}

CALL cuMemcpyHtoD_v2(void* to, const void* from, size_t bytes) {
    HELD;
    if (!Gpu::within(gpu().memory, to, bytes)) return INVALID_VALUE;
    memcpy(to, from, bytes);
    return SUCCESS;
}
CALL cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
    HELD;
    if (!Gpu::within(gpu().memory, to, bytes)) return INVALID_VALUE;
    if (Gpu::within(gpu().pinned, from, bytes)) {
        gpu().add(stream, [=] { memcpy(to, from, bytes); });
    } else {
        // Memory that is not page-locked has been read when the call returns.
        auto copy = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
        gpu().add(stream, [=] { memcpy(to, copy->data(), bytes); });
    }
    return SUCCESS;
}
CALL cuMemcpyDtoHAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
    HELD;
    if (!Gpu::within(gpu().memory, from, bytes)) return INVALID_VALUE;
    gpu().add(stream, [=] { memcpy(to, from, bytes); });
    return SUCCESS;
}
CALL cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t bytes, Stream* stream) {
    HELD;
    if (!Gpu::within(gpu().memory, to, bytes) || !Gpu::within(gpu().memory, from, bytes)) return INVALID_VALUE;
    gpu().add(stream, [=] { memcpy(to, from, bytes); });
    return SUCCESS;
}
CALL cuMemsetD8Async(void* to, unsigned char byte, size_t bytes, Stream* stream) {
    HELD;
    if (!Gpu::within(gpu().memory, to, bytes)) return INVALID_VALUE;
    gpu().add(stream, [=] { memset(to, byte, bytes); });
    return SUCCESS;
}

// What the driver wants of the threads.
#pragma once
#include "device.h"

namespace emulator {

// A kernel's way from the addresses of its arguments to what a thread runs; none if there is no such kernel.
const std::function<Bound(void**)>* find(const std::string& name);

// Runs a grid of blocks of so many threads. Only one thread of the system may.
void run_grid(const char* name, const Bound& f, Place grid, unsigned threads, uint64_t order);

}

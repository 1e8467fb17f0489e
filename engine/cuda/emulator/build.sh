#!/usr/bin/env bash
# Builds libcuda.so.1 in a folder: a driver that runs the kernels of cu/ on the CPU, for tests where there is no GPU.
#
#   build.sh FOLDER      then run tests with LD_LIBRARY_PATH=FOLDER and EMULATED_GPU_SEED=0 (driver.cpp says what that is)
#
# Needs g++ with C++20, on x86-64. What is newer than all sources is not built again.
set -euo pipefail
home=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?a folder}
mkdir -p "$out"
if [ -e "$out/libcuda.so.1" ] && [ -z "$(find "$home/cu" "$home/emulator" -newer "$out/libcuda.so.1" -print -quit)" ]; then exit; fi
flags=(-std=c++20 -O2 -fPIC -march=native -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden -w -I "$home/emulator" -I "$home/cu")

# A source of kernels with what notes each under its name.
kernels() {
    local cu=$1
    echo '#include "device.h"'
    # Sources have types of one name, and here all end in one library.
    echo "namespace {"
    echo "#include \"$cu\""
    { echo '#include "device.h"'; cat "$cu"; } | g++ "${flags[@]}" -E -P -x c++ - |
        grep -oE 'extern "C" +void +[A-Za-z0-9_]+' | sed -E 's/.* (.*)/const bool noted_\1 = emulator::kernel("\1", \1);/'
    echo "}"
}

for cu in "$home"/cu/*.cu; do kernels "$cu" > "$out/$(basename "$cu" .cu).cpp"; done
cp "$home"/emulator/*.cpp "$out"
find "$out" -name '*.cpp' -print0 |
    xargs -0 -P "$(nproc)" -I {} sh -c 'source=$1; shift; exec g++ "$@" -c "$source" -o "${source%.cpp}.o"' _ {} "${flags[@]}"
g++ -shared -o "$out/libcuda.so.1" "$out"/*.o -lpthread
ln -sf libcuda.so.1 "$out/libcuda.so"

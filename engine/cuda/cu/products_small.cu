// Products with weights of 16 to 64 values under one float scale.
// A lane has some units in registers.
#define BLOCKS_TOGETHER 4
#include "kernels.cuh"
#include "units_small.cuh"

TILE_KERNELS(q2_0, Q2_0)
TILE_KERNELS(q4_0, Q4_0)
TILE_KERNELS(q4_1, Q4_1)
TILE_KERNELS(q5_0, Q5_0)
TILE_KERNELS(q5_1, Q5_1)
TILE_KERNELS(q8_0, Q8_0)
TILE_KERNELS(iq4_nl, IQ4_NL)
TILE_KERNELS(mxfp4, MXFP4)
TILE_KERNELS(nvfp4, NVFP4)

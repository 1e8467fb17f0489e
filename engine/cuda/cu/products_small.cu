// Products with weights of 16 to 64 values under one float scale.
#include "products_tiles.cuh"
#include "units_small.cuh"

#define SMALL_KERNELS(name, U)                                                                                                    \
    TILE_PRODUCTS(name, U)                                                                                                        \
    TILE_KERNELS(name, U)

SMALL_KERNELS(q2_0, Q2_0)
SMALL_KERNELS(q4_0, Q4_0)
SMALL_KERNELS(q4_1, Q4_1)
SMALL_KERNELS(q5_0, Q5_0)
SMALL_KERNELS(q5_1, Q5_1)
SMALL_KERNELS(q8_0, Q8_0)
SMALL_KERNELS(iq4_nl, IQ4_NL)
SMALL_KERNELS(mxfp4, MXFP4)
SMALL_KERNELS(nvfp4, NVFP4)

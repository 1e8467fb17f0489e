// Products of weights of 16 to 64 values under one float scale with many inputs.
#include "many.cuh"
#include "units_small.cuh"

MANY_KERNEL(q2_0, ManyTiles<Q2_0>)
MANY_KERNEL(q4_0, ManyTiles<Q4_0>)
MANY_KERNEL(q4_1, ManyTiles<Q4_1>)
MANY_KERNEL(q5_0, ManyTiles<Q5_0>)
MANY_KERNEL(q5_1, ManyTiles<Q5_1>)
MANY_KERNEL(q8_0, ManyTiles<Q8_0>)
MANY_KERNEL(iq4_nl, ManyTiles<IQ4_NL>)
MANY_KERNEL(mxfp4, ManyTiles<MXFP4>)
MANY_KERNEL(nvfp4, ManyTiles<NVFP4>)

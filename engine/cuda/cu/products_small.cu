// Products with weights of 16 to 64 values under one float scale.
// A lane has a whole unit in registers.
#define BLOCKS_TOGETHER 6
#include "kernels.cuh"
#include "units_small.cuh"

INTEGER_KERNELS(q2_0, SmallUnits<Q2_0>)
INTEGER_KERNELS(q4_0, SmallUnits<Q4_0>)
INTEGER_KERNELS(q4_1, SmallUnits<Q4_1>)
INTEGER_KERNELS(q5_0, SmallUnits<Q5_0>)
INTEGER_KERNELS(q5_1, SmallUnits<Q5_1>)
INTEGER_KERNELS(q8_0, SmallUnits<Q8_0>)
INTEGER_KERNELS(iq4_nl, SmallUnits<IQ4_NL>)
INTEGER_KERNELS(mxfp4, SmallUnits<MXFP4>)
INTEGER_KERNELS(nvfp4, SmallUnits<NVFP4>)

// Products with weights in the k-quants and IQ4_XS.
#define BLOCKS_TOGETHER 6
#include "kernels.cuh"
#include "products_large.cuh"
#include "units_k.cuh"

INTEGER_KERNELS(q2_k, LargeUnits<Q2_K>)
INTEGER_KERNELS(q3_k, LargeUnits<Q3_K>)
INTEGER_KERNELS(q4_k, LargeUnits<Q4_K>)
INTEGER_KERNELS(q5_k, LargeUnits<Q5_K>)
INTEGER_KERNELS(q6_k, LargeUnits<Q6_K>)
INTEGER_KERNELS(iq4_xs, LargeUnits<IQ4_XS>)

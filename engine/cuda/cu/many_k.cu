// Products of weights in the k-quants and IQ4_XS with many inputs.
#include "many.cuh"
#include "units_k.cuh"

MANY_KERNEL(q2_k, ManyLarge<Q2_K>)
MANY_KERNEL(q3_k, ManyLarge<Q3_K>)
MANY_KERNEL(q4_k, ManyLarge<Q4_K>)
MANY_KERNEL(q5_k, ManyLarge<Q5_K>)
MANY_KERNEL(q6_k, ManyLarge<Q6_K>)
MANY_KERNEL(iq4_xs, ManyLarge<IQ4_XS>)

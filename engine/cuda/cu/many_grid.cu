// Products of weights in the i-quants that look groups up in code books with many inputs.
#include "many.cuh"
#include "units_grid.cuh"

MANY_KERNEL(iq1_s, ManyLarge<IQ1_S>)
MANY_KERNEL(iq1_m, ManyLarge<IQ1_M>)
MANY_KERNEL(iq2_xxs, ManyLarge<IQ2_XXS>)
MANY_KERNEL(iq2_xs, ManyLarge<IQ2_XS>)
MANY_KERNEL(iq2_s, ManyLarge<IQ2_S>)
MANY_KERNEL(iq3_xxs, ManyLarge<IQ3_XXS>)
MANY_KERNEL(iq3_s, ManyLarge<IQ3_S>)

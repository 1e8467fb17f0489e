// Products with weights in the i-quants that look groups up in code books.
#define BLOCKS_TOGETHER 5
#include "kernels.cuh"
#include "products_large.cuh"
#include "units_grid.cuh"

INTEGER_KERNELS(iq1_s, LargeUnits<IQ1_S>)
INTEGER_KERNELS(iq1_m, LargeUnits<IQ1_M>)
INTEGER_KERNELS(iq2_xxs, LargeUnits<IQ2_XXS>)
INTEGER_KERNELS(iq2_xs, LargeUnits<IQ2_XS>)
INTEGER_KERNELS(iq2_s, LargeUnits<IQ2_S>)
INTEGER_KERNELS(iq3_xxs, LargeUnits<IQ3_XXS>)
INTEGER_KERNELS(iq3_s, LargeUnits<IQ3_S>)

// The product of rows of f32 with a weight of f32, bf16 or integers, summed in f32: a warp for each output (y) and each row or four (x).
//
// A row gives the same bits with any number of rows beside it: see product.cuh.
#include "product.cuh"

// y[row][n] = bias[n] + sum over k of x[row][k] * weight[n][k]; `bias` may be null.
template <int ROWS, class W>
__device__ __forceinline__ void product(const float *x, const W &weight, const float *bias, float *y, unsigned rows,
                                        unsigned columns, unsigned outputs) {
  const unsigned output = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, first = blockIdx.x * ROWS;
  if (output >= outputs) return;
  const float *from[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) from[r] = x + (size_t)min(first + r, rows - 1) * columns;
  float sums[ROWS];
  weight.products(from, output, columns, sums);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (first + r < rows) y[(size_t)(first + r) * outputs + output] = sums[r] + (bias ? bias[output] : 0.0f);
  }
}

#define PRODUCT(NAME, W, ROWS)                                                                                         \
  extern "C" __global__ void NAME(const float *__restrict__ x, const W *__restrict__ weight,                           \
                                  const float *__restrict__ bias, float *__restrict__ y, unsigned rows, unsigned columns, \
                                  unsigned pitch, unsigned outputs) {                                                  \
    product<ROWS>(x, Floats<W>{weight, pitch}, bias, y, rows, columns, outputs);                                       \
  }

PRODUCT(product_f32, float, 1)
PRODUCT(product4_f32, float, 4)
PRODUCT(product_bf16, __nv_bfloat16, 1)
PRODUCT(product4_bf16, __nv_bfloat16, 4)

#define INTEGER_PRODUCT(NAME, BITS, ROWS)                                                                              \
  extern "C" __global__ void NAME(const float *__restrict__ x, const uint4 *__restrict__ weight,                       \
                                  const __nv_bfloat16 *__restrict__ scales, const float *__restrict__ bias,            \
                                  float *__restrict__ y, unsigned rows, unsigned columns, unsigned pitch,              \
                                  unsigned outputs) {                                                                  \
    product<ROWS>(x, Integers<BITS>{weight, scales, pitch}, bias, y, rows, columns, outputs);                          \
  }

INTEGER_PRODUCT(product_i8, 8, 1)
INTEGER_PRODUCT(product4_i8, 8, 4)
INTEGER_PRODUCT(product_i4, 4, 1)
INTEGER_PRODUCT(product4_i4, 4, 4)

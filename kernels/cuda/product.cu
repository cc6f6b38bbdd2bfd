// The product of rows of f32 with a weight of f32 or bf16, summed in f32: a warp for each output (y) and each row or four (x).
//
// A row gives the same bits with any number of rows beside it: see `warp_products`.
#include "product.cuh"

// y[row][n] = bias[n] + sum over k of x[row][k] * weight[n][k]; rows of `weight` are `pitch` apart, `bias` may be null.
template <class W, int ROWS>
__device__ __forceinline__ void product(const float *x, const W *weight, const float *bias, float *y, unsigned rows,
                                        unsigned columns, unsigned pitch, unsigned outputs) {
  const unsigned output = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, first = blockIdx.x * ROWS;
  if (output >= outputs) return;
  const float *from[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) from[r] = x + (size_t)min(first + r, rows - 1) * columns;
  float sums[ROWS];
  warp_products(from, weight + (size_t)output * pitch, columns, sums);
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
    product<W, ROWS>(x, weight, bias, y, rows, columns, pitch, outputs);                                               \
  }

PRODUCT(product_f32, float, 1)
PRODUCT(product4_f32, float, 4)
PRODUCT(product_bf16, __nv_bfloat16, 1)
PRODUCT(product4_bf16, __nv_bfloat16, 4)

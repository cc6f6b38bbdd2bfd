// Product of f32 rows with a weight of f32, bf16 or integers, summed in f32.
//
// A row gives the same bits with any number of neighbouring rows: see product.cuh and mma.cuh.
#include "mma.cuh"
#include "product.cuh"

// y[row][n] = bias[n] + sum over k of x[row][k] * weight[n][k]; `bias` may be null. Rows of y are `width` apart. One warp for each output (y)
// and each row or four (x).
template <int ROWS, class W>
__device__ __forceinline__ void product(const float *x, const W &weight, const float *bias, float *y, unsigned rows,
                                        unsigned columns, unsigned outputs, unsigned width) {
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
    if (first + r < rows) y[(size_t)(first + r) * width + output] = sums[r] + (bias ? bias[output] : 0.0f);
  }
}

#define PRODUCT(NAME, ROWS)                                                                                            \
  extern "C" __global__ void NAME(const float *__restrict__ x, const float *__restrict__ weight,                       \
                                  const float *__restrict__ bias, float *__restrict__ y, unsigned rows, unsigned columns, \
                                  unsigned pitch, unsigned outputs) {                                                  \
    product<ROWS>(x, Floats{weight, pitch}, bias, y, rows, columns, outputs, outputs);                                 \
  }

PRODUCT(product_f32, 1)
PRODUCT(product4_f32, 4)

// Integers may be some of the outputs: `width` is the number of all.
#define INTEGER_PRODUCT(NAME, BITS, ROWS)                                                                              \
  extern "C" __global__ void NAME(const float *__restrict__ x, const uint4 *__restrict__ weight,                       \
                                  const unsigned short *__restrict__ scales, const float *__restrict__ bias,           \
                                  float *__restrict__ y, unsigned rows, unsigned columns, unsigned pitch,              \
                                  unsigned outputs, unsigned scaling, unsigned width) {                                \
    product<ROWS>(x, Integers<BITS>{weight, {scales, pitch, scaling}}, bias, y, rows, columns, outputs, width);        \
  }

INTEGER_PRODUCT(product_i8, 8, 1)
INTEGER_PRODUCT(product4_i8, 8, 4)
INTEGER_PRODUCT(product_i4, 4, 1)
INTEGER_PRODUCT(product4_i4, 4, 4)

// The same for weights of bf16: one block for each tile of rows (x) and outputs (y). See mma.cuh.
#define TILE_PRODUCT(NAME, TILE)                                                                                       \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const __nv_bfloat16 *__restrict__ weight, const float *__restrict__ bias,      \
           float *__restrict__ y, unsigned rows, unsigned columns, unsigned pitch, unsigned outputs) {                 \
    __shared__ __align__(16) TILE tile;                                                                                \
    const unsigned row = blockIdx.x * TILE::ROWS, output = blockIdx.y * TILE::OUTPUTS;                                 \
    const float *from = x + (size_t)row * columns;                                                                     \
    tile_product(                                                                                                      \
        tile, [&](unsigned r, unsigned k) { return row4(from + (size_t)r * columns, k, columns); }, rows - row,        \
        weight + (size_t)output * pitch, pitch, outputs - output, columns, [&](unsigned r, unsigned n, float sum) {    \
          y[(size_t)(row + r) * outputs + output + n] = sum + (bias ? bias[output + n] : 0.0f);                        \
        });                                                                                                            \
  }

TILE_PRODUCT(product_bf16, FewRows)
TILE_PRODUCT(product_some_bf16, SomeRows)
TILE_PRODUCT(product_rows_bf16, ManyRows)

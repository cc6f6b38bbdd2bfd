// Norms over groups of columns: one warp for each group, blocks of whole warps along x.
#include "common.cuh"
#include "reduce.cuh"

__device__ __forceinline__ unsigned warp_number() { return blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }

// out = weight * x / sqrt(mean(x²) + epsilon)
extern "C" __global__ void rms_norm_f32(const float *__restrict__ x, const float *__restrict__ weight, float *__restrict__ out,
                                        unsigned columns, unsigned groups, float epsilon) {
  const unsigned group = warp_number(), lane = threadIdx.x % 32;
  if (group >= groups) return;
  x += (size_t)group * columns;
  out += (size_t)group * columns;
  float square = 0.0f;
  for (unsigned k = lane; k < columns; k += 32) square = fmaf(x[k], x[k], square);
  const float by = 1.0f / sqrtf(warp_sum(square) / columns + epsilon);
  for (unsigned k = lane; k < columns; k += 32) out[k] = weight[k] * (x[k] * by);
}

// out = weight * (x - mean) / sqrt(variance + epsilon) + bias
extern "C" __global__ void layer_norm_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                          const float *__restrict__ bias, float *__restrict__ out, unsigned columns,
                                          unsigned groups, float epsilon) {
  const unsigned group = warp_number(), lane = threadIdx.x % 32;
  if (group >= groups) return;
  x += (size_t)group * columns;
  out += (size_t)group * columns;
  float sum = 0.0f;
  for (unsigned k = lane; k < columns; k += 32) sum += x[k];
  const float mean = warp_sum(sum) / columns;
  float square = 0.0f;
  for (unsigned k = lane; k < columns; k += 32) square = fmaf(x[k] - mean, x[k] - mean, square);
  const float by = 1.0f / sqrtf(warp_sum(square) / columns + epsilon);
  for (unsigned k = lane; k < columns; k += 32) out[k] = fmaf((x[k] - mean) * by, weight[k], bias[k]);
}

// out = weight * (x - mean) / sqrt(variance + epsilon) + bias by column, with mean and variance of all numbers of a segment; segments are
// consecutive and given by their lengths. A block for each segment, and one for the rows of none, which gives zeros. Shared memory: a number
// for each warp.
extern "C" __global__ void segment_norm_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                            const float *__restrict__ bias, float *__restrict__ out,
                                            const unsigned *__restrict__ segments, unsigned count, unsigned rows,
                                            unsigned columns, float epsilon) {
  extern __shared__ float scratch[];
  unsigned first = 0;
  for (unsigned s = 0; s < blockIdx.x; ++s) first += segments[s];
  const unsigned size = columns * (blockIdx.x < count ? segments[blockIdx.x] : rows - first);
  x += (size_t)first * columns;
  out += (size_t)first * columns;
  if (blockIdx.x == count) {
    for (unsigned k = threadIdx.x; k < size; k += blockDim.x) out[k] = 0.0f;
    return;
  }
  float sum = 0.0f;
  for (unsigned k = threadIdx.x; k < size; k += blockDim.x) sum += x[k];
  const float mean = block_sum(sum, scratch) / size;
  float square = 0.0f;
  for (unsigned k = threadIdx.x; k < size; k += blockDim.x) square = fmaf(x[k] - mean, x[k] - mean, square);
  const float by = 1.0f / sqrtf(block_sum(square, scratch) / size + epsilon);
  for (unsigned k = threadIdx.x; k < size; k += blockDim.x) out[k] = fmaf((x[k] - mean) * by, weight[k % columns], bias[k % columns]);
}

// Sums a column over the warps of a block in every thread of the column's lane; `scratch` has a number for each thread and is free again
// afterwards.
__device__ __forceinline__ float column_sum(float value, float *scratch) {
  const unsigned lane = threadIdx.x % 32, warps = blockDim.x / 32;
  scratch[threadIdx.x] = value;
  __syncthreads();
  float sum = 0.0f;
  for (unsigned warp = 0; warp < warps; ++warp) sum += scratch[warp * 32 + lane];
  __syncthreads();
  return sum;
}

// out = (1 + scale) * (x - mean) / sqrt(variance + epsilon) + shift, with mean and variance of each column over the rows of a segment;
// style[segment] has the scales of all columns and then their shifts. Segments are consecutive and given by their lengths; those from
// `styled` on have no style and give zeros. Blocks for segments along x, and one for the rows of none, which gives zeros too; 32 columns for each block along y, a warp for each of its rows. Shared
// memory: a number for each thread.
extern "C" __global__ void segment_instance_norm_f32(const float *__restrict__ x, const float *__restrict__ style, float *__restrict__ out,
                                                     const unsigned *__restrict__ segments, unsigned count, unsigned styled,
                                                     unsigned rows, unsigned columns, float epsilon) {
  extern __shared__ float scratch[];
  unsigned first = 0;
  for (unsigned s = 0; s < blockIdx.x; ++s) first += segments[s];
  const unsigned length = blockIdx.x < count ? segments[blockIdx.x] : rows - first;
  const unsigned column = blockIdx.y * 32 + threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const bool some = column < columns;
  x += (size_t)first * columns + column;
  out += (size_t)first * columns + column;
  if (blockIdx.x >= styled) {
    for (unsigned row = warp; some && row < length; row += warps) out[(size_t)row * columns] = 0.0f;
    return;
  }
  float sum = 0.0f;
  for (unsigned row = warp; some && row < length; row += warps) sum += x[(size_t)row * columns];
  const float mean = column_sum(sum, scratch) / length;
  float square = 0.0f;
  for (unsigned row = warp; some && row < length; row += warps) {
    const float off = x[(size_t)row * columns] - mean;
    square = fmaf(off, off, square);
  }
  const float by = 1.0f / sqrtf(column_sum(square, scratch) / length + epsilon);
  if (!some) return;
  const float *own = style + (size_t)blockIdx.x * 2 * columns + column;
  const float scale = by * (1.0f + own[0]), shift = own[columns];
  for (unsigned row = warp; row < length; row += warps) out[(size_t)row * columns] = fmaf(x[(size_t)row * columns] - mean, scale, shift);
}

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

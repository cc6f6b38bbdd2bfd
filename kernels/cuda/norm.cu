// Norms over groups of columns: a warp for each group, or a block if a group is wide. The host chooses by the width alone, so a group has the
// same bits among any others.
#include "common.cuh"
#include "reduce.cuh"

// Threads of a group: a warp, or a block.
struct Warp {
  unsigned group, thread, threads;
  __device__ __forceinline__ Warp() : group(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32), thread(threadIdx.x % 32), threads(32) {}
  __device__ __forceinline__ float sum(float value) const { return warp_sum(value); }
};

struct Block {
  unsigned group, thread, threads;
  float *scratch;
  __device__ __forceinline__ explicit Block(float *scratch)
      : group(blockIdx.x), thread(threadIdx.x), threads(blockDim.x), scratch(scratch) {}
  __device__ __forceinline__ float sum(float value) const { return block_sum(value, scratch); }
};

// Numbers of a group that a thread keeps; those of wider groups are read again.
constexpr unsigned KEPT_NUMBERS = 8;

// Warps of a block at most.
constexpr unsigned MOST_WARPS = 32;

// out = weight * x / sqrt(mean(x²) + epsilon)
template <class Threads>
__device__ __forceinline__ void rms_norm(const Threads &own, const float *x, const float *weight, float *out, unsigned columns,
                                         unsigned groups, float epsilon) {
  if (own.group >= groups) return;
  x += (size_t)own.group * columns;
  out += (size_t)own.group * columns;
  float kept[KEPT_NUMBERS], gain[KEPT_NUMBERS], square = 0.0f;
  // All loads are on their way before the first number is used.
#pragma unroll
  for (unsigned i = 0; i < KEPT_NUMBERS; ++i) {
    const unsigned k = own.thread + i * own.threads;
    kept[i] = k < columns ? x[k] : 0.0f;
    gain[i] = k < columns ? weight[k] : 0.0f;
  }
#pragma unroll
  for (unsigned i = 0; i < KEPT_NUMBERS; ++i) square = fmaf(kept[i], kept[i], square);
  for (unsigned k = own.thread + KEPT_NUMBERS * own.threads; k < columns; k += own.threads) square = fmaf(x[k], x[k], square);
  const float by = 1.0f / sqrtf(own.sum(square) / columns + epsilon);
#pragma unroll
  for (unsigned i = 0; i < KEPT_NUMBERS; ++i) {
    const unsigned k = own.thread + i * own.threads;
    if (k < columns) out[k] = gain[i] * (kept[i] * by);
  }
  for (unsigned k = own.thread + KEPT_NUMBERS * own.threads; k < columns; k += own.threads) out[k] = weight[k] * (x[k] * by);
}

extern "C" __global__ void rms_norm_f32(const float *__restrict__ x, const float *__restrict__ weight, float *__restrict__ out,
                                        unsigned columns, unsigned groups, float epsilon) {
  rms_norm(Warp(), x, weight, out, columns, groups, epsilon);
}

extern "C" __global__ void rms_norm_wide_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                             float *__restrict__ out, unsigned columns, unsigned groups, float epsilon) {
  __shared__ float scratch[MOST_WARPS];
  rms_norm(Block(scratch), x, weight, out, columns, groups, epsilon);
}

// x += y, then out = weight * x / sqrt(mean(x²) + epsilon). A block for each row.
extern "C" __global__ void add_norm_f32(float *__restrict__ x, const float *__restrict__ y, const float *__restrict__ weight,
                                        float *__restrict__ out, unsigned columns, float epsilon) {
  __shared__ float scratch[MOST_WARPS];
  const Block own(scratch);
  x += (size_t)blockIdx.x * columns;
  y += (size_t)blockIdx.x * columns;
  for (unsigned k = own.thread; k < columns; k += own.threads) x[k] += y[k];
  // A thread norms the numbers that it added.
  rms_norm(own, x - (size_t)blockIdx.x * columns, weight, out, columns, gridDim.x, epsilon);
}

// out = weight * (x - mean) / sqrt(variance + epsilon) + bias
template <class Threads>
__device__ __forceinline__ void layer_norm(const Threads &own, const float *x, const float *weight, const float *bias, float *out,
                                           unsigned columns, unsigned groups, float epsilon) {
  if (own.group >= groups) return;
  x += (size_t)own.group * columns;
  out += (size_t)own.group * columns;
  float sum = 0.0f;
  for (unsigned k = own.thread; k < columns; k += own.threads) sum += x[k];
  const float mean = own.sum(sum) / columns;
  float square = 0.0f;
  for (unsigned k = own.thread; k < columns; k += own.threads) square = fmaf(x[k] - mean, x[k] - mean, square);
  const float by = 1.0f / sqrtf(own.sum(square) / columns + epsilon);
  for (unsigned k = own.thread; k < columns; k += own.threads) out[k] = fmaf((x[k] - mean) * by, weight[k], bias[k]);
}

extern "C" __global__ void layer_norm_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                          const float *__restrict__ bias, float *__restrict__ out, unsigned columns,
                                          unsigned groups, float epsilon) {
  layer_norm(Warp(), x, weight, bias, out, columns, groups, epsilon);
}

extern "C" __global__ void layer_norm_wide_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                               const float *__restrict__ bias, float *__restrict__ out, unsigned columns,
                                               unsigned groups, float epsilon) {
  __shared__ float scratch[MOST_WARPS];
  layer_norm(Block(scratch), x, weight, bias, out, columns, groups, epsilon);
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

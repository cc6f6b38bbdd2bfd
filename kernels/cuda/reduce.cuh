// Sums and maxima over a block; the block's size alone decides the order.
#pragma once

// Returns the sum over the warp in every lane.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// Returns the sum over the block in every thread; `scratch` has a number for each warp and is free again afterwards.
__device__ __forceinline__ float block_sum(float value, float *scratch) {
  const int warps = blockDim.x / 32;
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < warps; ++warp) sum += scratch[warp];
  __syncthreads();
  return sum;
}

// Returns the maximum over the block in every thread; `scratch` as in block_sum.
__device__ __forceinline__ float block_max(float value, float *scratch) {
  const int warps = blockDim.x / 32;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, distance));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float greatest = scratch[0];
  for (int warp = 1; warp < warps; ++warp) greatest = fmaxf(greatest, scratch[warp]);
  __syncthreads();
  return greatest;
}

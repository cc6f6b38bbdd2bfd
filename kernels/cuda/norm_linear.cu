// Root-mean-square norm and the product with a weight, for few rows: every weight is read once for all rows of a block.
#include <cuda_bf16.h>

#include "reduce.cuh"

// Columns that a lane reads at once: 16 bytes of bf16.
constexpr int WIDTH = 8;

__device__ __forceinline__ void unpack(uint4 packed, float *out) {
  const unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

// y[row][n] = bf16(sum over k of weight[n][k] * bf16(gain[k] * bf16(x[row][k] * scale(row)))), summed in f32.
//
// A block of whole warps for each row (y) and each `blockDim.x / 32` outputs (x): one warp an output. `columns` is a multiple
// of WIDTH, every pointer of 16 bytes. Dynamic shared memory: `columns` numbers of bf16.
extern "C" __global__ void norm_linear_bf16(const __nv_bfloat16 *__restrict__ x, const __nv_bfloat16 *__restrict__ gain,
                                            const __nv_bfloat16 *__restrict__ weight, __nv_bfloat16 *__restrict__ y,
                                            int columns, int outputs, float epsilon) {
  extern __shared__ __align__(16) __nv_bfloat16 normed[];
  __shared__ float scratch[32];
  const __nv_bfloat16 *row = x + (size_t)blockIdx.y * columns;

  float square = 0.0f;
  for (int start = threadIdx.x * WIDTH; start < columns; start += blockDim.x * WIDTH) {
    float values[WIDTH];
    unpack(*reinterpret_cast<const uint4 *>(row + start), values);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) square = fmaf(values[i], values[i], square);
  }
  const float scale = rsqrtf(block_sum(square, scratch) / columns + epsilon);
  for (int k = threadIdx.x; k < columns; k += blockDim.x) {
    const __nv_bfloat16 scaled = __float2bfloat16_rn(__bfloat162float(row[k]) * scale);
    normed[k] = __float2bfloat16_rn(__bfloat162float(gain[k]) * __bfloat162float(scaled));
  }
  __syncthreads();

  const int output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (output >= outputs) return;
  const __nv_bfloat16 *weights = weight + (size_t)output * columns;
  float sum = 0.0f;
  for (int start = threadIdx.x % 32 * WIDTH; start < columns; start += 32 * WIDTH) {
    float a[WIDTH], b[WIDTH];
    unpack(*reinterpret_cast<const uint4 *>(weights + start), a);
    unpack(*reinterpret_cast<const uint4 *>(normed + start), b);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum = fmaf(a[i], b[i], sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) y[(size_t)blockIdx.y * outputs + output] = __float2bfloat16_rn(sum);
}

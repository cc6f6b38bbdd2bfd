// Snake activation and a causal convolution over it, for the codec's decoder: one step's new samples, with what the step
// before left.
#include <cuda_bf16.h>

// x + sin²(frequency x) * magnitude. The argument is reduced to one period first, so that the fast sine's error stays small.
__device__ __forceinline__ float snake(float x, float frequency, float magnitude) {
  const float angle = x * frequency;
  const float turns = rintf(angle * 0.31830988618f);
  // sin² has the period pi, which is taken off in two pieces.
  float reduced = fmaf(turns, -3.140625f, angle);
  reduced = fmaf(turns, -9.67653589793e-4f, reduced);
  const float s = __sinf(reduced);
  return fmaf(magnitude, s * s, x);
}

// out[t][o] = bf16(bias[o] + sum over k, c of weight[o][k][c] * bf16(snake(input[t + k * dilation][c]))), where input is
// `tail` (of (kernel - 1) * dilation rows) followed by x, both [time][channels].
//
// A block for each time step (x) and each 32 outputs (y), of 32 threads: a lane an output. Dynamic shared memory: kernel *
// channels numbers of f32.
extern "C" __global__ void snake_conv_bf16(const __nv_bfloat16 *__restrict__ tail, const __nv_bfloat16 *__restrict__ x,
                                           const float *__restrict__ frequency, const float *__restrict__ magnitude,
                                           const __nv_bfloat16 *__restrict__ weight, const __nv_bfloat16 *__restrict__ bias,
                                           __nv_bfloat16 *__restrict__ out, int channels, int outputs, int kernel,
                                           int dilation) {
  extern __shared__ float activated[];
  const int before = (kernel - 1) * dilation;
  for (int i = threadIdx.x; i < kernel * channels; i += blockDim.x) {
    const int tap = i / channels, channel = i - tap * channels;
    const int time = blockIdx.x + tap * dilation;
    const __nv_bfloat16 v = time < before ? tail[time * channels + channel] : x[(time - before) * channels + channel];
    activated[i] = __bfloat162float(
        __float2bfloat16_rn(snake(__bfloat162float(v), frequency[channel], magnitude[channel])));
  }
  __syncthreads();
  const int output = blockIdx.y * 32 + threadIdx.x;
  if (output >= outputs) return;
  const __nv_bfloat16 *weights = weight + (size_t)output * kernel * channels;
  float sum = __bfloat162float(bias[output]);
  for (int i = 0; i < kernel * channels; ++i) sum = fmaf(__bfloat162float(weights[i]), activated[i], sum);
  out[(size_t)blockIdx.x * outputs + output] = __float2bfloat16_rn(sum);
}

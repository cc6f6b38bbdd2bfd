// Element-wise functions. One thread for each number, in blocks along x; a number that is not finite stays so.
#include "common.cuh"

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// x += y
extern "C" __global__ void add_f32(float *__restrict__ x, const float *__restrict__ y, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] += y[i];
}

// x *= y
extern "C" __global__ void mul_f32(float *__restrict__ x, const float *__restrict__ y, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= y[i];
}

// x[row][column] *= by[column]
extern "C" __global__ void scale_f32(float *__restrict__ x, const float *__restrict__ by, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= by[i % columns];
}

// x *= by
extern "C" __global__ void scale_all_f32(float *__restrict__ x, float by, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= by;
}

// x = x limited to [low, high]; NaN stays.
extern "C" __global__ void clamp_f32(float *__restrict__ x, float low, float high, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const float value = x[i];
  x[i] = value < low ? low : value > high ? high : value;
}

// x = silu(x)
extern "C" __global__ void silu_f32(float *__restrict__ x, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= sigmoid(x[i]);
}

// x = gelu(x), the exact form
extern "C" __global__ void gelu_f32(float *__restrict__ x, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

// x = gelu(x), the form with tanh: 0.5 (1 + tanh(z)) is the sigmoid of 2z.
extern "C" __global__ void gelu_tanh_f32(float *__restrict__ x, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= sigmoid(1.5957691f * fmaf(0.044715f, x[i] * x[i] * x[i], x[i]));
}

// out[row][column] = silu(x[row][column]) * x[row][columns + column]; `count` numbers of `out`.
extern "C" __global__ void silu_mul_f32(const float *__restrict__ x, float *__restrict__ out, unsigned columns,
                                        unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const float *gate = x + (size_t)(i / columns) * 2 * columns + i % columns;
  out[i] = gate[0] * sigmoid(gate[0]) * gate[columns];
}

// x[row][column] *= sigmoid(gate[row])
extern "C" __global__ void sigmoid_gate_f32(float *__restrict__ x, const float *__restrict__ gate, unsigned columns,
                                            unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= sigmoid(gate[i / columns]);
}

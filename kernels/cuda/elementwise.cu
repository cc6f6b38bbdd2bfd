// Element-wise functions. One thread for each number, in blocks along x; a number that is not finite stays so.
#include "common.cuh"

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

// Functions of `activation_f32`, in the order of `Activation` in kernels/src/shapes.rs.
enum Function : unsigned { SILU, GELU, GELU_TANH, RELU, LEAKY_RELU, ELU, MISH, TANH, EXP, ABS };

__device__ __forceinline__ float activation(float x, unsigned function, float slope) {
  switch (function) {
    case SILU: return x * sigmoid(x);
    // The exact form.
    case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    // The form with tanh: 0.5 (1 + tanh(z)) is the sigmoid of 2z.
    case GELU_TANH: return x * sigmoid(1.5957691f * fmaf(0.044715f, x * x * x, x));
    case RELU: return x < 0.0f ? 0.0f : x;
    case LEAKY_RELU: return x < 0.0f ? slope * x : x;
    case ELU: return x < 0.0f ? exponential_minus_one(x) : x;
    // tanh(ln(1 + e)) is n / (n + 2) with n = e (e + 2); beyond 20 it is 1.
    case MISH: {
      const float e = exponential(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
      return x * (n / (n + 2.0f));
    }
    case TANH: return hyperbolic_tangent(x);
    case EXP: return exponential(x);
    default: return fabsf(x);
  }
}

// x = function(x)
extern "C" __global__ void activation_f32(float *__restrict__ x, unsigned function, float slope, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] = activation(x[i], function, slope);
}

// out[row][column] = silu(x[row][column]) * x[row][columns + column]; `count` numbers of `out`.
extern "C" __global__ void silu_mul_f32(const float *__restrict__ x, float *__restrict__ out, unsigned columns,
                                        unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const float *gate = x + (size_t)(i / columns) * 2 * columns + i % columns;
  out[i] = gate[0] * sigmoid(gate[0]) * gate[columns];
}

// out[row][column] = x[row][column] * sigmoid(x[row][columns + column]); `count` numbers of `out`.
extern "C" __global__ void sigmoid_mul_f32(const float *__restrict__ x, float *__restrict__ out, unsigned columns,
                                           unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const float *half = x + (size_t)(i / columns) * 2 * columns + i % columns;
  out[i] = half[0] * sigmoid(half[columns]);
}

// x[row][column] *= sigmoid(gate[row])
extern "C" __global__ void sigmoid_gate_f32(float *__restrict__ x, const float *__restrict__ gate, unsigned columns,
                                            unsigned count) {
  const unsigned i = thread_number();
  if (i < count) x[i] *= sigmoid(gate[i / columns]);
}

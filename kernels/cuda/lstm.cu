// Recurrence of LSTM layers within segments of rows.
#include "common.cuh"
#include "reduce.cuh"

// out[row] = state after the row, of `width` numbers. x[row] has the gates' inputs: input, forget, cell and output gate of `width` numbers
// each; hidden[gate] are the factors of the state before. Segments are consecutive and given by their lengths; each begins with zeros, at
// its last row if `reverse` is not 0. A block for each segment, and one for the rows of none, which gives zeros. Shared memory: the state,
// the cells and the gates, six times `width`.
extern "C" __global__ void segment_lstm_f32(const float *__restrict__ x, const float *__restrict__ hidden, float *__restrict__ out,
                                            const unsigned *__restrict__ segments, unsigned count, unsigned rows, unsigned width,
                                            unsigned pitch, unsigned reverse) {
  extern __shared__ float scratch[];
  float *const state = scratch, *const cells = state + width, *const gates = cells + width;
  unsigned first = 0;
  for (unsigned s = 0; s < blockIdx.x; ++s) first += segments[s];
  if (blockIdx.x == count) {
    for (size_t k = (size_t)first * width + threadIdx.x; k < (size_t)rows * width; k += blockDim.x) out[k] = 0.0f;
    return;
  }
  const unsigned length = segments[blockIdx.x], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (unsigned k = threadIdx.x; k < 2 * width; k += blockDim.x) state[k] = 0.0f;
  __syncthreads();
  for (unsigned step = 0; step < length; ++step) {
    const unsigned row = first + (reverse != 0 ? length - 1 - step : step);
    for (unsigned gate = warp; gate < 4 * width; gate += blockDim.x / 32) {
      const float *factors = hidden + (size_t)gate * pitch;
      float sum = 0.0f;
      for (unsigned k = lane; k < width; k += 32) sum = fmaf(factors[k], state[k], sum);
      sum = warp_sum(sum);
      if (lane == 0) gates[gate] = x[(size_t)row * 4 * width + gate] + sum;
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < width; k += blockDim.x) {
      const float candidate = sigmoid(gates[k]) * hyperbolic_tangent(gates[2 * width + k]);
      cells[k] = fmaf(sigmoid(gates[width + k]), cells[k], candidate);
      state[k] = sigmoid(gates[3 * width + k]) * hyperbolic_tangent(cells[k]);
      out[(size_t)row * width + k] = state[k];
    }
    __syncthreads();
  }
}

// Snake activation, at the rows' own rate, and at twice the rate between two low-pass filters.
#include "common.cuh"

// sin²(x), for |x| up to some ten thousands: its period pi is subtracted in three parts.
__device__ __forceinline__ float sin_squared(float x) {
  const float turns = rintf(x * 0.31830988618f);
  float r = fmaf(turns, -3.140625f, x);
  r = fmaf(turns, -9.6702576e-4f, r);
  r = fmaf(turns, -6.277114e-7f, r);
  const float q = r * r;
  float p = fmaf(-2.3889859e-8f, q, 2.752557e-6f);
  p = fmaf(p, q, -1.984087e-4f);
  p = fmaf(p, q, 8.333331e-3f);
  p = fmaf(p, q, -1.6666667e-1f);
  const float s = fmaf(p * q, r, r);
  return s * s;
}

// x += magnitude sin²(x frequency), with both by column.
extern "C" __global__ void snake_f32(float *__restrict__ x, const float *__restrict__ frequency,
                                     const float *__restrict__ magnitude, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned column = i % columns;
  x[i] = fmaf(magnitude[column], sin_squared(x[i] * frequency[column]), x[i]);
}

// Taps of the filter, those of them that meet a row when upsampling, and rows of a thread.
constexpr unsigned FILTER_TAPS = 12, HALF_TAPS = FILTER_TAPS / 2, RUN = 8;

// One column of a segment, with the parameters of the activation.
struct SnakeColumn {
  const float *x, *filter;
  unsigned columns, rows;
  float frequency, magnitude;
  // Activation at place `at - (HALF_TAPS - 1)` of twice the rate; beyond the ends, the nearest one.
  __device__ __forceinline__ float activation(unsigned at) const {
    at = min(max(at, HALF_TAPS - 1) - (HALF_TAPS - 1), 2 * rows - 1);
    // An even place lies a quarter of a row before its row's middle and needs one more past row; an odd one lies after it.
    const unsigned row = at / 2, odd = at % 2;
    float sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < HALF_TAPS; ++k) {
      const unsigned from = min(max(row + odd + k, HALF_TAPS / 2) - HALF_TAPS / 2, rows - 1);
      sum = fmaf(2.0f * filter[FILTER_TAPS - 1 - odd - 2 * k], x[(size_t)from * columns], sum);
    }
    return fmaf(magnitude, sin_squared(sum * frequency), sum);
  }
};

// Snake at twice the rate within consecutive segments, given by their lengths: each is upsampled by `filter`, and the result is downsampled
// by it. Beyond the ends of a segment, and of its activations, the nearest one is repeated. One thread for a column of eight rows: it
// slides a window of twelve activations, two of them new with each row. A row of no segment gives zeros.
extern "C" __global__ void segment_snake_f32(const float *__restrict__ x, const float *__restrict__ frequency,
                                             const float *__restrict__ magnitude, const float *__restrict__ filter,
                                             float *__restrict__ out, const unsigned *__restrict__ segments, unsigned count,
                                             unsigned rows, unsigned columns) {
  const unsigned i = thread_number(), column = i % columns, first = i / columns * RUN, end = min(first + RUN, rows);
  Segment segment = {0, 0};
  float window[FILTER_TAPS] = {};
  for (unsigned row = first; row < end; ++row) {
    const bool same = row - segment.first < segment.rows;
    float sum = 0.0f;
    if (same || find_segment(segments, count, row, segment)) {
      const SnakeColumn of = {x + (size_t)segment.first * columns + column, filter, columns, segment.rows, frequency[column], magnitude[column]};
      const unsigned at = 2 * (row - segment.first);
#pragma unroll 1
      for (unsigned tap = same ? FILTER_TAPS - 2 : 0; tap < FILTER_TAPS; tap += 2) {
#pragma unroll
        for (unsigned t = 0; t + 2 < FILTER_TAPS; ++t) window[t] = window[t + 2];
        window[FILTER_TAPS - 2] = of.activation(at + tap);
        window[FILTER_TAPS - 1] = of.activation(at + tap + 1);
      }
#pragma unroll
      for (unsigned t = 0; t < FILTER_TAPS; ++t) sum = fmaf(filter[t], window[t], sum);
    }
    out[(size_t)row * columns + column] = sum;
  }
}

// Shared by all kernels: row indices and vector loads.
#pragma once
#include <cuda_bf16.h>

// Marks "no row" and "no id".
constexpr unsigned NO_ROW = 0xffffffffu;

__device__ __forceinline__ float widen(float value) { return value; }
__device__ __forceinline__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

// Widens the bits of half precision, exactly.
__device__ __forceinline__ float widen_half(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Loads four contiguous numbers, aligned to their size.
__device__ __forceinline__ float4 load4(const float *from) { return *reinterpret_cast<const float4 *>(from); }

// Adds four products to a sum, one after the other.
__device__ __forceinline__ float dot4(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Loads four numbers of a row from `start` on, with zeros past its end. `columns` decides the kind of load, for all
// rows alike.
__device__ __forceinline__ float4 row4(const float *row, unsigned start, unsigned columns) {
  if (columns % 4 == 0) return load4(row + start);
  float4 values = make_float4(row[start], 0.0f, 0.0f, 0.0f);
  if (start + 1 < columns) values.y = row[start + 1];
  if (start + 2 < columns) values.z = row[start + 2];
  if (start + 3 < columns) values.w = row[start + 3];
  return values;
}

// Parts of eˣ = 2ⁿ eʳ with |r| <= ln 2 / 2, for x between -87.3 and 88: eʳ - 1, and 2ⁿ.
struct Exponential {
  float rest, power;
};

// The polynomial is that of kernels/src/cpu/math.rs.
__device__ __forceinline__ Exponential exponential_parts(float x) {
  // ln 2 in two parts so that r keeps its digits.
  const float rounded = fmaf(x, 1.44269504f, 12582912.0f);
  const float n = rounded - 12582912.0f;
  const float r = fmaf(n, 2.1219444e-4f, fmaf(n, -0.6933594f, x));
  float p = 1.9875691e-4f;
  p = fmaf(p, r, 1.3981999e-3f);
  p = fmaf(p, r, 8.333452e-3f);
  p = fmaf(p, r, 4.1665795e-2f);
  p = fmaf(p, r, 1.6666666e-1f);
  p = fmaf(p, r, 0.5f);
  return {fmaf(p * r, r, r), __uint_as_float((__float_as_uint(rounded) << 23) + (127u << 23))};
}

// eˣ, 0 below -87.3, capped above 88; NaN stays.
__device__ __forceinline__ float exponential(float x) {
  if (x < -87.3f) return 0.0f;
  const Exponential e = exponential_parts(x > 88.0f ? 88.0f : x);
  return (e.rest + 1.0f) * e.power;
}

// eˣ - 1 with all its digits near 0; -1 below -87.3, capped above 88; NaN stays.
__device__ __forceinline__ float exponential_minus_one(float x) {
  const Exponential e = exponential_parts(x < -87.3f ? -87.3f : x > 88.0f ? 88.0f : x);
  return fmaf(e.rest, e.power, e.power - 1.0f);
}

// 1 / (1 + e⁻ˣ)
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// Hyperbolic tangent; beyond 10 it is 1.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
  const float magnitude = fabsf(x), e = exponential_minus_one(2.0f * (magnitude > 10.0f ? 10.0f : magnitude));
  return copysignf(e / (e + 2.0f), x);
}

// A range of consecutive rows.
struct Segment {
  unsigned first, rows;
};

// Finds the segment of a row among `count` consecutive ones, given by their lengths; false if there is none.
__device__ __forceinline__ bool find_segment(const unsigned *lengths, unsigned count, unsigned row, Segment &found) {
  unsigned first = 0;
  for (unsigned s = 0; s < count; ++s) {
    const unsigned length = lengths[s];
    if (row - first < length) {
      found = Segment{first, length};
      return true;
    }
    first += length;
  }
  return false;
}

// Index of this thread in the launch.
__device__ __forceinline__ unsigned thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

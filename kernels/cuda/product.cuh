// Dot products of rows with one row of a weight, by a warp.
#pragma once
#include "common.cuh"
#include "reduce.cuh"

// f32 weights: rows are `pitch` apart, a multiple of four, and padded with zeros.
struct Floats {
  const float *numbers;
  unsigned pitch;
  // sums[r] = sum over k of rows[r][k] * weight[output][k], equal in every lane. Lanes sum four columns at a time, then halves are added:
  // `columns` alone decides the order.
  template <int ROWS>
  __device__ __forceinline__ void products(const float *const (&rows)[ROWS], size_t output, unsigned columns,
                                           float (&sums)[ROWS]) const {
    const float *weight = numbers + output * pitch;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = 0.0f;
    for (unsigned start = threadIdx.x % 32 * 4; start < columns; start += 32 * 4) {
      const float4 w = load4(weight + start);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[r] = dot4(row4(rows[r], start, columns), w, sums[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = warp_sum(sums[r]);
  }
};

// Scales of integers: as many numbers share one as the power of two in the lowest bits of `scaling` says, at least 16 of eight bits or 32 of
// four. They are of bf16, or of half precision, each then followed by a minimum if there are minimums. In super-blocks a row has a scale and
// a minimum of a byte each, in one number, for 32 numbers, and then a pair of half precision, which multiplies them, for 256. A row is `pitch`
// numbers.
struct Scales {
  static constexpr unsigned SHARED = 31, HALF = 32, MINIMUM = 64, SUPER = 128;
  const unsigned short *numbers;
  unsigned pitch, scaling;
  __device__ __forceinline__ bool with_minimum() const { return scaling & MINIMUM; }
  // Scale and minimum of a row's number.
  __device__ __forceinline__ float2 at(size_t row, unsigned column) const {
    const unsigned shared = scaling & SHARED;
    const unsigned groups = ((pitch - 1) >> shared) + 1;
    if (scaling & SUPER) {
      const unsigned short *of_row = numbers + row * (groups + 2 * (((pitch - 1) >> 8) + 1));
      const unsigned short bytes = of_row[column >> shared], *pair = of_row + groups + 2 * (column >> 8);
      return make_float2(widen_half(pair[0]) * (bytes & 255), widen_half(pair[1]) * (bytes >> 8));
    }
    const size_t group = row * groups + (column >> shared);
    if (with_minimum()) return make_float2(widen_half(numbers[2 * group]), widen_half(numbers[2 * group + 1]));
    const unsigned short bits = numbers[group];
    return make_float2(scaling & HALF ? widen_half(bits) : __uint_as_float((unsigned)bits << 16), 0.0f);
  }
};

// Integers of eight bits, in two's complement, or of four, with 8 added unless there are minimums and the earlier ones in the lower bits. A
// row is `scales.pitch` of them, a multiple of 32. Padding counts as zero.
template <int BITS>
struct Integers {
  const uint4 *numbers;
  Scales scales;
  // As above.
  template <int ROWS>
  __device__ __forceinline__ void products(const float *const (&rows)[ROWS], size_t output, unsigned columns,
                                           float (&sums)[ROWS]) const {
    if (scales.with_minimum())
      products_of<true>(rows, output, columns, sums);
    else
      products_of<false>(rows, output, columns, sums);
  }
  // A lane sums 16 bytes at a time, then multiplies by their scale; with minimums it multiplies each number first.
  template <bool MINIMUM, int ROWS>
  __device__ __forceinline__ void products_of(const float *const (&rows)[ROWS], size_t output, unsigned columns,
                                              float (&sums)[ROWS]) const {
    constexpr unsigned LOAD = 128 / BITS, WORD = 32 / BITS;
    const uint4 *weight = numbers + output * (scales.pitch / LOAD);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = 0.0f;
    for (unsigned start = threadIdx.x % 32 * LOAD; start < columns; start += 32 * LOAD) {
      const uint4 load = weight[start / LOAD];
      const unsigned words[4] = {load.x, load.y, load.z, load.w};
      const float2 by = scales.at(output, start);
      float parts[ROWS] = {};
#pragma unroll
      for (unsigned i = 0; i < LOAD; i += 4) {
        if (start + i >= columns) break;
        float4 w = four<MINIMUM>(words[i / WORD] >> i % WORD * BITS);
        if (MINIMUM)
          w = make_float4(fmaf(w.x, by.x, by.y), fmaf(w.y, by.x, by.y), fmaf(w.z, by.x, by.y), fmaf(w.w, by.x, by.y));
#pragma unroll
        for (int r = 0; r < ROWS; ++r) parts[r] = dot4(row4(rows[r], start + i, columns), w, parts[r]);
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[r] = MINIMUM ? sums[r] + parts[r] : fmaf(parts[r], by.x, sums[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = warp_sum(sums[r]);
  }
  // Unpacks the four integers in the lowest bits of a word.
  template <bool MINIMUM>
  static __device__ __forceinline__ float4 four(unsigned word) {
    return make_float4(one<MINIMUM>(word), one<MINIMUM>(word >> BITS), one<MINIMUM>(word >> 2 * BITS), one<MINIMUM>(word >> 3 * BITS));
  }
  template <bool MINIMUM>
  static __device__ __forceinline__ float one(unsigned word) {
    return BITS == 8 ? (float)((int)(word << 24) >> 24) : (float)((int)(word & 15u) - (MINIMUM ? 0 : 8));
  }
};

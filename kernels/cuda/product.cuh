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

// Integers of eight bits, in two's complement, or of four, with 8 added and the earlier ones in the lower bits. A row is `pitch` of them, a
// multiple of 32, and each 32 share a scale. Padding counts as zero.
template <int BITS>
struct Integers {
  const uint4 *numbers;
  const __nv_bfloat16 *scales;
  unsigned pitch;
  // As above: a lane sums 16 bytes at a time, then multiplies by their scale.
  template <int ROWS>
  __device__ __forceinline__ void products(const float *const (&rows)[ROWS], size_t output, unsigned columns,
                                           float (&sums)[ROWS]) const {
    constexpr unsigned LOAD = 128 / BITS, WORD = 32 / BITS;
    const uint4 *weight = numbers + output * (pitch / LOAD);
    const __nv_bfloat16 *scale = scales + output * (pitch / 32);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = 0.0f;
    for (unsigned start = threadIdx.x % 32 * LOAD; start < columns; start += 32 * LOAD) {
      const uint4 load = weight[start / LOAD];
      const unsigned words[4] = {load.x, load.y, load.z, load.w};
      float parts[ROWS] = {};
#pragma unroll
      for (unsigned i = 0; i < LOAD; i += 4) {
        if (start + i >= columns) break;
        const float4 w = four(words[i / WORD] >> i % WORD * BITS);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) parts[r] = dot4(row4(rows[r], start + i, columns), w, parts[r]);
      }
      const float by = widen(scale[start / 32]);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[r] = fmaf(parts[r], by, sums[r]);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums[r] = warp_sum(sums[r]);
  }
  // Unpacks the four integers in the lowest bits of a word.
  static __device__ __forceinline__ float4 four(unsigned word) {
    return make_float4(one(word), one(word >> BITS), one(word >> 2 * BITS), one(word >> 3 * BITS));
  }
  static __device__ __forceinline__ float one(unsigned word) {
    return BITS == 8 ? (float)((int)(word << 24) >> 24) : (float)((int)(word & 15u) - 8);
  }
};

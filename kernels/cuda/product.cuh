// Sums of products of rows with one row of a weight, by a warp.
#pragma once
#include "common.cuh"
#include "reduce.cuh"

// Four numbers of a row from `start` on, zeros behind its end. `columns` decides for all rows alike how they are read.
__device__ __forceinline__ float4 row4(const float *row, unsigned start, unsigned columns) {
  if (columns % 4 == 0) return load4(row + start);
  float4 values = make_float4(row[start], 0.0f, 0.0f, 0.0f);
  if (start + 1 < columns) values.y = row[start + 1];
  if (start + 2 < columns) values.z = row[start + 2];
  if (start + 3 < columns) values.w = row[start + 3];
  return values;
}

// sums[r] = sum over k of rows[r][k] * weight[k], the same in every lane. Lanes sum four columns at a time, then halves are added:
// an order that `columns` alone decides. `weight` is filled up with zeros to a multiple of four.
template <class W, int ROWS>
__device__ __forceinline__ void warp_products(const float *const (&rows)[ROWS], const W *weight, unsigned columns,
                                              float (&sums)[ROWS]) {
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

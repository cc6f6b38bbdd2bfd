// Products of f32 rows with an f32 weight in tiles, without tensor cores: a block of four warps computes a tile of rows and outputs.
//
// Rows and weight wait in shared memory, DEPTH columns at a time, while the next columns come to registers. Columns are added one after the
// other, so their number alone decides the order of a sum.
#pragma once
#include "mma.cuh"

struct FloatTile {
  static constexpr unsigned ROWS = 32, OUTPUTS = 32, DEPTH = 64;
  // Padded by 16 bytes, so that eight lanes' loads of 16 bytes from eight rows lie in different banks.
  static constexpr unsigned PITCH = DEPTH + 4;
  float rows[ROWS * PITCH], weight[OUTPUTS * PITCH];
};

// put(r, n, sum over k of row r's number k times weight[n][k]), as for the tiles of mma.cuh; the weight's rows are not padded.
template <class Row, class Put>
__device__ __forceinline__ void tile_product(FloatTile &tile, const Row &row, unsigned rows, const float *weight, unsigned pitch,
                                             unsigned outputs, unsigned columns, const Put &put) {
  using T = FloatTile;
  // Numbers of a thread: rows BELOW apart, and outputs BESIDE apart.
  constexpr unsigned BESIDE = 16, BELOW = TILE_THREADS / BESIDE, R = T::ROWS / BELOW, N = T::OUTPUTS / BESIDE;
  constexpr unsigned QUADS = T::DEPTH / 4, LOADS = T::ROWS * QUADS / TILE_THREADS;
  static_assert(T::ROWS == T::OUTPUTS, "rows and weight are loaded alike");
  const unsigned own_row = threadIdx.x / BESIDE, own_output = threadIdx.x % BESIDE;
  float sums[R][N] = {};
  float4 next_rows[LOADS], next_weight[LOADS];
  const auto load = [&](unsigned start) {
#pragma unroll
    for (unsigned j = 0; j < LOADS; ++j) {
      const unsigned i = threadIdx.x + j * TILE_THREADS, at = i / QUADS, k = start + i % QUADS * 4;
      next_rows[j] = at < rows && k < columns ? row(at, k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      next_weight[j] = at < outputs && k < columns ? row4(weight + (size_t)at * pitch, k, columns) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  };
  load(0);
  for (unsigned start = 0; start < columns; start += T::DEPTH) {
    // The previous columns were read.
    __syncthreads();
#pragma unroll
    for (unsigned j = 0; j < LOADS; ++j) {
      const unsigned i = threadIdx.x + j * TILE_THREADS, at = i / QUADS * T::PITCH + i % QUADS * 4;
      *reinterpret_cast<float4 *>(tile.rows + at) = next_rows[j];
      *reinterpret_cast<float4 *>(tile.weight + at) = next_weight[j];
    }
    load(start + T::DEPTH);
    __syncthreads();
#pragma unroll 4
    for (unsigned k = 0; k < T::DEPTH; k += 4) {
      float4 x[R], w[N];
#pragma unroll
      for (unsigned r = 0; r < R; ++r) x[r] = load4(tile.rows + (own_row + r * BELOW) * T::PITCH + k);
#pragma unroll
      for (unsigned n = 0; n < N; ++n) w[n] = load4(tile.weight + (own_output + n * BESIDE) * T::PITCH + k);
#pragma unroll
      for (unsigned r = 0; r < R; ++r) {
#pragma unroll
        for (unsigned n = 0; n < N; ++n) sums[r][n] = dot4(x[r], w[n], sums[r][n]);
      }
    }
  }
#pragma unroll
  for (unsigned r = 0; r < R; ++r) {
#pragma unroll
    for (unsigned n = 0; n < N; ++n) {
      const unsigned at = own_row + r * BELOW, output = own_output + n * BESIDE;
      if (at < rows && output < outputs) put(at, output, sums[r][n]);
    }
  }
}

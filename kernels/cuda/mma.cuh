// Products of f32 rows with a bf16 weight on tensor cores: a block of four warps computes a tile of rows and outputs.
//
// Tensor cores take bf16. So each number of a row is split into its rounding to bf16 and the rounding of the remainder, and both are
// multiplied. Together they differ from the number by at most 2^-17 of it. One rounding alone would lose 2^-8, more than models allow that
// are compared with their references in f32.
//
// Warps share the columns of a tile, every fourth 16 of them each, and add their sums at the end. So the number of columns alone decides
// the order of a row's sums, and tiles of any size give the same bits.
#pragma once
#include "common.cuh"

constexpr unsigned TILE_WARPS = 4, TILE_THREADS = 32 * TILE_WARPS;
// Columns of one matrix instruction.
constexpr unsigned K = 16;

// A tile: rows, outputs, columns of a stage, and stages in flight.
template <unsigned R, unsigned O, unsigned D, unsigned S>
struct Tile {
  static constexpr unsigned ROWS = R, OUTPUTS = O, DEPTH = D, STAGES = S;
  // Padded by 16 bytes, so that the eight rows of one ldmatrix lie in different banks.
  static constexpr unsigned PITCH = D + 8;
  union {
    struct {
      unsigned short weight[S][O * PITCH];
      // Roundings, then remainders.
      unsigned short rows[2][R * PITCH];
    };
    float sums[TILE_WARPS][R][O];
  };
};
using FewRows = Tile<8, 16, 128, 4>;
using ManyRows = Tile<64, 32, 64, 2>;

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Copies 16 bytes asynchronously, or zeros if there is nothing to read.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

// Loads four matrices of 8 by 8, each from the rows that eight lanes point to.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from))
               : "memory");
}

// sums += a b for 16 outputs, K columns and 8 rows.
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Packs two numbers as bf16, the first in the lower bits.
__device__ __forceinline__ unsigned pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned *>(&both);
}

// Remainder of a rounding; zero for infinity.
__device__ __forceinline__ float rest(float number, unsigned rounded) {
  const float whole = __uint_as_float(rounded);
  return number == whole ? 0.0f : number - whole;
}

// put(r, n, sum over k of row r's number k times weight[n][k]) for each of `rows` rows and `outputs` outputs, at most those of a tile.
// `row(r, k)` gives four numbers of a row from column `k` on, zeros past its end. The weight's rows are `pitch` apart, a multiple of 8,
// aligned to 16 bytes, and padded with zeros. A block of TILE_THREADS.
template <class T, class Row, class Put>
__device__ __forceinline__ void tile_product(T &tile, const Row &row, unsigned rows, const __nv_bfloat16 *weight, unsigned pitch,
                                             unsigned outputs, unsigned columns, const Put &put) {
  constexpr unsigned LOADS = T::ROWS * T::DEPTH / 4 / TILE_THREADS;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = (columns + T::DEPTH - 1) / T::DEPTH;
  float sums[T::OUTPUTS / 16][T::ROWS / 8][4] = {};

  const auto copy_weight = [&](unsigned step) {
    if (step < steps) {
      for (unsigned i = threadIdx.x; i < T::OUTPUTS * T::DEPTH / 8; i += TILE_THREADS) {
        const unsigned n = i / (T::DEPTH / 8), c = i % (T::DEPTH / 8) * 8, k = step * T::DEPTH + c;
        const bool there = n < outputs && k < pitch;
        copy_async(tile.weight[step % T::STAGES] + n * T::PITCH + c, weight + (there ? (size_t)n * pitch + k : 0), there);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  // Rows stay in registers until the previous ones were read.
  float4 ahead[LOADS];
  const auto load_rows = [&](unsigned step) {
#pragma unroll
    for (unsigned j = 0; j < LOADS; ++j) {
      const unsigned i = threadIdx.x + j * TILE_THREADS;
      const unsigned r = i / (T::DEPTH / 4), k = step * T::DEPTH + i % (T::DEPTH / 4) * 4;
      ahead[j] = r < rows && k < columns ? row(r, k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  };
  const auto store_rows = [&] {
#pragma unroll
    for (unsigned j = 0; j < LOADS; ++j) {
      const unsigned i = threadIdx.x + j * TILE_THREADS, at = i / (T::DEPTH / 4) * T::PITCH + i % (T::DEPTH / 4) * 4;
      const float4 x = ahead[j];
      const uint2 high = make_uint2(pack(x.x, x.y), pack(x.z, x.w));
      const uint2 low = make_uint2(pack(rest(x.x, high.x << 16), rest(x.y, high.x & 0xffff0000u)),
                                   pack(rest(x.z, high.y << 16), rest(x.w, high.y & 0xffff0000u)));
      *reinterpret_cast<uint2 *>(tile.rows[0] + at) = high;
      *reinterpret_cast<uint2 *>(tile.rows[1] + at) = low;
    }
  };

  for (unsigned step = 0; step + 1 < T::STAGES; ++step) copy_weight(step);
  load_rows(0);
  for (unsigned step = 0; step < steps; ++step) {
    // The previous stage was read.
    __syncthreads();
    store_rows();
    copy_weight(step + T::STAGES - 1);
    load_rows(step + 1);
    asm volatile("cp.async.wait_group %0;" ::"n"(T::STAGES - 1) : "memory");
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < T::DEPTH; k += TILE_WARPS * K) {
      const unsigned column = k + warp * K;
      unsigned a[T::OUTPUTS / 16][4];
#pragma unroll
      for (unsigned m = 0; m < T::OUTPUTS / 16; ++m)
        load_matrices(a[m], tile.weight[step % T::STAGES] + (m * 16 + lane % 16) * T::PITCH + column + lane / 16 * 8);
#pragma unroll
      for (unsigned n = 0; n < T::ROWS / 8; ++n) {
        // Both halves of the columns of the roundings, then of the remainders.
        unsigned b[4];
        load_matrices(b, tile.rows[lane / 16] + (n * 8 + lane % 8) * T::PITCH + column + lane / 8 % 2 * 8);
#pragma unroll
        for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) multiply(sums[m][n], a[m], b[0], b[1]);
#pragma unroll
        for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) multiply(sums[m][n], a[m], b[2], b[3]);
      }
    }
  }

  // The last stage was read: sums take its place.
  __syncthreads();
#pragma unroll
  for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) {
#pragma unroll
    for (unsigned n = 0; n < T::ROWS / 8; ++n) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        tile.sums[warp][n * 8 + lane % 4 * 2 + i % 2][m * 16 + lane / 4 + i / 2 * 8] = sums[m][n][i];
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < T::ROWS * T::OUTPUTS; i += TILE_THREADS) {
    const unsigned r = i / T::OUTPUTS, n = i % T::OUTPUTS;
    if (r < rows && n < outputs)
      put(r, n, (tile.sums[0][r][n] + tile.sums[1][r][n]) + (tile.sums[2][r][n] + tile.sums[3][r][n]));
  }
}

// Products of f32 rows with a bf16 weight on tensor cores: a block of four warps computes a tile of rows and outputs.
//
// Tensor cores take bf16. So each number of a row is split into its rounding to bf16, the rounding of the remainder, and that of what is left
// then: together they are the number, to the last bits. One rounding alone would lose 2^-8 and two 2^-17, which a vocoder's many layers make
// more than models allow that are compared with their references in f32. Tensor cores cut the bits of their sums off, where others round, so
// they add 48 products only and the rest is added in f32.
//
// Warps share the columns of a tile, every fourth 16 of them each, and add their sums at the end. So the number of columns alone decides
// the order of a row's sums, and tiles of any size give the same bits.
#pragma once
#include "common.cuh"

constexpr unsigned TILE_WARPS = 4, TILE_THREADS = 32 * TILE_WARPS;
// Columns of one matrix instruction.
constexpr unsigned K = 16;
// Parts of a number.
constexpr unsigned PARTS = 3;

// Tile whose weight and rows wait in shared memory: rows, outputs, columns of a stage, and stages in flight.
template <unsigned R, unsigned O, unsigned D, unsigned S>
struct SharedTile {
  static constexpr unsigned ROWS = R, OUTPUTS = O, DEPTH = D, STAGES = S;
  // Padded by 32 bytes, so that half a warp's loads of 8 bytes from four rows lie in different banks.
  static constexpr unsigned PITCH = D + 16;
  union {
    struct {
      unsigned short weight[S][O * PITCH];
      // Each part of the numbers.
      unsigned short rows[PARTS][R * PITCH];
    };
    float sums[TILE_WARPS][R][O];
  };
};

// Tile whose weight and rows go from memory to registers: 8 * G rows, 16 outputs, and column tiles that each warp loads at once. With few
// rows the weight is read once, and what counts is how many bytes are on their way.
template <unsigned G, unsigned A>
struct DirectTile {
  static constexpr unsigned ROWS = 8 * G, OUTPUTS = 16;
  float sums[TILE_WARPS][ROWS][OUTPUTS];
};

using FewRows = DirectTile<1, 16>;
using SomeRows = DirectTile<4, 4>;
using ManyRows = SharedTile<64, 32, 64, 3>;

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Copies 16 bytes asynchronously, or zeros if there is nothing to read.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

// Operands of a matrix instruction. Its columns are in an order of their own, equal for weight and rows: the four that a lane gives as two
// pairs are neighbours in memory, lane % 4 * 4 and after.
struct Operand {
  unsigned first, second;
};

__device__ __forceinline__ Operand load_operand(const void *from) {
  const uint2 loaded = *reinterpret_cast<const uint2 *>(from);
  return {loaded.x, loaded.y};
}

// sums += a b for 16 outputs, K columns and 8 rows; a lane gives two outputs, lane / 4 and 8 after it, and one row.
__device__ __forceinline__ void multiply(float (&sums)[4], const Operand (&a)[2], const Operand &b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0].first), "r"(a[1].first), "r"(a[0].second), "r"(a[1].second), "r"(b.first), "r"(b.second));
}

// sums += a b for numbers in parts, the smallest first.
__device__ __forceinline__ void add_products(float (&sums)[4], const Operand (&a)[2], const Operand (&b)[PARTS]) {
  float products[4] = {};
#pragma unroll
  for (unsigned part = PARTS; part-- > 0;) multiply(products, a, b[part]);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) sums[i] += products[i];
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

// Splits four numbers into their parts, the largest first.
__device__ __forceinline__ void split(float4 x, Operand (&parts)[PARTS]) {
#pragma unroll
  for (unsigned part = 0; part < PARTS; ++part) {
    const Operand own = {pack(x.x, x.y), pack(x.z, x.w)};
    parts[part] = own;
    x = make_float4(rest(x.x, own.first << 16), rest(x.y, own.first & 0xffff0000u), rest(x.z, own.second << 16),
                    rest(x.w, own.second & 0xffff0000u));
  }
}

// Adds the warps' sums of a tile and gives them to `put`.
template <class T, class Put>
__device__ __forceinline__ void put_sums(const T &tile, unsigned rows, unsigned outputs, const Put &put) {
  __syncthreads();
  for (unsigned i = threadIdx.x; i < T::ROWS * T::OUTPUTS; i += TILE_THREADS) {
    const unsigned r = i / T::OUTPUTS, n = i % T::OUTPUTS;
    if (r < rows && n < outputs)
      put(r, n, (tile.sums[0][r][n] + tile.sums[1][r][n]) + (tile.sums[2][r][n] + tile.sums[3][r][n]));
  }
}

// Stores the sums of 16 outputs and 8 rows of a warp, from the outputs `m` and the row `n` on.
template <class T>
__device__ __forceinline__ void store_sums(T &tile, unsigned m, unsigned n, const float (&sums)[4]) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    tile.sums[threadIdx.x / 32][n + lane % 4 * 2 + i % 2][m + lane / 4 + i / 2 * 8] = sums[i];
}

// put(r, n, sum over k of row r's number k times weight[n][k]) for each of `rows` rows and `outputs` outputs, at most those of a tile.
// `row(r, k)` gives four numbers of a row from column `k` on, zeros past its end. The weight's rows are `pitch` apart, a multiple of 8,
// aligned to 16 bytes, and padded with zeros. A block of TILE_THREADS.
template <unsigned G, unsigned A, class Row, class Put>
__device__ __forceinline__ void tile_product(DirectTile<G, A> &tile, const Row &row, unsigned rows, const __nv_bfloat16 *weight,
                                             unsigned pitch, unsigned outputs, unsigned columns, const Put &put) {
  const unsigned lane = threadIdx.x % 32, own = lane / 4;
  float sums[G][4] = {};
  for (unsigned start = threadIdx.x / 32 * K + lane % 4 * 4; start - lane % 4 * 4 < columns; start += A * TILE_WARPS * K) {
    Operand a[A][2];
    float4 x[A][G];
#pragma unroll
    for (unsigned j = 0; j < A; ++j) {
      const unsigned k = start + j * TILE_WARPS * K;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned n = own + 8 * half;
        a[j][half] = n < outputs && k < columns ? load_operand(weight + (size_t)n * pitch + k) : Operand{0, 0};
      }
#pragma unroll
      for (unsigned g = 0; g < G; ++g)
        x[j][g] = g * 8 + own < rows && k < columns ? row(g * 8 + own, k) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
#pragma unroll
    for (unsigned j = 0; j < A; ++j) {
#pragma unroll
      for (unsigned g = 0; g < G; ++g) {
        if (g * 8 >= rows) continue;
        Operand parts[PARTS];
        split(x[j][g], parts);
        add_products(sums[g], a[j], parts);
      }
    }
  }
#pragma unroll
  for (unsigned g = 0; g < G; ++g) store_sums(tile, 0, g * 8, sums[g]);
  put_sums(tile, rows, outputs, put);
}

// The same with the operands in shared memory.
template <unsigned R, unsigned O, unsigned D, unsigned S, class Row, class Put>
__device__ __forceinline__ void tile_product(SharedTile<R, O, D, S> &tile, const Row &row, unsigned rows, const __nv_bfloat16 *weight,
                                             unsigned pitch, unsigned outputs, unsigned columns, const Put &put) {
  using T = SharedTile<R, O, D, S>;
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
      Operand parts[PARTS];
      split(ahead[j], parts);
#pragma unroll
      for (unsigned part = 0; part < PARTS; ++part)
        *reinterpret_cast<uint2 *>(tile.rows[part] + at) = make_uint2(parts[part].first, parts[part].second);
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
      const unsigned column = k + warp * K + lane % 4 * 4;
      Operand a[T::OUTPUTS / 16][2];
#pragma unroll
      for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) {
#pragma unroll
        for (unsigned half = 0; half < 2; ++half)
          a[m][half] = load_operand(tile.weight[step % T::STAGES] + (m * 16 + half * 8 + lane / 4) * T::PITCH + column);
      }
#pragma unroll
      for (unsigned n = 0; n < T::ROWS / 8; ++n) {
        const unsigned at = (n * 8 + lane / 4) * T::PITCH + column;
        Operand parts[PARTS];
#pragma unroll
        for (unsigned part = 0; part < PARTS; ++part) parts[part] = load_operand(tile.rows[part] + at);
#pragma unroll
        for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) add_products(sums[m][n], a[m], parts);
      }
    }
  }

  // The last stage was read: sums take its place.
  __syncthreads();
#pragma unroll
  for (unsigned m = 0; m < T::OUTPUTS / 16; ++m) {
#pragma unroll
    for (unsigned n = 0; n < T::ROWS / 8; ++n) store_sums(tile, m * 16, n * 8, sums[m][n]);
  }
  put_sums(tile, rows, outputs, put);
}

// The product with a weight for many rows: bf16 tiles through shared memory, two in flight, into tensor cores.
#include <cuda_bf16.h>

// A block makes ROWS x OUTPUTS numbers, DEPTH of k at a time, with four warps of 16 rows and all OUTPUTS each.
constexpr int ROWS = 64, OUTPUTS = 32, DEPTH = 32, THREADS = 128;
// A tile's row is padded by 16 bytes, so that the eight rows which ldmatrix reads at once lie in different banks.
constexpr int PITCH = DEPTH + 8;

__device__ __forceinline__ unsigned shared_address(const void *pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}

// Copies 16 bytes, or sets them to zero where there is nothing to read.
__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}

// Loads rows of a tile, [k] contiguous.
__device__ __forceinline__ void load_tile(__nv_bfloat16 *tile, const __nv_bfloat16 *from, int first, int count, int rows,
                                          int k, int columns) {
  for (int i = threadIdx.x; i < count * (DEPTH / 8); i += THREADS) {
    const int row = i / (DEPTH / 8), column = i % (DEPTH / 8) * 8;
    const bool there = first + row < rows && k + column < columns;
    const size_t offset = there ? (size_t)(first + row) * columns + k + column : 0;
    copy_async(tile + row * PITCH + column, from + offset, there);
  }
}

// y[row][n] = bf16(sum over k of x[row][k] * weight[n][k]), summed in f32. `columns` is a multiple of 8, every pointer of 16
// bytes. A block of THREADS for each OUTPUTS (x) and each ROWS (y).
extern "C" __global__ void linear_rows_bf16(const __nv_bfloat16 *__restrict__ x, const __nv_bfloat16 *__restrict__ weight,
                                            __nv_bfloat16 *__restrict__ y, int rows, int columns, int outputs) {
  __shared__ __align__(16) __nv_bfloat16 a_tile[2][ROWS * PITCH];
  __shared__ __align__(16) __nv_bfloat16 b_tile[2][OUTPUTS * PITCH];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.y * ROWS, first_output = blockIdx.x * OUTPUTS;
  float sums[OUTPUTS / 8][4] = {};

  const int steps = (columns + DEPTH - 1) / DEPTH;
  load_tile(a_tile[0], x, first_row, ROWS, rows, 0, columns);
  load_tile(b_tile[0], weight, first_output, OUTPUTS, outputs, 0, columns);
  asm volatile("cp.async.commit_group;" ::: "memory");
  for (int step = 0; step < steps; ++step) {
    const int now = step % 2;
    if (step + 1 < steps) {
      load_tile(a_tile[1 - now], x, first_row, ROWS, rows, (step + 1) * DEPTH, columns);
      load_tile(b_tile[1 - now], weight, first_output, OUTPUTS, outputs, (step + 1) * DEPTH, columns);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      unsigned a[4];
      const __nv_bfloat16 *a_from = a_tile[now] + (warp * 16 + lane % 16) * PITCH + k + lane / 16 * 8;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "r"(shared_address(a_from))
                   : "memory");
#pragma unroll
      for (int n = 0; n < OUTPUTS / 8; ++n) {
        unsigned b[2];
        const __nv_bfloat16 *b_from = b_tile[now] + (n * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(b[0]), "=r"(b[1])
                     : "r"(shared_address(b_from))
                     : "memory");
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
      }
    }
    // The next round loads into the tile that this one has read.
    __syncthreads();
  }
#pragma unroll
  for (int n = 0; n < OUTPUTS / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first_row + warp * 16 + lane / 4 + i / 2 * 8;
      const int output = first_output + n * 8 + lane % 4 * 2 + i % 2;
      if (row < rows && output < outputs) y[(size_t)row * outputs + output] = __float2bfloat16_rn(sums[n][i]);
    }
  }
}

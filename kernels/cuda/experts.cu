// Mixture of experts: the routing, each expert's rows, products over chosen experts only, and the weighted sum.
//
// A pair is a row and one of its choices: row * top_k + choice.
#include "mma.cuh"
#include "product.cuh"

// Experts of a lane whose probabilities stay in registers.
constexpr unsigned KEPT = 4;

// Routes each row: takes experts by probability, the lower first on a tie, and writes them by ascending number, so that sums do not depend
// on probabilities. One warp for each row. At most 1024 experts and 32 choices.
extern "C" __global__ void route_rows(const float *__restrict__ logits, unsigned *__restrict__ chosen,
                                      float *__restrict__ weights, unsigned rows, unsigned experts, unsigned top_k,
                                      unsigned normalise) {
  const unsigned row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  logits += (size_t)row * experts;
  float greatest = -INFINITY;
  for (unsigned e = lane; e < experts; e += 32) greatest = fmaxf(greatest, logits[e]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
  float sum = 0.0f;
  for (unsigned e = lane; e < experts; e += 32) sum += exponential(logits[e] - greatest);
  sum = warp_sum(sum);

  // Probabilities of the first experts of this lane; those of more than 128 are computed again for each choice.
  float kept[KEPT];
#pragma unroll
  for (unsigned i = 0; i < KEPT; ++i) {
    const unsigned e = lane + 32 * i;
    kept[i] = e < experts ? exponential(logits[e] - greatest) / sum : 0.0f;
  }
  // Bit mask of this lane's experts that are already taken.
  unsigned taken = 0, mine = 0;
  float own = 0.0f, total = 0.0f;
  for (unsigned choice = 0; choice < top_k; ++choice) {
    unsigned best = NO_ROW;
    float most = 0.0f;
#pragma unroll
    for (unsigned i = 0; i < KEPT; ++i) {
      const unsigned e = lane + 32 * i;
      if (e < experts && !(taken >> i & 1) && (best == NO_ROW || kept[i] > most)) {
        best = e;
        most = kept[i];
      }
    }
    for (unsigned e = lane + 32 * KEPT; e < experts; e += 32) {
      if (taken >> (e / 32) & 1) continue;
      const float p = exponential(logits[e] - greatest) / sum;
      if (best == NO_ROW || p > most) {
        best = e;
        most = p;
      }
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const unsigned other = __shfl_xor_sync(0xffffffffu, best, distance);
      const float p = __shfl_xor_sync(0xffffffffu, most, distance);
      if (other != NO_ROW && (best == NO_ROW || p > most || (p == most && other < best))) {
        best = other;
        most = p;
      }
    }
    // With NaN lanes may disagree: the first lane decides.
    best = __shfl_sync(0xffffffffu, best, 0);
    most = __shfl_sync(0xffffffffu, most, 0);
    if (best % 32 == lane) taken |= 1u << (best / 32);
    if (lane == choice) {
      mine = best;
      own = most;
    }
    total += most;
  }
  unsigned rank = 0;
  for (unsigned choice = 0; choice < top_k; ++choice) rank += __shfl_sync(0xffffffffu, mine, choice) < mine;
  if (lane < top_k) {
    chosen[row * top_k + rank] = mine;
    weights[row * top_k + rank] = normalise ? own / total : own;
  }
}

// pairs[expert][..] = the pairs that chose the expert, in ascending order; counts[expert] = their number. One block of one warp for each
// expert.
extern "C" __global__ void list_experts(const unsigned *__restrict__ chosen, unsigned *__restrict__ pairs,
                                        unsigned *__restrict__ counts, unsigned count) {
  const unsigned expert = blockIdx.x, lane = threadIdx.x;
  unsigned found = 0;
  for (unsigned start = 0; start < count; start += 32) {
    const bool mine = start + lane < count && chosen[start + lane] == expert;
    const unsigned those = __ballot_sync(0xffffffffu, mine);
    if (mine) pairs[(size_t)expert * count + found + __popc(those & ((1u << lane) - 1))] = start + lane;
    found += __popc(those);
  }
  if (lane == 0) counts[expert] = found;
}

// y[pair][n] = sum over k of x[pair / divide][k] * weight[expert][n][k] for the pairs of each expert (y): one warp for each output (x).
template <class W>
__device__ __forceinline__ void expert_product(const float *x, const unsigned *pairs, const unsigned *counts, const W &weight,
                                               float *y, unsigned divide, unsigned count, unsigned columns,
                                               unsigned outputs) {
  constexpr int ROWS = 4;
  const unsigned expert = blockIdx.y, output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, rows = counts[expert];
  if (output >= outputs || rows == 0) return;
  pairs += (size_t)expert * count;
  for (unsigned first = 0; first < rows; first += ROWS) {
    const float *from[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) from[r] = x + (size_t)(pairs[min(first + r, rows - 1)] / divide) * columns;
    float sums[ROWS];
    weight.products(from, (size_t)expert * outputs + output, columns, sums);
    if (threadIdx.x % 32 != 0) continue;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (first + r < rows) y[(size_t)pairs[first + r] * outputs + output] = sums[r];
    }
  }
}

// Product of experts in f32.
extern "C" __global__ void expert_product_f32(const float *__restrict__ x, const unsigned *__restrict__ pairs,
                                              const unsigned *__restrict__ counts, const float *__restrict__ weight,
                                              float *__restrict__ y, unsigned divide, unsigned count, unsigned columns,
                                              unsigned pitch, unsigned outputs) {
  expert_product(x, pairs, counts, Floats{weight, pitch}, y, divide, count, columns, outputs);
}

// Product of experts in bf16: one block for each tile of outputs (x), which takes one tile of pairs after the other. See mma.cuh. Blocks
// along y are experts, or pairs if there are fewer of them: the first pair of an expert then computes all of its pairs.
#define TILE_EXPERT_PRODUCT(NAME, TILE)                                                                                \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const unsigned *__restrict__ pairs, const unsigned *__restrict__ counts,       \
           const __nv_bfloat16 *__restrict__ weight, float *__restrict__ y, unsigned divide, unsigned count,           \
           unsigned columns, unsigned pitch, unsigned outputs, const unsigned *__restrict__ chosen) {                  \
    __shared__ __align__(16) TILE tile;                                                                                \
    const unsigned expert = chosen ? chosen[blockIdx.y] : blockIdx.y, output = blockIdx.x * TILE::OUTPUTS;             \
    const unsigned rows = counts[expert];                                                                              \
    pairs += (size_t)expert * count;                                                                                   \
    if (chosen && pairs[0] != blockIdx.y) return;                                                                      \
    weight += ((size_t)expert * outputs + output) * pitch;                                                             \
    for (unsigned first = 0; first < rows; first += TILE::ROWS) {                                                      \
      /* The sums of the tile before have been read. */                                                                \
      __syncthreads();                                                                                                 \
      tile_product(                                                                                                    \
          tile,                                                                                                        \
          [&](unsigned r, unsigned k) { return row4(x + (size_t)(pairs[first + r] / divide) * columns, k, columns); }, \
          rows - first, weight, pitch, outputs - output, columns,                                                      \
          [&](unsigned r, unsigned n, float sum) { y[(size_t)pairs[first + r] * outputs + output + n] = sum; });       \
    }                                                                                                                  \
  }

TILE_EXPERT_PRODUCT(expert_product_bf16, FewRows)
TILE_EXPERT_PRODUCT(expert_product_rows_bf16, ManyRows)

// Product of experts in integers.
#define INTEGER_EXPERT_PRODUCT(NAME, BITS)                                                                             \
  extern "C" __global__ void NAME(const float *__restrict__ x, const unsigned *__restrict__ pairs,                     \
                                  const unsigned *__restrict__ counts, const uint4 *__restrict__ weight,               \
                                  const unsigned short *__restrict__ scales, float *__restrict__ y, unsigned divide,   \
                                  unsigned count, unsigned columns, unsigned pitch, unsigned outputs,                  \
                                  unsigned scaling) {                                                                  \
    expert_product(x, pairs, counts, Integers<BITS>{weight, {scales, pitch, scaling}}, y, divide, count, columns, outputs); \
  }

INTEGER_EXPERT_PRODUCT(expert_product_i8, 8)
INTEGER_EXPERT_PRODUCT(expert_product_i4, 4)

// out[row][c] = sum over choices of result[pair][c] * weights[pair]; one thread for each number, `count` numbers of `out`.
extern "C" __global__ void combine_experts(const float *__restrict__ result, const float *__restrict__ weights,
                                           float *__restrict__ out, unsigned top_k, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = i / columns;
  float sum = 0.0f;
  for (unsigned pair = row * top_k; pair < (row + 1) * top_k; ++pair)
    sum = fmaf(result[(size_t)pair * columns + i % columns], weights[pair], sum);
  out[i] = sum;
}

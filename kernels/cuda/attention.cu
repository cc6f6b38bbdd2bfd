// Rotary embedding and attention: over the paged KV cache of slots, and within segments.
//
// A batch is a list of a row spec: for each sequence its first row, its rows, its first position, the entries of its table, then the table.
// Position p lies in block table[p / block_len % entries]: a short table is a ring.
#include "common.cuh"
#include "reduce.cuh"

// Position of a row in its sequence, and the end of the sequence.
struct Place {
  const unsigned *table;
  unsigned entries, position, end;
};

// Finds the place of a row; false if no sequence has it.
__device__ __forceinline__ bool find_row(const unsigned *batch, unsigned sequences, unsigned stride, unsigned row, Place &place) {
  for (unsigned s = 0; s < sequences; ++s) {
    const unsigned *head = batch + (size_t)s * stride;
    if (row - head[0] < head[1]) {
      place = Place{head + 4, head[3], head[2] + row - head[0], head[2] + head[1]};
      return true;
    }
  }
  return false;
}

// Index of a position's key or value in the pool.
__device__ __forceinline__ size_t cell(const Place &place, unsigned position, unsigned block_len) {
  return (size_t)place.table[position / block_len % place.entries] * block_len + position % block_len;
}

// Rotates each head of each row by its position's angles; `frequencies` has head_dim / 2 numbers. One block for each row, one thread for
// each pair of numbers.
extern "C" __global__ void rotary_f32(float *__restrict__ x, const unsigned *__restrict__ batch,
                                      const float *__restrict__ frequencies, unsigned sequences, unsigned stride,
                                      unsigned columns, unsigned head_dim) {
  Place place;
  if (!find_row(batch, sequences, stride, blockIdx.x, place)) return;
  const unsigned half = head_dim / 2;
  float *row = x + (size_t)blockIdx.x * columns;
  for (unsigned i = threadIdx.x; i < columns / 2; i += blockDim.x) {
    float sine, cosine;
    sincosf((float)place.position * frequencies[i % half], &sine, &cosine);
    float *low = row + i / half * head_dim + i % half;
    const float a = low[0], b = low[half];
    low[0] = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
    low[half] = __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
  }
}

// Stores the rows' keys and values at their positions. One block for each row.
extern "C" __global__ void store_keys_f32(const float *__restrict__ k, const float *__restrict__ v, float *__restrict__ keys,
                                          float *__restrict__ values, const unsigned *__restrict__ batch, unsigned sequences,
                                          unsigned stride, unsigned width, unsigned block_len) {
  Place place;
  if (!find_row(batch, sequences, stride, blockIdx.x, place)) return;
  const size_t from = (size_t)blockIdx.x * width, to = cell(place, place.position, block_len) * width;
  for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
    keys[to + i] = k[from + i];
    values[to + i] = v[from + i];
  }
}

// Warps of a block that share a query, and numbers of a head in each lane: heads have at most 256.
constexpr unsigned WARPS = 4, MOST = 8;

// out = softmax(q key * scale) value over positions [from, to), by a block. Each warp takes 32 positions at a time; their partial results
// are merged at the end. Shared memory: WARPS * (dim + 2) numbers.
template <class Keys>
__device__ __forceinline__ void attend(const float *q, const Keys &keys, unsigned from, unsigned to, unsigned dim, float scale,
                                       float *out, float *shared) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sums[MOST] = {}, top = -INFINITY, total = 0.0f;
  for (unsigned tile = from + warp * 32; tile < to; tile += WARPS * 32) {
    const bool there = tile + lane < to;
    float score = 0.0f;
    if (there) {
      const float *key = keys.key(tile + lane);
      if (dim % 4 == 0) {
        for (unsigned d = 0; d < dim; d += 4) score = dot4(load4(q + d), load4(key + d), score);
      } else {
        for (unsigned d = 0; d < dim; ++d) score = fmaf(q[d], key[d], score);
      }
    }
    score = there ? score * scale : -INFINITY;
    float greatest = score;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
    greatest = fmaxf(greatest, top);
    const float factor = exponential(top - greatest), p = there ? exponential(score - greatest) : 0.0f;
    total = fmaf(total, factor, warp_sum(p));
    top = greatest;
#pragma unroll
    for (unsigned i = 0; i < MOST; ++i) sums[i] *= factor;
    const unsigned count = min(32u, to - tile);
    for (unsigned j = 0; j < count; ++j) {
      const float weight = __shfl_sync(0xffffffffu, p, j);
      const float *value = keys.value(tile + j);
#pragma unroll
      for (unsigned i = 0; i < MOST; ++i) {
        if (lane + 32 * i < dim) sums[i] = fmaf(weight, value[lane + 32 * i], sums[i]);
      }
    }
  }
  float *part = shared + warp * (dim + 2);
  if (lane == 0) {
    part[dim] = top;
    part[dim + 1] = total;
  }
#pragma unroll
  for (unsigned i = 0; i < MOST; ++i) {
    if (lane + 32 * i < dim) part[lane + 32 * i] = sums[i];
  }
  __syncthreads();
  for (unsigned d = threadIdx.x; d < dim; d += blockDim.x) {
    float greatest = shared[dim];
    for (unsigned w = 1; w < WARPS; ++w) greatest = fmaxf(greatest, shared[w * (dim + 2) + dim]);
    float sum = 0.0f, all = 0.0f;
    for (unsigned w = 0; w < WARPS; ++w) {
      const float *of = shared + w * (dim + 2);
      const float factor = exponential(of[dim] - greatest);
      sum = fmaf(of[d], factor, sum);
      all = fmaf(of[dim + 1], factor, all);
    }
    out[d] = sum / all;
  }
}

// Keys and values in blocks of the KV cache.
struct Cached {
  const float *keys, *values;
  Place place;
  unsigned width, block_len;
  __device__ const float *key(unsigned position) const { return keys + cell(place, position, block_len) * width; }
  __device__ const float *value(unsigned position) const { return values + cell(place, position, block_len) * width; }
};

// Attention of each row over its own sequence up to the end of its chunk of `chunk` positions, 1 for causal attention, with keys and values
// already stored. A block of WARPS warps for each row (x) and each head (y). `window` is the number of positions up to its own that a row
// attends to. A row of no sequence gives zeros.
extern "C" __global__ void attention_f32(const float *__restrict__ q, const float *__restrict__ keys,
                                         const float *__restrict__ values, const unsigned *__restrict__ batch,
                                         float *__restrict__ out, unsigned sequences, unsigned stride, unsigned group,
                                         unsigned width, unsigned block_len, unsigned head_dim, unsigned window,
                                         unsigned chunk, float scale) {
  extern __shared__ float shared[];
  const size_t own = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * head_dim;
  Place place;
  if (!find_row(batch, sequences, stride, blockIdx.x, place)) {
    for (unsigned d = threadIdx.x; d < head_dim; d += blockDim.x) out[own + d] = 0.0f;
    return;
  }
  const unsigned own_end = place.position + 1, from = own_end > window ? own_end - window : 0;
  const unsigned to = min((place.position / chunk + 1) * chunk, place.end), head = blockIdx.y / group * head_dim;
  attend(q + own, Cached{keys + head, values + head, place, width, block_len}, from, to, head_dim, scale, out + own, shared);
}

// Keys and values of the batch itself.
struct Dense {
  const float *keys, *values;
  unsigned width;
  __device__ const float *key(unsigned row) const { return keys + (size_t)row * width; }
  __device__ const float *value(unsigned row) const { return values + (size_t)row * width; }
};

// Attention within consecutive segments, given by their lengths, over at most `left` rows before a row and `right` rows after it. Blocks as
// for `attention_f32`; a row of no segment gives zeros.
extern "C" __global__ void segment_attention_f32(const float *__restrict__ q, const float *__restrict__ k,
                                                 const float *__restrict__ v, const unsigned *__restrict__ segments,
                                                 float *__restrict__ out, unsigned count, unsigned head_dim, unsigned left,
                                                 unsigned right, float scale) {
  extern __shared__ float shared[];
  const unsigned width = gridDim.y * head_dim, head = blockIdx.y * head_dim;
  const size_t own = (size_t)blockIdx.x * width + head;
  Segment segment;
  if (!find_segment(segments, count, blockIdx.x, segment)) {
    for (unsigned d = threadIdx.x; d < head_dim; d += blockDim.x) out[own + d] = 0.0f;
    return;
  }
  const unsigned row = blockIdx.x - segment.first, before = min(row, left), after = min(segment.rows - 1 - row, right);
  const Dense rows = {k + head, v + head, width};
  attend(q + own, rows, blockIdx.x - before, blockIdx.x + after + 1, head_dim, scale, out + own, shared);
}

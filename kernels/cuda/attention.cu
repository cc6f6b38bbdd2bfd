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

// Finds the place of a row, the same for all lanes of a warp; false if no sequence has it. Each lane looks at a sequence.
__device__ __forceinline__ bool find_row(const unsigned *batch, unsigned sequences, unsigned stride, unsigned row, Place &place) {
  for (unsigned first = 0; first < sequences; first += 32) {
    const unsigned s = first + threadIdx.x % 32;
    const unsigned *own = batch + (size_t)min(s, sequences - 1) * stride;
    const unsigned those = __ballot_sync(0xffffffffu, s < sequences && row - own[0] < own[1]);
    if (those) {
      const unsigned *head = batch + (size_t)(first + 31 - __clz(those)) * stride;
      place = Place{head + 4, head[3], head[2] + row - head[0], head[2] + head[1]};
      return true;
    }
  }
  return false;
}

// Index of a position's key or value in the pool.
__device__ __forceinline__ unsigned cell(const Place &place, unsigned position, unsigned block_len) {
  return place.table[position / block_len % place.entries] * block_len + position % block_len;
}

// Rotates a pair of a head's numbers by the angle of a position.
__device__ __forceinline__ void rotate(float &low, float &high, unsigned position, float frequency) {
  float sine, cosine;
  sincosf((float)position * frequency, &sine, &cosine);
  const float a = low, b = high;
  low = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
  high = __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
}

// Rotates each head of each row by its position's angles; `frequencies` has head_dim / 2 numbers. Blocks for each row (x), one thread for
// each pair of numbers (y).
extern "C" __global__ void rotary_f32(float *__restrict__ x, const unsigned *__restrict__ batch,
                                      const float *__restrict__ frequencies, unsigned sequences, unsigned stride,
                                      unsigned columns, unsigned head_dim) {
  Place place;
  if (!find_row(batch, sequences, stride, blockIdx.x, place)) return;
  const unsigned half = head_dim / 2, i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= columns / 2) return;
  float *low = x + (size_t)blockIdx.x * columns + i / half * head_dim + i % half;
  rotate(low[0], low[half], place.position, frequencies[i % half]);
}

// Splits rows of `heads` queries, then `kv_heads` keys and as many values, into the three. Heads of queries and keys are normed as by
// `rms_norm_f32` unless the weights are null, and then rotated as by `rotary_f32` unless the frequencies are. Blocks for each row (x), a warp
// for each head (y).
extern "C" __global__ void split_heads_f32(const float *__restrict__ rows, const float *__restrict__ q_norm,
                                           const float *__restrict__ k_norm, const float *__restrict__ frequencies,
                                           const unsigned *__restrict__ batch, float *__restrict__ q, float *__restrict__ k,
                                           float *__restrict__ v, unsigned sequences, unsigned stride, unsigned heads,
                                           unsigned kv_heads, unsigned head_dim, float epsilon) {
  const unsigned head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32, all = heads + 2 * kv_heads;
  Place place;
  const bool there = find_row(batch, sequences, stride, blockIdx.x, place);
  if (head >= all) return;
  const float *from = rows + ((size_t)blockIdx.x * all + head) * head_dim;
  const bool is_query = head < heads, is_key = !is_query && head < heads + kv_heads;
  float *to = is_query ? q + ((size_t)blockIdx.x * heads + head) * head_dim
                       : (is_key ? k : v) + ((size_t)blockIdx.x * kv_heads + (head - heads) % kv_heads) * head_dim;
  const float *weight = is_query ? q_norm : is_key ? k_norm : nullptr;
  float by = 1.0f;
  if (weight) {
    float square = 0.0f;
    for (unsigned d = lane; d < head_dim; d += 32) square = fmaf(from[d], from[d], square);
    by = 1.0f / sqrtf(warp_sum(square) / head_dim + epsilon);
  }
  const unsigned half = head_dim / 2;
  for (unsigned d = lane; d < half; d += 32) {
    float low = from[d], high = from[d + half];
    if (weight) {
      low = weight[d] * (low * by);
      high = weight[d + half] * (high * by);
    }
    if (frequencies && there && (is_query || is_key)) rotate(low, high, place.position, frequencies[d]);
    to[d] = low;
    to[d + half] = high;
  }
}

// Stores the rows' keys and values at their positions. One block for each row.
extern "C" __global__ void store_keys_f32(const float *__restrict__ k, const float *__restrict__ v, float *__restrict__ keys,
                                          float *__restrict__ values, const unsigned *__restrict__ batch, unsigned sequences,
                                          unsigned stride, unsigned width, unsigned block_len) {
  Place place;
  if (!find_row(batch, sequences, stride, blockIdx.x, place)) return;
  const size_t from = (size_t)blockIdx.x * width, to = (size_t)cell(place, place.position, block_len) * width;
  for (unsigned i = threadIdx.x; i < width; i += blockDim.x) {
    keys[to + i] = k[from + i];
    values[to + i] = v[from + i];
  }
}

// Warps of a block that share a query, and numbers of a head in each lane: a block sums at most 256 numbers of a head's values.
constexpr unsigned WARPS = 4, MOST = 8;
// Loads of a lane that are on their way at once: fours of a key, and positions' values.
constexpr unsigned KEYS = 16, VALUES = 8;

// Place in a head of a lane's number: fours of neighbours if heads consist of fours, so that a lane loads four at once.
__device__ __forceinline__ unsigned lane_number(bool in_fours, unsigned i) {
  const unsigned lane = threadIdx.x % 32;
  return in_fours ? i / 4 * 128 + lane * 4 + i % 4 : i * 32 + lane;
}

// Loads four of a lane's numbers from the `i`th on, zeros past the head's end.
__device__ __forceinline__ float4 load_lane(const float *head, unsigned dim, bool in_fours, unsigned i) {
  if (in_fours) return lane_number(true, i) < dim ? load4(head + lane_number(true, i)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  float four[4] = {};
#pragma unroll
  for (unsigned n = 0; n < 4; ++n)
    if (lane_number(false, i + n) < dim) four[n] = head[lane_number(false, i + n)];
  return make_float4(four[0], four[1], four[2], four[3]);
}

// out = softmax(q key * scale) value over positions [from, to), by a block, for the first `numbers` of the values. Each warp takes 32
// positions at a time; their partial results are merged at the end. Shared memory: WARPS * (dim + 2) numbers, and `dim` for the query.
template <class Keys>
__device__ __forceinline__ void attend(const float *q, const Keys &keys, unsigned from, unsigned to, unsigned dim, unsigned numbers,
                                       float scale, float *out, float *shared) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool in_fours = dim % 4 == 0;
  float *query = shared + WARPS * (dim + 2);
  for (unsigned d = threadIdx.x; d < dim; d += blockDim.x) query[d] = q[d];
  __syncthreads();
  float sums[MOST] = {}, top = -INFINITY, total = 0.0f;
  for (unsigned tile = from + warp * 32; tile < to; tile += WARPS * 32) {
    const bool there = tile + lane < to;
    const unsigned own = there ? keys.index(tile + lane) : 0;
    float score = 0.0f;
    if (there) {
      const float *key = keys.keys + (size_t)own * keys.width;
      if (in_fours) {
        for (unsigned d = 0; d < dim; d += 4 * KEYS) {
          float4 loaded[KEYS];
#pragma unroll
          for (unsigned i = 0; i < KEYS; ++i) loaded[i] = d + 4 * i < dim ? load4(key + d + 4 * i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
          for (unsigned i = 0; i < KEYS; ++i)
            if (d + 4 * i < dim) score = dot4(load4(query + d + 4 * i), loaded[i], score);
        }
      } else {
        for (unsigned d = 0; d < dim; ++d) score = fmaf(query[d], key[d], score);
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
    for (unsigned j = 0; j < count; j += VALUES) {
      float4 loaded[VALUES][MOST / 4];
      float weight[VALUES];
#pragma unroll
      for (unsigned n = 0; n < VALUES; ++n) {
        // Positions past the end weigh nothing.
        weight[n] = __shfl_sync(0xffffffffu, p, j + n);
        const float *value = keys.values + (size_t)__shfl_sync(0xffffffffu, own, j + n) * keys.width;
#pragma unroll
        for (unsigned i = 0; i < MOST; i += 4)
          loaded[n][i / 4] = j + n < count ? load_lane(value, numbers, in_fours, i) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
#pragma unroll
      for (unsigned n = 0; n < VALUES; ++n) {
#pragma unroll
        for (unsigned i = 0; i < MOST; i += 4) {
          const float4 value = loaded[n][i / 4];
          sums[i] = fmaf(weight[n], value.x, sums[i]);
          sums[i + 1] = fmaf(weight[n], value.y, sums[i + 1]);
          sums[i + 2] = fmaf(weight[n], value.z, sums[i + 2]);
          sums[i + 3] = fmaf(weight[n], value.w, sums[i + 3]);
        }
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
    if (lane_number(in_fours, i) < numbers) part[lane_number(in_fours, i)] = sums[i];
  }
  __syncthreads();
  for (unsigned d = threadIdx.x; d < numbers; d += blockDim.x) {
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

// Keys and values in blocks of the KV cache: `index` gives the row of a position.
struct Cached {
  const float *keys, *values;
  unsigned width, block_len;
  Place place;
  __device__ unsigned index(unsigned position) const { return cell(place, position, block_len); }
};

// Attention of each row over its own sequence up to the end of its chunk of `chunk` positions, 1 for causal attention, with keys and values
// already stored. A block of WARPS warps for each row (x) and each head (y). `window` is the number of positions up to its own that a row
// attends to. A row of no sequence gives zeros.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attention_f32(const float *__restrict__ q, const float *__restrict__ keys,
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
  const Cached cells = {keys + head, values + head, width, block_len, place};
  attend(q + own, cells, from, to, head_dim, head_dim, scale, out + own, shared);
}

// Keys and values of the batch itself.
struct Dense {
  const float *keys, *values;
  unsigned width;
  __device__ unsigned index(unsigned row) const { return row; }
};

// Attention within consecutive segments, given by their lengths, over at most `left` rows before a row and `right` rows after it. Blocks as
// for `attention_f32`, but one for each 256 numbers of a head (y): each has all scores, and its numbers of the values. A row of no segment
// gives zeros.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    segment_attention_f32(const float *__restrict__ q, const float *__restrict__ k,
                                                 const float *__restrict__ v, const unsigned *__restrict__ segments,
                                                 float *__restrict__ out, unsigned count, unsigned head_dim, unsigned left,
                                                 unsigned right, float scale) {
  extern __shared__ float shared[];
  constexpr unsigned PART = MOST * 32;
  const unsigned parts = (head_dim + PART - 1) / PART, first = blockIdx.y % parts * PART, numbers = min(head_dim - first, PART);
  const unsigned width = gridDim.y / parts * head_dim, head = blockIdx.y / parts * head_dim;
  const size_t own = (size_t)blockIdx.x * width + head;
  float *to = out + own + first;
  Segment segment;
  if (!find_segment(segments, count, blockIdx.x, segment)) {
    for (unsigned d = threadIdx.x; d < numbers; d += blockDim.x) to[d] = 0.0f;
    return;
  }
  const unsigned row = blockIdx.x - segment.first, before = min(row, left), after = min(segment.rows - 1 - row, right);
  const Dense rows = {k + head, v + head + first, width};
  attend(q + own, rows, blockIdx.x - before, blockIdx.x + after + 1, head_dim, numbers, scale, to, shared);
}

// Sampling of an id for each row of logits: penalty, mask, temperature, top-k, top-p and the draw, in the reference implementation's order.
#include "common.cuh"
#include "reduce.cuh"

// Sampling parameters of a row, as a row spec holds them.
struct ChooseRow {
  // Slot of the penalty's history; NO_ROW for none.
  unsigned slot;
  float penalty;
  // 0 takes the most likely id, the lowest on a tie.
  float temperature;
  unsigned top_k;
  float top_p;
  float uniform;
};

// Maps a logit to an integer of the same order.
__device__ __forceinline__ unsigned ascending(float logit) {
  const unsigned bits = __float_as_uint(logit);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Returns the sum over the block in every thread; `scratch` has a number for each warp and is free again afterwards.
__device__ __forceinline__ unsigned block_count(unsigned value, unsigned *scratch) {
  value = __reduce_add_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  unsigned sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += scratch[warp];
  __syncthreads();
  return sum;
}

// Returns the largest key that at least `wanted` ids reach, eight bits at a time: those above are found, and the keys that have them are
// counted by the next eight. `bins` has 256 numbers and `found` two; both are free again afterwards.
__device__ __forceinline__ unsigned greatest_key(const float *work, unsigned vocabulary, unsigned wanted, unsigned *bins,
                                                 unsigned *found) {
  constexpr unsigned BINS = 256, EACH = BINS / 32;
  unsigned key = 0, fixed = 0;
  for (unsigned shift = 32; shift > 0;) {
    shift -= 8;
    for (unsigned bin = threadIdx.x; bin < BINS; bin += blockDim.x) bins[bin] = 0;
    __syncthreads();
    for (unsigned id = threadIdx.x; id < vocabulary; id += blockDim.x) {
      const unsigned own = ascending(work[id]);
      if ((own & fixed) == key) atomicAdd(bins + (own >> shift) % BINS, 1);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      // A lane has eight bins, the first lane the greatest.
      const unsigned last = BINS - 1 - threadIdx.x * EACH;
      unsigned own = 0;
#pragma unroll
      for (unsigned i = 0; i < EACH; ++i) own += bins[last - i];
      unsigned reach = own;
#pragma unroll
      for (unsigned distance = 1; distance < 32; distance *= 2) {
        const unsigned above = __shfl_up_sync(0xffffffffu, reach, distance);
        if (threadIdx.x >= distance) reach += above;
      }
      unsigned before = reach - own;
      if (before < wanted && wanted <= reach) {
        unsigned bin = last;
        while (before + bins[bin] < wanted) before += bins[bin--];
        found[0] = bin;
        found[1] = wanted - before;
      }
    }
    __syncthreads();
    key |= found[0] << shift;
    fixed |= (BINS - 1) << shift;
    wanted = found[1];
    __syncthreads();
  }
  return key;
}

// ids[row] = the sampled id, or NO_ROW if a logit is not finite; the id is added to its slot's history.
//
// One block of whole warps for each row. The cumulative sum of the draw goes thread by thread, each with its own range of ids: the
// vocabulary and the block's size decide the order. `work` has the logits' size. `allowed` (0 masks an id) and `history` ([slot][id]) may
// be null. Dynamic shared memory: a number for each thread.
extern "C" __global__ void choose_rows(const float *__restrict__ logits, const ChooseRow *__restrict__ rows,
                                       const float *__restrict__ allowed, unsigned char *__restrict__ history, float *work,
                                       unsigned *__restrict__ ids, unsigned vocabulary) {
  extern __shared__ float starts[];
  __shared__ float scratch[32];
  __shared__ unsigned counts[32], bins[256];
  __shared__ unsigned chosen;
  const ChooseRow params = rows[blockIdx.x];
  logits += (size_t)blockIdx.x * vocabulary;
  work += (size_t)blockIdx.x * vocabulary;
  if (history) history = params.slot == NO_ROW ? nullptr : history + (size_t)params.slot * vocabulary;
  if (threadIdx.x == 0) chosen = NO_ROW;

  float greatest = -INFINITY;
  bool bad = false;
  for (unsigned id = threadIdx.x; id < vocabulary; id += blockDim.x) {
    float logit = logits[id];
    bad |= !isfinite(logit);
    if (history && params.penalty != 1.0f && history[id])
      logit = logit < 0.0f ? logit * params.penalty : logit / params.penalty;
    if (allowed && allowed[id] == 0.0f) logit = -INFINITY;
    if (params.temperature > 0.0f) logit /= params.temperature;
    work[id] = logit;
    greatest = fmaxf(greatest, logit);
  }
  // Its barrier also publishes `chosen` and `work` to all threads.
  if (__syncthreads_or(bad)) {
    if (threadIdx.x == 0) ids[blockIdx.x] = NO_ROW;
    return;
  }
  greatest = block_max(greatest, scratch);

  const unsigned stretch = (vocabulary + blockDim.x - 1) / blockDim.x;
  const unsigned begin = min(threadIdx.x * stretch, vocabulary), end = min(begin + stretch, vocabulary);
  if (params.temperature > 0.0f) {
    if (params.top_k > 0 && params.top_k < vocabulary) {
      const unsigned least = greatest_key(work, vocabulary, params.top_k, bins, counts);
      for (unsigned id = threadIdx.x; id < vocabulary; id += blockDim.x) {
        if (ascending(work[id]) < least) work[id] = -INFINITY;
      }
      __syncthreads();
    }
    if (params.top_p < 1.0f) {
      float mass = 0.0f;
      for (unsigned id = threadIdx.x; id < vocabulary; id += blockDim.x) mass += exponential(work[id] - greatest);
      const float most = (1.0f - params.top_p) * block_sum(mass, scratch);
      // The largest key with a mass of at most `most` below it, bit by bit; the most likely id stays.
      unsigned least = 0;
      float below = 0.0f;
      for (unsigned bit = 0x80000000u; bit > 0; bit >>= 1) {
        mass = 0.0f;
        for (unsigned id = threadIdx.x; id < vocabulary; id += blockDim.x) {
          if (ascending(work[id]) < (least | bit)) mass += exponential(work[id] - greatest);
        }
        mass = block_sum(mass, scratch);
        if (mass <= most && (least | bit) <= ascending(greatest)) {
          least |= bit;
          below = mass;
        }
      }
      // Ids with that key are masked as far as the sum allows, the lowest first.
      unsigned equal = 0;
      for (unsigned id = begin; id < end; ++id) equal += ascending(work[id]) == least;
      const unsigned equals = block_count(equal, counts);
      starts[threadIdx.x] = __uint_as_float(equal);
      __syncthreads();
      unsigned before = 0;
      for (unsigned t = 0; t < threadIdx.x; ++t) before += __float_as_uint(starts[t]);
      const float key = __uint_as_float(least >> 31 ? least & 0x7fffffffu : ~least);
      const float room = (most - below) / exponential(key - greatest);
      const unsigned last = equals > 0 && least == ascending(greatest) ? equals - 1 : equals;
      const unsigned gone = min(last, (unsigned)fmaxf(room, 0.0f));
      for (unsigned id = begin; id < end; ++id) {
        const unsigned own = ascending(work[id]);
        if (own < least || (own == least && before++ < gone)) work[id] = -INFINITY;
      }
      __syncthreads();
    }
    float sum = 0.0f;
    for (unsigned id = begin; id < end; ++id) sum += exponential(work[id] - greatest);
    starts[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      float total = 0.0f;
      for (unsigned t = 0; t < blockDim.x; ++t) {
        const float own = starts[t];
        starts[t] = total;
        total += own;
      }
      scratch[0] = total;
    }
    __syncthreads();
    const float wanted = params.uniform * scratch[0];
    float running = starts[threadIdx.x];
    // The first id whose cumulative sum passes the target; if rounding leaves none, the last possible one.
    unsigned mine = NO_ROW, last = 0;
    for (unsigned id = begin; id < end; ++id) {
      const float p = exponential(work[id] - greatest);
      if (p > 0.0f) {
        running += p;
        last = id;
        if (running > wanted) {
          mine = id;
          break;
        }
      }
    }
    atomicMin(&chosen, mine);
    __syncthreads();
    if (chosen == NO_ROW) {
      // All threads read it before any writes.
      const unsigned warp_last = __reduce_max_sync(0xffffffffu, last);
      __syncthreads();
      if (threadIdx.x == 0) chosen = 0;
      __syncthreads();
      if (threadIdx.x % 32 == 0) atomicMax(&chosen, warp_last);
    }
  } else {
    for (unsigned id = begin; id < end; ++id) {
      if (work[id] == greatest) {
        atomicMin(&chosen, id);
        break;
      }
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ids[blockIdx.x] = chosen;
    if (history) history[chosen] = 1;
  }
}

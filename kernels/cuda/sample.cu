// Choosing an id from logits: temperature, then a draw with the project's counter-based noise.
#include "random.cuh"
#include "reduce.cuh"

// What one row is drawn with; the launcher writes rows of this layout.
struct SampleRow {
  unsigned long long seed, response, step, codebook;
  // 0 takes the most likely id, of equal ones the lowest.
  float temperature;
  unsigned pad;
};

// An id that stands for "the row holds a value that is not finite".
constexpr unsigned NO_ID = 0xffffffffu;

// ids[row] = the id at which the running sum of the probabilities passes the row's uniform number.
//
// One block of whole warps a row. The running sum goes thread by thread: thread t owns the ids of its own stretch, so that its
// order is fixed by the vocabulary and the block's size. Dynamic shared memory: a float for each thread.
extern "C" __global__ void sample_rows(const float *__restrict__ logits, const SampleRow *__restrict__ rows,
                                       unsigned *__restrict__ ids, int vocabulary) {
  extern __shared__ float sums[];
  __shared__ float scratch[32];
  __shared__ unsigned chosen;
  const float *row = logits + (size_t)blockIdx.x * vocabulary;
  const SampleRow &params = rows[blockIdx.x];
  const int stretch = (vocabulary + blockDim.x - 1) / blockDim.x;
  const int begin = min((int)threadIdx.x * stretch, vocabulary), end = min(begin + stretch, vocabulary);
  if (threadIdx.x == 0) chosen = NO_ID;

  float greatest = -INFINITY;
  bool bad = false;
  for (int id = begin; id < end; ++id) {
    bad |= !isfinite(row[id]);
    greatest = fmaxf(greatest, row[id]);
  }
  // Its barrier also makes `chosen` seen by all.
  if (__syncthreads_or(bad)) {
    if (threadIdx.x == 0) ids[blockIdx.x] = NO_ID;
    return;
  }
  greatest = block_max(greatest, scratch);

  if (params.temperature <= 0.0f) {
    for (int id = begin; id < end; ++id) {
      if (row[id] == greatest) {
        atomicMin(&chosen, (unsigned)id);
        break;
      }
    }
  } else {
    const float scale = 1.4426950408889634f / params.temperature;
    float sum = 0.0f;
    for (int id = begin; id < end; ++id) sum += exp2f((row[id] - greatest) * scale);
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      float total = 0.0f;
      for (int t = 0; t < blockDim.x; ++t) {
        const float own = sums[t];
        sums[t] = total;
        total += own;
      }
      scratch[0] = total;
    }
    __syncthreads();
    const float wanted = uniform(params.seed, params.response, params.step, params.codebook) * scratch[0];
    float running = sums[threadIdx.x];
    // The first id above the wanted sum; where rounding leaves none, the last one that is possible.
    unsigned mine = NO_ID, last = 0;
    for (int id = begin; id < end; ++id) {
      const float p = exp2f((row[id] - greatest) * scale);
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
    if (chosen == NO_ID) {
      // Everybody reads it before anybody writes.
      const unsigned warp_last = __reduce_max_sync(0xffffffffu, last);
      __syncthreads();
      if (threadIdx.x == 0) chosen = 0;
      __syncthreads();
      if (threadIdx.x % 32 == 0) atomicMax(&chosen, warp_last);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) ids[blockIdx.x] = chosen;
}

// Rows of streams of several slots.
//
// Chunks are a list of a row spec: slot, first row, rows, position of the first row, in rows of the first level. One such row is `scale`
// rows here, and the first `skip` rows of a stream are absent. The rows before a chunk lie in its slot's tail.
#pragma once
#include "common.cuh"

// One level of the streams.
struct Streams {
  const unsigned *chunks;
  unsigned count, scale, skip;
};

// Input of a row.
struct StreamRow {
  // The chunk's first row, the slot's tail, and the offset of positions.
  const float *chunk, *tail;
  unsigned position, before, skip, tail_rows, channels;
  // Returns the row `back` rows before; null for zeros.
  __device__ __forceinline__ const float *row(unsigned back) const {
    if (position < back + skip) return nullptr;
    const unsigned at = position - back;
    if (at >= before) return chunk + (size_t)(at - before) * channels;
    return tail + (size_t)(tail_rows + at - before) * channels;
  }
};

// Finds the row with this index in the batch; false if it is absent.
__device__ __forceinline__ bool find_stream_row(const Streams &streams, const float *x, const float *tail, unsigned row,
                                                unsigned channels, unsigned tail_rows, StreamRow &found) {
  for (unsigned c = 0; c < streams.count; ++c) {
    const unsigned *chunk = streams.chunks + 4 * c;
    const unsigned first = chunk[1] * streams.scale, before = chunk[3] * streams.scale;
    if (row - first < chunk[2] * streams.scale) {
      found = StreamRow{x + (size_t)first * channels, tail + (size_t)chunk[0] * tail_rows * channels, before + row - first,
                        before, streams.skip, tail_rows, channels};
      return found.position >= streams.skip;
    }
  }
  return false;
}

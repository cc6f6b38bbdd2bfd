// Rows of streams of several slots at once.
//
// Chunks are what a row spec holds of streams: slot, first row, rows, position of the first row, in rows of the first level; a row of it is
// `scale` rows here, and the first `skip` rows of a stream do not exist. What came before a chunk lies in its slot's tail.
#pragma once
#include "common.cuh"

// A level of streams.
struct Streams {
  const unsigned *chunks;
  unsigned count, scale, skip;
};

// Where a row's input comes from.
struct StreamRow {
  // The chunk's first row, the slot's tail, and what positions are counted from.
  const float *chunk, *tail;
  unsigned position, before, skip, tail_rows, channels;
  // The row `back` rows before; null for one that is zeros.
  __device__ __forceinline__ const float *row(unsigned back) const {
    if (position < back + skip) return nullptr;
    const unsigned at = position - back;
    if (at >= before) return chunk + (size_t)(at - before) * channels;
    return tail + (size_t)(tail_rows + at - before) * channels;
  }
};

// The row with this number in the batch; false if it does not exist.
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

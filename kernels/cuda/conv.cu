// Convolutions of one channel or of groups of them, and the tails of streams; conv_tiles.cu has the full ones.
#include "streams.cuh"

// out[row][c] = bias[c] + sum over taps t of weight[t][c] * input[taps - 1 - t rows before][c]. One thread for each number.
extern "C" __global__ void depthwise_f32(const float *__restrict__ x, const float *__restrict__ tail,
                                         const float *__restrict__ weight, const float *__restrict__ bias,
                                         float *__restrict__ out, const unsigned *__restrict__ chunks, unsigned count,
                                         unsigned scale, unsigned skip, unsigned rows, unsigned channels, unsigned taps,
                                         unsigned tail_rows) {
  const unsigned i = thread_number();
  if (i >= rows * channels) return;
  const unsigned channel = i % channels;
  const Streams streams = {chunks, count, scale, skip};
  StreamRow source;
  float sum = 0.0f;
  if (find_stream_row(streams, x, tail, i / channels, channels, tail_rows, source)) {
    sum = bias[channel];
    for (unsigned tap = 0; tap < taps; ++tap) {
      const float *from = source.row(taps - 1 - tap);
      if (from) sum = fmaf(from[channel], weight[tap * channels + channel], sum);
    }
  }
  out[i] = sum;
}

// Sets each slot's tail to the last `tail_rows` rows of its stream, after all reads of the old one. One block for each chunk (x), one
// thread for each channel (y).
extern "C" __global__ void extend_tail_f32(const float *__restrict__ x, float *__restrict__ tail,
                                           const unsigned *__restrict__ chunks, unsigned scale, unsigned skip, unsigned channels,
                                           unsigned tail_rows) {
  const unsigned *chunk = chunks + 4 * blockIdx.x;
  const unsigned channel = blockIdx.y * blockDim.x + threadIdx.x, all = chunk[2] * scale, before = chunk[3] * scale;
  if (channel >= channels || all == 0) return;
  const unsigned absent = min(skip > before ? skip - before : 0, all), rows = all - absent;
  const float *from = x + (size_t)(chunk[1] * scale + absent) * channels + channel;
  tail += (size_t)chunk[0] * tail_rows * channels + channel;
  for (unsigned row = 0; row < tail_rows; ++row) {
    const unsigned at = row + rows;
    float value;
    if (at < tail_rows) {
      // A stream's first rows follow zeros.
      value = before <= skip ? 0.0f : tail[(size_t)at * channels];
    } else {
      value = from[(size_t)(at - tail_rows) * channels];
    }
    tail[(size_t)row * channels] = value;
  }
}

// Convolution in groups, in f32: an output takes the `channels / groups` channels of its group. out[row][o] = bias[o] + sum over taps t and
// channels c of weight[o][t][c] * input[...][first channel + c], with the rows of the convolutions over streams. One thread for each number.
extern "C" __global__ void grouped_conv_f32(const float *__restrict__ x, const float *__restrict__ tail,
                                            const float *__restrict__ weight, const float *__restrict__ bias,
                                            float *__restrict__ out, const unsigned *__restrict__ chunks, unsigned count,
                                            unsigned scale, unsigned skip, unsigned rows, unsigned channels, unsigned taps,
                                            unsigned dilation, unsigned outputs, unsigned groups, unsigned tail_rows) {
  const unsigned i = thread_number();
  if (i >= rows * outputs) return;
  const unsigned output = i % outputs, own = channels / groups, first = output / (outputs / groups) * own;
  const Streams streams = {chunks, count, scale, skip};
  StreamRow source;
  float sum = 0.0f;
  if (find_stream_row(streams, x, tail, i / outputs, channels, tail_rows, source)) {
    weight += (size_t)output * taps * own;
    for (unsigned tap = 0; tap < taps; ++tap) {
      const float *from = source.row((taps - 1 - tap) * dilation);
      if (!from) continue;
      for (unsigned c = 0; c < own; ++c) sum = fmaf(from[first + c], weight[tap * own + c], sum);
    }
    sum += bias[output];
  }
  out[i] = sum;
}

// The same with the rows of convolutions within segments.
extern "C" __global__ void segment_grouped_conv_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                                    const float *__restrict__ bias, float *__restrict__ out,
                                                    const unsigned *__restrict__ segments, unsigned count, unsigned rows,
                                                    unsigned channels, unsigned taps, unsigned dilation, unsigned outputs,
                                                    unsigned groups) {
  const unsigned i = thread_number();
  if (i >= rows * outputs) return;
  const unsigned row = i / outputs, output = i % outputs, own = channels / groups, first = output / (outputs / groups) * own;
  Segment segment;
  float total = 0.0f;
  if (find_segment(segments, count, row, segment)) {
    weight += (size_t)output * taps * own;
    for (unsigned tap = 0; tap < taps; ++tap) {
      // An unsigned underflow exceeds any length, so one comparison covers both ends.
      const unsigned at = row - segment.first + tap * dilation - taps / 2 * dilation;
      if (at >= segment.rows) continue;
      const float *from = x + (size_t)(segment.first + at) * channels + first;
      for (unsigned c = 0; c < own; ++c) total = fmaf(from[c], weight[tap * own + c], total);
    }
    total += bias[output];
  }
  out[i] = total;
}

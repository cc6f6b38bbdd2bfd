// Convolutions in f32: over streams of several slots, transposed, within segments, and over two axes; conv_tiles.cu has those with weights
// of bf16.
#include "streams.cuh"

// Rows and outputs of a thread.
constexpr int ROWS = 4, OUTPUTS = 4;

// sums[r][n] += sum over channels of from[r][c] * weight[n][c]
__device__ __forceinline__ void add_tap(const float *const (&from)[ROWS], const float *const (&weight)[OUTPUTS], unsigned channels,
                                        float (&sums)[ROWS][OUTPUTS]) {
  if (channels % 4 == 0) {
    for (unsigned c = 0; c < channels; c += 4) {
      float4 x[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) x[r] = from[r] ? load4(from[r] + c) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
      for (int n = 0; n < OUTPUTS; ++n) {
        const float4 w = load4(weight[n] + c);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sums[r][n] = dot4(x[r], w, sums[r][n]);
      }
    }
    return;
  }
  for (unsigned c = 0; c < channels; ++c) {
    float x[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) x[r] = from[r] ? from[r][c] : 0.0f;
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
      const float w = weight[n][c];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sums[r][n] = fmaf(x[r], w, sums[r][n]);
    }
  }
}

// out[row][o] = bias[o % biases] + sum over taps t and channels c of weight[o][t][c] * input[(taps - 1 - t) * dilation rows before][c]: a
// convolution, or a transposed one with `stride * biases` outputs; with `cut` its stream's first row is zeros. One thread for each four
// rows (x) and four outputs (y). Absent rows give zeros.
extern "C" __global__ void conv_f32(const float *__restrict__ x, const float *__restrict__ tail,
                                    const float *__restrict__ weight, const float *__restrict__ bias,
                                    float *__restrict__ out, const unsigned *__restrict__ chunks, unsigned count,
                                    unsigned scale, unsigned skip, unsigned rows, unsigned channels, unsigned taps,
                                    unsigned dilation, unsigned outputs, unsigned biases, unsigned tail_rows, unsigned cut) {
  const Streams streams = {chunks, count, scale, skip};
  const unsigned first_row = thread_number() * ROWS, first_output = blockIdx.y * OUTPUTS;
  if (first_row >= rows) return;
  StreamRow source[ROWS];
  bool there[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    there[r] = first_row + r < rows && find_stream_row(streams, x, tail, first_row + r, channels, tail_rows, source[r]);
    if (there[r] && cut && source[r].position == streams.skip) there[r] = false;
  }
  float sums[ROWS][OUTPUTS] = {};
  for (unsigned tap = 0; tap < taps; ++tap) {
    const float *from[ROWS];
    const float *weights[OUTPUTS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) from[r] = there[r] ? source[r].row((taps - 1 - tap) * dilation) : nullptr;
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n)
      weights[n] = weight + ((size_t)min(first_output + n, outputs - 1) * taps + tap) * channels;
    add_tap(from, weights, channels, sums);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
      const unsigned output = first_output + n;
      if (first_row + r < rows && output < outputs)
        out[(size_t)(first_row + r) * outputs + output] = there[r] ? sums[r][n] + bias[output % biases] : 0.0f;
    }
  }
}

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

// out[row][o] = bias[o] + sum over taps t and channels c of weight[o][t][c] * input[row + (t - taps / 2) * dilation][c], zeros outside of
// the row's segment; segments are consecutive and given by their lengths. Threads as for `conv`. A row of no segment gives zeros.
extern "C" __global__ void segment_conv_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                            const float *__restrict__ bias, float *__restrict__ out,
                                            const unsigned *__restrict__ segments, unsigned count, unsigned rows,
                                            unsigned channels, unsigned taps, unsigned dilation, unsigned outputs) {
  const unsigned first_row = thread_number() * ROWS, first_output = blockIdx.y * OUTPUTS;
  if (first_row >= rows) return;
  Segment segment[ROWS];
  bool there[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) there[r] = first_row + r < rows && find_segment(segments, count, first_row + r, segment[r]);
  float sums[ROWS][OUTPUTS] = {};
  for (unsigned tap = 0; tap < taps; ++tap) {
    const float *from[ROWS];
    const float *weights[OUTPUTS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      // An unsigned underflow exceeds any length, so one comparison covers both ends.
      const unsigned at = first_row + r - segment[r].first + tap * dilation - taps / 2 * dilation;
      from[r] = there[r] && at < segment[r].rows ? x + (size_t)(segment[r].first + at) * channels : nullptr;
    }
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n)
      weights[n] = weight + ((size_t)min(first_output + n, outputs - 1) * taps + tap) * channels;
    add_tap(from, weights, channels, sums);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
      const unsigned row = first_row + r, output = first_output + n;
      if (row < rows && output < outputs) out[(size_t)row * outputs + output] = there[r] ? sums[r][n] + bias[output] : 0.0f;
    }
  }
}

// out[image][y][x][o] = bias[o] + sum over taps and channels of weight[o][dy][dx][c] * pixel[stride y + dy - 1][stride x + dx - 1][c],
// zeros outside. Threads as for `conv`; a row is a pixel of `out`.
extern "C" __global__ void conv2d_f32(const float *__restrict__ x, const float *__restrict__ weight,
                                      const float *__restrict__ bias, float *__restrict__ out, unsigned rows,
                                      unsigned height, unsigned width, unsigned stride, unsigned channels, unsigned outputs) {
  const unsigned first_row = thread_number() * ROWS, first_output = blockIdx.y * OUTPUTS;
  if (first_row >= rows) return;
  const unsigned out_height = (height + stride - 1) / stride, out_width = (width + stride - 1) / stride;
  float sums[ROWS][OUTPUTS] = {};
  for (unsigned tap = 0; tap < 9; ++tap) {
    const float *from[ROWS];
    const float *weights[OUTPUTS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const unsigned row = first_row + r, image = row / (out_height * out_width);
      // An unsigned underflow exceeds any height, so one comparison covers both ends.
      const unsigned at_y = row / out_width % out_height * stride + tap / 3 - 1, at_x = row % out_width * stride + tap % 3 - 1;
      const bool inside = row < rows && at_y < height && at_x < width;
      from[r] = inside ? x + (((size_t)image * height + at_y) * width + at_x) * channels : nullptr;
    }
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n)
      weights[n] = weight + ((size_t)min(first_output + n, outputs - 1) * 9 + tap) * channels;
    add_tap(from, weights, channels, sums);
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int n = 0; n < OUTPUTS; ++n) {
      const unsigned output = first_output + n;
      if (first_row + r < rows && output < outputs) out[(size_t)(first_row + r) * outputs + output] = sums[r][n] + bias[output];
    }
  }
}

// Convolution in groups, in f32: an output takes the `channels / groups` channels of its group. out[row][o] = bias[o] + sum over taps t and
// channels c of weight[o][t][c] * input[...][first channel + c], with the rows of `conv_f32`. One thread for each number.
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

// The same with the rows of `segment_conv_f32`.
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

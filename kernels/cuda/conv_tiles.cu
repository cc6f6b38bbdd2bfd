// Convolutions with weights of bf16, as products on tensor cores (mma.cuh); their columns are the channels of one tap after the other.
// conv.cu has the formulas. One block for each tile of rows (x) and outputs (y); a weight's rows are `pitch` apart.
#include "mma.cuh"
#include "streams.cuh"

// Loads four columns of a row from `k` on, zeros past its end: `at(tap)` points to a tap's channels, null for zeros.
template <class At>
__device__ __forceinline__ float4 taps4(const At &at, unsigned k, unsigned channels, unsigned columns) {
  if (channels % 4 == 0) {
    const float *from = at(k / channels);
    return from ? load4(from + k % channels) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  float values[4] = {};
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const float *from = k + i < columns ? at((k + i) / channels) : nullptr;
    if (from) values[i] = from[(k + i) % channels];
  }
  return make_float4(values[0], values[1], values[2], values[3]);
}

#define TILE_CONV(NAME, TILE)                                                                                          \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const float *__restrict__ tail, const __nv_bfloat16 *__restrict__ weight,      \
           const float *__restrict__ bias, float *__restrict__ out, const unsigned *__restrict__ chunks, unsigned count, \
           unsigned scale, unsigned skip, unsigned rows, unsigned channels, unsigned taps, unsigned dilation,          \
           unsigned outputs, unsigned biases, unsigned tail_rows, unsigned cut, unsigned pitch) {                      \
    __shared__ __align__(16) TILE tile;                                                                                \
    __shared__ StreamRow source[TILE::ROWS];                                                                           \
    __shared__ bool there[TILE::ROWS];                                                                                 \
    const Streams streams = {chunks, count, scale, skip};                                                              \
    const unsigned row = blockIdx.x * TILE::ROWS, output = blockIdx.y * TILE::OUTPUTS, own = threadIdx.x;              \
    if (own < TILE::ROWS) {                                                                                            \
      StreamRow found;                                                                                                 \
      there[own] = row + own < rows && find_stream_row(streams, x, tail, row + own, channels, tail_rows, found) &&     \
                   !(cut && found.position == skip);                                                                   \
      if (there[own]) source[own] = found;                                                                             \
    }                                                                                                                  \
    __syncthreads();                                                                                                   \
    tile_product(                                                                                                      \
        tile,                                                                                                          \
        [&](unsigned r, unsigned k) {                                                                                  \
          const auto at = [&](unsigned tap) { return there[r] ? source[r].row((taps - 1 - tap) * dilation) : nullptr; }; \
          return taps4(at, k, channels, taps * channels);                                                              \
        },                                                                                                             \
        rows - row, weight + (size_t)output * pitch, pitch, outputs - output, taps * channels,                         \
        [&](unsigned r, unsigned n, float sum) {                                                                       \
          out[(size_t)(row + r) * outputs + output + n] = there[r] ? sum + bias[(output + n) % biases] : 0.0f;         \
        });                                                                                                            \
  }

TILE_CONV(conv_bf16, FewRows)
TILE_CONV(conv_some_bf16, SomeRows)
TILE_CONV(conv_rows_bf16, ManyRows)

extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    segment_conv_bf16(const float *__restrict__ x, const __nv_bfloat16 *__restrict__ weight, const float *__restrict__ bias,
                      float *__restrict__ out, const unsigned *__restrict__ segments, unsigned count, unsigned rows,
                      unsigned channels, unsigned taps, unsigned dilation, unsigned outputs, unsigned pitch) {
  __shared__ __align__(16) ManyRows tile;
  __shared__ Segment segment[ManyRows::ROWS];
  __shared__ bool there[ManyRows::ROWS];
  const unsigned row = blockIdx.x * ManyRows::ROWS, output = blockIdx.y * ManyRows::OUTPUTS, own = threadIdx.x;
  if (own < ManyRows::ROWS) {
    Segment found;
    there[own] = row + own < rows && find_segment(segments, count, row + own, found);
    if (there[own]) segment[own] = found;
  }
  __syncthreads();
  tile_product(
      tile,
      [&](unsigned r, unsigned k) {
        const auto at = [&](unsigned tap) -> const float * {
          if (!there[r]) return nullptr;
          // An unsigned underflow exceeds any length, so one comparison covers both ends.
          const unsigned in = row + r - segment[r].first + tap * dilation - taps / 2 * dilation;
          return in < segment[r].rows ? x + (size_t)(segment[r].first + in) * channels : nullptr;
        };
        return taps4(at, k, channels, taps * channels);
      },
      rows - row, weight + (size_t)output * pitch, pitch, outputs - output, taps * channels,
      [&](unsigned r, unsigned n, float sum) {
        out[(size_t)(row + r) * outputs + output + n] = there[r] ? sum + bias[output + n] : 0.0f;
      });
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS)
    conv2d_bf16(const float *__restrict__ x, const __nv_bfloat16 *__restrict__ weight, const float *__restrict__ bias,
                float *__restrict__ out, unsigned rows, unsigned height, unsigned width, unsigned stride, unsigned channels,
                unsigned outputs, unsigned pitch) {
  __shared__ __align__(16) ManyRows tile;
  __shared__ struct {
    unsigned image, y, x;
  } pixel[ManyRows::ROWS];
  const unsigned row = blockIdx.x * ManyRows::ROWS, output = blockIdx.y * ManyRows::OUTPUTS, own = threadIdx.x;
  if (own < ManyRows::ROWS) {
    const unsigned out_height = (height + stride - 1) / stride, out_width = (width + stride - 1) / stride, at = row + own;
    pixel[own] = {at / (out_height * out_width), at / out_width % out_height * stride, at % out_width * stride};
  }
  __syncthreads();
  tile_product(
      tile,
      [&](unsigned r, unsigned k) {
        const auto at = [&](unsigned tap) -> const float * {
          // An unsigned underflow exceeds any height, so one comparison covers both ends.
          const unsigned at_y = pixel[r].y + tap / 3 - 1, at_x = pixel[r].x + tap % 3 - 1;
          const bool inside = at_y < height && at_x < width;
          return inside ? x + (((size_t)pixel[r].image * height + at_y) * width + at_x) * channels : nullptr;
        };
        return taps4(at, k, channels, 9 * channels);
      },
      rows - row, weight + (size_t)output * pitch, pitch, outputs - output, 9 * channels,
      [&](unsigned r, unsigned n, float sum) { out[(size_t)(row + r) * outputs + output + n] = sum + bias[output + n]; });
}

// Convolutions over streams, transposed, within segments, and over two axes, as products: of weights of bf16 on tensor cores (mma.cuh), of f32
// without them (float_tile.cuh). Their columns are the channels of one tap after the other. One block for each tile of rows (x) and outputs
// (y); a weight's rows are `pitch` apart.
#include "float_tile.cuh"
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

// out[row][o] = bias[o % biases] + sum over taps t and channels c of weight[o][t][c] * input[(taps - 1 - t) * dilation rows before][c]: a
// convolution, or a transposed one with `stride * biases` outputs; with `cut` its stream's first row is zeros. Absent rows give zeros.
#define TILE_CONV(NAME, TILE, W)                                                                                       \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const float *__restrict__ tail, const W *__restrict__ weight,                  \
           const float *__restrict__ bias, float *__restrict__ out, const unsigned *__restrict__ chunks, unsigned count,\
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
          const auto at = [&](unsigned tap) { return there[r] ? source[r].row((taps - 1 - tap) * dilation) : nullptr; };\
          return taps4(at, k, channels, taps * channels);                                                              \
        },                                                                                                             \
        rows - row, weight + (size_t)output * pitch, pitch, outputs - output, taps * channels,                         \
        [&](unsigned r, unsigned n, float sum) {                                                                       \
          out[(size_t)(row + r) * outputs + output + n] = there[r] ? sum + bias[(output + n) % biases] : 0.0f;         \
        });                                                                                                            \
  }

TILE_CONV(conv_bf16, FewRows, __nv_bfloat16)
TILE_CONV(conv_some_bf16, SomeRows, __nv_bfloat16)
TILE_CONV(conv_rows_bf16, ManyRows, __nv_bfloat16)
TILE_CONV(conv_f32, FloatTile, float)

// out[row][o] = bias[o] + sum over taps t and channels c of weight[o][t][c] * input[row + (t - taps / 2) * dilation][c], zeros outside of
// the row's segment; segments are consecutive and given by their lengths. A row of no segment gives zeros. An output takes the channels of its
// group, and a block (y) the outputs of one group.
#define SEGMENT_CONV(NAME, TILE, W)                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const W *__restrict__ weight, const float *__restrict__ bias,                  \
           float *__restrict__ out, const unsigned *__restrict__ segments, unsigned count, unsigned rows,              \
           unsigned channels, unsigned taps, unsigned dilation, unsigned outputs, unsigned groups, unsigned pitch) {   \
    __shared__ __align__(16) TILE tile;                                                                                \
    __shared__ Segment segment[TILE::ROWS];                                                                            \
    __shared__ bool there[TILE::ROWS];                                                                                 \
    const unsigned row = blockIdx.x * TILE::ROWS, own = threadIdx.x;                                                   \
    const unsigned group_channels = channels / groups, group_outputs = outputs / groups;                               \
    const unsigned tiles = (group_outputs + TILE::OUTPUTS - 1) / TILE::OUTPUTS, group = blockIdx.y / tiles;            \
    const unsigned first = blockIdx.y % tiles * TILE::OUTPUTS, output = group * group_outputs + first;                 \
    if (own < TILE::ROWS) {                                                                                            \
      Segment found;                                                                                                   \
      there[own] = row + own < rows && find_segment(segments, count, row + own, found);                                \
      if (there[own]) segment[own] = found;                                                                            \
    }                                                                                                                  \
    __syncthreads();                                                                                                   \
    tile_product(                                                                                                      \
        tile,                                                                                                          \
        [&](unsigned r, unsigned k) {                                                                                  \
          const auto at = [&](unsigned tap) -> const float * {                                                         \
            if (!there[r]) return nullptr;                                                                             \
            /* An unsigned underflow exceeds any length, so one comparison covers both ends. */                        \
            const unsigned in = row + r - segment[r].first + tap * dilation - taps / 2 * dilation;                     \
            if (in >= segment[r].rows) return nullptr;                                                                 \
            return x + (size_t)(segment[r].first + in) * channels + group * group_channels;                            \
          };                                                                                                           \
          return taps4(at, k, group_channels, taps * group_channels);                                                  \
        },                                                                                                             \
        rows - row, weight + (size_t)output * pitch, pitch, group_outputs - first, taps * group_channels,              \
        [&](unsigned r, unsigned n, float sum) {                                                                       \
          out[(size_t)(row + r) * outputs + output + n] = there[r] ? sum + bias[output + n] : 0.0f;                    \
        });                                                                                                            \
  }

SEGMENT_CONV(segment_conv_bf16, ManyRows, __nv_bfloat16)
SEGMENT_CONV(segment_conv_f32, FloatTile, float)

// out[image][y][x][o] = bias[o] + sum over taps and channels of weight[o][dy][dx][c] * pixel[stride y + dy - 1][stride x + dx - 1][c],
// zeros outside; a row is a pixel of `out`.
#define CONV2D(NAME, TILE, W)                                                                                          \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS)                                                           \
      NAME(const float *__restrict__ x, const W *__restrict__ weight, const float *__restrict__ bias,                  \
           float *__restrict__ out, unsigned rows, unsigned height, unsigned width, unsigned stride, unsigned channels,\
           unsigned outputs, unsigned pitch) {                                                                         \
    __shared__ __align__(16) TILE tile;                                                                                \
    __shared__ struct {                                                                                                \
      unsigned image, y, x;                                                                                            \
    } pixel[TILE::ROWS];                                                                                               \
    const unsigned row = blockIdx.x * TILE::ROWS, output = blockIdx.y * TILE::OUTPUTS, own = threadIdx.x;              \
    if (own < TILE::ROWS) {                                                                                            \
      const unsigned out_height = (height + stride - 1) / stride, out_width = (width + stride - 1) / stride;           \
      const unsigned at = row + own;                                                                                   \
      pixel[own] = {at / (out_height * out_width), at / out_width % out_height * stride, at % out_width * stride};     \
    }                                                                                                                  \
    __syncthreads();                                                                                                   \
    tile_product(                                                                                                      \
        tile,                                                                                                          \
        [&](unsigned r, unsigned k) {                                                                                  \
          const auto at = [&](unsigned tap) -> const float * {                                                         \
            /* An unsigned underflow exceeds any height, so one comparison covers both ends. */                        \
            const unsigned at_y = pixel[r].y + tap / 3 - 1, at_x = pixel[r].x + tap % 3 - 1;                           \
            const bool inside = at_y < height && at_x < width;                                                         \
            return inside ? x + (((size_t)pixel[r].image * height + at_y) * width + at_x) * channels : nullptr;        \
          };                                                                                                           \
          return taps4(at, k, channels, 9 * channels);                                                                 \
        },                                                                                                             \
        rows - row, weight + (size_t)output * pitch, pitch, outputs - output, 9 * channels,                            \
        [&](unsigned r, unsigned n, float sum) {                                                                       \
          out[(size_t)(row + r) * outputs + output + n] = sum + bias[output + n];                                      \
        });                                                                                                            \
  }

CONV2D(conv2d_bf16, ManyRows, __nv_bfloat16)
CONV2D(conv2d_f32, FloatTile, float)

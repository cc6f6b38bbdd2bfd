// Rows by indices on the device. One thread for each number, in blocks along x; NO_ROW marks no row.
#include "product.cuh"

// to[i] = from[at[i]], or zeros
template <class N>
__device__ __forceinline__ void gather(const N *from, const unsigned *at, float *to, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = at[i / columns];
  to[i] = row == NO_ROW ? 0.0f : widen(from[(size_t)row * columns + i % columns]);
}

// to[i] = from[at[i]], or zeros; `count` numbers of `to`
extern "C" __global__ void gather_rows_f32(const float *__restrict__ from, const unsigned *__restrict__ at,
                                           float *__restrict__ to, unsigned columns, unsigned count) {
  gather(from, at, to, columns, count);
}

// The same from a table of bf16.
extern "C" __global__ void gather_rows_bf16(const __nv_bfloat16 *__restrict__ from, const unsigned *__restrict__ at,
                                            float *__restrict__ to, unsigned columns, unsigned count) {
  gather(from, at, to, columns, count);
}

// to[i] = from[at[i]], or zeros, of a table of integers: see Scales and Integers. Each number is rounded twice, as on the processor.
template <int BITS>
__device__ __forceinline__ void gather_integers(const unsigned char *from, const Scales &scales, const unsigned *at, float *to,
                                                unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = at[i / columns], column = i % columns;
  if (row == NO_ROW) {
    to[i] = 0.0f;
    return;
  }
  const unsigned word = from[(size_t)row * (scales.pitch * BITS / 8) + column * BITS / 8] >> column * BITS % 8;
  const float2 by = scales.at(row, column);
  const bool minimum = scales.with_minimum();
  const float integer = minimum ? Integers<BITS>::template one<true>(word) : Integers<BITS>::template one<false>(word);
  const float number = __fmul_rn(integer, by.x);
  to[i] = minimum ? __fadd_rn(number, by.y) : number;
}

#define GATHER_INTEGERS(NAME, BITS)                                                                                    \
  extern "C" __global__ void NAME(const unsigned char *__restrict__ from, const unsigned short *__restrict__ scales,   \
                                  const unsigned *__restrict__ at, float *__restrict__ to, unsigned columns,           \
                                  unsigned pitch, unsigned scaling, unsigned count) {                                  \
    gather_integers<BITS>(from, Scales{scales, pitch, scaling}, at, to, columns, count);                               \
  }

GATHER_INTEGERS(gather_rows_i8, 8)
GATHER_INTEGERS(gather_rows_i4, 4)

// to[i] = from[at[i]] where there is such a row
extern "C" __global__ void overlay_rows_f32(const float *__restrict__ from, const unsigned *__restrict__ at,
                                            float *__restrict__ to, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = at[i / columns];
  if (row != NO_ROW) to[i] = from[(size_t)row * columns + i % columns];
}

// to[at[i]] = from[i] where there is such a row; `count` numbers of `from`
extern "C" __global__ void scatter_rows_f32(const float *__restrict__ from, const unsigned *__restrict__ at,
                                            float *__restrict__ to, unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = at[i / columns];
  if (row != NO_ROW) to[(size_t)row * columns + i % columns] = from[i];
}

// x[at[row]][column] += penalty where bit `column` of the row's `words` words is 0; `count` numbers of the rows `at`
extern "C" __global__ void hold_rows_f32(const unsigned *__restrict__ bits, const unsigned *__restrict__ at,
                                         float *__restrict__ x, float penalty, unsigned columns, unsigned words,
                                         unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned row = i / columns, column = i % columns, to = at[row];
  if (to == NO_ROW || bits[(size_t)row * words + column / 32] >> column % 32 & 1) return;
  x[(size_t)to * columns + column] += penalty;
}

// Writes rows of `columns` numbers to the columns from `start` on of rows of `width`.
extern "C" __global__ void place_columns_f32(const float *__restrict__ x, float *__restrict__ to, unsigned columns, unsigned start,
                                             unsigned width, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) to[(size_t)(i / columns) * width + start + i % columns] = x[i];
}

// out[row] = x[row][start .. start + length]; `count` numbers of `out`
extern "C" __global__ void narrow_f32(const float *__restrict__ x, float *__restrict__ out, unsigned columns, unsigned start,
                                      unsigned length, unsigned count) {
  const unsigned i = thread_number();
  if (i < count) out[i] = x[(size_t)(i / length) * columns + start + i % length];
}

// flags[slots[i]] = zeros where there is such a slot; `count` is slots times columns.
extern "C" __global__ void clear_rows_u8(unsigned char *__restrict__ flags, const unsigned *__restrict__ slots,
                                         unsigned columns, unsigned count) {
  const unsigned i = thread_number();
  if (i >= count) return;
  const unsigned slot = slots[i / columns];
  if (slot != NO_ROW) flags[(size_t)slot * columns + i % columns] = 0;
}

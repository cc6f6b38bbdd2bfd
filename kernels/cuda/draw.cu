// Random weights for measurements: those of kernels/src/part.rs, bit for bit.
#include "common.cuh"

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
__device__ __forceinline__ unsigned long long mix(unsigned long long z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Returns 64 random bits for an index.
__device__ __forceinline__ unsigned long long drawn_bits(unsigned long long seed, unsigned long long index) {
  return mix(seed + index * 0x9e3779b97f4a7c15ull);
}

// to[row][k] = bf16(mean + spread * u), truncated, with u in [-1, 1) for the index of the number among all; zeros from `columns` on to
// `pitch`. One block for each row.
extern "C" __global__ void draw_bf16(unsigned short *__restrict__ to, unsigned long long seed, float mean, float spread,
                                     unsigned columns, unsigned pitch) {
  to += (size_t)blockIdx.x * pitch;
  for (unsigned k = threadIdx.x; k < pitch; k += blockDim.x) {
    const unsigned long long bits = drawn_bits(seed, (unsigned long long)blockIdx.x * columns + k);
    // The upper 24 bits are exact in single precision.
    const float even = (float)(unsigned)(bits >> 40) * (1.0f / 8388608.0f) - 1.0f;
    const float number = __fadd_rn(mean, __fmul_rn(spread, even));
    to[k] = k < columns ? (unsigned short)(__float_as_uint(number) >> 16) : 0;
  }
}

// to[i] = 64 random bits, for `count` of them: integers of any format.
extern "C" __global__ void draw_integers(unsigned long long *__restrict__ to, unsigned long long seed,
                                         unsigned long long count) {
  const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = drawn_bits(seed, i);
}

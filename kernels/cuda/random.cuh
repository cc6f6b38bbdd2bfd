// Counter-based random numbers: the twin of kernels/src/random.rs, bit for bit.
#pragma once

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
__device__ __forceinline__ unsigned long long mix(unsigned long long z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// A number in [0, 1) for the given counters.
__device__ __forceinline__ float uniform(unsigned long long seed, unsigned long long response, unsigned long long step,
                                         unsigned long long codebook) {
  unsigned long long state = mix(seed ^ 0x9e3779b97f4a7c15ull);
  const unsigned long long counters[3] = {response, step, codebook};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    state = mix(state ^ (counters[i] * 0xd6e8feb86659fd93ull + 0x2545f4914f6cdd1dull));
  }
  // The upper 24 bits are exact in single precision.
  return (float)(state >> 40) * (1.0f / 16777216.0f);
}

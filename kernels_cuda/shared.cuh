// Shared definitions of all families. Each compilation has one dtype: REAL is float or double (the
// loader passes -DREAL=...).
#pragma once

typedef REAL real;
typedef long long index_t;  // m k exceeds 2^31

constexpr int WIDTH = 16 / sizeof(real);  // elements of a 128-bit load

struct __align__(16) vector_t {
  real e[WIDTH];
};

// Store WIDTH elements to an aligned place of global memory by one instruction: the compiler may
// split an assignment into one store per element. The emulation of the tests has its own versions.
#ifndef CUDA_HOST
__device__ __forceinline__ void store_vector(float* place, const float* v) {
  asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(place), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}
__device__ __forceinline__ void store_vector(double* place, const double* v) {
  asm volatile("st.global.v2.f64 [%0], {%1,%2};" ::"l"(place), "d"(v[0]), "d"(v[1]) : "memory");
}
#endif

constexpr int WARP = 32;
constexpr unsigned FULL_MASK = 0xffffffffu;  // all lanes of a warp

// Return the sum over a warp, the same in every lane.
__device__ __forceinline__ double sum_warp(double x) {
#pragma unroll
  for (int bits = WARP / 2; bits; bits /= 2) x += __shfl_xor_sync(FULL_MASK, x, bits);
  return x;
}

// Return the sum over a block of WARPS warps, in a fixed order; valid only in thread 0. `sums` is
// shared memory: between two sums that use the same array the caller needs a barrier.
template <int WARPS>
__device__ __forceinline__ double sum_block(double x, double (&sums)[WARPS]) {
  x = sum_warp(x);
  if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = x;
  __syncthreads();
  if (threadIdx.x) return 0;
  x = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) x += sums[w];
  return x;
}

// One step of a warp's matrix product on tensor cores: c (16 x 8) += a (16 x 8) b (8 x 8). With g =
// lane / 4 and t = lane % 4 a lane holds a[g + 8 (e % 2)][t + 4 (e / 2)], b[t + 4 e][g] and c[g + 8
// (e / 2)][2 t + e % 2], where e counts its elements.
//
// float64 is native. float32 is split into two TF32 numbers of 11 bits, and three of their four
// products are added: the error is about that of float32, if a sum does not stay in the tensor
// core, which truncates where an addition would round.
#pragma once
#include "shared.cuh"

#if defined(PLAIN_FMA) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800)
constexpr bool TENSOR_CORES = false;
#else
constexpr bool TENSOR_CORES = true;
#endif

// The emulation of the tests has its own versions.
#ifndef CUDA_HOST
__device__ __forceinline__ void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
  for (int e = 0; e < 4; ++e)  // upper or lower half of the rows, first or second half of the sum
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
                 : "+d"(c[e % 2 * 2]), "+d"(c[e % 2 * 2 + 1])
                 : "d"(a[e]), "d"(b[e / 2]));
#endif
}
__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
__device__ __forceinline__ unsigned to_tf32(float x) {  // the bits of the nearest TF32 number
  unsigned bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
  return bits;
}
#endif

// N elements of a lane in the form that tensor cores need.
template <class T, int N>
struct parts_t;
template <int N>
struct parts_t<double, N> {
  double e[N];
  __device__ __forceinline__ void set(int i, double x) { e[i] = x; }
};
template <int N>
struct parts_t<float, N> {
  unsigned high[N], low[N];
  __device__ __forceinline__ void set(int i, float x) {
    high[i] = to_tf32(x);
    low[i] = to_tf32(x - __int_as_float(static_cast<int>(high[i])));
  }
};

__device__ __forceinline__ void multiply_add(double (&c)[4], const parts_t<double, 4>& a,
                                             const parts_t<double, 2>& b) {
  mma(c, a.e, b.e);
}
__device__ __forceinline__ void multiply_add(float (&c)[4], const parts_t<float, 4>& a,
                                             const parts_t<float, 2>& b) {
  mma(c, a.low, b.high);
  mma(c, a.high, b.low);
  mma(c, a.high, b.high);
}

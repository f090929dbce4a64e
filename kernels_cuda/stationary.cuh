// Functions of a scaled squared distance, shared by the narrow and the wide pairwise kernels.
#pragma once

#include "shared.cuh"

enum { RBF, MATERN12, MATERN32, MATERN52 };

// Return a parameter from the device (`at`, one entry per feature or one for all) or from the
// launch.
__device__ __forceinline__ real parameter(const real* __restrict__ at, int step, real value,
                                          int d) {
  return at ? at[d * step] : value;
}

// Return a lengthscale likewise, but at least so large that its inverse has a finite square: with
// any smaller value too, unequal points are infinitely far apart. NaN is kept.
__device__ __forceinline__ real length(const real* __restrict__ at, int step, real value, int d) {
  constexpr real smallest = real(WIDTH == 4 ? 1.0843e-19 : 1.4918e-154);
  const real l = parameter(at, step, value, d);
  return l < smallest ? smallest : l;
}

// 2^-t for t >= 0, and 1 / sqrt(x) of a normal x, the latter to a few digits in float64. In float32
// each is one instruction; the library functions consist of the same instructions, plus others for
// subnormal results and arguments, which are 0 here. `volatile` keeps them in source order:
// otherwise too many pending ones occupy registers. The emulation of the tests has its own
// versions.
#ifndef CUDA_HOST
__device__ __forceinline__ float decay(float t) {
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(-t));
  return t;
}
__device__ __forceinline__ float first_rsqrt(float x) {
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x));
  return x;
}
__device__ __forceinline__ double first_rsqrt(double x) {
  asm volatile("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(x) : "d"(x));
  return x;
}
#endif

// float64 versions without the branches of the library, whose sixteen inlined copies would exceed
// the available registers. 2^-t uses the nearest integer n and the remainder r, at most 1/2: 2^r is
// a polynomial through Chebyshev nodes with an error of 0.2 rounding units, and n is added to its
// exponent. NaN is kept. 1 / sqrt(x) takes one third-order step.
__device__ __forceinline__ double decay(double t) {
  constexpr double WHOLE = 6755399441055744.0;  // 1.5 2^52: rounds to an integer, in the last bits
  const double sum = WHOLE - t, r = (WHOLE - sum) - t;
  double p = 4.4549605981865186e-10;
  p = p * r + 7.072585949269223e-09;
  p = p * r + 1.0178062445845774e-07;
  p = p * r + 1.321544258792169e-06;
  p = p * r + 1.525273382983612e-05;
  p = p * r + 0.0001540353044173605;
  p = p * r + 0.0013333558146416936;
  p = p * r + 0.009618129107606888;
  p = p * r + 0.0555041086648216;
  p = p * r + 0.24022650695910097;
  p = p * r + 0.6931471805599453;
  p = p * r + 1;
  const unsigned long long bits =
      __double_as_longlong(p) + (static_cast<unsigned long long>(__double_as_longlong(sum)) << 52);
  return t > 1021 ? 0 : __longlong_as_double(static_cast<long long>(bits));
}

__device__ __forceinline__ float rsqrt_of_normal(float x) { return first_rsqrt(x); }
__device__ __forceinline__ double rsqrt_of_normal(double x) {
  const double y = first_rsqrt(x), e = 1 - x * y * y;
  return y + y * e * (0.5 + 0.375 * e);
}

// With x = factor r^2, t = x for the RBF and sqrt(x) for Matern functions, E = s exp(-t), and q =
// -2 dk / d(r^2):
//   RBF        x = r^2 / 2    k = E                      q = E
//   Matern12   x = r^2        k = E                      q = E / t, taken as 0 at t = 0
//   Matern32   x = 3 r^2      k = E (1 + t)              q = 3 E
//   Matern52   x = 5 r^2      k = E (1 + t + t^2 / 3)    q = (5/3) E (1 + t)
// all as k = E (1 + t (k1 + k2 t)) and q = E (q0 + q1 t + inverse / t): one form is a quarter of
// the code. Here t is in units of log(2), so that E = s 2^-t.
struct Function {
  real s, factor, k1, k2, q0, q1, inverse;
  bool root;
};
__device__ __forceinline__ Function function_of(int family, real s) {
  constexpr double UNIT = 0.69314718055994530942;
  const bool polynomial = family == MATERN32 || family == MATERN52;
  return {s,
          family == RBF        ? real(0.5 / UNIT)
          : family == MATERN12 ? real(1 / (UNIT * UNIT))
          : family == MATERN32 ? real(3 / (UNIT * UNIT))
                               : real(5 / (UNIT * UNIT)),
          polynomial ? real(UNIT) : real(0),
          family == MATERN52 ? real(UNIT * UNIT / 3) : real(0),
          family == RBF        ? real(1)
          : family == MATERN32 ? real(3)
          : family == MATERN52 ? real(5.0 / 3)
                               : real(0),
          family == MATERN52 ? real(5.0 / 3 * UNIT) : real(0),
          family == MATERN12 ? real(1 / UNIT) : real(0),
          family != RBF};
}

// Return 1 / sqrt(x), or 0 if x is 0 or nearly 0, for x = factor r2 of a Matern function. x is
// clipped to 1e6 factor: there 2^-t is 0, and infinity would make polynomials NaN. NaN is kept.
__device__ __forceinline__ real inverse_root(real factor, real r2, real& x) {
  constexpr real normal = real(WIDTH == 4 ? 1.1754943508222875e-38 : 2.2250738585072014e-308);
  x = factor * (r2 > real(1e6) ? real(1e6) : r2);
  return x < normal ? real(0) : rsqrt_of_normal(x);
}

template <bool ROOT>
__device__ __forceinline__ real value(const Function& f, real r2) {
  if constexpr (!ROOT) {
    return f.s * decay(f.factor * r2);
  } else {
    real x;
    const real inverse = inverse_root(f.factor, r2, x), t = x * inverse;
    return f.s * (1 + t * (f.k1 + f.k2 * t)) * decay(t);
  }
}

// Return bar q; sum += bar k.
template <bool ROOT>
__device__ __forceinline__ real pull(const Function& f, real bar, real r2, real& sum) {
  if constexpr (!ROOT) {
    const real k = bar * f.s * decay(f.factor * r2);
    sum += k;
    return k;
  } else {
    real x;
    const real inverse = inverse_root(f.factor, r2, x), t = x * inverse, k = bar * f.s * decay(t);
    sum += k * (1 + t * (f.k1 + f.k2 * t));
    return k * (f.q0 + f.q1 * t + f.inverse * inverse);
  }
}

// Functions of a scaled squared distance, shared by the narrow and the wide form of the pairwise family.
#pragma once

#include "shared.cuh"

enum { RBF, MATERN12, MATERN32, MATERN52 };

// A number that is on the device (`at`, entry by entry or one for all) or came with the launch.
__device__ __forceinline__ real parameter(const real* __restrict__ at, int step, real value, int d) { return at ? at[d * step] : value; }

// The same for a lengthscale, but not so small that its inverse has no finite square: for anything smaller too, all that is not
// equal is infinitely far apart. NaN stays.
__device__ __forceinline__ real length(const real* __restrict__ at, int step, real value, int d) {
  constexpr real smallest = real(WIDTH == 4 ? 1.0843e-19 : 1.4918e-154);
  const real l = parameter(at, step, value, d);
  return l < smallest ? smallest : l;
}

// With x = factor r^2, t = x for the RBF and sqrt(x) for Matern functions, E = s exp(-t), and q = -2 dk / d(r^2):
//   RBF        x = r^2 / 2    k = E                      q = E
//   Matern12   x = r^2        k = E                      q = E / t, taken as 0 at t = 0
//   Matern32   x = 3 r^2      k = E (1 + t)              q = 3 E
//   Matern52   x = 5 r^2      k = E (1 + t + t^2 / 3)    q = (5/3) E (1 + t)
// as k = E (1 + t (k1 + k2 t)) and q = E (q0 + q1 t + inverse / t). One form for all of them is a quarter of the code.
struct Function {
  real s, factor, k1, k2, q0, q1, inverse;
  bool root;
};
__device__ __forceinline__ Function function_of(int family, real s) {
  const bool polynomial = family == MATERN32 || family == MATERN52;
  const real q1 = family == MATERN52 ? real(5.0 / 3) : real(0);
  return {s,
          family == RBF ? real(0.5) : family == MATERN12 ? real(1) : family == MATERN32 ? real(3) : real(5),
          real(polynomial),
          family == MATERN52 ? real(1.0 / 3) : real(0),
          family == RBF ? real(1) : family == MATERN32 ? real(3) : q1,
          q1,
          real(family == MATERN12),
          family != RBF};
}

// 1 / sqrt(x), 0 at 0, for x = factor r2 of a Matern function. x is at most 1e6 factor: there exp(-t) is 0, and infinity would
// turn polynomials into NaN. NaN stays.
__device__ __forceinline__ real inverse_root(real factor, real r2, real& x) {
  x = factor * (r2 > real(1e6) ? real(1e6) : r2);
  return x == 0 ? real(0) : rsqrt(x);
}

template <bool ROOT>
__device__ __forceinline__ real value(const Function& f, real r2) {
  if constexpr (!ROOT) {
    return f.s * exp(-f.factor * r2);
  } else {
    real x;
    const real inverse = inverse_root(f.factor, r2, x), t = x * inverse;
    return f.s * (1 + t * (f.k1 + f.k2 * t)) * exp(-t);
  }
}

// bar q; sum += bar k.
template <bool ROOT>
__device__ __forceinline__ real pull(const Function& f, real bar, real r2, real& sum) {
  if constexpr (!ROOT) {
    const real k = bar * f.s * exp(-f.factor * r2);
    sum += k;
    return k;
  } else {
    real x;
    const real inverse = inverse_root(f.factor, r2, x), t = x * inverse, k = bar * f.s * exp(-t);
    sum += k * (1 + t * (f.k1 + f.k2 * t));
    return k * (f.q0 + f.q1 * t + f.inverse * inverse);
  }
}

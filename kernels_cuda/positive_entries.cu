// Positive entries of a flat float64 vector, in place. See fastsvgp/kernels/packing.py.
#include "shared.cuh"

constexpr int BLOCK = 256;

// The transforms of fastsvgp/records/transforms.py: softplus, or log. NaN stays NaN: it fails each
// comparison.
constexpr double TINY = 2.2250738585072014e-308, MAX = 1.7976931348623157e308;
constexpr double LOG_TINY = -708.39641853226408, LOG_MAX = 709.78271289338397;

__device__ __forceinline__ double clip(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
__device__ __forceinline__ double tail(double u) {  // e^-|u|
  return exp(-clip(fabs(u), 0, -LOG_TINY));
}
__device__ __forceinline__ double exponential(double u) {
  return clip(exp(clip(u, LOG_TINY, LOG_MAX - 1e-3)), TINY, MAX);
}

// x[at] := their positive values, within limits of each entry.
extern "C" __global__ void __launch_bounds__(BLOCK)
to_positive(double* __restrict__ x, const index_t* __restrict__ at, index_t count, int by_log,
            const double* __restrict__ low, const double* __restrict__ high) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double u = x[at[k]], floor = u < 0 ? 0 : u;
  const double value = by_log ? exponential(u) : clip(floor + log1p(tail(u)), TINY, MAX);
  x[at[k]] = clip(value, low[k], high[k]);
}

// The inverse.
extern "C" __global__ void __launch_bounds__(BLOCK)
from_positive(double* __restrict__ x, const index_t* __restrict__ at, index_t count, int by_log) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double value = x[at[k]];
  x[at[k]] = by_log ? log(value) : value + log(-expm1(-value));
}

// g[at] *= the derivative of the positive values at u[at].
extern "C" __global__ void __launch_bounds__(BLOCK)
through_positive(double* __restrict__ g, const double* __restrict__ u,
                 const index_t* __restrict__ at, index_t count, int by_log) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double here = u[at[k]], small = tail(here);
  g[at[k]] *= by_log ? exponential(here) : (here >= 0 ? 1 : small) / (1 + small);
}

// Closed-form sums of likelihood terms over data: see fastsvgp/kernels/cpu/gaussian_terms.py.
#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr double LOG_2PI = 1.8378770664093454836;

// With r = y - mean: compute mean_bar = r / s and var_bar = -1 / (2 s), unless null; parts[block] =
// sum of r^2 + var.
extern "C" __global__ void __launch_bounds__(BLOCK)
gaussian_rows(const real* __restrict__ Y, const real* __restrict__ mean,
              const real* __restrict__ var, const real* __restrict__ s_at, real s_value,
              index_t count, real* __restrict__ mean_bar, real* __restrict__ var_bar,
              double* __restrict__ parts) {
  __shared__ double sums[WARPS];
  const double s = parameter(s_at, 0, s_value, 0);
  const real inverse = static_cast<real>(1 / s), half = static_cast<real>(-0.5 / s);
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  double sum = 0;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step) {
    const real r = Y[p] - mean[p];
    sum += static_cast<double>(r) * r + var[p];
    if (!mean_bar) continue;
    mean_bar[p] = r * inverse;
    var_bar[p] = half;
  }
  sum = sum_block(sum, sums);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// With q the sum of all parts: compute value = -(N log(2 pi s) + q / s) / 2, s_bar = -(N - q / s) /
// (2 s). One block.
extern "C" __global__ void __launch_bounds__(BLOCK)
gaussian_total(const double* __restrict__ parts, index_t blocks, index_t count,
               const real* __restrict__ s_at, real s_value, double* __restrict__ value,
               real* __restrict__ s_bar) {
  __shared__ double sums[WARPS];
  const double s = parameter(s_at, 0, s_value, 0), N = static_cast<double>(count);
  double q = 0;
  for (index_t p = threadIdx.x; p < blocks; p += BLOCK) q += parts[p];
  q = sum_block(q, sums);
  if (threadIdx.x) return;
  *value = -0.5 * (N * (LOG_2PI + log(s)) + q / s);
  *s_bar = static_cast<real>(-0.5 * (N - q / s) / s);
}

// The same with weights w: mean_bar = w r / s, var_bar = -w / (2 s); `parts` holds the sums of w
// (r^2 + var), then those of w.
extern "C" __global__ void __launch_bounds__(BLOCK)
weighted_gaussian_rows(const real* __restrict__ Y, const real* __restrict__ mean,
                       const real* __restrict__ var, const real* __restrict__ weights,
                       const real* __restrict__ s_at, real s_value, index_t count,
                       real* __restrict__ mean_bar, real* __restrict__ var_bar,
                       double* __restrict__ parts) {
  __shared__ double sums[WARPS];
  __shared__ double counts[WARPS];
  const double s = parameter(s_at, 0, s_value, 0);
  const real inverse = static_cast<real>(1 / s), half = static_cast<real>(-0.5 / s);
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  double sum = 0, data = 0;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step) {
    const real w = weights[p], r = Y[p] - mean[p];
    data += w;
    sum += w * (static_cast<double>(r) * r + var[p]);
    if (!mean_bar) continue;
    mean_bar[p] = w * r * inverse;
    var_bar[p] = w * half;
  }
  sum = sum_block(sum, sums);
  data = sum_block(data, counts);
  if (threadIdx.x) return;
  parts[blockIdx.x] = sum;
  parts[gridDim.x + blockIdx.x] = data;
}

// Like gaussian_total, with N the sum of the weights.
extern "C" __global__ void __launch_bounds__(BLOCK)
weighted_gaussian_total(const double* __restrict__ parts, index_t blocks,
                        const real* __restrict__ s_at, real s_value, double* __restrict__ value,
                        real* __restrict__ s_bar) {
  __shared__ double sums[WARPS];
  __shared__ double counts[WARPS];
  const double s = parameter(s_at, 0, s_value, 0);
  double q = 0, N = 0;
  for (index_t p = threadIdx.x; p < blocks; p += BLOCK) q += parts[p], N += parts[blocks + p];
  q = sum_block(q, sums);
  N = sum_block(N, counts);
  if (threadIdx.x) return;
  *value = -0.5 * (N * (LOG_2PI + log(s)) + q / s);
  *s_bar = static_cast<real>(-0.5 * (N - q / s) / s);
}

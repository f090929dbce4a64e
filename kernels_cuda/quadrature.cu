// Gauss-Hermite rules and averages over points, computed in float64 whatever the dtype: see
// fastsvgp/kernels/cpu/quadrature.py.
#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr double SQRT_HALF = 0.70710678118654752440, SQRT_2_PI = 2.50662827463100050242;

// exp(x^2) erfc(x) for x >= 0, by the series of fastsvgp/kernels/cpu/common/normal_cdf.py.
__device__ __forceinline__ double scaled_erfc(double x) {
  const double q = (x - 3.75) / (x + 3.75), z = q * q;
  double even = -2.623107347133476e-09, odd = -1.9551358868985616e-09;
  even = fma(even, z, 3.197926671666804e-08), odd = fma(odd, z, 1.879082322370048e-08);
  even = fma(even, z, -2.4857126248016745e-07), odd = fma(odd, z, -5.084465378687302e-08);
  even = fma(even, z, 1.7419821586224816e-06), odd = fma(odd, z, -9.792625707303523e-07);
  even = fma(even, z, -1.1438048033346894e-05), odd = fma(odd, z, 2.2387565714911816e-05);
  even = fma(even, z, 5.164652974177416e-05), odd = fma(odd, z, -0.00029015535246077655);
  even = fma(even, z, 0.000293714378044958), odd = fma(odd, z, 0.0017556261651970652);
  even = fma(even, z, -0.009746579683265262), odd = fma(odd, z, 0.02836227737211114);
  even = fma(even, z, -0.05869339857664934), odd = fma(odd, z, 0.09230432116428125);
  even = fma(even, z, -0.10880393014244462), odd = fma(odd, z, 0.08227673848999506);
  even = fma(even, z, 0.0035854154854790257), odd = fma(odd, z, -0.14024059858554525);
  even = fma(even, z, 1.2375126308378275);
  return fma(q, odd, even) / (1 + 2 * x);
}

struct tangent_t {
  double value, slope;
};

__device__ __forceinline__ tangent_t log_ndtr(double x) {
  const double half = 0.5 * scaled_erfc(fabs(x) * SQRT_HALF), square = 0.5 * x * x,
               e = exp(-square);
  const bool left = x < 0;
  const double tail = half * e, y = left ? half : 1 - tail;
  return {left ? log(y) - square : log1p(-tail), (left ? 1.0 : e) / (SQRT_2_PI * y)};
}
__device__ __forceinline__ tangent_t log_sigmoid(double x) {
  const double e = exp(-fabs(x));
  return {fmin(x, 0.0) - log1p(e), (x < 0 ? 1.0 : e) / (1 + e)};
}
__device__ __forceinline__ tangent_t log1p_square(double x) {
  return {log1p(x * x), 2 * x / (1 + x * x)};
}
__device__ __forceinline__ tangent_t ndtr(double x) {
  const double e = exp(-0.5 * x * x), tail = 0.5 * scaled_erfc(fabs(x) * SQRT_HALF) * e;
  return {x < 0 ? tail : 1 - tail, e / SQRT_2_PI};
}

constexpr double NO_SCALE = 1e-200;  // see fastsvgp/kernels/common/quadrature_rules.py
__device__ __forceinline__ double raised(double mean, double var, double floor, double least = 1) {
  return fmax(var, floor * fmax(least, mean * mean));
}

// The rule and its derivatives, one thread per datum.
template <class F>
__device__ __forceinline__ void expectation(F g, double least, const real* __restrict__ mean,
                                            const real* __restrict__ var, index_t count,
                                            const double* __restrict__ z,
                                            const double* __restrict__ w, int num, double floor,
                                            real* __restrict__ value, real* __restrict__ d_mean,
                                            real* __restrict__ d_var) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= count) return;
  const double m = mean[i], v = var[i], at = raised(m, v, floor, least), root = sqrt(at);
  double sum = 0, first = 0, second = 0;
  for (int k = 0; k < num; ++k) {
    const tangent_t t = g(m + root * z[k]);
    sum += w[k] * t.value;
    first += w[k] * t.slope;
    second += w[k] * z[k] * t.slope;
  }
  second /= 2 * root;
  // the linear continuation below the floor; 0 above it
  value[i] = static_cast<real>(sum + (v - at) * second);
  if (!d_mean) return;
  d_mean[i] = static_cast<real>(first);
  d_var[i] = static_cast<real>(second);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
expectation_log_ndtr(const real* __restrict__ mean, const real* __restrict__ var, index_t count,
                     const double* __restrict__ z, const double* __restrict__ w, int num,
                     double floor, real* __restrict__ value, real* __restrict__ d_mean,
                     real* __restrict__ d_var) {
  expectation([](double x) { return log_ndtr(x); }, 1, mean, var, count, z, w, num, floor, value,
              d_mean, d_var);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
expectation_log_sigmoid(const real* __restrict__ mean, const real* __restrict__ var,
                        index_t count, const double* __restrict__ z,
                        const double* __restrict__ w, int num, double floor,
                        real* __restrict__ value, real* __restrict__ d_mean,
                        real* __restrict__ d_var) {
  expectation([](double x) { return log_sigmoid(x); }, 1, mean, var, count, z, w, num, floor, value,
              d_mean, d_var);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
expectation_log1p_square(const real* __restrict__ mean, const real* __restrict__ var,
                         index_t count, const double* __restrict__ z,
                         const double* __restrict__ w, int num, double floor,
                         real* __restrict__ value, real* __restrict__ d_mean,
                         real* __restrict__ d_var) {
  expectation([](double x) { return log1p_square(x); }, NO_SCALE, mean, var, count, z, w, num,
              floor, value, d_mean, d_var);
}

// Averages of tabulated functions and their derivatives, one thread per datum: see
// `tabulated_average` in fastsvgp/kernels/quadrature.py.
__device__ __forceinline__ int first_from(const double* __restrict__ x, int count, double end) {
  int low = 0;
  while (count > 0) {
    const int half = count / 2;
    if (x[low + half] < end)
      low += half + 1, count -= half + 1;
    else
      count = half;
  }
  return low;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 3)
tabulated_average(const double* __restrict__ G, const double* __restrict__ nodes,
                  const double* __restrict__ weights, int T, int K,
                  const index_t* __restrict__ table, const real* __restrict__ mean,
                  const real* __restrict__ var, index_t count, double ends,
                  double* __restrict__ value, double* __restrict__ d_mean,
                  double* __restrict__ d_var) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= count) return;
  const bool none = table[i] < 0;
  const index_t c = none ? 0 : table[i];
  const double m = mean[i], v = var[i], sd = sqrt(v), *x = nodes + c * K, *w = weights + c * K;
  const int low = none ? 0 : first_from(x, K, m - ends * sd),
            end = none ? 0 : first_from(x, K, m + ends * sd);
  for (int t = 0; t < T; ++t) {
    const double* g = G + (c * T + t) * K;
    double mass = 0, sum = 0, first = 0, second = 0;
    for (int k = low; k < end; ++k) {
      const double z = (x[k] - m) / sd, e = w[k] * exp(-0.5 * z * z);
      mass += e;
      sum += e * g[k];
    }
    const double average = none ? 0 : sum / mass;
    value[t * count + i] = average;
    if (!d_mean) continue;
    for (int k = low; k < end; ++k) {
      const double z = (x[k] - m) / sd, d = w[k] * exp(-0.5 * z * z) * (g[k] - average);
      first += d * z;
      second += d * z * z;
    }
    d_mean[t * count + i] = none ? 0 : first / (mass * sd);
    d_var[t * count + i] = none ? 0 : 0.5 * second / (mass * v);
  }
}

// Probability that the class named by Y has the largest of C Gaussians, and its derivatives: see
// `largest` on the CPU. Means are relative to that of the class. One thread per datum; `scratch`
// (5, C, N) holds the products before each class, Phi and phi of a node, and the sums of the
// derivatives.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
largest(const index_t* __restrict__ Y, const real* __restrict__ mean,
        const real* __restrict__ var, int C, index_t N, const double* __restrict__ z,
        const double* __restrict__ w, int num, double floor, double* __restrict__ scratch,
        real* __restrict__ p, real* __restrict__ d_mean, real* __restrict__ d_var) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= N) return;
  const index_t plane = C * N;
  double *before = scratch + i, *Phi = before + plane, *phi = Phi + plane, *sum_mean = phi + plane,
         *sum_var = sum_mean + plane;
  const index_t label = Y[i] < 0 ? 0 : Y[i] < C ? Y[i] : C - 1;  // the checks report wrong labels
  const double m = mean[label * N + i], root = sqrt(raised(0, var[label * N + i], floor));
  double total = 0, own_mean = 0, own_var = 0;
  for (int c = 0; c < C; ++c) sum_mean[c * N] = sum_var[c * N] = 0;
  for (int k = 0; k < num; ++k) {
    const double x = root * z[k];
    double product = w[k];
    for (int c = 0; c < C; ++c) {
      before[c * N] = product;
      if (c == label) continue;
      const double m_c = mean[c * N + i] - m, s_c = sqrt(raised(m_c, var[c * N + i], floor));
      const tangent_t t = ndtr((x - m_c) / s_c);
      Phi[c * N] = t.value;
      phi[c * N] = t.slope / s_c;
      product *= t.value;
    }
    total += product;
    if (!d_mean) continue;
    double after = 1, own = 0;
    for (int c = C - 1; c >= 0; --c) {
      if (c == label) continue;
      const double m_c = mean[c * N + i] - m, v_c = raised(m_c, var[c * N + i], floor);
      const double d = phi[c * N] * before[c * N] * after;
      after *= Phi[c * N];
      own += d;
      sum_mean[c * N] -= d;
      sum_var[c * N] -= 0.5 * d * (x - m_c) / v_c;
    }
    own_mean += own;
    own_var += 0.5 * own * z[k] / root;
  }
  p[i] = static_cast<real>(total);
  if (!d_mean) return;
  for (int c = 0; c < C; ++c) {
    const double v_c = var[c * N + i];
    const bool used = v_c == raised(mean[c * N + i] - m, v_c, floor);
    d_mean[c * N + i] = static_cast<real>(c == label ? own_mean : sum_mean[c * N]);
    d_var[c * N + i] =
        used ? static_cast<real>(c == label ? own_var : sum_var[c * N]) : static_cast<real>(0);
  }
}

// Average over points of log sum_c exp(mean_c + sqrt(var_c) point_c), and its derivatives. One
// block per datum: its threads process the points of a chunk, then its warps the classes. `sums`
// (2, C, N) accumulates the derivatives over chunks.
extern "C" __global__ void __launch_bounds__(BLOCK, 3)
expected_logsumexp(const real* __restrict__ mean, const real* __restrict__ var, int C,
                   index_t N, const double* __restrict__ points, int count, double floor,
                   double* __restrict__ sums, real* __restrict__ value,
                   real* __restrict__ d_mean, real* __restrict__ d_var) {
  __shared__ double tops[BLOCK];
  __shared__ double shares[BLOCK];
  __shared__ double parts[WARPS];
  const index_t i = blockIdx.x;
  const int thread = threadIdx.x, lane = thread % WARP, warp = thread / WARP;
  double *sum_mean = sums + i, *sum_var = sum_mean + C * N, sum = 0;
  for (int first = 0; first < count; first += BLOCK) {
    const int s = first + thread, here = min(BLOCK, count - first);
    if (s < count) {
      double top = -1.7976931348623157e308, total = 0;
      for (int c = 0; c < C; ++c) {
        const double m = mean[c * N + i];
        top = fmax(top, m + sqrt(raised(m, var[c * N + i], floor)) *
                                points[static_cast<index_t>(s) * C + c]);
      }
      for (int c = 0; c < C; ++c) {
        const double m = mean[c * N + i];
        total += exp(
            m + sqrt(raised(m, var[c * N + i], floor)) * points[static_cast<index_t>(s) * C + c] -
            top);
      }
      sum += top + log1p(total - 1);
      tops[thread] = top;
      shares[thread] = 1 / (total * count);
    }
    __syncthreads();
    for (int c = warp; c < C; c += WARPS) {
      const double m = mean[c * N + i], root = sqrt(raised(m, var[c * N + i], floor));
      double average = 0, moment = 0;
      for (int p = lane; p < here; p += WARP) {
        const double point = points[static_cast<index_t>(first + p) * C + c],
                     share = exp(m + root * point - tops[p]) * shares[p];
        average += share;
        moment += share * point;
      }
      average = sum_warp(average), moment = sum_warp(moment);
      if (lane == 0) {
        sum_mean[c * N] = first ? sum_mean[c * N] + average : average;
        sum_var[c * N] = first ? sum_var[c * N] + moment : moment;
      }
    }
    __syncthreads();
  }
  sum = sum_warp(sum);  // not sum_block, which takes more registers on sm_80
  if (lane == 0) parts[warp] = sum;
  __syncthreads();
  if (thread) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += parts[w];
  sum /= count;
  for (int c = 0; c < C; ++c) {
    const double m = mean[c * N + i], v = var[c * N + i], at = raised(m, v, floor),
                 slope = sum_var[c * N] / (2 * sqrt(at));
    sum += (v - at) * slope;
    if (!d_mean) continue;
    d_mean[c * N + i] = static_cast<real>(sum_mean[c * N]);
    d_var[c * N + i] = static_cast<real>(slope);
  }
  value[i] = static_cast<real>(sum);
}

// --- closed-form sums of likelihood terms over data ---

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

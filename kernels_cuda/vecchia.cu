// Rows given their near rows, in float64: see fastsvgp/kernels/cpu/vecchia.py.
#include "shared.cuh"

// Return x'y over M numbers, the same in every lane.
__device__ __forceinline__ double dot(const double* __restrict__ x, const double* __restrict__ y,
                                      int M) {
  double sum = 0;
  for (int t = threadIdx.x; t < M; t += WARP) sum += x[t] * y[t];
  return sum_warp(sum);
}

// One warp a row. Shared memory holds R (q, q), whose last row becomes L^-1 r and then a.
extern "C" __global__ void __launch_bounds__(WARP)
    forward(const double* __restrict__ K, const double* __restrict__ Lam,
            const index_t* __restrict__ rows, const double* __restrict__ noise, int k, int M,
            double* __restrict__ a, double* __restrict__ s, double* __restrict__ phi,
            double* __restrict__ factor, index_t* __restrict__ failed) {
  extern __shared__ __align__(16) double R[];
  const index_t i = blockIdx.x;
  const int q = k + 1, lane = threadIdx.x;
  const index_t* places = rows + i * q;
  for (int b = 0; b < q; ++b)
    for (int c = 0; c <= b; ++c) {
      double x = b == c;
      if (places[b] >= 0 && places[c] >= 0) {
        x = K[(i * q + b) * q + c] - dot(Lam + places[b] * M, Lam + places[c] * M, M);
        if (b == c && b < k) x += noise[i * k + b];
      }
      if (lane == 0) R[b * q + c] = x;
    }
  __syncwarp();
  int at = -1;
  for (int j = 0; j < k && at < 0; ++j) {
    for (int b = j + lane; b < q; b += WARP) {
      double x = R[b * q + j];
      for (int c = 0; c < j; ++c) x -= R[b * q + c] * R[j * q + c];
      R[b * q + j] = x;
    }
    __syncwarp();
    const double pivot = R[j * q + j];
    if (!(pivot > 0)) at = j;
    const double root = sqrt(pivot);
    __syncwarp();
    for (int b = j + lane; b < q; b += WARP) R[b * q + j] = b == j ? root : R[b * q + j] / root;
    __syncwarp();
  }
  double* w = R + k * q;
  if (lane == 0) {
    failed[i] = at;
    double rest = at < 0 ? w[k] : nan("");
    for (int c = 0; c < k; ++c) rest -= w[c] * w[c];
    s[i] = rest;
  }
  __syncwarp();
  for (int j = k - 1; j >= 0; --j) {
    const double x = at < 0 ? w[j] / R[j * q + j] : nan("");
    __syncwarp();
    for (int c = lane; c < j; c += WARP) w[c] -= R[j * q + c] * x;
    if (lane == 0) w[j] = x;
    __syncwarp();
  }
  for (int j = lane; j < k; j += WARP) a[i * k + j] = w[j];
  for (int e = lane; e < k * k; e += WARP)
    factor[i * k * k + e] = at >= 0 ? nan("") : e % k <= e / k ? R[e / k * q + e % k] : 0.0;
  for (int t = lane; t < M; t += WARP) {
    double x = at < 0 ? Lam[places[k] * M + t] : nan("");
    for (int j = 0; j < k; ++j)
      if (places[j] >= 0) x -= w[j] * Lam[places[j] * M + t];
    phi[i * M + t] = x;
  }
}

// K_bar and noise_bar, one warp a row; phi_bar is null for zeros. Shared memory holds w.
extern "C" __global__ void __launch_bounds__(WARP)
    residual_bars(const double* __restrict__ Lam, const index_t* __restrict__ rows,
                  const double* __restrict__ a, const double* __restrict__ factor,
                  const double* __restrict__ a_bar, const double* __restrict__ s_bar,
                  const double* __restrict__ phi_bar, int k, int M, double* __restrict__ K_bar,
                  double* __restrict__ noise_bar) {
  extern __shared__ __align__(16) double w[];
  const index_t i = blockIdx.x;
  const int q = k + 1, lane = threadIdx.x;
  const double *L = factor + i * k * k, *mine = a + i * k, scale = s_bar[i];
  for (int j = 0; j < k; ++j) {
    const index_t place = rows[i * q + j];
    double x = place < 0 ? 0.0 : a_bar[i * k + j];
    if (place >= 0 && phi_bar) x -= dot(Lam + place * M, phi_bar + i * M, M);
    if (lane == 0) w[j] = x;
  }
  __syncwarp();
  for (int j = 0; j < k; ++j) {
    const double x = w[j] / L[j * k + j];
    __syncwarp();
    for (int c = j + 1 + lane; c < k; c += WARP) w[c] -= L[c * k + j] * x;
    if (lane == 0) w[j] = x;
    __syncwarp();
  }
  for (int j = k - 1; j >= 0; --j) {
    const double x = w[j] / L[j * k + j];
    __syncwarp();
    for (int c = lane; c < j; c += WARP) w[c] -= L[j * k + c] * x;
    if (lane == 0) w[j] = x;
    __syncwarp();
  }
  for (int e = lane; e < q * q; e += WARP) {
    const int b = max(e / q, e % q), c = min(e / q, e % q);
    double x = scale;
    if (b == k && c < k) x = 0.5 * w[c] - scale * mine[c];
    if (b < k) x = scale * mine[b] * mine[c] - 0.5 * (w[b] * mine[c] + mine[b] * w[c]);
    K_bar[i * q * q + e] = x;
    if (e / q == e % q && b < k) noise_bar[i * k + b] = x;
  }
}

constexpr int BLOCK = 256;

// What each row of the batch gives to its rows of Lam, (n, q, M), one thread each.
extern "C" __global__ void __launch_bounds__(BLOCK)
    contribute(const double* __restrict__ Lam, const index_t* __restrict__ rows,
               const double* __restrict__ a, const double* __restrict__ phi_bar,
               const double* __restrict__ K_bar, index_t count, int k, int M,
               double* __restrict__ out) {
  const index_t e = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (e >= count) return;
  const int q = k + 1, j = e / M % q;
  const index_t i = e / M / q, t = e % M;
  double x = 0;
  for (int c = 0; c < q; ++c)
    if (rows[i * q + c] >= 0) x -= 2 * K_bar[(i * q + j) * q + c] * Lam[rows[i * q + c] * M + t];
  if (phi_bar) x += (j < k ? -a[i * k + j] : 1.0) * phi_bar[i * M + t];
  out[e] = x;
}

// Lam_bar[distinct] = sums; rows that are absent, or come again after themselves, are skipped.
extern "C" __global__ void __launch_bounds__(BLOCK)
    place(const index_t* __restrict__ distinct, const double* __restrict__ sums, index_t count,
          int M, double* __restrict__ Lam_bar) {
  const index_t e = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (e >= count) return;
  const index_t g = e / M, row = distinct[g];
  if (row < 0 || (g > 0 && distinct[g - 1] == row)) return;
  Lam_bar[row * M + e % M] = sums[e];
}

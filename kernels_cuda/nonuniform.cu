// Nonuniform Fourier sums, in float64: see fastsvgp/kernels/nonuniform.py. Rows are added to grids of
// whole numbers by atomics: such sums do not depend on the order. Their unit is 2^-exponent, some
// 2^-60 of the number of rows times the largest value.
#include "shared.cuh"

constexpr int POINTS = 13;  // as in fastsvgp/kernels/common/window.py
constexpr double SHAPE = 2.30 * POINTS, TURN = 0.15915494309189533577;

constexpr int BLOCK = 256;

// The exponent with which the sum of all rows stays below 2^62; one block. Window weights are at
// most 1.
extern "C" __global__ void __launch_bounds__(BLOCK)
    find_exponent(const double* __restrict__ values, index_t count, index_t n,
                  int* __restrict__ exponent) {
  __shared__ double parts[BLOCK / WARP];
  double most = 0;
  for (index_t i = threadIdx.x; i < count; i += BLOCK) most = fmax(most, fabs(values[i]));
#pragma unroll
  for (int bits = WARP / 2; bits; bits /= 2)
    most = fmax(most, __shfl_xor_sync(FULL_MASK, most, bits));
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = most;
  __syncthreads();
  if (threadIdx.x) return;
  for (int w = 0; w < BLOCK / WARP; ++w) most = fmax(most, parts[w]);
  *exponent = most > 0 ? 60 - ilogb(most * static_cast<double>(n)) : 0;
}

// grids += 2^-exponent sums
extern "C" __global__ void __launch_bounds__(BLOCK)
    settle(const index_t* __restrict__ sums, index_t count, const int* __restrict__ exponent,
           double* __restrict__ grids) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < count) grids[i] += ldexp(static_cast<double>(sums[i]), -*exponent);
}

// The window of a row: weights of the points of each axis, and its first point. Axes before the
// last D have one point.
struct window_t {
  double weights[3][POINTS];
  int first[3];
};

__device__ __forceinline__ void compute(window_t& window, const double* __restrict__ angles,
                                        index_t n, int D, int n0, int n1, int n2) {
  const int lane = threadIdx.x;
  for (int axis = 0; axis < 3; ++axis) {
    if (axis < 3 - D) {
      if (lane == 0) {
        window.weights[axis][0] = 1;
        window.first[axis] = 0;
      }
      continue;
    }
    const int size = axis == 0 ? n0 : axis == 1 ? n1 : n2;
    const double at = angles[(axis - 3 + D) * n + blockIdx.x] * TURN * size;
    const int first = static_cast<int>(ceil(at - 0.5 * POINTS));
    if (lane < POINTS) {
      const double z = (first + lane - at) * (2.0 / POINTS);
      window.weights[axis][lane] = exp(SHAPE * (sqrt(fmax(0.0, 1 - z * z)) - 1));
    }
    if (lane == 0) window.first[axis] = first;
  }
  __syncwarp();
}

__device__ __forceinline__ int wrap(int place, int n) {
  place %= n;
  return place < 0 ? place + n : place;
}

// Return the place of point p of the window in a grid, and set its weight.
__device__ __forceinline__ index_t place_of(const window_t& window, int p, int D, int n0, int n1,
                                            int n2, double* weight) {
  const int k = p % POINTS, j = D > 1 ? p / POINTS % POINTS : 0,
            i = D > 2 ? p / (POINTS * POINTS) : 0;
  *weight = window.weights[0][i] * window.weights[1][j] * window.weights[2][k];
  const index_t row = wrap(window.first[0] + i, n0);
  return (row * n1 + wrap(window.first[1] + j, n1)) * n2 + wrap(window.first[2] + k, n2);
}

__device__ __forceinline__ int count_points(int D) {
  return D == 1 ? POINTS : D == 2 ? POINTS * POINTS : POINTS * POINTS * POINTS;
}

// One warp a row.
extern "C" __global__ void __launch_bounds__(WARP)
    spread(const double* __restrict__ angles, const double* __restrict__ values, index_t n, int D,
           int R, int n0, int n1, int n2, const int* __restrict__ exponent,
           index_t* __restrict__ sums) {
  __shared__ window_t window;
  compute(window, angles, n, D, n0, n1, n2);
  const index_t size = static_cast<index_t>(n0) * n1 * n2;
  const double unit = ldexp(1.0, *exponent);
  for (int p = threadIdx.x; p < count_points(D); p += WARP) {
    double weight;
    const index_t place = place_of(window, p, D, n0, n1, n2, &weight);
    for (int r = 0; r < R; ++r)
      atomicAdd(reinterpret_cast<unsigned long long*>(sums) + r * size + place,
                static_cast<unsigned long long>(
                    llrint(values[r * n + blockIdx.x] * weight * unit)));
  }
}

// One warp a row.
extern "C" __global__ void __launch_bounds__(WARP)
    interpolate(const double* __restrict__ angles, const double* __restrict__ grids, index_t n,
                int D, int R, int n0, int n1, int n2, double* __restrict__ out) {
  __shared__ window_t window;
  compute(window, angles, n, D, n0, n1, n2);
  const index_t size = static_cast<index_t>(n0) * n1 * n2;
  for (int r = 0; r < R; ++r) {
    double sum = 0;
    for (int p = threadIdx.x; p < count_points(D); p += WARP) {
      double weight;
      const index_t place = place_of(window, p, D, n0, n1, n2, &weight);
      sum += weight * grids[r * size + place];
    }
    sum = sum_warp(sum);
    if (threadIdx.x == 0) out[r * n + blockIdx.x] = sum;
  }
}

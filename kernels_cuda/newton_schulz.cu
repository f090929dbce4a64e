// Norms of the residual L' A L - I, step sizes, and products of a symmetric matrix with a vector,
// for Newton-Schulz iterations. Matrix products are those of tiled.cu. See
// fastsvgp/kernels/cuda/newton_schulz.py.
#include "shared.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int TILE = 64;

// Return the sum of x over the threads of a block, or the largest x, to all of them, in a fixed
// order.
__device__ __forceinline__ double sum_for_all(double x, double* shared) {
  x = sum_warp(x);
  __syncthreads();
  if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) x += shared[w];
  return x;
}

__device__ __forceinline__ double max_for_all(double x, double* shared) {
#pragma unroll
  for (int bits = WARP / 2; bits; bits /= 2) x = max(x, __shfl_xor_sync(FULL_MASK, x, bits));
  __syncthreads();
  if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
  __syncthreads();
  x = shared[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) x = max(x, shared[w]);
  return x;
}

struct norms_t {
  double norm, smallest, largest, trace;  // smallest and largest: of the diagonal
};

// Combine the norms of an item's tiles (tiles, 4), for all threads of its block.
__device__ __forceinline__ norms_t norms_of(const double* __restrict__ sums, int tiles,
                                            double* shared) {
  double squares = 0, trace = 0, smallest = 1.7976931348623157e308, largest = -smallest;
  for (int t = threadIdx.x; t < tiles; t += BLOCK) {
    squares += sums[t * 4], trace += sums[t * 4 + 3];
    smallest = min(smallest, sums[t * 4 + 1]), largest = max(largest, sums[t * 4 + 2]);
  }
  squares = sum_for_all(squares, shared), trace = sum_for_all(trace, shared);
  smallest = -max_for_all(-smallest, shared), largest = max_for_all(largest, shared);
  return {sqrt(squares), smallest, largest, trace};
}

// Compute stats (items, 4) from those of the tiles (items, tiles, 4). One block per item.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_deviations(const double* __restrict__ sums, int tiles, double* __restrict__ stats) {
  __shared__ double shared[WARPS];
  const norms_t found =
      norms_of(sums + static_cast<index_t>(blockIdx.x) * tiles * 4, tiles, shared);
  if (threadIdx.x) return;
  double* out = stats + static_cast<index_t>(blockIdx.x) * 4;
  out[0] = found.norm, out[1] = found.smallest, out[2] = found.largest, out[3] = found.trace;
}

// Compute out[item] = twice the sum over the tiles of `sums` (items, tiles, 4).
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_inner(const double* __restrict__ sums, int tiles, double* __restrict__ out) {
  __shared__ double shared[WARPS];
  const double* mine = sums + static_cast<index_t>(blockIdx.x) * tiles * 4;
  double sum = 0;
  for (int t = threadIdx.x; t < tiles; t += BLOCK) sum += mine[t * 4];
  sum = sum_for_all(sum, shared);
  if (threadIdx.x == 0) out[blockIdx.x] = 2 * sum;
}

// Return 1 / |v| from partial sums of squares, or 1 if |v| is 0; every thread computes it.
__device__ __forceinline__ double scale_of(const double* __restrict__ squares, int parts) {
  double sum = 0;
  for (int p = 0; p < parts; ++p) sum += squares[p];
  return sum > 0 ? 1 / sqrt(sum) : sum == 0 ? 1 : sum;
}

// Contribution of one lower tile (i, j) of a symmetric S to S v / |v|: of its rows to entry j of
// `parts` (items, tiles of n, n), of its columns to entry i. Each half of the matrix is read once,
// in whole lines.
extern "C" __global__ void __launch_bounds__(BLOCK)
symmetric_times(const real* __restrict__ S, index_t item_size, int n,
                const real* __restrict__ v, const double* __restrict__ squares, int pieces,
                double* __restrict__ parts) {
  __shared__ double columns[WARPS][TILE];
  __shared__ double rows[TILE];
  const int high = (n + TILE - 1) / TILE, tiles = high * (high + 1) / 2, lane = threadIdx.x % WARP,
            warp = threadIdx.x / WARP;
  const index_t item = blockIdx.x / tiles;
  const int tile = blockIdx.x % tiles;
  int i = static_cast<int>((sqrtf(8.0f * tile + 1.0f) - 1.0f) / 2.0f);
  while ((i + 1) * (i + 2) / 2 <= tile) ++i;
  while (i * (i + 1) / 2 > tile) --i;
  const int j = tile - i * (i + 1) / 2;
  const real* vector = v + item * n;
  const double scale = scale_of(squares + item * pieces, pieces);
  real weight[2];
  double column[2] = {};
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int c = j * TILE + lane + e * WARP;
    weight[e] = c < n ? static_cast<real>(vector[c] * scale) : real(0);
  }
#pragma unroll 4
  for (int q = 0; q < TILE / WARPS; ++q) {
    const int r = i * TILE + q * WARPS + warp;
    const real own = r < n ? static_cast<real>(vector[r] * scale) : real(0);
    double row = 0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = j * TILE + lane + e * WARP;
      const real x =
          r < n && c <= r ? S[item * item_size + static_cast<index_t>(r) * n + c] : real(0);
      row += static_cast<double>(x) * weight[e];
      if (c < r) column[e] += static_cast<double>(x) * own;
    }
    row = sum_warp(row);
    if (lane == 0) rows[q * WARPS + warp] = row;
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) columns[warp][lane + e * WARP] = column[e];
  __syncthreads();
  if (threadIdx.x >= TILE) return;
  double sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += columns[w][threadIdx.x];
  const int r = i * TILE + threadIdx.x, c = j * TILE + threadIdx.x;
  double* place = parts + item * high * n;
  if (i == j) {
    if (r < n) place[static_cast<index_t>(j) * n + r] = rows[threadIdx.x] + sum;
  } else {
    if (r < n) place[static_cast<index_t>(j) * n + r] = rows[threadIdx.x];
    if (c < n) place[static_cast<index_t>(i) * n + c] = sum;
  }
}

// Compute out = the sum of `high` parts (items, high, n), plus shift v / |v|, and the sum of
// squares of each 256 entries. Without squares_in, |v| counts as 1.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_parts(const double* __restrict__ parts, int high, int n, const real* __restrict__ v,
          double shift, const double* __restrict__ squares_in, real* __restrict__ out,
          double* __restrict__ squares_out) {
  __shared__ double shared[WARPS];
  const int pieces = (n + BLOCK - 1) / BLOCK, r = blockIdx.x % pieces * BLOCK + threadIdx.x;
  const index_t item = blockIdx.x / pieces;
  const double scale = squares_in ? scale_of(squares_in + item * pieces, pieces) : 1;
  real x = 0;
  if (r < n) {
    double sum = shift * static_cast<real>(v[item * n + r] * scale);
#pragma unroll 4
    for (int t = 0; t < high; ++t) sum += parts[(item * high + t) * n + r];
    out[item * n + r] = x = static_cast<real>(sum);
  }
  const double squares = sum_for_all(static_cast<double>(x) * x, shared);
  if (threadIdx.x == 0) squares_out[blockIdx.x] = squares;
}

// Return the next step size, or 0 to stop: see newton_schulz_walk in
// fastsvgp/kernels/newton_schulz.py.
__device__ __forceinline__ double next_size(double norm, double smallest, double top, double root,
                                            double tolerance) {
  constexpr double CERTIFICATE = 0.46, LEAST = 0.45, MOST = 2, FAR = 0.3;
  if (!(norm > tolerance * root && norm - norm == 0 && smallest > 0)) return 0;
  if (norm < CERTIFICATE) return 1;
  if (top > LEAST && top < MOST) return norm > FAR * root ? 1.5 : 1;
  return 2 / (top + sqrt(top));
}

// One block per item. Write row `step` of rows (steps + 1, items, 6): norm, smallest and largest
// diagonal entry and trace, from those of the tiles (items, tiles, 4), or without tiles from
// `stats` (items, 4); log|L L'|; and the size of the next step, which is also written to `sizes`.
// The largest eigenvalue is the square root of the sum of `squares` (items, pieces). An item that
// has stopped repeats its row.
extern "C" __global__ void __launch_bounds__(BLOCK)
decide(const double* __restrict__ stats, const double* __restrict__ sums, int tiles,
       const real* __restrict__ L, index_t stride, index_t item_size, int n,
       const double* __restrict__ squares, int pieces, double tolerance, int step, int moves,
       double* rows, double* sizes) {
  __shared__ double shared[WARPS];
  const index_t item = blockIdx.x;
  double* row = rows + (static_cast<index_t>(step) * gridDim.x + item) * 6;
  if (step && sizes[item] == 0) {
    if (threadIdx.x < 6)
      row[threadIdx.x] =
          row[static_cast<index_t>(threadIdx.x) - static_cast<index_t>(gridDim.x) * 6];
    return;
  }
  norms_t found;
  if (tiles) found = norms_of(sums + item * tiles * 4, tiles, shared);
  else found = {stats[item * 4], stats[item * 4 + 1], stats[item * 4 + 2], stats[item * 4 + 3]};
  double logs = 0, square = 0;
  for (int i = threadIdx.x; i < n; i += BLOCK) {
    const double x = L[item * item_size + i * (stride + 1)];
    logs += log(x > 0 ? x : 0);
  }
  for (int i = threadIdx.x; i < pieces; i += BLOCK) square += squares[item * pieces + i];
  logs = sum_for_all(logs, shared), square = sum_for_all(square, shared);
  if (threadIdx.x) return;
  const double size = moves
                          ? next_size(found.norm, found.smallest, max(sqrt(square), found.largest),
                                      sqrt(static_cast<double>(n)), tolerance)
                          : 0;
  row[0] = found.norm, row[1] = found.smallest, row[2] = found.largest, row[3] = found.trace,
  row[4] = 2 * logs, row[5] = size;
  sizes[item] = size;
}

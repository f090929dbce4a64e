// Fused passes over (M, N) matrices between products. See fastsvgp/kernels/products.py. Each reads
// and writes every number once.
#include "shared.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int TEAMS = 16;  // of column_moments: rows that a block reads in parallel
constexpr int BAND = 8;    // rows per block of scale_columns

// Compute dots[j] = sum_i x[i] A[i, j] and squares[j] = sum_i A[i, j] B[i, j], in float64.
extern "C" __global__ void __launch_bounds__(WARP* TEAMS)
column_moments(const real* __restrict__ A, index_t A_stride, const real* __restrict__ B,
               index_t B_stride, const real* __restrict__ x, index_t M, index_t N,
               real* __restrict__ dots, real* __restrict__ squares) {
  __shared__ double dot_sums[TEAMS][WARP + 1];
  __shared__ double square_sums[TEAMS][WARP + 1];
  const int lane = threadIdx.x % WARP, team = threadIdx.x / WARP;
  const index_t j = static_cast<index_t>(blockIdx.x) * WARP + lane;
  double dot = 0, square = 0;
  if (j < N) {
#pragma unroll 4
    for (index_t i = team; i < M; i += TEAMS) {
      const double a = A[i * A_stride + j];
      dot += x[i] * a;
      square += a * B[i * B_stride + j];
    }
  }
  dot_sums[team][lane] = dot;
  square_sums[team][lane] = square;
  __syncthreads();
  if (team || j >= N) return;
  dot = square = 0;
#pragma unroll
  for (int t = 0; t < TEAMS; ++t) dot += dot_sums[t][lane], square += square_sums[t][lane];
  dots[j] = static_cast<real>(dot);
  squares[j] = static_cast<real>(square);
}

// Compute out = A diag(w).
extern "C" __global__ void __launch_bounds__(BLOCK)
scale_columns(const real* A, index_t A_stride, const real* __restrict__ w, index_t M, index_t N,
              real* out, index_t out_stride) {
  const index_t bands = (M + BAND - 1) / BAND, first = blockIdx.x % bands * BAND;
  const index_t j = static_cast<index_t>(blockIdx.x / bands) * BLOCK + threadIdx.x;
  if (j >= N) return;
  const real weight = w[j];
#pragma unroll
  for (int r = 0; r < BAND; ++r)
    if (const index_t i = first + r; i < M) out[i * out_stride + j] = A[i * A_stride + j] * weight;
}

// Update row i of T, contiguous: T diag(w) (`scaled`) or T, plus x a', minus A diag(w) (`minus`).
// dots[i] = sum_j A[i, j] a[j] if dots is given. One block per row.
extern "C" __global__ void __launch_bounds__(BLOCK)
combine_rows(real* __restrict__ T, const real* __restrict__ A, const real* __restrict__ w,
             const real* __restrict__ x, const real* __restrict__ a, index_t N, int scaled,
             int minus, real* __restrict__ dots) {
  __shared__ double sums[WARPS];
  const index_t i = blockIdx.x;
  const real xi = x[i];
  real* t = T + i * N;
  const real* row = A + i * N;
  double dot = 0;
#pragma unroll 4
  for (index_t j = threadIdx.x; j < N; j += BLOCK) {
    const real aj = a[j], other = minus || dots ? row[j] : real(0);
    real value = t[j];
    if (scaled) value = (minus ? value - other : value) * w[j];
    else if (minus) value -= other * w[j];
    t[j] = value + xi * aj;
    if (dots) dot += static_cast<double>(other) * aj;
  }
  if (!dots) return;
  dot = sum_block(dot, sums);
  if (threadIdx.x == 0) dots[i] = static_cast<real>(dot);
}

// T += c A.
extern "C" __global__ void __launch_bounds__(BLOCK)
add_scaled(real* __restrict__ T, const real* __restrict__ A, real c, index_t count) {
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step)
    T[p] += c * A[p];
}

// T += c A with c on the device.
extern "C" __global__ void __launch_bounds__(BLOCK)
add_scaled_by(real* __restrict__ T, const real* __restrict__ A, const real* __restrict__ c,
              index_t count) {
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  const real factor = *c;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step)
    T[p] += factor * A[p];
}

// Return the sum of squares of row i of stacked lower triangles; valid only in thread 0.
__device__ __forceinline__ double squares_of_row(const real* __restrict__ L, index_t M, index_t i,
                                                 double (&sums)[WARPS]) {
  const real* row = L + i * M;
  double sum = 0;
  for (index_t j = threadIdx.x; j <= i % M; j += BLOCK) sum += static_cast<double>(row[j]) * row[j];
  return sum_block(sum, sums);
}

// Compute rows[i] = the sum of squares of row i.
extern "C" __global__ void __launch_bounds__(BLOCK)
row_squares(const real* __restrict__ L, index_t M, double* __restrict__ rows) {
  __shared__ double sums[WARPS];
  const double sum = squares_of_row(L, M, blockIdx.x, sums);
  if (threadIdx.x == 0) rows[blockIdx.x] = sum;
}

// Compute rows[i] = (the sum of squares of row i of W, plus m_i^2 - 1) / 2 - log W_ii, for stacked
// factors and means.
extern "C" __global__ void __launch_bounds__(BLOCK)
row_kl(const real* __restrict__ means, const real* __restrict__ W, index_t M,
       double* __restrict__ rows) {
  __shared__ double sums[WARPS];
  const index_t i = blockIdx.x;
  const double sum = squares_of_row(W, M, i, sums);
  if (threadIdx.x) return;
  const double mean = means[i];
  rows[i] = 0.5 * (sum + mean * mean - 1) - log(static_cast<double>(W[i * M + i % M]));
}

// Compute var = max(var, eps kff) for rows of variances and one row of kff, with `add` after var +=
// kff; `count` gains the number of raised variances.
extern "C" __global__ void __launch_bounds__(BLOCK)
raise_to_floor(real* __restrict__ var, index_t row_stride, index_t stride,
               const real* __restrict__ kff, index_t kff_stride, real eps, int add,
               index_t rows, index_t columns, long long* __restrict__ count) {
  __shared__ double sums[WARPS];
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  double raised = 0;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < rows * columns;
       p += step) {
    const index_t j = p % columns;
    real& v = var[p / columns * row_stride + j * stride];
    const real k = kff[j * kff_stride], floor = eps * k;
    if (add) v += k;
    if (!(v < floor)) continue;
    v = floor;
    raised += 1;
  }
  raised = sum_block(raised, sums);
  if (threadIdx.x == 0 && raised)
    atomicAdd(reinterpret_cast<unsigned long long*>(count),
              static_cast<unsigned long long>(raised));
}

// Compute out[0] = the sum of all parts, in a fixed order. One block.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_rows(const double* __restrict__ parts, index_t count, double* __restrict__ out) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t p = threadIdx.x; p < count; p += BLOCK) sum += parts[p];
  sum = sum_block(sum, sums);
  if (threadIdx.x == 0) *out = sum;
}

// Return tile (row, column) of a block in a grid of square tiles of one matrix; block 0 has tile
// (0, 0).
struct tile_t {
  index_t row, column;
};
__device__ __forceinline__ tile_t tile_of(index_t block, index_t tiles) {
  return {block / tiles * WARP, block % tiles * WARP};
}

// Copy the lower triangle to the upper one. One block per tile on or below the diagonal of a
// matrix.
extern "C" __global__ void __launch_bounds__(BLOCK) symmetrise(real* __restrict__ A, index_t M) {
  __shared__ real tile[WARP][WARP + 1];
  const index_t tiles = (M + WARP - 1) / WARP;
  const tile_t at = tile_of(blockIdx.x % (tiles * tiles), tiles);
  if (at.column > at.row) return;
  A += blockIdx.x / (tiles * tiles) * M * M;
  const int lane = threadIdx.x % WARP;
  for (int r = threadIdx.x / WARP; r < WARP; r += WARPS)
    if (at.row + r < M && at.column + lane < M)
      tile[r][lane] = A[(at.row + r) * M + at.column + lane];
  __syncthreads();
  for (int r = threadIdx.x / WARP; r < WARP; r += WARPS) {
    const index_t i = at.column + r, j = at.row + lane;  // its place above the diagonal
    if (i < j && j < M) A[i * M + j] = tile[lane][r];
  }
}

// Compute out = tril(C or C') + shift (L - diag(1 / L_ii)). One block per tile.
extern "C" __global__ void __launch_bounds__(BLOCK)
tril_update(const real* C, index_t C_stride, const real* __restrict__ L, index_t L_stride,
            real shift, int transpose, real* out, index_t M) {
  __shared__ real tile[WARP][WARP + 1];
  const index_t tiles = (M + WARP - 1) / WARP;
  const tile_t at = tile_of(blockIdx.x, tiles);
  const int lane = threadIdx.x % WARP, first = threadIdx.x / WARP;
  if (transpose && at.column <= at.row) {
    for (int r = first; r < WARP; r += WARPS)
      if (at.column + r < M && at.row + lane < M)
        tile[r][lane] = C[(at.column + r) * C_stride + at.row + lane];
  }
  __syncthreads();
  for (int r = first; r < WARP; r += WARPS) {
    const index_t i = at.row + r, j = at.column + lane;
    if (i >= M || j >= M) continue;
    real value = 0;
    if (j <= i) {
      const real l = L[i * L_stride + j];
      value = (transpose ? tile[lane][r] : C[i * C_stride + j]) + shift * l;
      if (i == j) value -= shift / l;
    }
    out[i * M + j] = value;
  }
}

// Solves with small lower factors: a block holds a whole factor and 64 columns of the right-hand side in shared memory. Everything
// larger is made of these and of the products of tiled.cu. See fastsvgp/kernels/cuda/triangular.py.
//
// The factor lies in squares of 32 x 32, those of its lower triangle alone. Squares on the diagonal are inverted first (the error grows
// with the condition of 32 rows, not with that of the factor), so that all the rest is products: each warp makes 8 x 64 of a result of
// 32 x 64, two columns a lane, and what it reads of the factor is one address for all lanes.
#include "shared.cuh"

constexpr int WARPS = 4, BLOCK = WARP * WARPS;
constexpr int SQUARE = 32, PITCH = SQUARE + 1, PANEL = 64;
constexpr int ROWS = SQUARE / WARPS;  // of a result, that a thread makes

enum given_t { MATRIX, LOWER_MATRIX, IDENTITY };  // what stands on the right: with LOWER_MATRIX only its lower triangle counts

__device__ __forceinline__ real* square_of(real* factor, int i, int j) { return factor + (i * (i + 1) / 2 + j) * (SQUARE * PITCH); }

// One warp: D becomes D^-1, lower with zeros above. Lane j makes column j; row i is no longer needed when it is replaced.
__device__ __forceinline__ void invert(real* D, int lane) {
  const real reciprocals = 1 / D[lane * PITCH + lane];
#pragma unroll 1
  for (int i = 0; i < SQUARE; ++i) {
    real sum[4] = {};
#pragma unroll 2
    for (int k = 0; k < i; k += 4)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (k + e < i) sum[e] += D[i * PITCH + k + e] * (lane <= k + e ? D[(k + e) * PITCH + lane] : real(0));
    const real total = (sum[0] + sum[1]) + (sum[2] + sum[3]), reciprocal = __shfl_sync(FULL_MASK, reciprocals, i);
    __syncwarp();
    D[i * PITCH + lane] = lane < i ? -total * reciprocal : lane == i ? reciprocal : real(0);
    __syncwarp();
  }
}

// sum -= op(square) panel, for the thread's rows and columns; `panel` is 32 x 64.
template <bool TRANSPOSED>
__device__ __forceinline__ void subtract_product(const real* square, const real* panel, int row, int lane, real (&sum)[ROWS][2]) {
#pragma unroll 4
  for (int k = 0; k < SQUARE; ++k) {
    const real x = panel[k * PANEL + lane], y = panel[k * PANEL + lane + WARP];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const real a = square[TRANSPOSED ? k * PITCH + row + r : (row + r) * PITCH + k];
      sum[r][0] -= a * x, sum[r][1] -= a * y;
    }
  }
}

template <bool TRANSPOSED>
__device__ __forceinline__ void substitute(real* factor, real* panel, int squares) {
  const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * ROWS;
#pragma unroll 1
  for (int step = 0; step < squares; ++step) {
    const int i = TRANSPOSED ? squares - 1 - step : step;
    real* here = panel + i * SQUARE * PANEL;
    real sum[ROWS][2];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) sum[r][e] = here[(row + r) * PANEL + lane + e * WARP];
#pragma unroll 1
    for (int j = TRANSPOSED ? i + 1 : 0; j < (TRANSPOSED ? squares : i); ++j)
      subtract_product<TRANSPOSED>(TRANSPOSED ? square_of(factor, j, i) : square_of(factor, i, j), panel + j * SQUARE * PANEL, row, lane,
                                   sum);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) here[(row + r) * PANEL + lane + e * WARP] = -sum[r][e], sum[r][e] = 0;
    __syncthreads();
    subtract_product<TRANSPOSED>(square_of(factor, i, i), here, row, lane, sum);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) here[(row + r) * PANEL + lane + e * WARP] = sum[r][e];
    __syncthreads();
  }
}

// X = op(L)^-1 B for items of n rows and `columns` columns. `strips` blocks share an item: each takes every strips-th 64 columns, with
// the factor that it has prepared once. Rows are `..._stride` apart, items `..._item`. X may be B. Where there are weights (items, n),
// means (items, columns) receives weights' X, and squares the sums of squares of the columns of X; X may then be null.
extern "C" __global__ void __launch_bounds__(BLOCK, 4)
solve(const real* __restrict__ L, index_t l_stride, index_t l_item, const real* B, index_t b_stride, index_t b_item, int given, int n,
      index_t columns, int strips, int transposed, real* X, index_t x_stride, index_t x_item, const real* __restrict__ weights,
      index_t weights_item, real* __restrict__ means, real* __restrict__ squares) {
  extern __shared__ __align__(16) real memory[];
  const int size = (n + SQUARE - 1) / SQUARE, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const index_t item = blockIdx.x / strips, panels = (columns + PANEL - 1) / PANEL;
  real* factor = memory;
  real* panel = memory + size * (size + 1) / 2 * (SQUARE * PITCH);
  const real* l = L + item * l_item;
  for (int r = warp; r < size * SQUARE; r += WARPS)
    for (int j = 0; j <= r / SQUARE; ++j) {
      const int c = j * SQUARE + lane;
      real x = r == c ? real(1) : real(0);  // beyond the factor the identity
      if (r < n && c <= r) x = l[r * l_stride + c];
      square_of(factor, r / SQUARE, j)[r % SQUARE * PITCH + lane] = x;
    }
  __syncthreads();
  for (int i = warp; i < size; i += WARPS) invert(square_of(factor, i, i), lane);
  for (index_t p = blockIdx.x % strips; p < panels; p += strips) {
    const index_t first = p * PANEL + lane;  // of the thread's two columns
    const real* b = B + item * b_item;
    for (int r = warp; r < size * SQUARE; r += WARPS)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const index_t c = first + e * WARP;
        real x = 0;
        if (r < n && c < columns) {
          if (given == IDENTITY) x = c == r;
          else if (given == MATRIX || c <= r) x = b[r * b_stride + c];
        }
        panel[r * PANEL + lane + e * WARP] = x;
      }
    __syncthreads();
    if (transposed) substitute<true>(factor, panel, size);
    else substitute<false>(factor, panel, size);
    real* x = X + item * x_item;
    for (int r = warp; X && r < n; r += WARPS)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (first + e * WARP < columns) x[r * x_stride + first + e * WARP] = panel[r * PANEL + lane + e * WARP];
    const index_t c = p * PANEL + threadIdx.x;
    if (weights && threadIdx.x < PANEL && c < columns) {
      double mean = 0, square = 0;
      for (int r = 0; r < n; ++r) {
        const double y = panel[r * PANEL + threadIdx.x];
        mean += y * weights[item * weights_item + r], square += y * y;
      }
      means[item * columns + c] = static_cast<real>(mean), squares[item * columns + c] = static_cast<real>(square);
    }
    __syncthreads();
  }
}

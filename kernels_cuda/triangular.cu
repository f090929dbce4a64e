// Solves with small lower factors: a block holds a whole factor and 64 columns of the right-hand
// side in shared memory. Larger solves are composed of these and of the products of tiled.cu. See
// fastsvgp/kernels/cuda/triangular.py.
//
// The factor is stored as squares of 32 x 32, only those of its lower triangle. Squares on the
// diagonal are inverted first (the error grows with the condition number of 32 rows, not with that
// of the factor); the rest is products of a square and 32 x 64 of the right-hand side. In float64
// they run on tensor cores, with a fifth of the instructions: each warp computes 16 x 32 of a
// result. In float32 the three products of parts and their splitting would take as many
// instructions as plain sums: each warp computes 8 x 64, two columns per lane, and all lanes read
// the factor at one address.
#include "mma.cuh"

constexpr int WARPS = 4, BLOCK = WARP * WARPS;
constexpr bool BY_TENSOR_CORES = TENSOR_CORES && sizeof(real) == 8;
constexpr int SQUARE = 32, PITCH = BY_TENSOR_CORES ? SQUARE : SQUARE + 1, PANEL = 64;
constexpr int ELEMENTS = SQUARE * PANEL / BLOCK;  // of a result, per thread

// right-hand side; LOWER_MATRIX: only its lower triangle is read
enum given_t { MATRIX, LOWER_MATRIX, IDENTITY };

__device__ __forceinline__ real* square_of(real* factor, int i, int j) {
  return factor + (i * (i + 1) / 2 + j) * (SQUARE * PITCH);
}

// Offset of entry (r, c) in a square and in a panel: entries that the lanes of a warp read together
// are in different banks, along rows and along columns.
__device__ __forceinline__ int in_square(int r, int c) {
  return r * PITCH + (BY_TENSOR_CORES ? c ^ r % 8 * 4 : c);
}
__device__ __forceinline__ int in_panel(int r, int c) {
  return r * PANEL + (BY_TENSOR_CORES ? c ^ r % 4 * 4 : c);
}

// Replace D by D^-1, lower with zeros above, in one warp. Lane j computes column j; row i is no
// longer needed when it is replaced.
__device__ __forceinline__ void invert(real* D, int lane) {
  const real reciprocals = 1 / D[in_square(lane, lane)];
#pragma unroll 1
  for (int i = 0; i < SQUARE; ++i) {
    real sum[4] = {};
#pragma unroll 2
    for (int k = 0; k < i; k += 4)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (k + e < i)
          sum[e] += D[in_square(i, k + e)] * (lane <= k + e ? D[in_square(k + e, lane)] : real(0));
    const real total = (sum[0] + sum[1]) + (sum[2] + sum[3]),
               reciprocal = __shfl_sync(FULL_MASK, reciprocals, i);
    __syncwarp();
    D[in_square(i, lane)] = lane < i ? -total * reciprocal : lane == i ? reciprocal : real(0);
    __syncwarp();
  }
}

// Call f(row, column, sum) for the thread's elements of a result.
template <class F>
__device__ __forceinline__ void for_elements(real (&sum)[ELEMENTS], F f) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
  for (int p = 0; p < ELEMENTS; ++p) {
    if (BY_TENSOR_CORES)
      f(warp % 2 * 16 + lane / 4 + p % 4 / 2 * 8, warp / 2 * 32 + p / 4 * 8 + lane % 4 * 2 + p % 2,
        sum[p]);
    else f(warp * (ELEMENTS / 2) + p / 2, lane + p % 2 * WARP, sum[p]);
  }
}

// sum -= op(square) panel, for the thread's elements.
template <bool TRANSPOSED>
__device__ __forceinline__ void subtract_product(const real* square, const real* panel,
                                                 real (&sum)[ELEMENTS]) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const auto factor = [&](int i, int k) {
    return square[TRANSPOSED ? in_square(k, i) : in_square(i, k)];
  };
  if constexpr (BY_TENSOR_CORES) {
    const int row = warp % 2 * 16 + lane / 4, column = warp / 2 * 32 + lane / 4, t = lane % 4;
    real(&c)[ELEMENTS / 4][4] = reinterpret_cast<real(&)[ELEMENTS / 4][4]>(sum);
#pragma unroll 1
    for (int k = 0; k < SQUARE; k += 8) {
      parts_t<real, 4> a;
#pragma unroll
      for (int e = 0; e < 4; ++e) a.set(e, -factor(row + e % 2 * 8, k + t + e / 2 * 4));
#pragma unroll
      for (int q = 0; q < ELEMENTS / 4; ++q) {
        parts_t<real, 2> b;
#pragma unroll
        for (int e = 0; e < 2; ++e) b.set(e, panel[in_panel(k + t + e * 4, column + 8 * q)]);
        multiply_add(c[q], a, b);
      }
    }
  } else {
    constexpr int ROWS = ELEMENTS / 2;
#pragma unroll 4
    for (int k = 0; k < SQUARE; ++k) {
      const real x = panel[in_panel(k, lane)], y = panel[in_panel(k, lane + WARP)];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const real a = factor(warp * ROWS + r, k);
        sum[2 * r] -= a * x, sum[2 * r + 1] -= a * y;
      }
    }
  }
}

template <bool TRANSPOSED>
__device__ __forceinline__ void substitute(real* factor, real* panel, int squares) {
#pragma unroll 1
  for (int step = 0; step < squares; ++step) {
    const int i = TRANSPOSED ? squares - 1 - step : step;
    real* here = panel + i * SQUARE * PANEL;
    real sum[ELEMENTS];
    for_elements(sum, [&](int r, int c, real& x) { x = here[in_panel(r, c)]; });
#pragma unroll 1
    for (int j = TRANSPOSED ? i + 1 : 0; j < (TRANSPOSED ? squares : i); ++j)
      subtract_product<TRANSPOSED>(TRANSPOSED ? square_of(factor, j, i) : square_of(factor, i, j),
                                   panel + j * SQUARE * PANEL, sum);
    for_elements(sum, [&](int r, int c, real& x) { here[in_panel(r, c)] = -x, x = 0; });
    __syncthreads();
    subtract_product<TRANSPOSED>(square_of(factor, i, i), here, sum);
    __syncthreads();
    for_elements(sum, [&](int r, int c, real& x) { here[in_panel(r, c)] = x; });
    __syncthreads();
  }
}

// Compute X = op(L)^-1 B for items of n rows and `columns` columns. `strips` blocks share an item:
// each prepares the factor once and takes every strips-th panel of 64 columns. Row strides are
// `..._stride`, item strides `..._item`. X may be B.
extern "C" __global__ void __launch_bounds__(BLOCK, 4)
solve(const real* __restrict__ L, index_t l_stride, index_t l_item, const real* B,
      index_t b_stride, index_t b_item, int given, int n, index_t columns, int strips,
      int transposed, real* X, index_t x_stride, index_t x_item) {
  extern __shared__ __align__(16) real memory[];
  const int size = (n + SQUARE - 1) / SQUARE, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const index_t item = blockIdx.x / strips, panels = (columns + PANEL - 1) / PANEL;
  real* factor = memory;
  real* panel = memory + size * (size + 1) / 2 * (SQUARE * PITCH);
  const real* l = L + item * l_item;
  for (int r = warp; r < size * SQUARE; r += WARPS)
    for (int j = 0; j <= r / SQUARE; ++j) {
      const int c = j * SQUARE + lane;
      real x = r == c ? real(1) : real(0);  // the identity beyond the factor
      if (r < n && c <= r) x = l[r * l_stride + c];
      square_of(factor, r / SQUARE, j)[in_square(r % SQUARE, lane)] = x;
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
        panel[in_panel(r, lane + e * WARP)] = x;
      }
    __syncthreads();
    if (transposed) substitute<true>(factor, panel, size);
    else substitute<false>(factor, panel, size);
    real* x = X + item * x_item;
    for (int r = warp; r < n; r += WARPS)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (first + e * WARP < columns)
          x[r * x_stride + first + e * WARP] = panel[in_panel(r, lane + e * WARP)];
    __syncthreads();
  }
}

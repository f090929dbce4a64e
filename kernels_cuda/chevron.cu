// Products with a chevron matrix C: lower triangular, k dense columns, then only a diagonal. See
// fastsvgp/kernels/chevron.py.
//
// dense holds the first k columns of all n rows, `stride` elements from row to row; only the first
// min(k, g + 1) of row g are read. All kernels are bound by the one pass over dense: 128-bit loads
// if its rows are aligned (`aligned`), else neighbouring lanes take neighbouring elements.
#include "shared.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int LANES = 8;  // lanes that share a row in `multiply`: 128 bytes at a time
constexpr int LINES = 4;  // their rows: 4 loads in flight, and one read of weights for all four
constexpr int WARP_LINES = WARP / LANES * LINES;

// Load a lane's elements of a row, 0 from column `width` on. `aligned` selects the columns of the
// lane, `wide` 128-bit loads (weights can be unaligned beside an aligned matrix).
__device__ __forceinline__ vector_t load(const real* __restrict__ row, int first, int lane,
                                         int width, bool aligned, bool wide) {
  vector_t v;
  if (aligned && wide && first + (lane + 1) * WIDTH <= width) {
    v = *reinterpret_cast<const vector_t*>(row + first + lane * WIDTH);
  } else {
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      const int j = aligned ? first + lane * WIDTH + e : first + e * LANES + lane;
      v.e[e] = j < width ? row[j] : real(0);
    }
  }
  return v;
}

// out[r, g] = (C z_r)[g], for RHS right-hand sides, of which `count` exist.
template <int RHS>
__device__ __forceinline__ void multiply(const real* __restrict__ dense, index_t stride,
                                         int aligned, const real* __restrict__ diagonal, index_t n,
                                         int k, const real* __restrict__ z, int z_aligned,
                                         real* __restrict__ out, int count) {
  const int lane = threadIdx.x % LANES;
  const index_t first_line =
      (static_cast<index_t>(blockIdx.x) * WARPS + threadIdx.x / WARP) * WARP_LINES +
      threadIdx.x % WARP / LANES * LINES;
  const real* row[LINES];
  int width[LINES];
  real sum[LINES][RHS];
#pragma unroll
  for (int q = 0; q < LINES; ++q) {
    const index_t g = first_line + q;
    row[q] = dense + (g < n ? g : 0) * stride;
    width[q] = g >= n ? 0 : g < k ? static_cast<int>(g) + 1 : k;
#pragma unroll
    for (int r = 0; r < RHS; ++r) sum[q][r] = 0;
  }
  for (int first = 0; first < k; first += LANES * WIDTH) {
    vector_t a[LINES];
#pragma unroll
    for (int q = 0; q < LINES; ++q) a[q] = load(row[q], first, lane, width[q], aligned, true);
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      if (r >= count) break;
      const vector_t w = load(z + r * n, first, lane, k, aligned, z_aligned);
#pragma unroll
      for (int q = 0; q < LINES; ++q)
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sum[q][r] += a[q].e[e] * w.e[e];
    }
  }
#pragma unroll
  for (int q = 0; q < LINES; ++q)
#pragma unroll
    for (int r = 0; r < RHS; ++r)
#pragma unroll
      for (int bits = LANES / 2; bits; bits /= 2)
        sum[q][r] += __shfl_xor_sync(FULL_MASK, sum[q][r], bits);
  // lane q finishes line q, so that a warp writes adjacent lines
#pragma unroll
  for (int q = 0; q < LINES; ++q) {
    const index_t g = first_line + q;
    if (lane != q || g >= n) continue;
    const real d = g >= k ? diagonal[g - k] : real(0);
#pragma unroll
    for (int r = 0; r < RHS; ++r)
      if (r < count) out[r * n + g] = g >= k ? sum[q][r] + d * z[r * n + g] : sum[q][r];
  }
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply_1(const real* __restrict__ dense, index_t stride, int aligned,
               const real* __restrict__ diagonal, index_t n, int k, const real* __restrict__ z,
               int z_aligned, real* __restrict__ out, int count) {
  multiply<1>(dense, stride, aligned, diagonal, n, k, z, z_aligned, out, count);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply_4(const real* __restrict__ dense, index_t stride, int aligned,
               const real* __restrict__ diagonal, index_t n, int k, const real* __restrict__ z,
               int z_aligned, real* __restrict__ out, int count) {
  multiply<4>(dense, stride, aligned, diagonal, n, k, z, z_aligned, out, count);
}

// partial[b] = sum of log C[g, g] over the rows of block b, in float64.
extern "C" __global__ void __launch_bounds__(BLOCK)
    log_diagonal(const real* __restrict__ dense, index_t stride, const real* __restrict__ diagonal,
                 index_t n, int k, double* __restrict__ partial) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t g = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; g < n;
       g += static_cast<index_t>(gridDim.x) * BLOCK)
    sum += log(g < k ? dense[g * stride + g] : diagonal[g - k]);
  sum = sum_warp(sum);  // sum_block takes more registers on sm_100
  if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += sums[w];
  partial[blockIdx.x] = sum;
}

// out = sum of the parts in a fixed order; one block.
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_logs(const double* __restrict__ partial, int blocks, double* __restrict__ out) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (int b = threadIdx.x; b < blocks; b += BLOCK) sum += partial[b];
  sum = sum_block(sum, sums);
  if (threadIdx.x == 0) *out = sum;
}

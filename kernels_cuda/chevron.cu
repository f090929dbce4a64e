// Products with a chevron matrix C: lower triangular, k dense columns, then only a diagonal. See
// fastsvgp/kernels/chevron.py.
//
// Line i of a product belongs to row g of C: g = rows[i], or g = i if rows is null. dense holds the
// first k columns of all rows, `stride` elements from row to row; only the first min(k, g + 1) of
// row g are read. All kernels are bound by the one pass over dense: 128-bit loads if its rows are
// aligned (`aligned`), else neighbouring lanes take neighbouring elements.
#include "shared.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int LANES = 8;  // lanes that share a row in `multiply` and `outer`: 128 bytes at a time
constexpr int LINES = 4;  // their rows: 4 loads in flight, and one read of weights for all four
constexpr int WARP_LINES = WARP / LANES * LINES;

__device__ __forceinline__ index_t row_of(const index_t* rows, index_t i) {
  return rows ? rows[i] : i;
}

__device__ __forceinline__ int width_of(index_t g, int k) {
  return g < k ? static_cast<int>(g) + 1 : k;
}

// Return the column of element e < WIDTH of a lane, in `lanes` * WIDTH columns from `first` on.
__device__ __forceinline__ int column_of(int first, int lane, int e, int lanes, bool aligned) {
  return aligned ? first + lane * WIDTH + e : first + e * lanes + lane;
}

// Load a lane's elements of a row, 0 from column `width` on. `aligned` selects the columns of the
// lane, `wide` 128-bit loads (weights can be unaligned beside an aligned matrix).
__device__ __forceinline__ vector_t load(const real* __restrict__ row, int first, int lane,
                                         int lanes, int width, bool aligned, bool wide) {
  vector_t v;
  if (aligned && wide && first + (lane + 1) * WIDTH <= width) {
    v = *reinterpret_cast<const vector_t*>(row + first + lane * WIDTH);
  } else {
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      const int j = column_of(first, lane, e, lanes, aligned);
      v.e[e] = j < width ? row[j] : real(0);
    }
  }
  return v;
}

// out[r, i] = (C z_r)[g], for RHS right-hand sides: head[r, j] = z_r[j] for j < k, and rest[r, i] =
// z_r[g], read for g >= k.
template <int RHS>
__device__ __forceinline__ void multiply(const real* __restrict__ dense, index_t stride,
                                         int aligned, const real* __restrict__ diagonal,
                                         const index_t* __restrict__ rows, index_t n, int k,
                                         const real* __restrict__ head, index_t head_stride,
                                         int head_aligned, const real* __restrict__ rest,
                                         index_t rest_stride, real* __restrict__ out,
                                         index_t out_stride, int count) {
  const int lane = threadIdx.x % LANES;
  const index_t first_line =
      (static_cast<index_t>(blockIdx.x) * WARPS + threadIdx.x / WARP) * WARP_LINES +
      threadIdx.x % WARP / LANES * LINES;
  const real* row[LINES];
  int width[LINES];
  real sum[LINES][RHS];
#pragma unroll
  for (int q = 0; q < LINES; ++q) {
    const index_t i = first_line + q, g = i < n ? row_of(rows, i) : 0;
    row[q] = dense + g * stride;
    width[q] = i < n ? width_of(g, k) : 0;
#pragma unroll
    for (int r = 0; r < RHS; ++r) sum[q][r] = 0;
  }
  for (int first = 0; first < k; first += LANES * WIDTH) {
    vector_t a[LINES];
#pragma unroll
    for (int q = 0; q < LINES; ++q)
      a[q] = load(row[q], first, lane, LANES, width[q], aligned, true);
#pragma unroll
    for (int r = 0; r < RHS; ++r) {
      if (r >= count) break;
      const vector_t w = load(head + r * head_stride, first, lane, LANES, k, aligned, head_aligned);
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
    const index_t i = first_line + q;
    if (lane != q || i >= n) continue;
    const index_t g = row_of(rows, i);
    const real d = g >= k ? diagonal[g - k] : real(0);
#pragma unroll
    for (int r = 0; r < RHS; ++r)
      if (r < count)
        out[r * out_stride + i] = g >= k ? sum[q][r] + d * rest[r * rest_stride + i] : sum[q][r];
  }
}

// Block b takes its share of the lines: partial[b, r, j] = sum_i x[r, i] C[g, j] in float64, and
// rest[r, i] = C[g, g] x[r, i] for g >= k. For g < k, rest is 0, or not written if rows is null
// (its place is that of the head). float32 products are summed over 16 lines before they are added
// to the float64 sum. A warp takes 32 pieces of a row, or several rows if k is small.
template <int RHS>
__device__ __forceinline__ void transposed(const real* __restrict__ dense, index_t stride,
                                           int aligned, const real* __restrict__ diagonal,
                                           const index_t* __restrict__ rows, index_t n, int k,
                                           const real* __restrict__ x, index_t x_stride,
                                           double* __restrict__ partial, real* __restrict__ rest,
                                           index_t rest_stride, int count, int lanes) {
  constexpr int TILE = 16, TOGETHER = 4;
  __shared__ double sums[WARPS][RHS][WARP * WIDTH];
  const index_t share = (n + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
  const index_t end = begin + share < n ? begin + share : n;
  const int thread = threadIdx.x, lane = thread % lanes, teams = BLOCK / lanes,
            team = thread / lanes;
  const int first = blockIdx.y * WARP * WIDTH;  // more than one piece only if lanes is 32
  double total[RHS][WIDTH];
#pragma unroll
  for (int r = 0; r < RHS; ++r)
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) total[r][e] = 0;
  for (index_t tile = begin + team * TILE; tile < end; tile += teams * TILE) {
    real sum[RHS][WIDTH];
#pragma unroll
    for (int r = 0; r < RHS; ++r)
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) sum[r][e] = 0;
#pragma unroll 1
    for (int q = 0; q < TILE; q += TOGETHER) {
      vector_t a[TOGETHER];
      int width[TOGETHER];
#pragma unroll
      for (int p = 0; p < TOGETHER; ++p) {
        const index_t i = tile + q + p, g = i < end ? row_of(rows, i) : 0;
        width[p] = i < end ? width_of(g, k) : 0;
        a[p] = load(dense + g * stride, first, lane, lanes, width[p], aligned, true);
      }
#pragma unroll
      for (int p = 0; p < TOGETHER; ++p)
#pragma unroll
        for (int r = 0; r < RHS; ++r) {
          const real weight = width[p] && r < count ? x[r * x_stride + tile + q + p] : real(0);
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) sum[r][e] += weight * a[p].e[e];
        }
    }
#pragma unroll
    for (int r = 0; r < RHS; ++r)
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) total[r][e] += sum[r][e];
  }
#pragma unroll
  for (int r = 0; r < RHS; ++r)
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) {
      double t = total[r][e];
      for (int bits = lanes; bits < WARP; bits *= 2) t += __shfl_xor_sync(FULL_MASK, t, bits);
      if (thread % WARP < lanes) sums[thread / WARP][r][column_of(0, lane, e, lanes, aligned)] = t;
    }
  __syncthreads();
  const int columns = lanes * WIDTH;
  for (int p = thread; p < count * columns; p += BLOCK) {
    const int r = p / columns, j = first + p % columns;
    if (j >= k) continue;
    double t = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) t += sums[w][r][p % columns];
    partial[(static_cast<index_t>(blockIdx.x) * count + r) * k + j] = t;
  }
  if (blockIdx.y == 0)
    for (index_t i = begin + thread; i < end; i += BLOCK) {
      const index_t g = row_of(rows, i);
      if (g < k && !rows) continue;
      for (int r = 0; r < count; ++r)
        rest[r * rest_stride + i] = g < k ? real(0) : diagonal[g - k] * x[r * x_stride + i];
    }
}

// dense_bar[i, j] = sum_r u[r, i] head[r, j] within the row's width, 0 beyond it; diagonal_bar[i -
// skip] = sum_r u[r, i] rest[r, i], 0 for g < k, for lines i >= skip.
extern "C" __global__ void __launch_bounds__(BLOCK)
    outer(real* __restrict__ dense_bar, int aligned, real* __restrict__ diagonal_bar, index_t skip,
          const index_t* __restrict__ rows, index_t n, int k, const real* __restrict__ u,
          index_t u_stride, const real* __restrict__ head, index_t head_stride, int head_aligned,
          const real* __restrict__ rest, index_t rest_stride, int count) {
  const int lane = threadIdx.x % LANES;
  const index_t first_line =
      (static_cast<index_t>(blockIdx.x) * WARPS + threadIdx.x / WARP) * WARP_LINES +
      threadIdx.x % WARP / LANES * LINES;
  int width[LINES];
#pragma unroll
  for (int q = 0; q < LINES; ++q)
    width[q] = first_line + q < n ? width_of(row_of(rows, first_line + q), k) : 0;
  for (int first = 0; first < k; first += LANES * WIDTH) {
    vector_t sum[LINES] = {};
    for (int r = 0; r < count; ++r) {
      const vector_t w = load(head + r * head_stride, first, lane, LANES, k, aligned, head_aligned);
#pragma unroll
      for (int q = 0; q < LINES; ++q) {
        const real weight = width[q] ? u[r * u_stride + first_line + q] : real(0);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) sum[q].e[e] += weight * w.e[e];
      }
    }
#pragma unroll
    for (int q = 0; q < LINES; ++q) {
      if (!width[q]) continue;
      real* row = dense_bar + (first_line + q) * k;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        if (column_of(first, lane, e, LANES, aligned) >= width[q]) sum[q].e[e] = 0;
      if (aligned && first + (lane + 1) * WIDTH <= k) {
        *reinterpret_cast<vector_t*>(row + first + lane * WIDTH) = sum[q];
      } else {
#pragma unroll
        for (int e = 0; e < WIDTH; ++e) {
          const int j = column_of(first, lane, e, LANES, aligned);
          if (j < k) row[j] = sum[q].e[e];
        }
      }
    }
  }
#pragma unroll
  for (int q = 0; q < LINES; ++q) {
    const index_t i = first_line + q;
    if (lane != q || i >= n || i < skip) continue;
    real sum = 0;
    if (row_of(rows, i) >= k)
      for (int r = 0; r < count; ++r) sum += u[r * u_stride + i] * rest[r * rest_stride + i];
    diagonal_bar[i - skip] = sum;
  }
}

// partial[b] = sum of log C[g, g] over the lines of block b, in float64.
extern "C" __global__ void __launch_bounds__(BLOCK)
    log_diagonal(const real* __restrict__ dense, index_t stride, const real* __restrict__ diagonal,
                 const index_t* __restrict__ rows, index_t n, int k, double* __restrict__ partial) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
       i += static_cast<index_t>(gridDim.x) * BLOCK) {
    const index_t g = row_of(rows, i);
    sum += log(g < k ? dense[g * stride + g] : diagonal[g - k]);
  }
  sum = sum_warp(sum);  // sum_block takes more registers on sm_100
  if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += sums[w];
  partial[blockIdx.x] = sum;
}

// out[i] = bar / C[g, g]: cotangents of diagonal entries for that of the log-determinant.
extern "C" __global__ void __launch_bounds__(BLOCK)
    log_diagonal_vjp(const double* __restrict__ bar, const real* __restrict__ dense, index_t stride,
                     const real* __restrict__ diagonal, const index_t* __restrict__ rows, index_t n,
                     int k, real* __restrict__ out) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= n) return;
  const index_t g = row_of(rows, i);
  out[i] = static_cast<real>(*bar) / (g < k ? dense[g * stride + g] : diagonal[g - k]);
}

// out[r, j] = sum over b of partial[b, r, j], in a fixed order: 32 shares of the blocks, then the
// shares in turn.
template <class T>
__device__ __forceinline__ void sum_blocks(const double* __restrict__ partial, int blocks,
                                           int count, int k, T* __restrict__ out,
                                           index_t out_stride) {
  constexpr int FINISHED = 8, SHARES = BLOCK / FINISHED;
  __shared__ double sums[SHARES][FINISHED];
  const index_t columns = static_cast<index_t>(count) * k;
  const index_t column = static_cast<index_t>(blockIdx.x) * FINISHED + threadIdx.x % FINISHED;
  double sum = 0;
  if (column < columns)
    for (int b = threadIdx.x / FINISHED; b < blocks; b += SHARES)
      sum += partial[b * columns + column];
  sums[threadIdx.x / FINISHED][threadIdx.x % FINISHED] = sum;
  __syncthreads();
  if (threadIdx.x >= FINISHED || column >= columns) return;
  sum = 0;
#pragma unroll
  for (int s = 0; s < SHARES; ++s) sum += sums[s][threadIdx.x];
  out[column / k * out_stride + column % k] = static_cast<T>(sum);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_heads(const double* __restrict__ partial, int blocks, int count, int k,
              real* __restrict__ out, index_t out_stride) {
  sum_blocks(partial, blocks, count, k, out, out_stride);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_logs(const double* __restrict__ partial, int blocks, double* __restrict__ out) {
  sum_blocks(partial, blocks, 1, 1, out, 1);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply_1(const real* __restrict__ dense, index_t stride, int aligned,
               const real* __restrict__ diagonal, const index_t* __restrict__ rows, index_t n,
               int k, const real* __restrict__ head, index_t head_stride, int head_aligned,
               const real* __restrict__ rest, index_t rest_stride, real* __restrict__ out,
               index_t out_stride, int count) {
  multiply<1>(dense, stride, aligned, diagonal, rows, n, k, head, head_stride, head_aligned, rest,
              rest_stride, out, out_stride, count);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    multiply_4(const real* __restrict__ dense, index_t stride, int aligned,
               const real* __restrict__ diagonal, const index_t* __restrict__ rows, index_t n,
               int k, const real* __restrict__ head, index_t head_stride, int head_aligned,
               const real* __restrict__ rest, index_t rest_stride, real* __restrict__ out,
               index_t out_stride, int count) {
  multiply<4>(dense, stride, aligned, diagonal, rows, n, k, head, head_stride, head_aligned, rest,
              rest_stride, out, out_stride, count);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 3)
    transposed_1(const real* __restrict__ dense, index_t stride, int aligned,
                 const real* __restrict__ diagonal, const index_t* __restrict__ rows, index_t n,
                 int k, const real* __restrict__ x, index_t x_stride, double* __restrict__ partial,
                 real* __restrict__ rest, index_t rest_stride, int count, int lanes) {
  transposed<1>(dense, stride, aligned, diagonal, rows, n, k, x, x_stride, partial, rest,
                rest_stride, count, lanes);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    transposed_4(const real* __restrict__ dense, index_t stride, int aligned,
                 const real* __restrict__ diagonal, const index_t* __restrict__ rows, index_t n,
                 int k, const real* __restrict__ x, index_t x_stride, double* __restrict__ partial,
                 real* __restrict__ rest, index_t rest_stride, int count, int lanes) {
  transposed<4>(dense, stride, aligned, diagonal, rows, n, k, x, x_stride, partial, rest,
                rest_stride, count, lanes);
}

// Tiles of 64 x 64 pairs in shared memory: staging of their inputs and sums of squared distances.
//
// Squared distances are sums of ((x' - x) / l)^2. Differences of unscaled inputs are exact for near
// points, wherever the origin is, and cost 3 operations per feature and pair; inputs scaled while
// staging cost 2 (see INSIDE). One operation, in |a|^2 + |b|^2 - 2 a.b, would not pay at 8
// features: with u the unit of rounding its error is up to 4 u (|a|^2 + |b|^2), so an error of k of
// at most 4 u times the variance needs a second, direct sum for all pairs with |dk / d(r^2)| (|a|^2
// + |b|^2) above the variance. With standardised inputs and lengthscales from 1 to 2 these are 1 to
// 3 % of the pairs for the RBF: almost every warp, of 8 x 64 pairs, has one, and a single lane's
// pair delays the whole warp.
#pragma once

#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
// threads per edge of a tile, rows or columns per thread
constexpr int SIDE = 16, EACH = 4, TILE = SIDE * EACH;
constexpr int VECTORS = EACH / WIDTH;
// row stride in shared memory: 16-byte steps, other banks for the next feature
constexpr int PITCH = TILE + WIDTH;
constexpr int FEATURES = 16;  // in shared memory at a time, for a matrix
constexpr int CHUNK = 8;      // the same, for a contraction
// blocks per multiprocessor: 80 registers in float32, 128 in float64
constexpr int RESIDENT = WIDTH == 4 ? 3 : 2;

// An input a that is scaled before its difference is taken has an error of up to u |a_d| in feature
// d, with an independent sign. So the error of r is at most u (|a| + |b|), and usually u times one
// coordinate. The relative error of k is at most as large, because |dk / dr| is at most the
// variance (for Matern-1/2, at 0). Within 4 lengthscales of the origin that is about the error of
// the exponential function, and equal points still have distance 0. If a coordinate of a tile is
// further out, or NaN, its differences are taken before scaling.
constexpr real INSIDE = 4;

// Return the column of a tile for column q of a thread: 128 contiguous bits if they can be loaded
// and stored as vectors (`aligned`), otherwise neighbouring lanes have neighbouring columns.
__device__ __forceinline__ int column_of(int q, bool aligned) {
  const int t = threadIdx.x % SIDE;
  return aligned ? q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH : q * SIDE + t;
}

// Return the place of column j of a tile in shared memory: either way a thread finds its columns as
// vectors at the same places.
__device__ __forceinline__ int place_of(unsigned j, bool aligned) {
  const unsigned t = j % SIDE, q = j / SIDE % EACH;
  return aligned ? j : q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH;
}

__device__ __forceinline__ int row_of(int p) { return threadIdx.x / SIDE * EACH + p; }

// Return how many of N items are in the tile that begins with item `first`.
__device__ __forceinline__ int left(index_t first, index_t N) {
  return static_cast<int>(min(N - first, static_cast<index_t>(TILE)));
}

// A thread's share of staging: feature d of every STEP-th row of X1 and of X2. SPAN neighbouring
// threads load SPAN contiguous features: a power of two, which avoids divisions, and small enough
// that every thread has rows.
template <int SPAN>
struct Share {
  static constexpr int STEP = BLOCK / SPAN, PIECES = TILE / STEP;
  const int d = threadIdx.x % SPAN, first = threadIdx.x / SPAN;
  real a[PIECES], b[PIECES];

  // Offsets in a tile have 32 bits. Missing features and rows are set to 0.
  __device__ __forceinline__ void load(const real* __restrict__ X1, int count1,
                                       const real* __restrict__ X2, int count2, int D,
                                       int features) {
    const unsigned place = (first * D + d) * sizeof(real), jump = STEP * D * sizeof(real);
    if (d >= features) count1 = count2 = 0;
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      a[k] = first + k * STEP < count1 ? at(X1, place + k * jump) : real(0);
      b[k] = first + k * STEP < count2 ? at(X2, place + k * jump) : real(0);
    }
  }
  __device__ __forceinline__ static real at(const real* X, unsigned bytes) {
    return *reinterpret_cast<const real*>(reinterpret_cast<const char*>(X) + bytes);
  }
  // Return whether all scaled inputs are INSIDE; NaN is not.
  __device__ __forceinline__ bool scale(real scale1, real scale2) {
    bool inside = true;
#pragma unroll
    for (int k = 0; k < PIECES; ++k) {
      a[k] *= scale1, b[k] *= scale2;
      inside &= fabs(a[k]) <= INSIDE && fabs(b[k]) <= INSIDE;
    }
    return inside;
  }
  template <int COUNT>
  __device__ __forceinline__ void store(real (&rows)[COUNT][PITCH], real (&columns)[COUNT][PITCH],
                                        bool aligned) const {
#pragma unroll
    for (int k = 0; k < PIECES; ++k) rows[d][first + k * STEP] = a[k];
    if (aligned) {
#pragma unroll
      for (int k = 0; k < PIECES; ++k) columns[d][first + k * STEP] = b[k];
    } else {
#pragma unroll
      for (int k = 0; k < PIECES; ++k) columns[d][place_of(first + k * STEP, false)] = b[k];
    }
  }
};

// Call f(share) with the thread's share of D features, of which at most COUNT are staged at a time.
template <int COUNT, class F>
__device__ __forceinline__ auto with_share(int D, F f) {
  if constexpr (COUNT > 8)
    if (D > 8) return f(Share<16>{});
  return D > 4 ? f(Share<8>{}) : f(Share<4>{});
}

__device__ __forceinline__ void read(const real* place, int step, real (&v)[EACH]) {
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const vector_t part = *reinterpret_cast<const vector_t*>(place + i * step);
#pragma unroll
    for (int e = 0; e < WIDTH; ++e) v[i * WIDTH + e] = part.e[e];
  }
}
template <int COUNT>
__device__ __forceinline__ void read_rows(const real (&tile)[COUNT][PITCH], int d,
                                          real (&v)[EACH]) {
  read(&tile[d][row_of(0)], WIDTH, v);
}
template <int COUNT>
__device__ __forceinline__ void read_columns(const real (&tile)[COUNT][PITCH], int d,
                                             real (&v)[EACH]) {
  read(&tile[d][threadIdx.x % SIDE * WIDTH], SIDE * WIDTH, v);
}

// sum += ((b - a) scale)^2 over `count` features; inputs may be SCALED already. Exchanging a and b
// changes no bit.
template <bool SCALED, int COUNT>
__device__ __forceinline__ void add_squares(const real (&rows)[COUNT][PITCH],
                                            const real (&columns)[COUNT][PITCH],
                                            const real (&scale)[COUNT], int count,
                                            real (&sum)[EACH][EACH]) {
#pragma unroll(SCALED&& WIDTH == 4 ? 4 : 2)  // limited by registers
  for (int d = 0; d < count; ++d) {
    real a[EACH], b[EACH];
    read_rows(rows, d, a);
    read_columns(columns, d, b);
    const real s = SCALED ? real(1) : scale[d];
#pragma unroll
    for (int p = 0; p < EACH; ++p)
#pragma unroll
      for (int q = 0; q < EACH; ++q) {
        const real e = SCALED ? b[q] - a[p] : (b[q] - a[p]) * s;
        sum[p][q] += e * e;
      }
  }
}

// Load a thread's columns of a row of a matrix (N1, N2): 128 bits at a time if `aligned`.
__device__ __forceinline__ void load(const real* __restrict__ row, index_t first, index_t N2,
                                     bool aligned, real (&v)[EACH]) {
  if (aligned) {
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const index_t j = first + column_of(i * WIDTH, true);
      vector_t part = {};
      if (j < N2) part = *reinterpret_cast<const vector_t*>(row + j);
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) v[i * WIDTH + e] = part.e[e];
    }
  } else {
#pragma unroll
    for (int q = 0; q < EACH; ++q) {
      const index_t j = first + column_of(q, false);
      v[q] = j < N2 ? row[j] : real(0);
    }
  }
}

// Tiles of 64 x 64 pairs in shared memory: how a block brings their inputs there, and sums squared distances.
//
// Squared distances are sums of ((x' - x) / l)^2. With differences taken before anything is scaled they are exact for near points,
// wherever the origin is, for 3 operations a feature and pair; of inputs that are scaled as they are brought they take 2 (see INSIDE).
// One operation, in |a|^2 + |b|^2 - 2 a.b, would not pay at 8 features. With u the unit of rounding it is off by up to 4 u (|a|^2 + |b|^2),
// so that for k to be off by no more than 4 u of the variance all pairs have to be summed again for which |dk / d(r^2)| (|a|^2 + |b|^2)
// is above the variance. With standardised inputs and lengthscales from 1 to 2 these are 1 to 3 pairs in a hundred for the RBF: next to
// no warp, of 8 x 64 pairs, is without one, and one lane's pair keeps the others waiting.
#pragma once

#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int SIDE = 16, EACH = 4, TILE = SIDE * EACH;  // threads along an edge of a tile, rows and columns of a thread
constexpr int VECTORS = EACH / WIDTH;
constexpr int PITCH = TILE + WIDTH;  // of a feature in shared memory: 16-byte steps, and other banks for the next feature
constexpr int FEATURES = 16;         // in shared memory at a time, for a matrix
constexpr int CHUNK = 8;             // likewise, for a contraction
constexpr int RESIDENT = WIDTH == 4 ? 3 : 2;  // blocks of a multiprocessor: 80 registers in float32, 128 in float64

// An input a that is scaled before its difference is taken is off by up to u |a_d| in feature d, each with a sign of its own. So r is off
// by at most u (|a| + |b|), and as a rule by u times one coordinate; so is k over the variance at most, for |dk / dr| is at most the
// variance (in Matern-1/2, at 0). Within 4 lengthscales of the origin that is about what the exponential function is off by, and equal
// points still have distance 0. Where one coordinate of a tile is further off, or NaN, its differences are taken first.
constexpr real INSIDE = 4;

// Column of a tile that is number q of a thread: 128 bits side by side where they can be loaded and stored so (`aligned`), else
// neighbouring lanes have neighbouring columns.
__device__ __forceinline__ int column_of(int q, bool aligned) {
  const int t = threadIdx.x % SIDE;
  return aligned ? q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH : q * SIDE + t;
}

// Where in shared memory column j of a tile is kept: a thread finds its columns as vectors at the same places in either case.
__device__ __forceinline__ int place_of(unsigned j, bool aligned) {
  const unsigned t = j % SIDE, q = j / SIDE % EACH;
  return aligned ? j : q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH;
}

__device__ __forceinline__ int row_of(int p) { return threadIdx.x / SIDE * EACH + p; }

// How many of N lie in the tile that begins with number `first`, one of them.
__device__ __forceinline__ int left(index_t first, index_t N) {
  return static_cast<int>(min(N - first, static_cast<index_t>(TILE)));
}

// What a thread brings into a tile: feature d of every STEP-th row of X1 and of X2. SPAN neighbouring threads bring as many features side
// by side: a power of two, so that nothing is divided, and so many that every thread has rows.
template <int SPAN>
struct Share {
  static constexpr int STEP = BLOCK / SPAN, PIECES = TILE / STEP;
  const int d = threadIdx.x % SPAN, first = threadIdx.x / SPAN;
  real a[PIECES], b[PIECES];

  // Offsets in a tile have 32 bits. Features and rows that there are not count as 0.
  __device__ __forceinline__ void load(const real* __restrict__ X1, int count1, const real* __restrict__ X2, int count2, int D,
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
  // Whether all are INSIDE after this; NaN is not.
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
  __device__ __forceinline__ void store(real (&rows)[COUNT][PITCH], real (&columns)[COUNT][PITCH], bool aligned) const {
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

// f(share) for the thread's share of D features, of which at most COUNT are staged at a time.
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
__device__ __forceinline__ void read_rows(const real (&tile)[COUNT][PITCH], int d, real (&v)[EACH]) {
  read(&tile[d][row_of(0)], WIDTH, v);
}
template <int COUNT>
__device__ __forceinline__ void read_columns(const real (&tile)[COUNT][PITCH], int d, real (&v)[EACH]) {
  read(&tile[d][threadIdx.x % SIDE * WIDTH], SIDE * WIDTH, v);
}

// sum += ((b - a) scale)^2 over `count` features, or of inputs that are SCALED. Exchanging a and b changes no bit.
template <bool SCALED, int COUNT>
__device__ __forceinline__ void add_squares(const real (&rows)[COUNT][PITCH], const real (&columns)[COUNT][PITCH],
                                            const real (&scale)[COUNT], int count, real (&sum)[EACH][EACH]) {
#pragma unroll (SCALED && WIDTH == 4 ? 4 : 2)  // what the registers hold
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

// A thread's columns of a row of a matrix (N1, N2): 128 bits at a time where `aligned`.
__device__ __forceinline__ void load(const real* __restrict__ row, index_t first, index_t N2, bool aligned, real (&v)[EACH]) {
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

// Covariance matrices of stationary functions and weighted inner products, and the contraction of their cotangents.
// See fastsvgp/kernels/__init__.py.
//
// A block holds a tile of 64 x 64 pairs, 4 x 4 for each of its 256 threads: per feature two or four 128-bit reads of shared memory
// for 16 pairs, and few enough registers for several blocks to overlap loads, arithmetic and stores on a multiprocessor. 64 rather
// than 128 rows, so that a matrix of 1000 x 1000 still is 256 blocks.
//
// Squared distances are sums of ((x' - x) / l)^2, with differences taken before anything is scaled: exact for near points, wherever
// the origin is. That is 3 operations a feature and pair; with about 15 for the function itself and an issue rate of 31 float32 (or
// float64) operations in the time that HBM3 takes for one entry of K, writing K and computing it meet at about 6 features. From
// 41 features on pairwise_wide.cu takes over.
#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int SIDE = 16, EACH = 4, TILE = SIDE * EACH;  // threads along an edge of a tile, rows and columns of a thread
constexpr int VECTORS = EACH / WIDTH;
constexpr int PITCH = TILE + WIDTH;  // of a feature in shared memory: 16-byte steps, and other banks for the next feature
constexpr int FEATURES = 16;         // in shared memory at a time, for a matrix
constexpr int CHUNK = 8;             // likewise, for a contraction
constexpr int RESIDENT = WIDTH == 4 ? 3 : 2;  // blocks of a multiprocessor: 80 registers in float32, 128 in float64

// --- tiles -----------------------------------------------------------------------------------------------------------------

// Column of a tile that is number q of a thread: 128 bits side by side where they can be loaded and stored so (`aligned`), else
// neighbouring lanes have neighbouring columns.
__device__ __forceinline__ int column_of(int q, bool aligned) {
  const int t = threadIdx.x % SIDE;
  return aligned ? q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH : q * SIDE + t;
}

// Where in shared memory column j of a tile is kept: a thread finds its columns as vectors at the same places in either case.
__device__ __forceinline__ int place_of(int j, bool aligned) {
  const int t = j % SIDE, q = j / SIDE;
  return aligned ? j : q / WIDTH * (SIDE * WIDTH) + t * WIDTH + q % WIDTH;
}

__device__ __forceinline__ int row_of(int p) { return threadIdx.x / SIDE * EACH + p; }

// tile[d][n] = X[first_row + n, first + d], features beyond D and rows beyond N as 0.
template <int COUNT>
__device__ __forceinline__ void stage(real (&tile)[COUNT][PITCH], const real* __restrict__ X, index_t first_row, index_t N, int first,
                                      int D, bool aligned) {
#pragma unroll
  for (int p = threadIdx.x; p < TILE * COUNT; p += BLOCK) {
    const int d = p % COUNT, n = p / COUNT;
    tile[d][place_of(n, aligned)] = first + d < D && first_row + n < N ? X[(first_row + n) * D + first + d] : real(0);
  }
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

// sum += ((b - a) scale)^2 over `count` features. Exchanging a and b changes no bit.
template <int COUNT>
__device__ __forceinline__ void add_squares(const real (&rows)[COUNT][PITCH], const real (&columns)[COUNT][PITCH],
                                            const real (&scale)[COUNT], int count, real (&sum)[EACH][EACH]) {
#pragma unroll 2
  for (int d = 0; d < count; ++d) {
    real a[EACH], b[EACH];
    read_rows(rows, d, a);
    read_columns(columns, d, b);
    const real s = scale[d];
#pragma unroll
    for (int p = 0; p < EACH; ++p)
#pragma unroll
      for (int q = 0; q < EACH; ++q) {
        const real e = (b[q] - a[p]) * s;
        sum[p][q] += e * e;
      }
  }
}

// Rows of a matrix (N1, N2): 128 bits at a time where `aligned`.
__device__ __forceinline__ void store(real* __restrict__ row, index_t first, index_t N2, bool aligned, const real (&v)[EACH]) {
  if (aligned) {
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const index_t j = first + column_of(i * WIDTH, true);
      vector_t part;
#pragma unroll
      for (int e = 0; e < WIDTH; ++e) part.e[e] = v[i * WIDTH + e];
      if (j < N2) *reinterpret_cast<vector_t*>(row + j) = part;
    }
  } else {
#pragma unroll
    for (int q = 0; q < EACH; ++q) {
      const index_t j = first + column_of(q, false);
      if (j < N2) row[j] = v[q];
    }
  }
}
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

// --- pairs of a thread ----------------------------------------------------------------------------------------

template <class F>
__device__ __forceinline__ void for_pairs(F f) {
#pragma unroll
  for (int p = 0; p < EACH; ++p)
#pragma unroll
    for (int q = 0; q < EACH; ++q) f(p, q);
}

// v := k from v = r^2.
__device__ __forceinline__ void evaluate(const Function& f, real (&v)[EACH][EACH]) {
  if (f.root) for_pairs([&](int p, int q) { v[p][q] = value<true>(f, v[p][q]); });
  else for_pairs([&](int p, int q) { v[p][q] = value<false>(f, v[p][q]); });
}

// For a row of pairs: v := K_bar q from v = r^2; returns the sum of K_bar k.
__device__ __forceinline__ real weigh(const Function& f, const real (&bar)[EACH], real (&v)[EACH]) {
  real sum = 0;
  if (f.root) {
#pragma unroll
    for (int q = 0; q < EACH; ++q) v[q] = pull<true>(f, bar[q], v[q], sum);
  } else {
#pragma unroll
    for (int q = 0; q < EACH; ++q) v[q] = pull<false>(f, bar[q], v[q], sum);
  }
  return sum;
}

// --- matrices ------------------------------------------------------------------------------------------------------------------

// Block (ti, tj) of matrix number `item` of a batch; blocks in a row of tiles follow one another, as the rows of K do.
struct Tile {
  index_t item, row, column;
};
__device__ __forceinline__ Tile tile_of(index_t N1, index_t N2) {
  const unsigned down = static_cast<unsigned>((N1 + TILE - 1) / TILE), across = static_cast<unsigned>((N2 + TILE - 1) / TILE);
  const unsigned line = blockIdx.x / across;
  return {line / down, static_cast<index_t>(line % down) * TILE, static_cast<index_t>(blockIdx.x % across) * TILE};
}

// K[item, i, j] = k(X1[item, i], X2[item, j]).
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
matrix(int family, const real* __restrict__ X1, index_t N1, const real* __restrict__ X2, index_t N2, int D,
       const real* __restrict__ variance_at, real variance, const real* __restrict__ lengthscales, int step, real lengthscale,
       real* __restrict__ K, int aligned) {
  __shared__ __align__(16) real rows[FEATURES][PITCH];
  __shared__ __align__(16) real columns[FEATURES][PITCH];
  __shared__ real scale[FEATURES];
  const Tile tile = tile_of(N1, N2);
  X1 += tile.item * N1 * D;
  X2 += tile.item * N2 * D;
  K += tile.item * N1 * N2;
  real v[EACH][EACH] = {};
  for (int first = 0; first < D; first += FEATURES) {
    if (first) __syncthreads();
    stage(rows, X1, tile.row, N1, first, D, true);
    stage(columns, X2, tile.column, N2, first, D, aligned);
    if (const int d = threadIdx.x; d < FEATURES && first + d < D)
      scale[d] = 1 / length(lengthscales, step, lengthscale, first + d);
    __syncthreads();
    add_squares(rows, columns, scale, min(FEATURES, D - first), v);
  }
  evaluate(function_of(family, parameter(variance_at, 0, variance, 0)), v);
#pragma unroll
  for (int p = 0; p < EACH; ++p) {
    const index_t i = tile.row + row_of(p);
    if (i < N1) store(K + i * N2, tile.column, N2, aligned, v[p]);
  }
}

// K = (X1 weights) X2'; with `symmetric` both sides take the square root of the weights, so that exchanging them changes no bit.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
inner(const real* __restrict__ X1, index_t N1, const real* __restrict__ X2, index_t N2, int D, const real* __restrict__ weights, int step,
      real weight, int symmetric, real* __restrict__ K, int aligned) {
  __shared__ __align__(16) real rows[FEATURES][PITCH];
  __shared__ __align__(16) real columns[FEATURES][PITCH];
  __shared__ real scale[2][FEATURES];
  const Tile tile = tile_of(N1, N2);
  real v[EACH][EACH] = {};
  for (int first = 0; first < D; first += FEATURES) {
    if (first) __syncthreads();
    stage(rows, X1, tile.row, N1, first, D, true);
    stage(columns, X2, tile.column, N2, first, D, aligned);
    if (const int d = threadIdx.x; d < FEATURES && first + d < D) {
      const real w = parameter(weights, step, weight, first + d);
      scale[0][d] = symmetric ? sqrt(w) : w;
      scale[1][d] = symmetric ? sqrt(w) : real(1);
    }
    __syncthreads();
#pragma unroll 2
    for (int d = 0; d < min(FEATURES, D - first); ++d) {
      real a[EACH], b[EACH];
      read_rows(rows, d, a);
      read_columns(columns, d, b);
#pragma unroll
      for (int p = 0; p < EACH; ++p) a[p] *= scale[0][d], b[p] *= scale[1][d];
      for_pairs([&](int p, int q) { v[p][q] += a[p] * b[q]; });
    }
  }
#pragma unroll
  for (int p = 0; p < EACH; ++p) {
    const index_t i = tile.row + row_of(p);
    if (i < N1) store(K + i * N2, tile.column, N2, aligned, v[p]);
  }
}

// --- contractions --------------------------------------------------------------------------------------------------------------

// Sums of N values over the lanes that differ in bits below LANES; lane l receives that of value l % LANES / (LANES / N).
// N = 16 of 16 lanes take 15 exchanges, where one sum after the other would take 64.
template <int N, int LANES, int ALL>
__device__ __forceinline__ real sum_lanes(real (&v)[ALL]) {
  if constexpr (LANES == 1) {
    return v[0];
  } else if constexpr (N == 1) {
    v[0] += __shfl_xor_sync(FULL_MASK, v[0], LANES / 2);
    return sum_lanes<1, LANES / 2>(v);
  } else {
    const bool upper = threadIdx.x & LANES / 2;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const real kept = upper ? v[i + N / 2] : v[i], sent = upper ? v[i] : v[i + N / 2];
      v[i] = kept + __shfl_xor_sync(FULL_MASK, sent, LANES / 2);
    }
    return sum_lanes<N / 2, LANES / 2>(v);
  }
}

__device__ __forceinline__ void add_to(double* place, double value, bool begin) { *place = begin ? value : *place + value; }

// With w = K_bar q and e = x'_j - x_i, a block's share of: side1[., d, i] = sum_j w e_d; side2[., d, j] = sum_i w e_d (BOTH);
// squares[., d] = sum_ij w e_d^2; total[.] = sum_ij K_bar k. All in float64; float32 terms are summed over one tile at most before.
//
// A block takes `down` x `across` tiles, in a fixed order, and owns its places in the results, so that no sum depends on who comes
// first. Per pair and feature: 3 operations for the distance (none for an RBF whose K is given), 5 for both sides, and about 1.5
// for the sums over lanes and warps. K_bar is read once, K at most once; side1 and side2 are read and written once a tile, a share
// D / 16 of the bytes of K_bar, which stays in the caches.
template <bool BOTH>
__device__ __forceinline__ void contract(int family, const real* __restrict__ K_bar, int aligned, const real* __restrict__ K,
                                         const real* __restrict__ X1, index_t N1, const real* __restrict__ X2, index_t N2, int D,
                                         const real* __restrict__ variance_at, real variance, const real* __restrict__ lengthscales,
                                         int step, real lengthscale, int down, int across, int contracted, double* __restrict__ side1,
                                         double* __restrict__ side2, double* __restrict__ squares, double* __restrict__ total) {
  constexpr int GROUP = BOTH ? WIDTH / 2 : WIDTH;  // features whose sums go over the lanes together: what the registers hold
  __shared__ __align__(16) real rows[CHUNK][PITCH];
  __shared__ __align__(16) real columns[CHUNK][PITCH];
  __shared__ real scale[CHUNK];
  constexpr int COLUMNS = BOTH ? TILE : 0;  // of a warp's sums for a feature; one more is that of w e^2
  __shared__ real sums[WARPS][CHUNK][COLUMNS + 1];
  __shared__ double totals[WARPS];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const index_t high = static_cast<index_t>(down) * TILE, wide = static_cast<index_t>(across) * TILE;
  const unsigned bands = static_cast<unsigned>((N1 + high - 1) / high), strips = static_cast<unsigned>((N2 + wide - 1) / wide);
  const unsigned line = blockIdx.x / strips, strip = blockIdx.x % strips, band = line % bands;
  const index_t item = line / bands;
  const index_t row_begin = band * high, row_end = min(row_begin + high, N1);
  const index_t column_begin = strip * wide, column_end = min(column_begin + wide, N2);
  double sum = 0;
  for (index_t row = row_begin; row < row_end; row += TILE)
    for (index_t column = column_begin; column < column_end; column += TILE) {
      real w[EACH][EACH] = {};  // r^2 at first
      const auto stage_both = [&](int first) {
        __syncthreads();
        stage(rows, X1 + item * N1 * D, row, N1, first, D, true);
        stage(columns, X2 + item * N2 * D, column, N2, first, D, aligned);
        if (const int d = threadIdx.x; d < CHUNK && first + d < D)
          scale[d] = 1 / length(lengthscales, step, lengthscale, first + d);
        __syncthreads();
      };
      if (!K)
        for (int first = 0; first < D; first += CHUNK) {
          stage_both(first);
          add_squares(rows, columns, scale, min(CHUNK, D - first), w);
        }
      real part = 0;
      const Function f = function_of(family, parameter(variance_at, 0, variance, 0));
#pragma unroll
      for (int p = 0; p < EACH; ++p) {
        const index_t i = row + row_of(p), width = i < N1 ? N2 : 0;
        real bar[EACH];
        load(K_bar + (item * N1 + i) * N2, column, width, aligned, bar);
        if (K) {
          load(K + (item * N1 + i) * N2, column, width, aligned, w[p]);
#pragma unroll
          for (int q = 0; q < EACH; ++q) w[p][q] *= bar[q], part += w[p][q];
        } else {
          part += weigh(f, bar, w[p]);
        }
      }
      sum += part;
      if (!contracted) continue;
      const bool first_column = column == column_begin, first_row = row == row_begin;
      for (int first = 0; first < D; first += CHUNK) {
        if (K || D > CHUNK) stage_both(first);
#pragma unroll 1
        for (int group = 0; group < min(CHUNK, D - first); group += GROUP) {
          real row_sums[GROUP * EACH] = {}, squared[GROUP] = {};
#pragma unroll
          for (int g = 0; g < GROUP; ++g) {
            if (first + group + g >= D) break;
            real a[EACH], b[EACH], column_sum[EACH] = {};
            read_rows(rows, group + g, a);
            read_columns(columns, group + g, b);
            for_pairs([&](int p, int j) {
              const real e = b[j] - a[p], pull = w[p][j] * e;
              row_sums[g * EACH + p] += pull;
              squared[g] += pull * e;
              if (BOTH) column_sum[j] += pull;
            });
            if (BOTH) {  // the two rows of threads of a warp, each lane keeping two of its columns
              const bool upper = lane >= SIDE;
#pragma unroll
              for (int j = 0; j < EACH / 2; ++j) {
                const real kept = upper ? column_sum[j + EACH / 2] : column_sum[j];
                const real sent = upper ? column_sum[j] : column_sum[j + EACH / 2];
                const int place = column_of(upper ? j + EACH / 2 : j, aligned);
                sums[warp][group + g][place] = kept + __shfl_xor_sync(FULL_MASK, sent, SIDE);
              }
            }
          }
          {
            constexpr int SHARED_BY = SIDE / (GROUP * EACH);
            const real row_sum = sum_lanes<GROUP * EACH, SIDE>(row_sums);
            const int place = lane % SIDE / SHARED_BY, d = first + group + place / EACH;
            const index_t i = row + row_of(place % EACH);
            if (lane % SHARED_BY == 0 && d < D && i < N1) add_to(&side1[((item * strips + strip) * D + d) * N1 + i], row_sum, first_column);
          }
          const real square = sum_lanes<GROUP, WARP>(squared);
          if (lane % (WARP / GROUP) == 0) sums[warp][group + lane / (WARP / GROUP)][COLUMNS] = square;
        }
        __syncthreads();
#pragma unroll 1
        for (int p = threadIdx.x; p < min(CHUNK, D - first) * (COLUMNS + 1); p += BLOCK) {
          const int d = p / (COLUMNS + 1), j = p % (COLUMNS + 1);
          double t = 0;
#pragma unroll
          for (int i = 0; i < WARPS; ++i) t += sums[i][d][j];
          if (j == COLUMNS) add_to(&squares[static_cast<index_t>(blockIdx.x) * D + first + d], t, first_row && first_column);
          else if (column + j < N2) add_to(&side2[(line * static_cast<index_t>(D) + first + d) * N2 + column + j], t, first_row);
        }
      }
    }
  sum = sum_warp(sum);  // and not sum_block, with which sm_100 takes more registers
  if (lane == 0) totals[warp] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += totals[w];
  total[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
contract_rows(int family, const real* __restrict__ K_bar, int aligned, const real* __restrict__ K, const real* __restrict__ X1, index_t N1,
              const real* __restrict__ X2, index_t N2, int D, const real* __restrict__ variance_at, real variance,
              const real* __restrict__ lengthscales, int step, real lengthscale, int down, int across, int contracted,
              double* __restrict__ side1, double* __restrict__ squares, double* __restrict__ total) {
  contract<false>(family, K_bar, aligned, K, X1, N1, X2, N2, D, variance_at, variance, lengthscales, step, lengthscale, down, across,
                  contracted, side1, nullptr, squares, total);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
contract_both(int family, const real* __restrict__ K_bar, int aligned, const real* __restrict__ K, const real* __restrict__ X1, index_t N1,
              const real* __restrict__ X2, index_t N2, int D, const real* __restrict__ variance_at, real variance,
              const real* __restrict__ lengthscales, int step, real lengthscale, int down, int across, double* __restrict__ side1,
              double* __restrict__ side2, double* __restrict__ squares, double* __restrict__ total) {
  contract<true>(family, K_bar, aligned, K, X1, N1, X2, N2, D, variance_at, variance, lengthscales, step, lengthscale, down, across, 1,
                 side1, side2, squares, total);
}

// out[item, n, d] = factor / l_d^2 times the sum over s of sides[item, s, d, n], in the order of s.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_sides(const double* __restrict__ sides, int shares, index_t N, int D, double factor, const real* __restrict__ lengthscales, int step,
          real lengthscale, real* __restrict__ out, index_t count) {
  const index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (p >= count) return;
  const index_t n = p % N, item = p / N / D, plane = N * D;
  const int d = static_cast<int>(p / N % D);
  const double* place = sides + item * shares * plane + d * N + n;
  double sum = 0;
#pragma unroll 4
  for (int s = 0; s < shares; ++s) sum += place[s * plane];
  const double l = length(lengthscales, step, lengthscale, d);
  out[(item * N + n) * D + d] = static_cast<real>(factor * sum / l / l);
}

// out[c] = sum over r of parts[r, c], over the variance, or over the cube of lengthscale c (`cubed`).
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_parts(const double* __restrict__ parts, index_t count, int columns, const real* __restrict__ values, int step, real value, int cubed,
          real* __restrict__ out) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t r = threadIdx.x; r < count; r += BLOCK) sum += parts[r * columns + blockIdx.x];
  sum = sum_block(sum, sums);
  if (threadIdx.x) return;
  const double l = length(values, step, value, blockIdx.x);
  out[blockIdx.x] = static_cast<real>(cubed ? sum / l / l / l : sum / parameter(values, step, value, blockIdx.x));
}

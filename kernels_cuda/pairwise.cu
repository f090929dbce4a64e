// Covariance matrices of stationary functions and weighted inner products, and the contraction of
// their cotangents. See fastsvgp/kernels/pairwise.py.
//
// A block computes a tile of 64 x 64 pairs, 4 x 4 per thread of 256: per feature two or four
// 128-bit reads of shared memory serve 16 pairs, and registers are few enough for several blocks to
// overlap loads, arithmetic and stores on a multiprocessor. The tile has 64 rows rather than 128,
// so that a matrix of 1000 x 1000 still gives 256 blocks.
//
// In the time that HBM3 needs for one entry of K, 31 float32 operations can be issued, or 62 for a
// float64 entry, where most operations count twice: writing K and computing it take equal time at 6
// to 8 features. From 41 features on pairwise_wide.cu takes over.
#include "pairwise_tiles.cuh"

// --- pairs of a thread ---------------------------------------------------------------------------

template <class F>
__device__ __forceinline__ void for_pairs(F f) {
#pragma unroll
  for (int p = 0; p < EACH; ++p)
#pragma unroll
    for (int q = 0; q < EACH; ++q) f(p, q);
}

// Replace v = r^2 by k.
__device__ __forceinline__ void evaluate(const Function& f, real (&v)[EACH][EACH]) {
  if (f.root) for_pairs([&](int p, int q) { v[p][q] = value<true>(f, v[p][q]); });
  else for_pairs([&](int p, int q) { v[p][q] = value<false>(f, v[p][q]); });
}

// For a row of pairs: replace v = r^2 by K_bar q; return the sum of K_bar k.
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

// --- matrices ------------------------------------------------------------------------------------

// The block's tile of matrix `item` of a batch, and its numbers of rows and columns. Blocks of one
// line of tiles are consecutive, like the rows of K. All matrices together may have more lines than
// one grid dimension allows: y and z count them together.
struct Tile {
  index_t item, row, column;
  int rows, columns;
};
__device__ __forceinline__ bool find_tile(unsigned lines, index_t N1, index_t N2, Tile& tile) {
  const unsigned down =
      static_cast<unsigned>(static_cast<unsigned long long>(N1 + TILE - 1) / TILE);
  const unsigned line = blockIdx.z * gridDim.y + blockIdx.y;
  if (line >= lines) return false;
  const unsigned item = line < down ? 0 : line / down;
  tile.item = item, tile.row = static_cast<index_t>(line - item * down) * TILE,
  tile.column = static_cast<index_t>(blockIdx.x) * TILE;
  tile.rows = left(tile.row, N1), tile.columns = left(tile.column, N2);
  return true;
}

// Write the thread's entries of a tile.
__device__ __forceinline__ void write(const Tile& tile, index_t N1, index_t N2, bool aligned,
                                      const real (&v)[EACH][EACH], real* __restrict__ K) {
  real* place =
      K + ((tile.item * N1 + tile.row + row_of(0)) * N2 + tile.column + column_of(0, aligned));
  const int rows = tile.rows - row_of(0), columns = tile.columns - column_of(0, aligned);
  if (aligned) {
#pragma unroll
    for (int p = 0; p < EACH; ++p, place += N2)
#pragma unroll
      for (int i = 0; i < VECTORS; ++i)
        if (p < rows && i * (SIDE * WIDTH) < columns)
          store_vector(place + i * (SIDE * WIDTH), &v[p][i * WIDTH]);
  } else {
#pragma unroll
    for (int p = 0; p < EACH; ++p, place += N2)
#pragma unroll
      for (int q = 0; q < EACH; ++q)
        if (p < rows && q * SIDE < columns) place[q * SIDE] = v[p][q];
  }
}

// Compute K[item, i, j] = k(X1[item, i], X2[item, j]).
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
matrix(int family, unsigned lines, const real* __restrict__ X1, index_t N1,
       const real* __restrict__ X2, index_t N2, int D, const real* __restrict__ variance_at,
       real variance, const real* __restrict__ lengthscales, int step, real lengthscale,
       real* __restrict__ K, int aligned) {
  __shared__ __align__(16) real rows[FEATURES][PITCH];
  __shared__ __align__(16) real columns[FEATURES][PITCH];
  __shared__ real scale[FEATURES];
  Tile tile;
  if (!find_tile(lines, N1, N2, tile)) return;
  X1 += (tile.item * N1 + tile.row) * D;
  X2 += (tile.item * N2 + tile.column) * D;
  real v[EACH][EACH] = {};
  int first = 0;
  do {
    const int features = min(FEATURES, D - first);
    if (first) __syncthreads();
    if (const int d = threadIdx.x; d < FEATURES)
      scale[d] = d < features ? 1 / length(lengthscales, step, lengthscale, first + d) : real(0);
    const bool inside = with_share<FEATURES>(D, [&](auto share) {
      share.load(X1 + first, tile.rows, X2 + first, tile.columns, D, features);
      __syncthreads();
      const bool inside = share.scale(scale[share.d], scale[share.d]);
      share.store(rows, columns, aligned);
      return inside;
    });
    if (__syncthreads_and(inside)) {
      add_squares<true>(rows, columns, scale, features, v);
    } else {
      with_share<FEATURES>(D, [&](auto share) {
        share.load(X1 + first, tile.rows, X2 + first, tile.columns, D, features);
        share.store(rows, columns, aligned);
      });
      __syncthreads();
      add_squares<false>(rows, columns, scale, features, v);
    }
  } while ((first += FEATURES) < D);
  evaluate(function_of(family, parameter(variance_at, 0, variance, 0)), v);
  write(tile, N1, N2, aligned, v, K);
}

// Compute K = (X1 weights) X2'; with `symmetric` both sides take the square root of the weights, so
// that exchanging them changes no bit.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
inner(unsigned lines, const real* __restrict__ X1, index_t N1, const real* __restrict__ X2,
      index_t N2, int D, const real* __restrict__ weights, int step, real weight, int symmetric,
      real* __restrict__ K, int aligned) {
  __shared__ __align__(16) real rows[FEATURES][PITCH];
  __shared__ __align__(16) real columns[FEATURES][PITCH];
  __shared__ real scale[FEATURES];
  Tile tile;
  if (!find_tile(lines, N1, N2, tile)) return;
  X1 += tile.row * D;
  X2 += tile.column * D;
  real v[EACH][EACH] = {};
  int first = 0;
  do {
    const int features = min(FEATURES, D - first);
    if (first) __syncthreads();
    if (const int d = threadIdx.x; d < features)
      scale[d] = parameter(weights, step, weight, first + d);
    with_share<FEATURES>(D, [&](auto share) {
      share.load(X1 + first, tile.rows, X2 + first, tile.columns, D, features);
      __syncthreads();
      const real w = share.d < features ? scale[share.d] : real(0),
                 root = symmetric ? sqrt(w) : real(1);
      share.scale(symmetric ? root : w, root);
      share.store(rows, columns, aligned);
    });
    __syncthreads();
#pragma unroll 2
    for (int d = 0; d < features; ++d) {
      real a[EACH], b[EACH];
      read_rows(rows, d, a);
      read_columns(columns, d, b);
      for_pairs([&](int p, int q) { v[p][q] += a[p] * b[q]; });
    }
  } while ((first += FEATURES) < D);
  write(tile, N1, N2, aligned, v, K);
}

// --- contractions --------------------------------------------------------------------------------

// Sum N values over the lanes that differ in bits below LANES; lane l receives the sum of value l %
// LANES / (LANES / N). N = 16 values over 16 lanes take 15 exchanges; separate sums would take 64.
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

__device__ __forceinline__ void add_to(double* place, double value, bool begin) {
  *place = begin ? value : *place + value;
}

// With w = K_bar q and e = x'_j - x_i, compute a block's share of: side1[., d, i] = sum_j w e_d;
// side2[., d, j] = sum_i w e_d (BOTH); squares[., d] = sum_ij w e_d^2; total[.] = sum_ij K_bar k.
// Results are float64; float32 terms are summed first over at most one tile.
//
// A block processes `down` x `across` tiles in a fixed order and owns its entries of the results,
// so no sum depends on the timing of blocks. Per pair and feature: 3 operations for the distance
// (none for an RBF with given K), 5 for both sides, and about 1.5 for the sums over lanes and
// warps. K_bar is read once, K at most once; side1 and side2 are read and written once per tile, D
// / 16 of the bytes of K_bar, which stay in the caches.
template <bool BOTH>
__device__ __forceinline__ void contract(int family, const real* __restrict__ K_bar, int aligned,
                                         const real* __restrict__ K, const real* __restrict__ X1,
                                         index_t N1, const real* __restrict__ X2, index_t N2, int D,
                                         const real* __restrict__ variance_at, real variance,
                                         const real* __restrict__ lengthscales, int step,
                                         real lengthscale, int down, int across, int contracted,
                                         double* __restrict__ side1, double* __restrict__ side2,
                                         double* __restrict__ squares, double* __restrict__ total) {
  // features summed over lanes together: limited by registers
  constexpr int GROUP = BOTH ? WIDTH / 2 : WIDTH;
  __shared__ __align__(16) real rows[CHUNK][PITCH];
  __shared__ __align__(16) real columns[CHUNK][PITCH];
  __shared__ real scale[CHUNK];
  // sums of a warp per feature; the last one is that of w e^2
  constexpr int COLUMNS = BOTH ? TILE : 0;
  __shared__ real sums[WARPS][CHUNK][COLUMNS + 1];
  __shared__ double totals[WARPS];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int tiles1 = static_cast<int>((N1 + TILE - 1) / TILE),
            tiles2 = static_cast<int>((N2 + TILE - 1) / TILE);
  const unsigned bands = (tiles1 + down - 1) / down, strips = (tiles2 + across - 1) / across;
  const unsigned line = blockIdx.x / strips, strip = blockIdx.x % strips, band = line % bands;
  const index_t item = line / bands;
  const int i_begin = band * down, i_end = min(i_begin + down, tiles1), j_begin = strip * across,
            j_end = min(j_begin + across, tiles2);
  __shared__ Function f;  // to save registers
  if (threadIdx.x == 0) f = function_of(family, parameter(variance_at, 0, variance, 0));
  __syncthreads();
  double sum = 0;
  for (int tile_i = i_begin; tile_i < i_end; ++tile_i)
    for (int tile_j = j_begin; tile_j < j_end; ++tile_j) {
      const index_t row = static_cast<index_t>(tile_i) * TILE,
                    column = static_cast<index_t>(tile_j) * TILE;
      real w[EACH][EACH] = {};  // holds r^2 first
      const auto bring = [&](int first) {
        const int features = min(CHUNK, D - first);
        __syncthreads();
        with_share<CHUNK>(D, [&](auto share) {
          share.load(X1 + (item * N1 + row) * D + first, left(row, N1),
                     X2 + (item * N2 + column) * D + first, left(column, N2), D, features);
          share.store(rows, columns, aligned);
        });
        if (const int d = threadIdx.x; d < features)
          scale[d] = 1 / length(lengthscales, step, lengthscale, first + d);
        __syncthreads();
      };
      if (!K)
        for (int first = 0; first < D; first += CHUNK) {
          bring(first);
          add_squares<false>(rows, columns, scale, min(CHUNK, D - first), w);
        }
      real part = 0;
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
      const bool first_column = tile_j == j_begin, first_row = tile_i == i_begin;
      for (int first = 0; first < D; first += CHUNK) {
        if (K || D > CHUNK) bring(first);
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
            // add the two rows of threads of a warp; each lane keeps two of its columns
            if (BOTH) {
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
            if (lane % SHARED_BY == 0 && d < D && i < N1)
              add_to(&side1[((item * strips + strip) * D + d) * N1 + i], row_sum, first_column);
          }
          const real square = sum_lanes<GROUP, WARP>(squared);
          if (lane % (WARP / GROUP) == 0)
            sums[warp][group + lane / (WARP / GROUP)][COLUMNS] = square;
        }
        __syncthreads();
#pragma unroll 1
        for (int p = threadIdx.x; p < min(CHUNK, D - first) * (COLUMNS + 1); p += BLOCK) {
          const int d = p / (COLUMNS + 1), j = p % (COLUMNS + 1);
          double t = 0;
#pragma unroll
          for (int i = 0; i < WARPS; ++i) t += sums[i][d][j];
          if (j == COLUMNS)
            add_to(&squares[static_cast<index_t>(blockIdx.x) * D + first + d], t,
                   first_row && first_column);
          else if (column + j < N2)
            add_to(&side2[(line * static_cast<index_t>(D) + first + d) * N2 + column + j], t,
                   first_row);
        }
      }
    }
  sum = sum_warp(sum);  // not sum_block, which takes more registers on sm_100
  if (lane == 0) totals[warp] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += totals[w];
  total[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
contract_rows(int family, const real* __restrict__ K_bar, int aligned,
              const real* __restrict__ K, const real* __restrict__ X1, index_t N1,
              const real* __restrict__ X2, index_t N2, int D,
              const real* __restrict__ variance_at, real variance,
              const real* __restrict__ lengthscales, int step, real lengthscale, int down,
              int across, int contracted, double* __restrict__ side1,
              double* __restrict__ squares, double* __restrict__ total) {
  contract<false>(family, K_bar, aligned, K, X1, N1, X2, N2, D, variance_at, variance, lengthscales,
                  step, lengthscale, down, across, contracted, side1, nullptr, squares, total);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
contract_both(int family, const real* __restrict__ K_bar, int aligned,
              const real* __restrict__ K, const real* __restrict__ X1, index_t N1,
              const real* __restrict__ X2, index_t N2, int D,
              const real* __restrict__ variance_at, real variance,
              const real* __restrict__ lengthscales, int step, real lengthscale, int down,
              int across, double* __restrict__ side1, double* __restrict__ side2,
              double* __restrict__ squares, double* __restrict__ total) {
  contract<true>(family, K_bar, aligned, K, X1, N1, X2, N2, D, variance_at, variance, lengthscales,
                 step, lengthscale, down, across, 1, side1, side2, squares, total);
}

// Compute out[item, n, d] = factor / l_d^2 times the sum over s of sides[item, s, d, n], in the
// order of s.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_sides(const double* __restrict__ sides, int shares, index_t N, int D, double factor,
          const real* __restrict__ lengthscales, int step, real lengthscale,
          real* __restrict__ out, index_t count) {
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

// Compute out[c] = the sum over r of parts[r, c], divided by the variance, or by the cube of
// lengthscale c (`cubed`).
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_parts(const double* __restrict__ parts, index_t count, int columns,
          const real* __restrict__ values, int step, real value, int cubed,
          real* __restrict__ out) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t r = threadIdx.x; r < count; r += BLOCK) sum += parts[r * columns + blockIdx.x];
  sum = sum_block(sum, sums);
  if (threadIdx.x) return;
  const double l = length(values, step, value, blockIdx.x);
  out[blockIdx.x] =
      static_cast<real>(cubed ? sum / l / l / l : sum / parameter(values, step, value, blockIdx.x));
}

// --- squared distances ---------------------------------------------------------------------------

// One thread per pair: neighbours share a row of X1 and read neighbouring rows of X2, which the
// caches hold. The function of r^2 that follows takes several passes over the matrix, so shared
// memory would save little of the whole.
// R[i, j] = sum_d ((x_d - x'_d) / l_d)^2; the order of the terms is the same for (j, i).
extern "C" __global__ void __launch_bounds__(BLOCK)
squared_distances(const real* __restrict__ X1, index_t N1, const real* __restrict__ X2, index_t N2,
                  int D, const real* __restrict__ lengthscales, int step, real lengthscale,
                  real* __restrict__ R) {
  const index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (p >= N1 * N2) return;
  const real* a = X1 + p / N2 * D;
  const real* b = X2 + p % N2 * D;
  real sum = 0;
  for (int d = 0; d < D; ++d) {
    const real e = (a[d] - b[d]) / length(lengthscales, step, lengthscale, d);
    sum += e * e;
  }
  R[p] = sum;
}

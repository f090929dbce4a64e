// Cholesky factors of batches of matrices (items, M, M), C-contiguous, without cuSOLVER: two
// launches per 128 columns. See fastsvgp/kernels/cuda/common/cholesky.py.
//
// Columns are computed from left to right, 128 at a time. With L known left of column `first`,
// `factor_panel` computes the columns from `first` below their diagonal block D: the matrix less
// the products of known rows, times D^-T by substitution. At the same time it subtracts the
// products of known rows from the next diagonal block. `factor_block` then subtracts those of the
// last 128 columns and factors that block, so a block of threads alone has little work.
//
// In shared memory matrices are squares of 32 x 32. Products run on tensor cores. A warp factors a
// square, and substitutes in one, with a row per lane: products with an explicit inverse would have
// errors that grow with the condition number of the block.
#include "async.cuh"
#include "mma.cuh"

constexpr int SQUARE = 32, SIZE = SQUARE * SQUARE;
constexpr int SIDE = 4, PANEL = SIDE * SQUARE;  // squares and columns of a block
constexpr int TRIANGLE = SIDE * (SIDE + 1) / 2;
constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int STAGE = SIDE + 1;  // squares of one step of a sum: left, and SIDE to the right

// Offset of entry (r, c) of a square: entries that the lanes of a warp read together are in
// different banks, both along a column and as operands of mma.
__device__ __forceinline__ int in_square(int r, int c) {
  return r * SQUARE + (c ^ (sizeof(real) == 8 ? r % 4 * 4 + r / 4 % 4 : r % 8 * 4 + r / 8));
}
__device__ __forceinline__ real* square_of(real* triangle, int i, int j) {
  return triangle + (i * (i + 1) / 2 + j) * SIZE;
}

// --- products ------------------------------------------------------------------------------------

// 16 x 8 WIDE entries of a result, with the layout of c in mma.cuh
template <int WIDE>
using tile_t = real[WIDE][4];

template <int WIDE, class F>
__device__ __forceinline__ void for_entries(tile_t<WIDE>& sum, int row, int column, F f) {
  row += threadIdx.x % WARP / 4, column += threadIdx.x % 4 * 2;
#pragma unroll
  for (int q = 0; q < WIDE; ++q)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(row + e / 2 * 8, column + 8 * q + e % 2, sum[q][e]);
}

// sum -= left right', for the 16 rows from `row` of left, and the 8 WIDE from `column` of right.
template <int WIDE>
__device__ __forceinline__ void subtract_product(const real* left, int row, const real* right,
                                                 int column, tile_t<WIDE>& sum) {
  const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
  if constexpr (TENSOR_CORES) {
    constexpr int AT_ONCE = sizeof(real) == 4 ? 16 : SQUARE;  // float32: see mma.cuh
#pragma unroll
    for (int start = 0; start < SQUARE; start += AT_ONCE) {
      tile_t<WIDE> part = {};
      tile_t<WIDE>& target = sizeof(real) == 4 ? part : sum;
#pragma unroll 2
      for (int k = start + t; k < start + AT_ONCE; k += 8) {
        parts_t<real, 4> a;
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a.set(e, -left[in_square(row + g + e % 2 * 8, k + e / 2 * 4)]);
#pragma unroll
        for (int q = 0; q < WIDE; ++q) {
          parts_t<real, 2> b;
#pragma unroll
          for (int e = 0; e < 2; ++e)
            b.set(e, right[in_square(column + 8 * q + g, k + e * 4)]);
          multiply_add(target[q], a, b);
        }
      }
      if constexpr (sizeof(real) == 4) {
#pragma unroll
        for (int q = 0; q < WIDE; ++q)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[q][e] += part[q][e];
      }
    }
  } else {
#pragma unroll 4
    for (int k = 0; k < SQUARE; ++k)
      for_entries<WIDE>(sum, row, column, [&](int r, int c, real& x) {
        x -= left[in_square(r, k)] * right[in_square(c, k)];
      });
  }
}

// square -= left right', for 16 of its rows and 8 WIDE of its columns.
template <int WIDE>
__device__ __forceinline__ void update(real* square, const real* left, const real* right, int row,
                                       int column) {
  tile_t<WIDE> sum = {};
  subtract_product<WIDE>(left, row, right, column, sum);
  for_entries<WIDE>(sum, row, column,
                    [&](int r, int c, real& x) { square[in_square(r, c)] += x; });
}

// --- one square, by one warp ---------------------------------------------------------------------

constexpr int STRIP = 8;  // columns in registers at a time: a row of them per lane

// x = STRIP columns from `first` of row `lane` of S, less the products of the columns before them
// with those rows of D.
__device__ __forceinline__ void load_strip(const real* S, const real* D, int first, int lane,
                                           real (&x)[STRIP]) {
#pragma unroll
  for (int c = 0; c < STRIP; ++c) x[c] = 0;
#pragma unroll 4
  for (int k = 0; k < first; ++k) {
    const real s = S[in_square(lane, k)];
#pragma unroll
    for (int c = 0; c < STRIP; ++c) x[c] -= s * D[in_square(first + c, k)];
  }
#pragma unroll
  for (int c = 0; c < STRIP; ++c) x[c] += S[in_square(lane, first + c)];
}

__device__ __forceinline__ void store_strip(const real (&x)[STRIP], int first, int lane, real* S) {
#pragma unroll
  for (int c = 0; c < STRIP; ++c) S[in_square(lane, first + c)] = x[c];
  __syncwarp();
}

// Replace the lower triangle of D by its Cholesky factor. Return the number (from 1) of the first
// pivot that is not positive and finite, or 0.
__device__ __forceinline__ int factor_square(real* D, int lane) {
  int failed = 0;
#pragma unroll 1
  for (int first = 0; first < SQUARE; first += STRIP) {
    real x[STRIP];
    load_strip(D, D, first, lane, x);
    real own = 0;  // the lane's pivot so far: a copy, so that the next pivot is one shuffle away
#pragma unroll
    for (int k = 0; k < STRIP; ++k)
      if (lane == first + k) own = x[k];
#pragma unroll
    for (int k = 0; k < STRIP; ++k) {
      const real pivot = __shfl_sync(FULL_MASK, own, first + k);
      if (!failed && !(pivot > 0 && pivot - pivot == 0)) failed = first + k + 1;
      const real below = x[k] * rsqrt(pivot);
      own -= below * below;
#pragma unroll
      for (int c = k + 1; c < STRIP; ++c)
        x[c] -= below * __shfl_sync(FULL_MASK, below, first + c);
      x[k] = lane == first + k ? sqrt(pivot) : below;
    }
    store_strip(x, first, lane, D);
  }
  return failed;
}

// Compute S = S D^-T; only the lower triangle of D is read.
__device__ __forceinline__ void substitute(const real* D, real* S, int lane) {
  const real reciprocal = 1 / D[in_square(lane, lane)];
#pragma unroll 1
  for (int first = 0; first < SQUARE; first += STRIP) {
    real x[STRIP];
    load_strip(S, D, first, lane, x);
#pragma unroll
    for (int k = 0; k < STRIP; ++k) {
      x[k] *= __shfl_sync(FULL_MASK, reciprocal, first + k);
#pragma unroll
      for (int c = k + 1; c < STRIP; ++c) x[c] -= x[k] * D[in_square(first + c, first + k)];
    }
    store_strip(x, first, lane, S);
  }
}

// --- copies --------------------------------------------------------------------------------------

// Start to fetch a square, or its lower triangle; rows from `rows` on, and the rest, become zero.
__device__ __forceinline__ void fetch(const real* source, index_t M, int rows, real* square,
                                      bool lower = false) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP,
            warps = static_cast<int>(blockDim.x) / WARP;
#pragma unroll 4
  for (int r = warp; r < SQUARE; r += warps) {
    const bool valid = r < rows && !(lower && lane > r);
    copy_async<sizeof(real)>(square + in_square(r, lane), valid ? source + r * M + lane : source,
                             valid ? static_cast<int>(sizeof(real)) : 0);
  }
}

// --- a diagonal block ----------------------------------------------------------------------------

// Subtract the products of rows, whose last 128 columns before the block are at L.
__device__ __forceinline__ void subtract_last(const real* L, index_t M, int size, int side,
                                              real* triangle, real* stages) {
  const int warp = threadIdx.x / WARP;
  const auto fetch_step = [&](int step) {
    if (step < SIDE)
      for (int i = 0; i < side; ++i)
        fetch(L + i * SQUARE * M + step * SQUARE, M, size - i * SQUARE,
              stages + (step % 2 * SIDE + i) * SIZE);
    commit_async();
  };
  fetch_step(0);
#pragma unroll 1
  for (int step = 0; step < SIDE; ++step) {
    fetch_step(step + 1);
    wait_async<1>();
    __syncthreads();
    const real* rows = stages + step % 2 * SIDE * SIZE;
    int half = 0;  // of a square, counted
#pragma unroll 1
    for (int i = 0; i < side; ++i)
#pragma unroll 1
      for (int j = 0; j <= i; ++j)
#pragma unroll 1
        for (int row = 0; row < SQUARE; row += 16, ++half)
          if (half % WARPS == warp)
            update<4>(square_of(triangle, i, j), rows + i * SIZE, rows + j * SIZE, row, 0);
    __syncthreads();
  }
}

// Replace the block by its factor; return the number of the first wrong pivot (in warp 0), or 0.
// While warp 0 factors a square of the diagonal, the others subtract from the squares beyond it.
__device__ __forceinline__ int factor_triangle(real* triangle, int side) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP,
            others = static_cast<int>(blockDim.x) / WARP - 1;
  int failed = 0;
#pragma unroll 1
  for (int s = 0; s < side; ++s) {
    if (warp == 0) {
      real* D = square_of(triangle, s, s);
      if (s) {
        const real* left = square_of(triangle, s, s - 1);
#pragma unroll 1
        for (int row = 0; row < SQUARE; row += 16) update<4>(D, left, left, row, 0);
        __syncwarp();
      }
      const int found = factor_square(D, lane);
      if (found && !failed) failed = s * SQUARE + found;
    } else if (s) {
      int half = 0;
#pragma unroll 1
      for (int i = s + 1; i < side; ++i)
#pragma unroll 1
        for (int j = s; j <= i; ++j)
#pragma unroll 1
          for (int row = 0; row < SQUARE; row += 16, ++half)
            if (half % others == warp - 1)
              update<4>(square_of(triangle, i, j), square_of(triangle, i, s - 1),
                        square_of(triangle, j, s - 1), row, 0);
    }
    __syncthreads();
    if (s + 1 + warp < side)
      substitute(square_of(triangle, s, s), square_of(triangle, s + 1 + warp, s), lane);
    __syncthreads();
  }
  return failed;
}

// Factor the diagonal block of each item from row and column `first`, one block of threads each.
// `given` holds the matrices less the products of rows of L that end before column first - 128; the
// products of the last 128 are subtracted here. `shift` and noise (M,), if given, are added to the
// diagonal. L, which may be `given`, gets the factor, and zeros above its diagonal. info[item] is
// set to 0 at the first block, and once to the number (from 1) of the first pivot that is not
// positive and finite; then 1 is added to `fault`, if given.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
factor_block(const real* given, index_t M, index_t first, real shift,
             const real* __restrict__ noise, real* L, int* __restrict__ info,
             int* __restrict__ fault) {
  extern __shared__ __align__(16) real memory[];  // the block; two stages of a sum
  const int size = static_cast<int>(min(M - first, static_cast<index_t>(PANEL))),
            side = (size + SQUARE - 1) / SQUARE, lane = threadIdx.x % WARP,
            warp = threadIdx.x / WARP, warps = static_cast<int>(blockDim.x) / WARP;
  const index_t item = blockIdx.x * M * M, place = item + first * (M + 1);
#pragma unroll 1
  for (int i = 0; i < side; ++i)
#pragma unroll 1
    for (int j = 0; j <= i; ++j)
      fetch(given + place + i * SQUARE * M + j * SQUARE, M, size - i * SQUARE,
            square_of(memory, i, j), i == j);
  commit_async();
  if (first)
    subtract_last(L + place - PANEL, M, size, side, memory, memory + TRIANGLE * SIZE);
  wait_async<0>();
  __syncthreads();
  for (int r = threadIdx.x; r < side * SQUARE; r += static_cast<int>(blockDim.x)) {
    real& pivot =
        square_of(memory, r / SQUARE, r / SQUARE)[in_square(r % SQUARE, r % SQUARE)];
    if (r >= size) pivot = 1;  // the identity beyond the matrix
    else pivot += noise ? shift + noise[first + r] : shift;
  }
  __syncthreads();
  const int failed = factor_triangle(memory, side);
#pragma unroll 1
  for (int r = warp; r < size; r += warps)
#pragma unroll
    for (int q = 0; q < SIDE; ++q) {
      const int c = q * SQUARE + lane;
      if (c < size)
        L[place + r * M + c] =
            c <= r ? square_of(memory, r / SQUARE, q)[in_square(r % SQUARE, lane)] : real(0);
    }
  if (threadIdx.x || (first && (info[blockIdx.x] || !failed))) return;
  info[blockIdx.x] = failed ? static_cast<int>(first) + failed : 0;
  if (failed && fault) atomicAdd(fault, 1);
}

// --- the columns below a diagonal block ----------------------------------------------------------

// The sum over k of a tile of 32 rows and 128 columns: the steps `begin` to `end` of 32 values.
__device__ __forceinline__ void subtract_rows(const real* rows, int high, const real* columns,
                                              int wide, index_t M, int begin, int end,
                                              real* stages, tile_t<4>& sum) {
  const int warp = threadIdx.x / WARP;
  const auto fetch_step = [&](int step) {
    if (step < end) {
      real* stage = stages + step % 2 * STAGE * SIZE;
      fetch(rows + step * SQUARE, M, high, stage);
#pragma unroll 1
      for (int i = 0; i < SIDE; ++i)
        fetch(columns + i * SQUARE * M + step * SQUARE, M, wide - i * SQUARE,
              stage + (1 + i) * SIZE);
    }
    commit_async();
  };
  fetch_step(begin);
#pragma unroll 1
  for (int step = begin; step < end; ++step) {
    fetch_step(step + 1);
    wait_async<1>();
    __syncthreads();
    const real* stage = stages + step % 2 * STAGE * SIZE;
    subtract_product<4>(stage, warp % 2 * 16, stage + (1 + warp / 2) * SIZE, 0, sum);
    __syncthreads();
  }
  wait_async<0>();
}

// Store the block's sum among the parts; return whether it is the last of its tile. In that case
// `sum` becomes the total, added in the order of the slices, and the counter of the tile is reset.
__device__ __forceinline__ bool completes(real* parts, unsigned* arrived, tile_t<4>& sum) {
  __shared__ unsigned before;
  constexpr int EACH = 16;  // numbers of a thread
  const unsigned slices = gridDim.y;
  real* tile = parts + static_cast<index_t>(blockIdx.x) * slices * (EACH * BLOCK) + threadIdx.x;
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    tile[(blockIdx.y * EACH + e) * BLOCK] = sum[e / 4][e % 4];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    before = atomicInc(arrived + blockIdx.x, slices - 1);
    __threadfence();
  }
  __syncthreads();
  if (before != slices - 1) return false;
#pragma unroll
  for (int e = 0; e < EACH; ++e) sum[e / 4][e % 4] = 0;
#pragma unroll 1
  for (unsigned s = 0; s < slices; ++s)
#pragma unroll
    for (int e = 0; e < EACH; ++e) sum[e / 4][e % 4] += tile[(s * EACH + e) * BLOCK];
  return true;
}

// Compute S = S D^-T for 32 rows, D the factor of the diagonal block.
__device__ __forceinline__ void substitute_rows(real* D, real* S) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll 1
  for (int s = 0; s < SIDE; ++s) {
    if (warp == 0) substitute(square_of(D, s, s), S + s * SIZE, lane);
    __syncthreads();
#pragma unroll 1
    for (int i = s + 1; i < SIDE; ++i)
      update<1>(S + i * SIZE, S + s * SIZE, square_of(D, i, s), warp % 2 * 16, warp / 2 * 8);
    __syncthreads();
  }
}

// Compute the columns of L from `first` to first + 128 below their diagonal block, whose factor is
// known, and zeros in its mirror image; and from the second block on the next diagonal block less
// the products of rows of L that end before column `first`. Blocks of threads along x: per item,
// `below` tiles of 32 rows, then those of the next diagonal block. Along y: slices of a sum, each
// of `slice` steps of 32 values. `given` holds the matrices, and may be L. Sums in several slices
// go to `parts` (tiles of all items, slices, 32 x 128); `arrived` counts them and holds a zero per
// tile before and after.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
factor_panel(const real* given, index_t M, index_t first, int below, int tiles, int slice, real* L,
             real* parts, unsigned* arrived) {
  extern __shared__ __align__(16) real memory[];  // two stages of a sum; then S and the block
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP,
            tile = static_cast<int>(blockIdx.x) % tiles;
  const bool next = tile >= below;
  const index_t item = blockIdx.x / tiles * M * M, second = first + PANEL,
                row = second + (next ? tile - below : tile) * SQUARE,
                column = next ? second : first;
  const int high = static_cast<int>(min(M - row, static_cast<index_t>(SQUARE))),
            wide = static_cast<int>(min(M - column, static_cast<index_t>(PANEL)));
  const int steps = static_cast<int>(first / SQUARE),
            begin = static_cast<int>(blockIdx.y) * slice;
  given += item + row * M + column, L += item;
  tile_t<4> sum = {};
  subtract_rows(L + row * M, high, L + column * M, wide, M, begin, min(begin + slice, steps),
                memory, sum);
  if (gridDim.y > 1 && !completes(parts, arrived, sum)) return;
  const int part = warp / 2 * SQUARE;  // of the columns
  if (next) {
    const int behind = static_cast<int>(row - column);
    real* out = L + row * M + column;
    for_entries<4>(sum, warp % 2 * 16, part, [&](int r, int c, real& x) {
      if (r < high && c <= behind + r) out[r * M + c] = given[r * M + c] + x;
    });
    return;
  }
  real *S = memory, *D = memory + SIDE * SIZE;
#pragma unroll 1
  for (int i = 0; i < SIDE; ++i)
#pragma unroll 1
    for (int j = 0; j <= i; ++j)
      fetch(L + (first + i * SQUARE) * M + first + j * SQUARE, M, SQUARE, square_of(D, i, j));
  commit_async();
  for_entries<4>(sum, warp % 2 * 16, 0, [&](int r, int c, real& x) {
    S[warp / 2 * SIZE + in_square(r, c)] = r < high ? given[r * M + part + c] + x : real(0);
  });
  wait_async<0>();
  __syncthreads();
  substitute_rows(D, S);
#pragma unroll 1
  for (int r = warp; r < high; r += WARPS)
#pragma unroll
    for (int q = 0; q < SIDE; ++q)
      L[(row + r) * M + first + q * SQUARE + lane] = S[q * SIZE + in_square(r, lane)];
  if (lane < high)
#pragma unroll 4
    for (int c = warp; c < PANEL; c += WARPS) L[(first + c) * M + row + lane] = 0;
}

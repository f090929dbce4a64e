// Products of matrices, some of them triangular: out = base + alpha sum_k left[i, k] right[k, j],
// for those tiles of the result and ranges of k that can be non-zero. See
// fastsvgp/kernels/cuda/tiled.py.
//
// A block of four warps computes a tile of 64 x 64; each warp 32 x 32 of it, 16 values of k at a
// time, which three buffers in shared memory hold in turn: while one is multiplied, two are being
// filled. Long sums are split into slices, one block each; the last block to finish a tile adds
// their parts, in a fixed order. Entries of a triangular operand above its diagonal are never read.
#include "async.cuh"
#include "mma.cuh"

constexpr int WARPS = 4, BLOCK = WARP * WARPS;
constexpr int TILE = 64, DEPTH = 16;
// no bank conflicts when a warp reads fragments
constexpr int PITCH_K = 20, PITCH_X = sizeof(real) == 8 ? 68 : 72;
constexpr int STAGES = 3, BUFFER = TILE * PITCH_K;
constexpr int VECTORS = TILE * DEPTH / WIDTH / BLOCK;  // per thread, for 16 values of k
constexpr int RESIDENT = 3;        // blocks per multiprocessor, if shared memory suffices
constexpr int HIGH = 2, WIDE = 4;  // products of 16 x 8 in the 32 x 32 of a warp

enum form_t { NN, TN, NT };         // left right, left' right, left right'
enum kind_t { FULL, LOWER, HALF };  // lower triangle; lower triangle with half its diagonal
// Ranges of k; ROWS: all tiles.
enum range_t {
  BETWEEN,
  FROM_ROW,
  UP_TO_COLUMN,
  UP_TO_ROW,
  WHOLE,
  ROWS_UP_TO_ROW,
  ROWS_FROM_ROW,
  ROWS_WHOLE
};
enum upper_t { UNTOUCHED, ZEROS, MIRRORED, EVERYTHING };  // treatment above the diagonal
enum epilogue_t { STORE, DEVIATION, INNER };
enum idle_t { COPIED, LEFT, GATED };  // treatment of an item of size 0: see multiply

typedef real tile_t[HIGH][WIDE][4];

// The numeric arguments of a launch: PLAN of tiled.py.
struct plan_t {
  index_t left_stride, left_item, right_stride, right_item, base_item, out_stride, out_item;
  int form, left_kind, right_kind, rows, columns, depth, range, segments, slice, epilogue, upper,
      idle;
};

struct operand_t {
  const real* at;
  index_t stride;
  int rows, columns, kind;
};

struct place_t {
  int row, column, begin, end;  // in tiles; the last two of k
};

__device__ __forceinline__ bool is_aligned(const operand_t& m) {
  return reinterpret_cast<unsigned long long>(m.at) % 16 == 0 && m.stride % WIDTH == 0;
}

// Return the n-th tile of the result, longest sums first. a >= b with n = a (a + 1) / 2 + b
// enumerate the lower tiles.
__device__ __forceinline__ place_t place_of(int range, int n, int high, int wide, int deep) {
  if (range >= ROWS_UP_TO_ROW) {
    const int a = n / wide, column = n % wide;
    if (range == ROWS_UP_TO_ROW) return {high - 1 - a, column, 0, high - a};
    if (range == ROWS_FROM_ROW) return {a, column, a, deep};
    return {a, column, 0, deep};
  }
  if (range == UP_TO_ROW) n = high * (high + 1) / 2 - 1 - n;
  int a = static_cast<int>((sqrtf(8.0f * n + 1.0f) - 1.0f) / 2.0f);
  while ((a + 1) * (a + 2) / 2 <= n) ++a;
  while (a * (a + 1) / 2 > n) --a;
  const int b = n - a * (a + 1) / 2;
  if (range == BETWEEN) return {high - 1 - a + b, b, b, high - a + b};
  if (range == FROM_ROW) return {a, b, a, deep};
  if (range == UP_TO_COLUMN) return {high - 1 - a + b, high - 1 - a, 0, high - a};
  return {a, b, 0, range == UP_TO_ROW ? a + 1 : deep};
}

// Distribution of 16 values of k of an operand, for 64 of its rows (left) or columns (right), over
// the threads. K_FAST: k runs along the rows in memory. A thread has vectors at `column` of rows
// APART rows from each other, starting at `row`.
template <bool K_FAST>
struct spread_t {
  static constexpr int HEIGHT = K_FAST ? TILE : DEPTH, BREADTH = K_FAST ? DEPTH : TILE,
                       PITCH = K_FAST ? PITCH_K : PITCH_X;
  static constexpr int LINE = BREADTH / WIDTH, APART = BLOCK / LINE;
  int first_row, first_column;

  __device__ __forceinline__ spread_t(int x0, int k0)
      : first_row(K_FAST ? x0 : k0), first_column(K_FAST ? k0 : x0) {}
  __device__ __forceinline__ int row() const { return first_row + threadIdx.x / LINE; }
  __device__ __forceinline__ int column() const {
    return first_column + threadIdx.x % LINE * WIDTH;
  }
  __device__ __forceinline__ int place() const {
    return threadIdx.x / LINE * PITCH + threadIdx.x % LINE * WIDTH;
  }
  __device__ __forceinline__ bool below(int kind) const {
    return kind == FULL || first_column + BREADTH <= first_row;
  }
};

// Start to fetch the values from x0 and k0. Entries outside the operand, or above a diagonal that
// bounds it, become zero.
template <bool K_FAST>
__device__ __forceinline__ void fetch(const operand_t& m, int x0, int k0, bool aligned,
                                      real* buffer) {
  typedef spread_t<K_FAST> part_t;
  const part_t part(x0, k0);
  const bool below = part.below(m.kind);
  const bool inside =
      part.first_row + part_t::HEIGHT <= m.rows && part.first_column + part_t::BREADTH <= m.columns;
  const int row = part.row(), column = part.column();
  const real* source = m.at + row * m.stride + column;
  const index_t apart = part_t::APART * m.stride;
  real* target = buffer + part.place();
  if (aligned && below && inside) {
#pragma unroll
    for (int p = 0; p < VECTORS; ++p)
      copy_async<16>(target + p * part_t::APART * part_t::PITCH, source + p * apart);
    return;
  }
#pragma unroll
  for (int p = 0; p < VECTORS; ++p, source += apart, target += part_t::APART * part_t::PITCH) {
    const int r = row + p * part_t::APART, up_to = below ? m.columns : min(m.columns, r + 1);
    const int count = r < m.rows ? min(max(up_to - column, 0), WIDTH) : 0;
    if (aligned) {
      copy_async<16>(target, source, count * static_cast<int>(sizeof(real)));
    } else {
#pragma unroll
      for (int e = 0; e < WIDTH; ++e)
        copy_async<sizeof(real)>(target + e, source + e,
                                 e < count ? static_cast<int>(sizeof(real)) : 0);
    }
  }
}

// Halve the diagonal of fetched values; each thread does so for the values that it fetched.
template <bool K_FAST>
__device__ __forceinline__ void halve(int kind, int x0, int k0, real* buffer) {
  typedef spread_t<K_FAST> part_t;
  const part_t part(x0, k0);
  if (kind != HALF || part.below(kind)) return;
  const int behind = part.row() - part.column();
#pragma unroll
  for (int p = 0; p < VECTORS; ++p) {
    const int e = behind + p * part_t::APART;
    if (e >= 0 && e < WIDTH) buffer[part.place() + p * part_t::APART * part_t::PITCH + e] /= 2;
  }
}

template <bool K_FAST>
__device__ __forceinline__ real at(const real* buffer, int x, int k) {
  return buffer[K_FAST ? x * PITCH_K + k : k * PITCH_X + x];
}

__device__ __forceinline__ int first_row() {
  return threadIdx.x / WARP / 2 * 32 + threadIdx.x % WARP / 4;
}
__device__ __forceinline__ int first_column() {
  return threadIdx.x / WARP % 2 * 32 + threadIdx.x % 4 * 2;
}

// sum += the product of the buffers.
template <bool LEFT_K_FAST, bool RIGHT_K_FAST>
__device__ __forceinline__ void add_product(const real* left, const real* right, tile_t& sum) {
  if constexpr (TENSOR_CORES) {
    const int row = first_row(), column = threadIdx.x / WARP % 2 * 32 + threadIdx.x % WARP / 4,
              t = threadIdx.x % 4;
    tile_t part = {};  // float32: a sum leaves the tensor core after 16 values of k
    tile_t& target = sizeof(real) == 4 ? part : sum;
#pragma unroll
    for (int k = t; k < DEPTH; k += 8) {
      parts_t<real, 4> a[HIGH];
      parts_t<real, 2> b[WIDE];
#pragma unroll
      for (int p = 0; p < HIGH; ++p)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          a[p].set(e, at<LEFT_K_FAST>(left, row + 16 * p + e % 2 * 8, k + e / 2 * 4));
#pragma unroll
      for (int q = 0; q < WIDE; ++q)
#pragma unroll
        for (int e = 0; e < 2; ++e) b[q].set(e, at<RIGHT_K_FAST>(right, column + 8 * q, k + e * 4));
#pragma unroll
      for (int p = 0; p < HIGH; ++p)
#pragma unroll
        for (int q = 0; q < WIDE; ++q) multiply_add(target[p][q], a[p], b[q]);
    }
    if constexpr (sizeof(real) == 4) {
#pragma unroll
      for (int p = 0; p < HIGH; ++p)
#pragma unroll
        for (int q = 0; q < WIDE; ++q)
#pragma unroll
          for (int e = 0; e < 4; ++e) sum[p][q][e] += part[p][q][e];
    }
  } else {
    const int row = first_row(), column = first_column();
#pragma unroll 4
    for (int k = 0; k < DEPTH; ++k)
#pragma unroll
      for (int p = 0; p < HIGH; ++p)
#pragma unroll
        for (int q = 0; q < WIDE; ++q)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            sum[p][q][e] += at<LEFT_K_FAST>(left, row + 16 * p + e / 2 * 8, k) *
                            at<RIGHT_K_FAST>(right, column + 8 * q + e % 2, k);
  }
}

// Sum the chunks `first` to `last` of 16 values of k; with two segments the operands are exchanged
// in the second one.
template <bool LEFT_K_FAST, bool RIGHT_K_FAST>
__device__ __forceinline__ void sum_products(const operand_t& left, const operand_t& right,
                                             const place_t& place, int chunks, int first, int last,
                                             real* buffers, tile_t& sum) {
  const bool aligned = is_aligned(left) && is_aligned(right);
  const int begin = place.begin * TILE, x_left = place.row * TILE, x_right = place.column * TILE;
  // call f with the first k of a chunk, the chunk's offsets in either operand, and its half of a
  // buffer
  const auto with = [&](int chunk, auto&& f) {
    const bool turned = LEFT_K_FAST == RIGHT_K_FAST && chunk >= chunks;
    const int k = begin + (turned ? chunk - chunks : chunk) * DEPTH;
    f(k, turned ? x_right : x_left, turned ? x_left : x_right, turned ? BUFFER : 0,
      turned ? 0 : BUFFER);
  };
  const auto fetch_both = [&](int chunk, real* stage) {
    if (chunk < last) {
      with(chunk, [&](int k, int x_of_left, int x_of_right, int half_of_left, int half_of_right) {
        fetch<LEFT_K_FAST>(left, x_of_left, k, aligned, stage + half_of_left);
        fetch<RIGHT_K_FAST>(right, x_of_right, k, aligned, stage + half_of_right);
      });
    }
    commit_async();
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) fetch_both(first + s, buffers + s * (2 * BUFFER));
  real* here = buffers;
  real* const top = buffers + (STAGES - 1) * (2 * BUFFER);
  real* before = top;  // the buffer multiplied last
#pragma unroll 1
  for (int chunk = first; chunk < last; ++chunk) {
    wait_async<STAGES - 2>();
    with(chunk, [&](int k, int x_of_left, int x_of_right, int half_of_left, int half_of_right) {
      halve<LEFT_K_FAST>(left.kind, x_of_left, k, here + half_of_left);
      halve<RIGHT_K_FAST>(right.kind, x_of_right, k, here + half_of_right);
    });
    __syncthreads();
    fetch_both(chunk + STAGES - 1, before);
    add_product<LEFT_K_FAST, RIGHT_K_FAST>(here, here + BUFFER, sum);
    before = here;
    here = here == top ? buffers : here + 2 * BUFFER;
  }
}

// Call f(row, column, sum) for the thread's elements of a tile that are within the result.
template <class F>
__device__ __forceinline__ void for_elements(const place_t& place, int rows, int columns,
                                             tile_t& sum, F f) {
  const int row = place.row * TILE + first_row(), column = place.column * TILE + first_column();
#pragma unroll
  for (int p = 0; p < HIGH; ++p)
#pragma unroll
    for (int q = 0; q < WIDE; ++q)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = row + 16 * p + e / 2 * 8, j = column + 8 * q + e % 2;
        if (i < rows && j < columns) f(i, j, sum[p][q][e]);
      }
}

// Epilogue. DEVIATION subtracts one from the diagonal and stores per tile, if `sums` is given, the
// sum of squares of the symmetric result, the extremes of its diagonal before and the trace after
// the subtraction; INNER stores only the sum of products with the lower triangle of base.
__device__ __forceinline__ void conclude(const plan_t& plan, const place_t& place, const real* base,
                                         real alpha, real* out, double* sums, tile_t& sum) {
  const int rows = plan.rows, columns = plan.columns, epilogue = plan.epilogue, upper = plan.upper;
  const index_t stride = plan.out_stride;
  const bool crossing = upper != EVERYTHING && place.row == place.column,
             mirrored = upper == MIRRORED;
  const auto write = [&](int i, int j, real x) {
    if (crossing && j > i) {
      if (upper == ZEROS) out[i * stride + j] = 0;
      return;
    }
    out[i * stride + j] = x;
    if (i != j && (mirrored || (upper == ZEROS && !crossing)))
      out[j * stride + i] = mirrored ? x : real(0);
  };
  if (epilogue == STORE) {
    for_elements(place, rows, columns, sum, [&](int i, int j, real x) {
      const bool counts = base && !(crossing && j > i);
      write(i, j, counts ? base[i * stride + j] + alpha * x : alpha * x);
    });
    return;
  }
  __shared__ double shared[WARPS][4];
  double squares = 0, smallest = 1.7976931348623157e308, largest = -smallest, trace = 0;
  for_elements(place, rows, columns, sum, [&](int i, int j, real x) {
    if (epilogue == INNER) {
      if (j <= i) squares += static_cast<double>(x) * base[i * stride + j];
      return;
    }
    if (i == j) {
      smallest = x < smallest ? x : smallest, largest = x > largest ? x : largest;
      x -= 1;
      trace += x;
    }
    if (j <= i) squares += (i == j ? 1 : 2) * static_cast<double>(x) * x;
    write(i, j, x);
  });
  if (!sums) return;
  squares = sum_warp(squares), trace = sum_warp(trace);
#pragma unroll
  for (int bits = WARP / 2; bits; bits /= 2) {
    smallest = min(smallest, __shfl_xor_sync(FULL_MASK, smallest, bits));
    largest = max(largest, __shfl_xor_sync(FULL_MASK, largest, bits));
  }
  if (threadIdx.x % WARP == 0) {
    double* mine = shared[threadIdx.x / WARP];
    mine[0] = squares, mine[1] = smallest, mine[2] = largest, mine[3] = trace;
  }
  __syncthreads();
  if (threadIdx.x) return;
#pragma unroll
  for (int w = 1; w < WARPS; ++w) {
    squares += shared[w][0], smallest = min(smallest, shared[w][1]);
    largest = max(largest, shared[w][2]), trace += shared[w][3];
  }
  sums[0] = squares, sums[1] = smallest, sums[2] = largest, sums[3] = trace;
}

// The work of a block: a tile of an item, and the slicing of its sum.
struct work_t {
  place_t place;
  index_t item, tile;  // the item, and the tile among those of all items
  int chunks, slices;  // of 16 values of k, in one segment; slices of all segments
};

__device__ __forceinline__ work_t work_of(const plan_t& p) {
  const int high = (p.rows + TILE - 1) / TILE, wide = (p.columns + TILE - 1) / TILE,
            deep = (p.depth + TILE - 1) / TILE;
  const unsigned tiles = p.range >= ROWS_UP_TO_ROW ? high * wide : high * (high + 1) / 2;
  work_t w;
  w.tile = blockIdx.x, w.item = blockIdx.x / tiles;
  w.place = place_of(p.range, blockIdx.x % tiles, high, wide, deep);
  const int end = w.place.end * TILE < p.depth ? w.place.end * TILE : p.depth;
  w.chunks = (end - w.place.begin * TILE + DEPTH - 1) / DEPTH;
  w.slices = (w.chunks * p.segments + p.slice - 1) / p.slice;
  return w;
}

// Return the slice of a block, or the number of slices if it has none. Blocks start row by row
// (blockIdx.y): whole slices first, then last slices of more than half that length, then the rest.
// So blocks that start late are short, and few multiprocessors wait for the end.
__device__ __forceinline__ int slice_of(const plan_t& p, const work_t& w) {
  const int y = blockIdx.y, last = w.slices - 1, of_last = static_cast<int>(gridDim.y) - 2;
  if (of_last < 0) return 0;  // no tile is cut
  if (y < of_last) return y < last ? y : w.slices;
  const bool is_long = 2 * (w.chunks * p.segments - last * p.slice) > p.slice;
  return is_long == (y == of_last) ? last : w.slices;
}

// Store the block's sum among the parts; return whether it is the last of its tile. In that case
// `sum` becomes the total, added in the order of the slices, and the counter of the tile is reset
// to zero.
__device__ __forceinline__ bool completes(const work_t& w, int slice, real* parts,
                                          unsigned* arrived, tile_t& sum) {
  __shared__ unsigned before;
  real* tile = parts + w.tile * (gridDim.y - 1) * (TILE * TILE) + threadIdx.x;
  real* mine = tile + slice * (TILE * TILE);
#pragma unroll
  for (int e = 0; e < TILE * TILE / BLOCK; ++e)
    mine[e * BLOCK] = sum[e / 4 / WIDE][e / 4 % WIDE][e % 4];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    before = atomicInc(arrived + w.tile, w.slices - 1);
    __threadfence();
  }
  __syncthreads();
  if (before != static_cast<unsigned>(w.slices - 1)) return false;
#pragma unroll
  for (int e = 0; e < TILE * TILE / BLOCK; ++e) sum[e / 4 / WIDE][e / 4 % WIDE][e % 4] = 0;
#pragma unroll 1
  for (int s = 0; s < w.slices; ++s) {
    const real* part = tile + s * (TILE * TILE);
#pragma unroll
    for (int e = 0; e < TILE * TILE / BLOCK; ++e)
      sum[e / 4 / WIDE][e / 4 % WIDE][e % 4] += part[e * BLOCK];
  }
  return true;
}

// One block per tile of each item (x) and per slice (y, with one more if there are several).
// Stored operands: left (rows, depth) or (depth, rows), right (depth, columns) or (columns,
// depth), with row stride `..._stride` and item stride `..._item`. base and out have
// `out_stride`. alpha is `factor`, times sizes[item] if there are sizes and they are not GATED.
// An item of size 0 costs no products: it is a copy of base (COPIED), or nothing is written
// (LEFT, GATED). Sums in several slices go to `parts` (tiles, slices, 64 x 64); `arrived` counts
// them and holds a zero per tile before and after.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
multiply(const plan_t plan, const real* __restrict__ left, const real* __restrict__ right,
         const real* base, const double* __restrict__ sizes, double factor, real* out,
         double* __restrict__ sums, real* parts, unsigned* arrived) {
  extern __shared__ __align__(16) real buffers[];  // STAGES x 2 x BUFFER
  const work_t w = work_of(plan);
  const int slice = slice_of(plan, w), first = slice * plan.slice, rows = plan.rows,
            columns = plan.columns, depth = plan.depth;
  const bool idle = sizes && sizes[w.item] == 0;
  if (idle ? blockIdx.y > 0 || plan.idle != COPIED : slice == w.slices) return;
  const int last = min(first + plan.slice, w.chunks * plan.segments);
  const bool turned_left = plan.form == TN, turned_right = plan.form == NT;
  const operand_t a = {left + w.item * plan.left_item, plan.left_stride, turned_left ? depth : rows,
                       turned_left ? rows : depth, plan.left_kind};
  const operand_t b = {right + w.item * plan.right_item, plan.right_stride,
                       turned_right ? columns : depth, turned_right ? depth : columns,
                       plan.right_kind};
  tile_t sum = {};
  if (!idle) {
    if (plan.form == NN)
      sum_products<true, false>(a, b, w.place, w.chunks, first, last, buffers, sum);
    else if (plan.form == TN)
      sum_products<false, false>(a, b, w.place, w.chunks, first, last, buffers, sum);
    else sum_products<true, true>(a, b, w.place, w.chunks, first, last, buffers, sum);
    if (w.slices > 1 && !completes(w, slice, parts, arrived, sum)) return;
  }
  const real alpha =
      static_cast<real>(sizes && plan.idle != GATED ? factor * sizes[w.item] : factor);
  conclude(plan, w.place, base ? base + w.item * plan.base_item : base, alpha,
           out + w.item * plan.out_item, sums ? sums + w.tile * 4 : sums, sum);
}

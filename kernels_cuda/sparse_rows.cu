// Some rows of long arrays: drawn, gathered, added up, and updated by AdaGrad. See
// fastsvgp/kernels/sparse_rows.py. Sums have no atomics: their order is that of the input rows.
#include "philox.cuh"

constexpr int BLOCK = 256;
constexpr int TILE = WARP, LINES = BLOCK / WARP;  // of a transposition
constexpr int RUN = 512;                          // rows that one block sorts

// out[c, i] = A[rows[i], c]: a block takes TILE rows and TILE columns, so that reads and writes are
// coalesced.
extern "C" __global__ void __launch_bounds__(BLOCK)
    gather(const real* __restrict__ A, index_t row_stride, index_t column_stride,
           const index_t* __restrict__ rows, index_t n, index_t k, real* __restrict__ out) {
  __shared__ real tile[TILE][TILE + 1];
  const int lane = threadIdx.x % WARP, line = threadIdx.x / WARP;
  const index_t i0 = static_cast<index_t>(blockIdx.x) * TILE,
                c0 = static_cast<index_t>(blockIdx.y) * TILE;
#pragma unroll
  for (int e = line; e < TILE; e += LINES)
    if (i0 + e < n && c0 + lane < k)
      tile[e][lane] = A[rows[i0 + e] * row_stride + (c0 + lane) * column_stride];
  __syncthreads();
#pragma unroll
  for (int e = line; e < TILE; e += LINES)
    if (c0 + e < k && i0 + lane < n) out[(c0 + e) * n + i0 + lane] = tile[lane][e];
}

// Sort runs of RUN rows, equal ones in input order: the place of a row is the number of rows before
// it.
extern "C" __global__ void __launch_bounds__(RUN)
    sort_runs(const index_t* __restrict__ rows, index_t n, index_t* __restrict__ sorted,
              index_t* __restrict__ order) {
  __shared__ index_t run[RUN];
  const int mine = threadIdx.x;
  const index_t start = static_cast<index_t>(blockIdx.x) * RUN;
  const int count = n - start < RUN ? static_cast<int>(n - start) : RUN;
  if (mine < count) run[mine] = rows[start + mine];
  __syncthreads();
  if (mine >= count) return;
  const index_t row = run[mine];
  int before = 0;
  for (int e = 0; e < count; ++e) before += run[e] < row || (run[e] == row && e < mine);
  sorted[start + before] = row;
  order[start + before] = start + mine;
}

// Merge neighbouring sorted runs of `width` rows: bisection finds how many rows of the other run
// come before a row.
extern "C" __global__ void __launch_bounds__(BLOCK)
    merge_runs(const index_t* __restrict__ rows, const index_t* __restrict__ places, index_t n,
               index_t width, index_t* __restrict__ sorted, index_t* __restrict__ order) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= n) return;
  const index_t start = i / (2 * width) * (2 * width),
                middle = start + width < n ? start + width : n;
  const index_t end = middle + width < n ? middle + width : n, row = rows[i];
  const bool left = i < middle;
  index_t low = left ? middle : start, high = left ? end : middle;
  const index_t other = low;
  while (low < high) {
    const index_t probe = low + (high - low) / 2;
    if (left ? rows[probe] < row : rows[probe] <= row)
      low = probe + 1;
    else
      high = probe;
  }
  const index_t place = (left ? i : start + i - middle) + low - other;
  sorted[place] = row;
  order[place] = places[i];
}

// 1 if a row differs from the one before it, else 0.
extern "C" __global__ void __launch_bounds__(BLOCK)
    mark_first(const index_t* __restrict__ sorted, index_t n, index_t* __restrict__ first) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i < n) first[i] = i == 0 || sorted[i] != sorted[i - 1];
}

// List each row once, then the last one again up to the end. `numbers` are running sums of the
// results of mark_first.
extern "C" __global__ void __launch_bounds__(BLOCK)
    list_distinct(const index_t* __restrict__ sorted, const index_t* __restrict__ numbers,
                  index_t n, index_t* __restrict__ distinct) {
  const index_t i = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (i >= n) return;
  if (i == 0 || sorted[i] != sorted[i - 1]) distinct[numbers[i] - 1] = sorted[i];
  if (i >= numbers[n - 1]) distinct[i] = sorted[n - 1];
}

// out[g] = sum of values[order[i]] over rows equal to the g-th distinct one; zeros after the last.
extern "C" __global__ void __launch_bounds__(BLOCK)
    add_rows(const index_t* __restrict__ sorted, const index_t* __restrict__ order,
             const index_t* __restrict__ numbers, index_t n, const real* __restrict__ values,
             index_t width, real* __restrict__ out) {
  const index_t e = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (e >= n * width) return;
  const index_t i = e / width, c = e % width, row = sorted[i];
  if (i >= numbers[n - 1]) out[e] = 0;
  if (i > 0 && sorted[i - 1] == row) return;
  real sum = values[order[i] * width + c];
  for (index_t p = i + 1; p < n && sorted[p] == row; ++p) sum += values[order[p] * width + c];
  out[(numbers[i] - 1) * width + c] = sum;
}

// See kernels.adagrad_rows. A row repeated right after itself is skipped.
extern "C" __global__ void __launch_bounds__(BLOCK)
    adagrad(real* __restrict__ array, real* __restrict__ sums, const index_t* __restrict__ rows,
            index_t n, const real* __restrict__ bar, index_t k, real size, real epsilon,
            int positive, index_t period) {
  const index_t e = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (e >= n * k) return;
  const index_t i = e / k, c = e % k, row = rows[i];
  if (i > 0 && rows[i - 1] == row) return;
  const bool in_log = positive || (period && row % period == c);
  const index_t place = row * k + c;
  const real x = array[place], slope = in_log ? bar[e] * x : bar[e],
             total = sums[place] + slope * slope;
  const real change = size * slope / (sqrt(total) + epsilon);
  sums[place] = total;
  array[place] = in_log ? x * exp(change) : x + change;
}

// Draw one unit per block of neighbours, from a seed and a step: the same numbers as on the CPU.
extern "C" __global__ void __launch_bounds__(BLOCK)
    draw_units(index_t num, index_t size, seed_t seed, seed_t step, unsigned stream,
               index_t* __restrict__ units, double* __restrict__ widths) {
  const index_t b = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (b >= size) return;
  const words_t counter = {static_cast<unsigned>(b), static_cast<unsigned>(step),
                           static_cast<unsigned>(step >> 32), stream};
  const words_t w = philox(counter, static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  const index_t each = num / size, rest = num % size, begin = b * each + b * rest / size;
  const index_t width = (b + 1) * each + (b + 1) * rest / size - begin;
  // the upper half of the product of the width and two words
  const seed_t high = static_cast<seed_t>(width) >> 32, low = static_cast<unsigned>(width);
  const seed_t across = w.b * high, over = w.a * low;
  const seed_t middle =
      (w.b * low >> 32) + static_cast<unsigned>(across) + static_cast<unsigned>(over);
  units[b] =
      begin + static_cast<index_t>(w.a * high + (across >> 32) + (over >> 32) + (middle >> 32));
  widths[b] = static_cast<double>(width);
}

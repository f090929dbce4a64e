// Flat vectors of numbers: packed from fields of a model, updated, added up, compared. See
// fastsvgp/kernels/vectors.py.
#include "shared.cuh"

constexpr int BLOCK = 256;

// --- fields and the flat float64 vector of their free numbers: copies of several in one launch ---

// A field: its numbers start at `start` of the vector. rows = 0: `size` numbers, one after another.
// Otherwise `size` triangles of rows x rows; row i of one has its i + 1 numbers at i (i + 1) / 2.
struct field_t {
  real* __restrict__ at;
  index_t size, rows, start;
};
#define FIELD(k) real* __restrict__ at_##k, index_t size_##k, index_t rows_##k, index_t start_##k
#define FIELDS FIELD(0), FIELD(1), FIELD(2), FIELD(3), FIELD(4), FIELD(5)
// selected by comparisons: an index would put the table into local memory
#define TAKE_ONE(k) \
  if (blockIdx.y == k) f = {at_##k, size_##k, rows_##k, start_##k};
#define TAKE_FIELD                            \
  field_t f = {at_0, size_0, rows_0, start_0}; \
  TAKE_ONE(1) TAKE_ONE(2) TAKE_ONE(3) TAKE_ONE(4) TAKE_ONE(5)

// A block copies rows, or runs of BLOCK numbers, of field blockIdx.y; unused fields have size 0.
extern "C" __global__ void __launch_bounds__(BLOCK)
pack(double* __restrict__ vector, FIELDS) {
  TAKE_FIELD
  vector += f.start;
  if (!f.rows) {
    const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
    for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < f.size; p += step)
      vector[p] = f.at[p];
    return;
  }
  for (index_t row = blockIdx.x; row < f.size * f.rows; row += gridDim.x) {
    const index_t i = row % f.rows, item = row / f.rows;
    double* out = vector + item * (f.rows * (f.rows + 1) / 2) + i * (i + 1) / 2;
    for (index_t j = threadIdx.x; j <= i; j += BLOCK) out[j] = f.at[row * f.rows + j];
  }
}

// The way back; zeros above the diagonals.
extern "C" __global__ void __launch_bounds__(BLOCK)
unpack(const double* __restrict__ vector, FIELDS) {
  TAKE_FIELD
  vector += f.start;
  if (!f.rows) {
    const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
    for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < f.size; p += step)
      f.at[p] = static_cast<real>(vector[p]);
    return;
  }
  for (index_t row = blockIdx.x; row < f.size * f.rows; row += gridDim.x) {
    const index_t i = row % f.rows, item = row / f.rows;
    const double* in = vector + item * (f.rows * (f.rows + 1) / 2) + i * (i + 1) / 2;
    for (index_t j = threadIdx.x; j < f.rows; j += BLOCK)
      f.at[row * f.rows + j] = j <= i ? static_cast<real>(in[j]) : real(0);
  }
}

// --- positive entries of a flat float64 vector, in place ---

// The transforms of fastsvgp/records/transforms.py: softplus, or log. NaN stays NaN: it fails each
// comparison.
constexpr double TINY = 2.2250738585072014e-308, MAX = 1.7976931348623157e308;
constexpr double LOG_TINY = -708.39641853226408, LOG_MAX = 709.78271289338397;

__device__ __forceinline__ double clip(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
__device__ __forceinline__ double tail(double u) {  // e^-|u|
  return exp(-clip(fabs(u), 0, -LOG_TINY));
}
__device__ __forceinline__ double exponential(double u) {
  return clip(exp(clip(u, LOG_TINY, LOG_MAX - 1e-3)), TINY, MAX);
}

// x[at] := their positive values, within limits of each entry.
extern "C" __global__ void __launch_bounds__(BLOCK)
to_positive(double* __restrict__ x, const index_t* __restrict__ at, index_t count, int by_log,
            const double* __restrict__ low, const double* __restrict__ high) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double u = x[at[k]], floor = u < 0 ? 0 : u;
  const double value = by_log ? exponential(u) : clip(floor + log1p(tail(u)), TINY, MAX);
  x[at[k]] = clip(value, low[k], high[k]);
}

// The inverse.
extern "C" __global__ void __launch_bounds__(BLOCK)
from_positive(double* __restrict__ x, const index_t* __restrict__ at, index_t count, int by_log) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double value = x[at[k]];
  x[at[k]] = by_log ? log(value) : value + log(-expm1(-value));
}

// g[at] *= the derivative of the positive values at u[at].
extern "C" __global__ void __launch_bounds__(BLOCK)
through_positive(double* __restrict__ g, const double* __restrict__ u,
                 const index_t* __restrict__ at, index_t count, int by_log) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const double here = u[at[k]], small = tail(here);
  g[at[k]] *= by_log ? exponential(here) : (here >= 0 ? 1 : small) / (1 + small);
}

// --- optimiser updates ---

// See kernels.adam. Step size and step number are passed by value, or are on the device (`..._at`).
// The new values may overwrite the old ones.
extern "C" __global__ void __launch_bounds__(BLOCK)
adam(const real* x, const real* __restrict__ g, const real* first, const real* second,
     real* x_out, real* first_out, real* second_out, index_t size,
     const double* __restrict__ step_at, double step_value, const double* __restrict__ count_at,
     double count, real beta1, real beta2, real epsilon) {
  __shared__ real factors[3];  // the step size and the two bias corrections: once per block
  if (threadIdx.x < 2) {
    const double beta = threadIdx.x == 0 ? beta1 : beta2;
    factors[threadIdx.x] = static_cast<real>(1 / (1 - pow(beta, count_at ? *count_at : count)));
  }
  if (threadIdx.x == 2) factors[2] = static_cast<real>(step_at ? *step_at : step_value);
  __syncthreads();
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= size) return;
  const real c1 = factors[0], c2 = factors[1], step = factors[2];
  const real m = beta1 * first[k] + (1 - beta1) * g[k],
             v = beta2 * second[k] + (1 - beta2) * g[k] * g[k];
  first_out[k] = m;
  second_out[k] = v;
  x_out[k] = x[k] + step * (m * c1) / (sqrt(v * c2) + epsilon);
}

// --- sums of several small groups of arrays in one launch: gradients are many small arrays ---

// out = factor (a + b + c), elementwise; b and c may be null.
struct group_t {
  real* __restrict__ out;
  const real* __restrict__ a;
  const real* __restrict__ b;
  const real* __restrict__ c;
  index_t size;
};
#define GROUP(k)                                                                              \
  real* __restrict__ out_##k, const real* __restrict__ a_##k, const real* __restrict__ b_##k, \
      const real* __restrict__ c_##k, index_t size_##k
#define GROUP_OF(k) {out_##k, a_##k, b_##k, c_##k, size_##k}

// A block sums group blockIdx.y; unused groups have no entries.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_each(GROUP(0), GROUP(1), GROUP(2), GROUP(3), GROUP(4), GROUP(5), real factor) {
  // selected by comparisons: an index would put the table into local memory
  group_t g = GROUP_OF(0);
#define TAKE(k) \
  if (blockIdx.y == k) g = GROUP_OF(k);
  TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5)
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < g.size; p += step) {
    real sum = g.a[p];
    if (g.b) sum += g.b[p];
    if (g.c) sum += g.c[p];
    g.out[p] = factor * sum;
  }
}

// --- fingerprint of an array, which shows whether two arrays hold equal numbers ---

typedef unsigned long long pattern_t;  // the bits of a number; sums wrap

// Fold 64-bit patterns by exclusive or and by sum modulo 2^64, both independent of order: one pair
// per block.
extern "C" __global__ void __launch_bounds__(BLOCK)
fold_bits(const index_t* __restrict__ bits, index_t count, index_t* __restrict__ parts) {
  __shared__ pattern_t folded[2][BLOCK / WARP];
  pattern_t mixed = 0, sum = 0;
  for (index_t i = blockIdx.x * index_t(BLOCK) + threadIdx.x; i < count;
       i += gridDim.x * index_t(BLOCK)) {
    mixed ^= static_cast<pattern_t>(bits[i]);
    sum += static_cast<pattern_t>(bits[i]);
  }
#pragma unroll
  for (int lanes = WARP / 2; lanes; lanes /= 2) {
    mixed ^= __shfl_xor_sync(FULL_MASK, mixed, lanes);
    sum += __shfl_xor_sync(FULL_MASK, sum, lanes);
  }
  if (threadIdx.x % WARP == 0) {
    folded[0][threadIdx.x / WARP] = mixed;
    folded[1][threadIdx.x / WARP] = sum;
  }
  __syncthreads();
  if (threadIdx.x) return;
#pragma unroll
  for (int w = 1; w < BLOCK / WARP; ++w) {
    mixed ^= folded[0][w];
    sum += folded[1][w];
  }
  parts[2 * blockIdx.x] = static_cast<index_t>(mixed);
  parts[2 * blockIdx.x + 1] = static_cast<index_t>(sum);
}

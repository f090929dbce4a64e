// Range checks whose results stay on the device until the host reads the flag.
#include "shared.cuh"

constexpr int BLOCK = 256;

// Numbers x in `rows` rows of `columns`, with arbitrary strides, that must be in [low, high].
struct range_t {
  const real* __restrict__ x;
  index_t rows, row_stride, columns, column_stride;
  real low, high;
};
#define RANGE(k)                                                                                 \
  const real *__restrict__ x_##k, index_t rows_##k, index_t row_stride_##k, index_t columns_##k, \
      index_t column_stride_##k, real low_##k, real high_##k
#define RANGE_OF(k) \
  {x_##k, rows_##k, row_stride_##k, columns_##k, column_stride_##k, low_##k, high_##k}

// Add 1 to `flag` for each block that finds a number outside its range, or NaN. A block checks
// range blockIdx.y; unused ranges have no rows.
extern "C" __global__ void __launch_bounds__(BLOCK)
find_outside(RANGE(0), RANGE(1), RANGE(2), RANGE(3), RANGE(4), RANGE(5), RANGE(6), RANGE(7),
             RANGE(8), RANGE(9), RANGE(10), RANGE(11), int* __restrict__ flag) {
  // selected by comparisons: an index would put the table into local memory
  range_t r = RANGE_OF(0);
#define TAKE(k) \
  if (blockIdx.y == k) r = RANGE_OF(k);
  TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5) TAKE(6) TAKE(7) TAKE(8) TAKE(9) TAKE(10) TAKE(11)
  __shared__ int found[BLOCK];
  const index_t count = r.rows * r.columns, step = static_cast<index_t>(gridDim.x) * BLOCK;
  int outside = 0;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step) {
    const real value = r.x[p / r.columns * r.row_stride + p % r.columns * r.column_stride];
    if (!(value >= r.low && value <= r.high)) outside = 1;
  }
  found[threadIdx.x] = outside;
  __syncthreads();
  if (threadIdx.x) return;
  for (int t = 0; t < BLOCK; ++t) outside |= found[t];
  if (outside) atomicAdd(flag, 1);
}

// Collect what the host reads: the value, the number of faults in the flag, and the count of raised
// variances, if there is one.
extern "C" __global__ void report(const double* __restrict__ value_at, double value,
                                  const int* __restrict__ flag,
                                  const long long* __restrict__ raised,
                                  double* __restrict__ found) {
  found[0] = value_at ? *value_at : value;
  found[1] = *flag;
  found[2] = raised ? static_cast<double>(*raised) : 0;
}

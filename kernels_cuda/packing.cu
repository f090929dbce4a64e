// Fields of a model and the flat float64 vector of its free numbers: copies of several fields in
// one launch. See fastsvgp/kernels/packing.py.
#include "shared.cuh"

constexpr int BLOCK = 256;

// A field: its numbers start at `start` of the vector. rows = 0: `size` numbers, one after another.
// Otherwise `size` triangles of rows x rows; row i of one has its i + 1 numbers at i (i + 1) / 2.
struct field_t {
  real* __restrict__ at;
  index_t size, rows, start;
};
#define FIELD(k) real* __restrict__ at_##k, index_t size_##k, index_t rows_##k, index_t start_##k
#define FIELDS FIELD(0), FIELD(1), FIELD(2), FIELD(3), FIELD(4), FIELD(5)
// selected by comparisons: an index would put the table into local memory
#define TAKE(k) \
  if (blockIdx.y == k) f = {at_##k, size_##k, rows_##k, start_##k};
#define TAKE_FIELD                            \
  field_t f = {at_0, size_0, rows_0, start_0}; \
  TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5)

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

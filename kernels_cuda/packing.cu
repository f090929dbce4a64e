// Conversion between lower triangles and packed rows of float64.
#include "shared.cuh"

constexpr int BLOCK = 256;

// Row i of matrix b: its first i + 1 numbers are at i (i + 1) / 2 of the packed matrix. One block
// per row.
extern "C" __global__ void __launch_bounds__(BLOCK)
pack(const real* __restrict__ A, index_t size, double* __restrict__ packed) {
  const index_t i = blockIdx.x % size, item = blockIdx.x / size;
  const real* row = A + (item * size + i) * size;
  double* out = packed + item * (size * (size + 1) / 2) + i * (i + 1) / 2;
  for (index_t j = threadIdx.x; j <= i; j += BLOCK) out[j] = row[j];
}

extern "C" __global__ void __launch_bounds__(BLOCK)
unpack(const double* __restrict__ packed, index_t size, real* __restrict__ A) {
  const index_t i = blockIdx.x % size, item = blockIdx.x / size;
  real* row = A + (item * size + i) * size;
  const double* in = packed + item * (size * (size + 1) / 2) + i * (i + 1) / 2;
  for (index_t j = threadIdx.x; j < size; j += BLOCK)
    row[j] = j <= i ? static_cast<real>(in[j]) : real(0);
}

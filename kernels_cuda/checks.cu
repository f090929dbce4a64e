// Values within limits: verdicts that stay on the device until somebody reads the flag.
#include "shared.cuh"

constexpr int BLOCK = 256;

// Adds 1 to `flag` for each block of threads that meets an x outside [low, high], NaN among them. x has `rows` rows of `columns`
// numbers, with any distances between them.
extern "C" __global__ void __launch_bounds__(BLOCK)
find_outside(const real* __restrict__ x, index_t rows, index_t row_stride, index_t columns, index_t column_stride, real low, real high,
             int* __restrict__ flag) {
  __shared__ int found[BLOCK];
  const index_t count = rows * columns, step = static_cast<index_t>(gridDim.x) * BLOCK;
  int outside = 0;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < count; p += step) {
    const real value = x[p / columns * row_stride + p % columns * column_stride];
    if (!(value >= low && value <= high)) outside = 1;
  }
  found[threadIdx.x] = outside;
  __syncthreads();
  if (threadIdx.x) return;
  for (int t = 0; t < BLOCK; ++t) outside |= found[t];
  if (outside) atomicAdd(flag, 1);
}

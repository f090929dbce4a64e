// Fingerprint of an array, which shows whether two arrays hold equal numbers.
#include "shared.cuh"

constexpr int BLOCK = 256;
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

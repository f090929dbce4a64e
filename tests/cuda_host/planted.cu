// Deliberate defects: launched with defect > 0 each kernel has one defect that a test must find;
// with 0 it is correct.
#include "shared.cuh"

// out[i] = sum of the block's 64 inputs, for i < 64 of each block.
extern "C" __global__ void __launch_bounds__(64)
block_sum(const real* __restrict__ in, real* __restrict__ out, int defect) {
  __shared__ real values[64];
  __shared__ real total[2];
  const int t = threadIdx.x;
  if (defect == 1 && t == 63) return;  // 1: leaves while the others wait
  // 2: shared memory that is read but never written
  if (defect != 2 || t != 5) values[t] = in[blockIdx.x * 64 + t];
  if (defect == 3 && t < 32) __syncthreads();           // 3: two different barriers
  else if (defect != 4) __syncthreads();                // 4: none
  real v = values[defect == 5 ? t + 1 : (t + 1) % 64];  // 5: past the end of shared memory
  // 6: a mask without the upper lanes
  const unsigned mask = defect == 6 ? 0x0000ffffu : 0xffffffffu;
  for (int bits = 16; bits; bits /= 2) v += __shfl_xor_sync(mask, v, bits);
  if (defect == 7) {  // 7: two different collectives
    if (t % 32 < 16) __syncwarp();
    else v += __shfl_sync(0xffffffffu, v, 0);
  }
  if (t % 32 == 0) total[t / 32] = v;
  // 8: a barrier missing in the second half
  if (defect != 8) __syncthreads();
  // 9: blocks write the same places
  out[defect == 9 ? t : blockIdx.x * 64 + t] = total[0] + total[1];
  // 10: past the end of global memory
  if (defect == 10) out[static_cast<index_t>(gridDim.x) * 64 + t] = 0;
  // 11: misaligned
  if (defect == 11 && t == 0) *reinterpret_cast<vector_t*>(out + 1) = vector_t{};
}

// out = in, reversed, 256 elements through shared memory.
extern "C" __global__ void __launch_bounds__(256 / WIDTH)
reversed(const real* __restrict__ in, real* __restrict__ out, int defect) {
  __shared__ __align__(16) real values[256];
  copy_async<16>(&values[WIDTH * threadIdx.x], &in[WIDTH * threadIdx.x]);
  commit_async();
  if (defect != 12) wait_async<0>();  // 12: no wait
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) out[i] = values[255 - i];
}

// out[i] = sum over all blocks of in[block][i], i < 64, by the last block to arrive, which resets
// the counter to zero.
extern "C" __global__ void __launch_bounds__(64)
sum_of_blocks(const real* __restrict__ in, real* parts, unsigned* arrived,
              real* __restrict__ out, int defect) {
  __shared__ unsigned before;
  const int t = threadIdx.x;
  parts[blockIdx.x * 64 + t] = in[blockIdx.x * 64 + t];
  __syncthreads();
  if (t == 0) {
    // 13: the sum may arrive after its mark
    if (defect != 13) __threadfence();
    before = atomicInc(arrived, gridDim.x - 1);
    // 14: others' sums may be read before their marks
    if (defect != 14) __threadfence();
  }
  __syncthreads();
  if (before != gridDim.x - 1) return;
  real sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b * 64 + t];
  out[t] = sum;
}

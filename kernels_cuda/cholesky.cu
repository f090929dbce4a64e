// What surrounds a factorisation. Matrices (batch, M, M) are C-contiguous.
#include "shared.cuh"

constexpr int BLOCK = 256;

// info[b], which is 0 where the factorisation of matrix b went through, becomes the number (from 1) of its first pivot that is not
// finite, if there is one: LAPACK lets those pass. Adds 1 to `fault` where info is not 0 then. A block is a matrix.
extern "C" __global__ void __launch_bounds__(BLOCK)
check_pivots(const real* __restrict__ A, index_t M, int* __restrict__ info, int* __restrict__ fault) {
  __shared__ int first[BLOCK];
  const real* diagonal = A + blockIdx.x * M * M;
  int found = static_cast<int>(M);
  for (index_t i = threadIdx.x; i < M; i += BLOCK) {
    const real pivot = diagonal[i * (M + 1)];
    if (!(pivot - pivot == 0)) found = min(found, static_cast<int>(i));
  }
  first[threadIdx.x] = found;
  __syncthreads();
  if (threadIdx.x) return;
  for (int t = 1; t < BLOCK; ++t) found = min(found, first[t]);
  int result = info[blockIdx.x];
  if (result == 0 && found < M) info[blockIdx.x] = result = found + 1;
  if (result && fault) atomicAdd(fault, 1);
}

// Zeros above the diagonals.
extern "C" __global__ void __launch_bounds__(BLOCK) clear_upper(real* __restrict__ A, index_t M) {
  const index_t chunks = (M + BLOCK - 1) / BLOCK, row = blockIdx.x / chunks;
  const index_t j = blockIdx.x % chunks * BLOCK + threadIdx.x;
  if (j < M && j > row % M) A[row * M + j] = 0;
}

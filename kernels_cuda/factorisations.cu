// Passes before and after a factorisation. Matrices (batch, M, M) are C-contiguous.
#include "shared.cuh"

constexpr int BLOCK = 256;

// If info[b] is 0, which means that the factorisation of matrix b succeeded, set it to the number
// (from 1) of the first pivot that is not finite, if there is one: LAPACK does not report those.
// Then add 1 to `fault` if info is not 0. One block per matrix.
extern "C" __global__ void __launch_bounds__(BLOCK)
check_pivots(const real* __restrict__ A, index_t M, int* __restrict__ info,
             int* __restrict__ fault) {
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

// Transpose triangles, because the library is faster for the other one. From the lower triangle of
// A: out[j, i] = A[i, j], plus `shift` on the diagonal; entries of `out` below its diagonal are not
// written. From the upper one: out[i, j] = A[j, i], and zeros above.
constexpr int TILE = 32;
extern "C" __global__ void __launch_bounds__(BLOCK)
turn(const real* A, index_t M, int from_upper, real shift, real* __restrict__ out) {
  __shared__ real tile[TILE][TILE + 1];
  const unsigned high = static_cast<unsigned>((M + TILE - 1) / TILE), line = blockIdx.x / high;
  const index_t I = line % high, J = blockIdx.x % high, lane = threadIdx.x % TILE,
                first = threadIdx.x / TILE;
  if (J > I) return;
  A += line / high * M * M, out += line / high * M * M;
  // rows to read and to write
  const index_t from = (from_upper ? J : I) * TILE, to = (from_upper ? I : J) * TILE;
#pragma unroll
  for (index_t r = first; r < TILE; r += BLOCK / TILE)
    if (from + r < M && to + lane < M) tile[r][lane] = A[(from + r) * M + to + lane];
  __syncthreads();
#pragma unroll
  for (index_t r = first; r < TILE; r += BLOCK / TILE) {
    const index_t i = to + r, j = from + lane;
    if (i >= M || j >= M) continue;
    if (from_upper) {
      out[i * M + j] = j <= i ? tile[lane][r] : real(0);
    } else if (j >= i) {
      out[i * M + j] = i == j ? tile[lane][r] + shift : tile[lane][r];
    }
  }
  if (!from_upper || I == J) return;
#pragma unroll
  for (index_t r = first; r < TILE; r += BLOCK / TILE)
    if (from + r < M && to + lane < M) out[(from + r) * M + to + lane] = 0;
}

// Set entries above the diagonals to zero.
extern "C" __global__ void __launch_bounds__(BLOCK) clear_upper(real* __restrict__ A, index_t M) {
  const index_t chunks = (M + BLOCK - 1) / BLOCK, row = blockIdx.x / chunks;
  const index_t j = blockIdx.x % chunks * BLOCK + threadIdx.x;
  if (j < M && j > row % M) A[row * M + j] = 0;
}

// Squared distances of rows, by differences. See fastsvgp/kernels/distances.py.
//
// One thread per pair: neighbours share a row of X1 and read neighbouring rows of X2, which the
// caches hold. The function of r^2 that follows takes several passes over the matrix, so shared
// memory, as in pairwise.cu, would save little of the whole.
#include "stationary.cuh"

constexpr int BLOCK = 256;

// R[i, j] = sum_d ((x_d - x'_d) / l_d)^2; the order of the terms is the same for (j, i).
extern "C" __global__ void __launch_bounds__(BLOCK)
squared_distances(const real* __restrict__ X1, index_t N1, const real* __restrict__ X2, index_t N2,
                  int D, const real* __restrict__ lengthscales, int step, real lengthscale,
                  real* __restrict__ R) {
  const index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (p >= N1 * N2) return;
  const real* a = X1 + p / N2 * D;
  const real* b = X2 + p % N2 * D;
  real sum = 0;
  for (int d = 0; d < D; ++d) {
    const real e = (a[d] - b[d]) / length(lengthscales, step, lengthscale, d);
    sum += e * e;
  }
  R[p] = sum;
}

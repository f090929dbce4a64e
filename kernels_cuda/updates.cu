// Optimiser updates: one pass over flat vectors.
#include "shared.cuh"

constexpr int BLOCK = 256;

// See kernels.adam; c1 and c2 are the bias corrections. The new values may take the place of the old ones.
extern "C" __global__ void __launch_bounds__(BLOCK)
adam(const real* x, const real* __restrict__ g, const real* first, const real* second, real* x_out, real* first_out, real* second_out,
     index_t count, real step, real beta1, real beta2, real c1, real c2, real epsilon) {
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= count) return;
  const real m = beta1 * first[k] + (1 - beta1) * g[k], v = beta2 * second[k] + (1 - beta2) * g[k] * g[k];
  first_out[k] = m;
  second_out[k] = v;
  x_out[k] = x[k] + step * (m * c1) / (sqrt(v * c2) + epsilon);
}

// Optimiser updates: one pass over flat vectors.
#include "shared.cuh"

constexpr int BLOCK = 256;

// See kernels.adam. Step size and step number are passed by value, or are on the device (`..._at`).
// The new values may overwrite the old ones.
extern "C" __global__ void __launch_bounds__(BLOCK)
adam(const real* x, const real* __restrict__ g, const real* first, const real* second,
     real* x_out, real* first_out, real* second_out, index_t size,
     const double* __restrict__ step_at, double step_value, const double* __restrict__ count_at,
     double count, real beta1, real beta2, real epsilon) {
  __shared__ real factors[3];  // the step size and the two bias corrections: once per block
  if (threadIdx.x < 2) {
    const double beta = threadIdx.x == 0 ? beta1 : beta2;
    factors[threadIdx.x] = static_cast<real>(1 / (1 - pow(beta, count_at ? *count_at : count)));
  }
  if (threadIdx.x == 2) factors[2] = static_cast<real>(step_at ? *step_at : step_value);
  __syncthreads();
  const index_t k = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (k >= size) return;
  const real c1 = factors[0], c2 = factors[1], step = factors[2];
  const real m = beta1 * first[k] + (1 - beta1) * g[k],
             v = beta2 * second[k] + (1 - beta2) * g[k] * g[k];
  first_out[k] = m;
  second_out[k] = v;
  x_out[k] = x[k] + step * (m * c1) / (sqrt(v * c2) + epsilon);
}

// Sums of several small groups of arrays in one launch: gradients are many small arrays. See
// fastsvgp/kernels/group_sums.py.
#include "shared.cuh"

constexpr int BLOCK = 256;

// out = factor (a + b + c), elementwise; b and c may be null.
struct group_t {
  real* __restrict__ out;
  const real* __restrict__ a;
  const real* __restrict__ b;
  const real* __restrict__ c;
  index_t size;
};
#define GROUP(k)                                                                              \
  real* __restrict__ out_##k, const real* __restrict__ a_##k, const real* __restrict__ b_##k, \
      const real* __restrict__ c_##k, index_t size_##k
#define GROUP_OF(k) {out_##k, a_##k, b_##k, c_##k, size_##k}

// A block sums group blockIdx.y; unused groups have no entries.
extern "C" __global__ void __launch_bounds__(BLOCK)
sum_each(GROUP(0), GROUP(1), GROUP(2), GROUP(3), GROUP(4), GROUP(5), real factor) {
  // selected by comparisons: an index would put the table into local memory
  group_t g = GROUP_OF(0);
#define TAKE(k) \
  if (blockIdx.y == k) g = GROUP_OF(k);
  TAKE(1) TAKE(2) TAKE(3) TAKE(4) TAKE(5)
  const index_t step = static_cast<index_t>(gridDim.x) * BLOCK;
  for (index_t p = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x; p < g.size; p += step) {
    real sum = g.a[p];
    if (g.b) sum += g.b[p];
    if (g.c) sum += g.c[p];
    g.out[p] = factor * sum;
  }
}

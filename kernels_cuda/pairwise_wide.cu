// Pairwise functions of many features: distances and contractions are cuBLAS products, with the
// passes here between them.
//
// With a, b the centred and scaled inputs: r^2 = |a|^2 + |b|^2 - 2 a.b takes one multiplication per
// feature instead of the three operations of a direct difference. If that cancels, r^2 is
// recomputed directly; near pairs are removed from the weights of the products and contracted by
// differences. With many features few pairs are near.
#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int EACH = 4;                      // entries per thread of `finish`, whose loads overlap
constexpr real CANCELS = 0.5, NEAR = 0.125;  // r^2 below these fractions of the norms

// Compute scale[d] = 1 / l_d.
extern "C" __global__ void __launch_bounds__(BLOCK)
invert(const real* __restrict__ lengthscales, int step, real lengthscale, int D,
       real* __restrict__ scale) {
  const int d = blockIdx.x * BLOCK + threadIdx.x;
  if (d < D) scale[d] = 1 / length(lengthscales, step, lengthscale, d);
}

// Compute c[d] = the mean of the finite X[., d] over every `skip`-th row, or 0 if there is none.
// NaN must not spread to other points.
extern "C" __global__ void __launch_bounds__(BLOCK)
centre(const real* __restrict__ X, index_t N, int D, index_t skip, real* __restrict__ c) {
  __shared__ double sums[WARPS][WARP];
  __shared__ double counts[WARPS][WARP];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, d = blockIdx.x * WARP + lane;
  double sum = 0, count = 0;
  if (d < D)
    for (index_t i = warp * skip; i < N; i += WARPS * skip) {
      const real x = X[i * D + d];
      if (x - x == 0) sum += x, ++count;
    }
  sums[warp][lane] = sum;
  counts[warp][lane] = count;
  __syncthreads();
  if (warp || d >= D) return;
  sum = count = 0;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) sum += sums[i][lane], count += counts[i][lane];
  c[d] = count > 0 ? static_cast<real>(sum / count) : real(0);
}

// Compute A[i] = (X[i] - c) scale and norms[i] = |A[i]|^2. A warp takes a row.
extern "C" __global__ void __launch_bounds__(BLOCK)
move(const real* __restrict__ X, index_t N, int D, const real* __restrict__ c,
     const real* __restrict__ scale, real* __restrict__ A, real* __restrict__ norms) {
  const index_t i = static_cast<index_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
  if (i >= N) return;
  double sum = 0;
#pragma unroll 1
  for (int d = threadIdx.x % WARP; d < D; d += WARP) {
    const real a = (X[i * D + d] - c[d]) * scale[d];
    A[i * D + d] = a;
    sum += static_cast<double>(a) * a;
  }
  sum = sum_warp(sum);
  if (threadIdx.x % WARP == 0) norms[i] = static_cast<real>(sum);
}

struct Distance {
  real r2;
  bool near;
};
// Return r^2 of rows x and z from their product p = a.b.
__device__ __forceinline__ Distance distance(real p, const real* __restrict__ x, real norm1,
                                             const real* __restrict__ z, real norm2, int D,
                                             const real* __restrict__ scale) {
  const real norm = norm1 + norm2, r2 = norm - 2 * p;
  if (r2 > CANCELS * norm) return {r2, false};  // false if the norms are infinite or NaN
  real sum = 0;
#pragma unroll 2
  for (int d = 0; d < D; ++d) {
    const real e = (z[d] - x[d]) * scale[d];
    sum += e * e;
  }
  return {sum, !(sum > NEAR * norm)};
}

// Replace V = A B' by k. With `symmetric` the lower triangle is evaluated and written twice.
extern "C" __global__ void __launch_bounds__(BLOCK, 3)
finish(int family, const real* __restrict__ X1, index_t N1, const real* __restrict__ X2,
       index_t N2, int D, const real* __restrict__ variance_at, real variance,
       const real* __restrict__ scale, const real* __restrict__ norms1,
       const real* __restrict__ norms2, int symmetric, real* __restrict__ V) {
  const Function f = function_of(family, parameter(variance_at, 0, variance, 0));
  const index_t pieces = (N2 + BLOCK * EACH - 1) / (BLOCK * EACH), i = blockIdx.x / pieces;
  const index_t first = blockIdx.x % pieces * (BLOCK * EACH) + threadIdx.x, end = i >= N1 ? 0
                                                                                  : symmetric
                                                                                      ? i + 1
                                                                                      : N2;
  real p[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    p[e] = first + e * BLOCK < end ? V[i * N2 + first + e * BLOCK] : real(0);
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    const index_t j = first + e * BLOCK;
    if (j >= end) return;
    const real r2 = distance(p[e], X1 + i * D, norms1[i], X2 + j * D, norms2[j], D, scale).r2;
    const real k = f.root ? value<true>(f, r2) : value<false>(f, r2);
    V[i * N2 + j] = k;
    if (symmetric) V[j * N2 + i] = k;
  }
}

// Replace V = A B' by K_bar q, or by 0 for near pairs, whose bits are set in near[i, j / 32];
// total[block] = the sum of K_bar k.
extern "C" __global__ void __launch_bounds__(BLOCK, 3)
weigh(int family, const real* __restrict__ X1, index_t N1, const real* __restrict__ X2,
      index_t N2, int D, const real* __restrict__ variance_at, real variance,
      const real* __restrict__ scale, const real* __restrict__ norms1,
      const real* __restrict__ norms2, const real* __restrict__ K_bar, real* __restrict__ V,
      unsigned* __restrict__ near, double* __restrict__ total) {
  __shared__ double totals[WARPS];
  const Function f = function_of(family, parameter(variance_at, 0, variance, 0));
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const index_t words = (N2 + WARP - 1) / WARP;
  double sum = 0;
  for (index_t w = static_cast<index_t>(blockIdx.x) * WARPS + warp; w < N1 * words;
       w += static_cast<index_t>(gridDim.x) * WARPS) {
    const index_t i = w / words, j = w % words * WARP + lane, place = i * N2 + j;
    bool is_near = false;
    if (j < N2) {
      const Distance found =
          distance(V[place], X1 + i * D, norms1[i], X2 + j * D, norms2[j], D, scale);
      real part = 0;
      const real q = f.root ? pull<true>(f, K_bar[place], found.r2, part)
                            : pull<false>(f, K_bar[place], found.r2, part);
      sum += part;
      is_near = found.near;
      V[place] = is_near ? real(0) : q;
    }
    const unsigned votes = __ballot_sync(FULL_MASK, is_near);
    if (lane == 0) near[w] = votes;
  }
  sum = sum_block(sum, totals);
  if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

// Add the near pairs: out[n] += sum w e and squares[n] += sum w e^2, where e is the scaled
// difference from row n to its partner. A warp takes a row of X1 or, with `turned`, of X2, so it
// owns its entries and the order of the sum is fixed.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
add_near(int family, const real* __restrict__ X1, index_t N1, const real* __restrict__ X2,
         index_t N2, int D, const real* __restrict__ variance_at, real variance,
         const real* __restrict__ scale, const real* __restrict__ K_bar,
         const unsigned* __restrict__ near, int turned, real* __restrict__ out,
         real* __restrict__ squares) {
  const Function f = function_of(family, parameter(variance_at, 0, variance, 0));
  const index_t n = static_cast<index_t>(blockIdx.x) * WARPS + threadIdx.x / WARP,
                count = turned ? N1 : N2;
  const index_t words = (N2 + WARP - 1) / WARP;
  if (n >= (turned ? N2 : N1)) return;
  const int lane = threadIdx.x % WARP;
  const real* __restrict__ own = (turned ? X2 : X1) + n * D;
  for (index_t first = 0; first < count; first += WARP) {
    unsigned votes;
    if (turned) {
      const index_t i = first + lane;
      votes = __ballot_sync(FULL_MASK, i < N1 && near[i * words + n / WARP] >> n % WARP & 1);
    } else {
      votes = near[n * words + first / WARP];
    }
    for (int bit = 0; votes; ++bit, votes /= 2) {
      if (votes % 2 == 0) continue;
      const index_t partner = first + bit;
      const real* __restrict__ other = (turned ? X1 : X2) + partner * D;
      double r2 = 0;
      for (int d = lane; d < D; d += WARP) {
        const real e = (other[d] - own[d]) * scale[d];
        r2 += static_cast<double>(e) * e;
      }
      real sum = 0;
      const real distance = static_cast<real>(sum_warp(r2)),
                 bar = turned ? K_bar[partner * N2 + n] : K_bar[n * N2 + partner];
      const real w =
          f.root ? pull<true>(f, bar, distance, sum) : pull<false>(f, bar, distance, sum);
      for (int d = lane; d < D && w != 0; d += WARP) {
        const real e = (other[d] - own[d]) * scale[d];
        out[n * D + d] += w * e;
        if (squares) squares[n * D + d] += w * e * e;
      }
    }
  }
}

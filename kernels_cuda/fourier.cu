// Products with random Fourier features that are never stored, and their reverse rules. See
// fastsvgp/kernels/fourier.py.
//
// A block takes a tile of POINTS points and a share of the frequencies: a thread PTS points by one
// frequency at a time, cosines and sines in registers. The block draws frequencies, STAGE at a
// time, with the factor 1 / (2 pi lengthscale) for phases in turns, so each draw serves POINTS
// points. The bound is the rate of issued instructions: D multiply-adds for the phase, 17
// instructions for cosine and sine, 2 multiply-adds per right-hand side. With many features
// (`theta`) a matrix product has made the phases, (n, N); the slopes g overwrite them.
#include "philox.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int ACROSS = 8;                     // lanes of a warp side by side along frequencies
constexpr int PTS = 2 * WIDTH;                // points of a thread
constexpr int POINTS = BLOCK / ACROSS * PTS;  // 256 in float32, 128 in float64
constexpr int SUB = 2 * ACROSS;               // frequencies between barriers
constexpr int STAGE = 16 * WIDTH;             // frequencies drawn at a time
constexpr int DIMS = 8 + 2 * WIDTH;           // most features without theta: 16 or 12 (float64)
constexpr int ROW = DIMS + WIDTH;             // pitch of frequencies: 8 lanes without bank conflict
constexpr int COLUMN = POINTS + WIDTH;        // pitch of the slopes of frequencies, likewise
constexpr int PARTS = BLOCK / POINTS;         // threads that share a point in the contraction
constexpr double TWO_PI = 6.283185307179586;

// A parameter on the device, or a value if its place is null.
struct parameter_t {
  const real* place;
  int step;  // from feature to feature: 0 if one serves all
  real value;
  __device__ __forceinline__ real of(int d) const { return place ? place[step * d] : value; }
};

__device__ __forceinline__ real scale_of(parameter_t variance, double num) {
  return static_cast<real>(sqrt(static_cast<double>(variance.of(0)) / num));
}

__device__ __forceinline__ real turn_of(parameter_t lengthscales, int d) {
  return static_cast<real>(1 / TWO_PI) / lengthscales.of(d);
}

__device__ __forceinline__ vector_t& vector_at(real* place) {
  return *reinterpret_cast<vector_t*>(place);
}

// out[p, d] = component d of the frequency of indices[p], divided by 2 pi lengthscales.
extern "C" __global__ void __launch_bounds__(BLOCK)
    frequencies(int degrees, seed_t seed, const index_t* __restrict__ indices, index_t n, int D,
                const real* __restrict__ lengthscales, int step, real lengthscale,
                real* __restrict__ out) {
  const parameter_t scales = {lengthscales, step, lengthscale};
  const int quads = (D + 3) / 4;
  const index_t task = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (task >= n * quads) return;
  const index_t p = task / quads;
  const int q = static_cast<int>(task % quads);
  real omega[4];
  draw(seed, indices[p], q, degrees, omega);
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (4 * q + e < D) out[p * D + 4 * q + e] = omega[e] * turn_of(scales, 4 * q + e);
}

// Results for the frequencies of share blockIdx.y and the tiles blockIdx.x, blockIdx.x + gridDim.x
// ... of points:
//   FORWARD   forward_parts[share, r, i] = s sum_p W[r, 2 p] cos + W[r, 2 p + 1] sin
//   BACKWARD  back_parts[blockIdx.x, r, 2 p] = sum_i U[r, i] cos,
//             and [..., 2 p + 1] = sum_i U[r, i] sin
//   SLOPES    X_parts[share, i, d] = sum_p g omega_p[d] / (2 pi l_d),
//             g = s sum_r U[r, i] (W[r, 2 p + 1] cos - W[r, 2 p] sin); with theta, g overwrites it
// OWN: of one of several functions, blockIdx.z, whose frequencies are those of the indices 0 ... n -
// 1, times `factors` unless null; parts of all functions lie together.
// SQUARES adds the squares of features, which are cos^2 and 1 - cos^2. With their d = v[2 p] -
// v[2 p + 1], one more line of forward_parts is s^2 sum_p d cos^2, n more numbers of back_parts are
// sum_i u[i] cos^2, and g has the term -2 s^2 u[i] d cos sin.
template <int RHS, bool FORWARD, bool BACKWARD, bool SLOPES, bool SQUARES, bool OWN = false>
__device__ __forceinline__ void sweep(int degrees, seed_t seed, const index_t* __restrict__ indices,
                                      index_t n, const real* __restrict__ X, index_t N, int D,
                                      parameter_t lengthscales, parameter_t variance, double num,
                                      real* __restrict__ theta, const real* __restrict__ U,
                                      const real* __restrict__ W, const real* __restrict__ u,
                                      const real* __restrict__ v, int count, index_t share,
                                      real* __restrict__ forward_parts,
                                      real* __restrict__ back_parts, real* __restrict__ X_parts,
                                      const real* __restrict__ factors = nullptr) {
  __shared__ __align__(16) real xs[DIMS][POINTS];
  constexpr int ALL = RHS + SQUARES;
  __shared__ __align__(16) real us[BACKWARD || SLOPES ? ALL : 1][POINTS];
  __shared__ __align__(16) real omegas[STAGE][ROW];
  __shared__ __align__(16) real weights[FORWARD || SLOPES ? STAGE : 1][2 * RHS];
  __shared__ real differences[SQUARES && (FORWARD || SLOPES) ? STAGE : 1];
  __shared__ __align__(16) real slopes[SLOPES ? SUB : 1][COLUMN];
  __shared__ real sums[BACKWARD ? WARPS : 1][SUB][2 * RHS + SQUARES];
  const int thread = threadIdx.x, across = thread % ACROSS, mine = thread / ACROSS * PTS;
  const int quads = (D + 3) / 4;
  const index_t begin = blockIdx.y * share, end = begin + share < n ? begin + share : n;
  const index_t part = OWN ? static_cast<index_t>(blockIdx.y) * gridDim.z + blockIdx.z : blockIdx.y;
  const index_t tiles = (N + POINTS - 1) / POINTS;
  for (index_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const index_t corner = tile * POINTS;
    const int points = N - corner < POINTS ? static_cast<int>(N - corner) : POINTS;
    __syncthreads();
    if (!theta)
#pragma unroll 1
      for (int e = thread; e < POINTS * 4 * quads; e += BLOCK) {
        const int i = e / (4 * quads), d = e % (4 * quads);
        xs[d][i] = i < points && d < D ? X[(corner + i) * D + d] : real(0);
      }
    if (BACKWARD || SLOPES)
#pragma unroll 1
      for (int e = thread; e < POINTS * ALL; e += BLOCK) {
        const int r = e / POINTS, i = e % POINTS;
        if (SQUARES && r == RHS)
          us[r][i] = i < points ? u[corner + i] : real(0);
        else
          us[r][i] = r < count && i < points ? U[r * N + corner + i] : real(0);
      }
    real forward[ALL][PTS], X_bar[DIMS / PARTS];
#pragma unroll
    for (int i = 0; i < PTS; ++i)
#pragma unroll
      for (int r = 0; r < ALL; ++r) forward[r][i] = 0;
#pragma unroll
    for (int d = 0; d < DIMS / PARTS; ++d) X_bar[d] = 0;

    for (index_t first = begin; first < end; first += STAGE) {
      __syncthreads();
      const int staged = end - first < STAGE ? static_cast<int>(end - first) : STAGE;
      if (!theta)
#pragma unroll 1
        for (int e = thread; e < STAGE * quads; e += BLOCK) {
          const int p = e % STAGE, q = e / STAGE;
          real omega[4] = {0, 0, 0, 0};
          if (p < staged) draw(seed, OWN ? first + p : indices[first + p], q, degrees, omega);
          const real factor = OWN && factors && p < staged ? factors[first + p] : real(1);
#pragma unroll
          for (int k = 0; k < 4; ++k)
            omegas[p][4 * q + k] =
                4 * q + k < D ? omega[k] * factor * turn_of(lengthscales, 4 * q + k) : real(0);
        }
      if (FORWARD || SLOPES) {
        const real scale = scale_of(variance, num);
#pragma unroll 1
        for (int e = thread; e < 2 * STAGE * RHS; e += BLOCK) {
          const int r = e / (2 * STAGE), k = e % (2 * STAGE);
          weights[k / 2][2 * r + k % 2] =
              r < count && k / 2 < staged ? scale * W[2 * (r * n + first) + k] : real(0);
        }
        if (SQUARES)
#pragma unroll 1
          for (int p = thread; p < STAGE; p += BLOCK)
            differences[p] = p < staged
                                 ? scale * scale * (v[2 * (first + p)] - v[2 * (first + p) + 1])
                                 : real(0);
      }
      __syncthreads();

      for (int sub = 0; sub < staged; sub += SUB) {
#pragma unroll 1
        for (int column = across; column < SUB; column += ACROSS) {
          const int p = sub + column;
          real t[PTS];
#pragma unroll
          for (int i = 0; i < PTS; ++i) t[i] = 0;
          if (theta) {
#pragma unroll
            for (int i = 0; i < PTS; ++i)
              if (p < staged && mine + i < points)
                t[i] = theta[(first + p) * N + corner + mine + i];
          } else {
#pragma unroll 1
            for (int d = 0; d < D; d += WIDTH) {
              const vector_t omega = vector_at(&omegas[p][d]);
#pragma unroll
              for (int e = 0; e < WIDTH; ++e)
#pragma unroll
                for (int i = 0; i < PTS; i += WIDTH) {
                  const vector_t x = vector_at(&xs[d + e][mine + i]);
#pragma unroll
                  for (int k = 0; k < WIDTH; ++k) t[i + k] += omega.e[e] * x.e[k];
                }
            }
          }
          real back[RHS][2] = {}, back_squares = 0;
#pragma unroll
          for (int i = 0; i < PTS; ++i) {
            real cosine, sine, slope = 0;
            cos_sin(t[i], cosine, sine);
#pragma unroll
            for (int r = 0; r < RHS; ++r) {
              if (FORWARD)
                forward[r][i] += weights[p][2 * r] * cosine + weights[p][2 * r + 1] * sine;
              if (BACKWARD)
                back[r][0] += us[r][mine + i] * cosine, back[r][1] += us[r][mine + i] * sine;
              if (SLOPES)
                slope +=
                    us[r][mine + i] * (weights[p][2 * r + 1] * cosine - weights[p][2 * r] * sine);
            }
            if (SQUARES && FORWARD) forward[RHS][i] += differences[p] * cosine * cosine;
            if (SQUARES && BACKWARD) back_squares += us[RHS][mine + i] * cosine * cosine;
            if (SQUARES && SLOPES) slope -= 2 * us[RHS][mine + i] * differences[p] * cosine * sine;
            t[i] = slope;
          }
          if (BACKWARD) {
#pragma unroll
            for (int r = 0; r < RHS; ++r)
#pragma unroll
              for (int k = 0; k < 2; ++k) {
#pragma unroll
                for (int bits = ACROSS; bits < WARP; bits *= 2)
                  back[r][k] += __shfl_xor_sync(FULL_MASK, back[r][k], bits);
                if (thread % WARP < ACROSS) sums[thread / WARP][column][2 * r + k] = back[r][k];
              }
            if (SQUARES) {
#pragma unroll
              for (int bits = ACROSS; bits < WARP; bits *= 2)
                back_squares += __shfl_xor_sync(FULL_MASK, back_squares, bits);
              if (thread % WARP < ACROSS) sums[thread / WARP][column][2 * RHS] = back_squares;
            }
          }
          if (SLOPES && theta) {
#pragma unroll
            for (int i = 0; i < PTS; ++i)
              if (p < staged && mine + i < points)
                theta[(first + p) * N + corner + mine + i] = t[i];
          } else if (SLOPES) {
#pragma unroll
            for (int i = 0; i < PTS; i += WIDTH) {
              vector_t g;
#pragma unroll
              for (int e = 0; e < WIDTH; ++e) g.e[e] = t[i + e];
              vector_at(&slopes[column][mine + i]) = g;
            }
          }
        }
        if (!BACKWARD && (!SLOPES || theta)) continue;
        __syncthreads();
        if (BACKWARD)
#pragma unroll 1
          for (int e = thread; e < 2 * SUB * count; e += BLOCK) {
            const int r = e / (2 * SUB), k = e % (2 * SUB), p = sub + k / 2;
            if (p >= staged) continue;
            real total = 0;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) total += sums[w][k / 2][2 * r + k % 2];
            real* place = back_parts +
                          2 * ((static_cast<index_t>(blockIdx.x) * count + r) * n + first + sub) +
                          k;
            if (SQUARES) place += blockIdx.x * n;
            *place = tile == blockIdx.x ? total : *place + total;
          }
        if (BACKWARD && SQUARES && thread < SUB && sub + thread < staged) {
          real total = 0;
#pragma unroll
          for (int w = 0; w < WARPS; ++w) total += sums[w][thread][2 * RHS];
          real* place =
              back_parts + (blockIdx.x * (2 * count + 1) + 2 * count) * n + first + sub + thread;
          *place = tile == blockIdx.x ? total : *place + total;
        }
        if (SLOPES && !theta) {
          const int start = thread / POINTS * (DIMS / PARTS);
#pragma unroll 1
          for (int p = 0; p < SUB; ++p) {
            const real g = slopes[p][thread % POINTS];
#pragma unroll
            for (int d = 0; d < DIMS / PARTS; d += WIDTH) {
              if (start + d >= D) break;
              const vector_t omega = vector_at(&omegas[sub + p][start + d]);
#pragma unroll
              for (int e = 0; e < WIDTH; ++e) X_bar[d + e] += g * omega.e[e];
            }
          }
        }
        __syncthreads();
      }
    }

    if (FORWARD) {
#pragma unroll
      for (int r = 0; r < ALL; ++r)
#pragma unroll
        for (int i = 0; i < PTS; ++i) {
          const int line = SQUARES && r == RHS ? count : r;
#pragma unroll
          for (int bits = 1; bits < ACROSS; bits *= 2)
            forward[r][i] += __shfl_xor_sync(FULL_MASK, forward[r][i], bits);
          if (across == i % ACROSS && line < count + SQUARES && mine + i < points)
            forward_parts[(part * (count + SQUARES) + line) * N + corner + mine + i] =
                forward[r][i];
        }
    }
    if (SLOPES && !theta && thread % POINTS < points) {
      const int start = thread / POINTS * (DIMS / PARTS);
      real* row = X_parts + (part * N + corner + thread % POINTS) * D;
#pragma unroll
      for (int d = 0; d < DIMS / PARTS; ++d)
        if (start + d < D) row[start + d] = X_bar[d];
    }
  }
}

// out[e] = factor (parts[0, e] + parts[1, e] + ...), summed in float64; with num > 0 also times
// sqrt(variance / num).
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_parts(const real* __restrict__ parts, int number, index_t size, double factor,
              const real* __restrict__ variances, real variance, double num,
              real* __restrict__ out) {
  __shared__ double sums[WARPS][WARP];
  const index_t e = static_cast<index_t>(blockIdx.x) * WARP + threadIdx.x % WARP;
  double sum = 0;
  if (e < size)
#pragma unroll 8  // 8 loads in flight
    for (int part = threadIdx.x / WARP; part < number; part += WARPS) sum += parts[part * size + e];
  sums[threadIdx.x / WARP][threadIdx.x % WARP] = sum;
  __syncthreads();
  if (threadIdx.x >= WARP || e >= size) return;
  sum = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) sum += sums[w][threadIdx.x];
  out[e] = static_cast<real>(
      sum * factor *
      (num > 0 ? static_cast<double>(scale_of({variances, 0, variance}, num)) : 1.0));
}

// Block j: out[j] = factor / divisors[step j] sum_i a[i, j] b[i, j], summed in float64.
extern "C" __global__ void __launch_bounds__(BLOCK)
    column_products(const real* __restrict__ a, const real* __restrict__ b, index_t rows,
                    int columns, double factor, const real* __restrict__ divisors, int step,
                    real divisor, real* __restrict__ out) {
  __shared__ double sums[WARPS];
  double sum = 0;
  for (index_t i = threadIdx.x; i < rows; i += BLOCK) {
    const index_t e = i * columns + blockIdx.x;
    sum += static_cast<double>(a[e]) * b[e];
  }
  sum = sum_block(sum, sums);
  if (threadIdx.x) return;
  out[blockIdx.x] =
      static_cast<real>(sum * factor / parameter_t{divisors, step, divisor}.of(blockIdx.x));
}

#define PARAMETERS                                                                                 \
  int degrees, seed_t seed, const index_t *__restrict__ indices, index_t n,                        \
      const real *__restrict__ X, index_t N, int D, const real *__restrict__ lengthscales,         \
      int step, real lengthscale, const real *__restrict__ variances, real variance, double num,   \
      real *__restrict__ theta, const real *__restrict__ U, const real *__restrict__ W, int count, \
      index_t share, real *__restrict__ forward_parts, real *__restrict__ back_parts,              \
      real *__restrict__ X_parts
#define ARGUMENTS                                                                                  \
  degrees, seed, indices, n, X, N, D, {lengthscales, step, lengthscale}, {variances, 0, variance}, \
      num, theta, U, W, nullptr, nullptr, count, share, forward_parts, back_parts, X_parts
#define ALL_PARAMETERS PARAMETERS, const real* __restrict__ u, const real* __restrict__ v
#define ALL_ARGUMENTS                                                                              \
  degrees, seed, indices, n, X, N, D, {lengthscales, step, lengthscale}, {variances, 0, variance}, \
      num, theta, U, W, u, v, count, share, forward_parts, back_parts, X_parts

extern "C" __global__ void __launch_bounds__(BLOCK, 2) multiply_1(PARAMETERS) {
  sweep<1, true, false, false, false>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) multiply_4(PARAMETERS) {
  sweep<4, true, false, false, false>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) transposed_1(PARAMETERS) {
  sweep<1, false, true, false, false>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) transposed_4(PARAMETERS) {
  sweep<4, false, true, false, false>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) multiply_vjp_1(PARAMETERS) {
  sweep<1, false, true, true, false>(ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) multiply_vjp_4(PARAMETERS) {
  sweep<4, false, true, true, false>(ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2) squares_forward_1(ALL_PARAMETERS) {
  sweep<1, true, false, false, true>(ALL_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) squares_backward_1(ALL_PARAMETERS) {
  sweep<1, false, true, false, true>(ALL_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) squares_both_1(ALL_PARAMETERS) {
  sweep<1, true, true, false, true>(ALL_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) squares_slopes_1(ALL_PARAMETERS) {
  sweep<1, false, true, true, true>(ALL_ARGUMENTS);
}

// One of gridDim.z functions, with right-hand sides, points and a seed of its own, or with those of
// all: the steps from function to function are then 0.
template <int RHS, bool FORWARD, bool SLOPES>
__device__ __forceinline__ void own(int degrees, const seed_t* __restrict__ seeds, int seed_step,
                                    const real* __restrict__ factors, index_t factor_step,
                                    index_t n, const real* __restrict__ X, index_t X_step,
                                    index_t N, int D, parameter_t lengthscales,
                                    parameter_t variance, double num, const real* __restrict__ U,
                                    const real* __restrict__ W, int count, index_t share,
                                    real* __restrict__ parts) {
  const index_t f = blockIdx.z;
  sweep<RHS, FORWARD, false, SLOPES, false, true>(
      degrees, seeds[f * seed_step], nullptr, n, X + f * X_step, N, D, lengthscales, variance, num,
      nullptr, SLOPES ? U + f * count * N : nullptr, W + f * count * 2 * n, nullptr, nullptr, count,
      share, FORWARD ? parts : nullptr, nullptr, SLOPES ? parts : nullptr,
      factors ? factors + f * factor_step : nullptr);
}

#define OWN_PARAMETERS                                                                            \
  int degrees, const seed_t *__restrict__ seeds, int seed_step, const real *__restrict__ factors, \
      index_t factor_step, index_t n, const real *__restrict__ X, index_t X_step, index_t N,      \
      int D, const real *__restrict__ lengthscales, int step, real lengthscale,                   \
      const real *__restrict__ variances, real variance, double num, const real *__restrict__ U,  \
      const real *__restrict__ W, int count, index_t share, real *__restrict__ parts
#define OWN_ARGUMENTS                                                                          \
  degrees, seeds, seed_step, factors, factor_step, n, X, X_step, N, D,                         \
      {lengthscales, step, lengthscale}, {variances, 0, variance}, num, U, W, count, share, parts

extern "C" __global__ void __launch_bounds__(BLOCK, 2) own_1(OWN_PARAMETERS) {
  own<1, true, false>(OWN_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) own_4(OWN_PARAMETERS) {
  own<4, true, false>(OWN_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) own_vjp_1(OWN_PARAMETERS) {
  own<1, false, true>(OWN_ARGUMENTS);
}
extern "C" __global__ void __launch_bounds__(BLOCK, 2) own_vjp_4(OWN_PARAMETERS) {
  own<4, false, true>(OWN_ARGUMENTS);
}

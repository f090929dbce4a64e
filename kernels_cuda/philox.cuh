// Frequencies of random Fourier features from a seed and an index, and cosines of turns. The same
// numbers as on the CPU: see fastsvgp/kernels/cpu/fourier/philox.py and common/elementwise.py.
#pragma once
#include "shared.cuh"

typedef unsigned long long seed_t;

struct words_t {
  unsigned a, b, c, d;
};

// Philox4x32-10 on a counter of four words and a key of two.
__device__ __forceinline__ words_t philox(words_t x, unsigned k0, unsigned k1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p = 0xD2511F53ull * x.a, q = 0xCD9E8D57ull * x.c;
    x = {static_cast<unsigned>(q >> 32) ^ x.b ^ k0, static_cast<unsigned>(q),
         static_cast<unsigned>(p >> 32) ^ x.d ^ k1, static_cast<unsigned>(p)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

__device__ __forceinline__ words_t words_of(seed_t seed, index_t index, unsigned block,
                                            unsigned stream) {
  const words_t counter = {static_cast<unsigned>(index), static_cast<unsigned>(index >> 32), block,
                           stream};
  return philox(counter, static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
}

// Return x with its sign flipped if the last bit of parity is 1.
template <class bits_t, class T>
__device__ __forceinline__ T turned(T x, T parity) {
  bits_t value, last;
  memcpy(&value, &x, sizeof x);
  memcpy(&last, &parity, sizeof parity);
  value ^= last << (8 * sizeof x - 1);
  memcpy(&x, &value, sizeof x);
  return x;
}

// cos(2 pi t) and sin(2 pi t). The reduction is exact; without a call there is no slow path, no
// local memory and no divergence.
__device__ __forceinline__ void cos_sin(float t, float& cosine, float& sine) {
  const float k = rintf(t + t), r = fmaf(-0.5f, k, t), z = r * r, parity = k + 12582912.0f;
  float s = fmaf(z, 39.7598270853191f, -76.58117264427872f);
  s = fmaf(z, fmaf(z, fmaf(z, s, 81.60247636892518f), -41.34168061334652f), 6.283185280154407f);
  float p = fmaf(z, -25.21816227351394f, 60.179038290533356f);
  p = fmaf(z, fmaf(z, fmaf(z, p, -85.45535748485729f), 64.939382634935f), -19.73920878794794f);
  cosine = turned<unsigned>(fmaf(z, p, 1.0f), parity);
  sine = turned<unsigned>(r * s, parity);
}
__device__ __forceinline__ void cos_sin(double t, double& cosine, double& sine) {
  const double k = rint(t + t), r = fma(-0.5, k, t), z = r * r, parity = k + 6755399441055744.0;
  double s = fma(z, 0.10089695501646812, -0.7177337921413454);
  s = fma(z, fma(z, fma(z, s, 3.8199280942271643), -15.0946416761179), 42.058693925428685);
  s = fma(z, fma(z, fma(z, fma(z, s, -76.70585975282492), 81.60524927607362), -41.341702240399755),
          6.283185307179586);
  double p = fma(z, 0.2730491551892733, -1.7134856385866277);
  p = fma(z, fma(z, fma(z, p, 7.903488624557531), -26.4262553864964), 60.24464134967237);
  p = fma(z, fma(z, fma(z, p, -85.45681720652034), 64.93939402266777), -19.739208802178716);
  cosine = turned<unsigned long long>(fma(z, p, 1.0), parity);
  sine = turned<unsigned long long>(r * s, parity);
}

__device__ __forceinline__ real uniform(unsigned word) {
  return (static_cast<real>(word >> 9) + real(0.5)) * real(0x1p-23);
}
// Chi-square with two degrees of freedom.
__device__ __forceinline__ float exponential(float u) { return -2.0f * logf(u); }
__device__ __forceinline__ double exponential(double u) { return -2.0 * log(u); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }

// Components 4 block ... 4 block + 3 of a frequency for unit lengthscales: normal, or for a Matern
// spectrum (degrees > 0) times sqrt(degrees / chi-square).
__device__ __forceinline__ void draw(seed_t seed, index_t index, unsigned block, int degrees,
                                     real (&omega)[4]) {
  real factor = 1, cosine, sine;
  if (degrees) {
    const words_t w = words_of(seed, index, 0, 1);
    cos_sin(uniform(w.b), cosine, sine);
    real chi_square = exponential(uniform(w.a)) * sine * sine;
    if (degrees > 1) chi_square += exponential(uniform(w.c));
    if (degrees > 3) chi_square += exponential(uniform(w.d));
    factor = root(degrees / chi_square);
  }
  const words_t w = words_of(seed, index, block, 0);
  real radius = root(exponential(uniform(w.a))) * factor;
  cos_sin(uniform(w.b), cosine, sine);
  omega[0] = radius * cosine, omega[1] = radius * sine;
  radius = root(exponential(uniform(w.c))) * factor;
  cos_sin(uniform(w.d), cosine, sine);
  omega[2] = radius * cosine, omega[3] = radius * sine;
}

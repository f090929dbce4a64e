// The words of philox.cuh for given counters (n, 4) and keys (n, 2).
#include "philox.cuh"

extern "C" __global__ void words(const unsigned* counters, const unsigned* keys, unsigned* out) {
  const int i = threadIdx.x;
  const words_t w =
      philox({counters[4 * i], counters[4 * i + 1], counters[4 * i + 2], counters[4 * i + 3]},
             keys[2 * i], keys[2 * i + 1]);
  out[4 * i] = w.a, out[4 * i + 1] = w.b, out[4 * i + 2] = w.c, out[4 * i + 3] = w.d;
}

// One unit per block of neighbours, from a seed and a step. The same numbers as on the CPU: see
// fastsvgp/kernels/cpu/stratified.py.
#include "philox.cuh"

constexpr int BLOCK = 256;

extern "C" __global__ void __launch_bounds__(BLOCK)
    draw_units(index_t num, index_t size, seed_t seed, seed_t step, unsigned stream,
               index_t* __restrict__ units, double* __restrict__ widths) {
  const index_t b = static_cast<index_t>(blockIdx.x) * BLOCK + threadIdx.x;
  if (b >= size) return;
  const words_t counter = {static_cast<unsigned>(b), static_cast<unsigned>(step),
                           static_cast<unsigned>(step >> 32), stream};
  const words_t w = philox(counter, static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  const index_t each = num / size, rest = num % size, begin = b * each + b * rest / size;
  const index_t width = (b + 1) * each + (b + 1) * rest / size - begin;
  // the upper half of the product of the width and two words
  const seed_t high = static_cast<seed_t>(width) >> 32, low = static_cast<unsigned>(width);
  const seed_t across = w.b * high, over = w.a * low;
  const seed_t middle =
      (w.b * low >> 32) + static_cast<unsigned>(across) + static_cast<unsigned>(over);
  units[b] =
      begin + static_cast<index_t>(w.a * high + (across >> 32) + (over >> 32) + (middle >> 32));
  widths[b] = static_cast<double>(width);
}

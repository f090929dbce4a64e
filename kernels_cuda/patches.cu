// Sums of stationary functions over the windows of images, and the contraction of their cotangents.
// See fastsvgp/kernels/patches.py.
//
// Rows and columns of a tile of pairs are patches, read in place in their image, or inducing
// patches, which form one image that all images share: no patch is ever copied out. Squared
// distances are sums of differences of unscaled numbers, as in the pairwise family: 3 operations
// per number and pair, exact for near patches, which are frequent in images. A warp has 4 or 8 rows
// of the tile and all of its 64 columns, a thread two of these: per number a broadcast of the rows
// and two conflict-free reads serve 24 or 48 operations. Sums over pairs leave the registers once
// per tile, to memory that the block owns.
#include "stationary.cuh"

constexpr int WARPS = 8, BLOCK = WARP * WARPS;
constexpr int EACH = 2, WIDE = EACH * WARP;  // columns of a thread, and of a tile
constexpr int CHUNK = 16;                    // numbers of a patch in shared memory at a time
constexpr int OWN = CHUNK / WARPS;           // of these, numbers that a warp contracts
constexpr int PAD = 4;                       // other banks for the next line, and whole vectors
// images after which sums move from registers to float64
constexpr int IMAGES = 64;

// Blocks per multiprocessor: 80 registers in float32, 128 in float64.
constexpr int resident(float) { return 3; }
constexpr int resident(double) { return 2; }
constexpr int RESIDENT = resident(real());

struct __align__(16) four_t {
  real e[4];
};
__device__ __forceinline__ four_t four_at(const real* place) {
  return *reinterpret_cast<const four_t*>(place);
}

// --- windows -------------------------------------------------------------------------------------

// `count` windows from window `first` on, `per_line` in a row. They start `down` and `across`
// numbers apart; lines of `line` numbers form an image, and images are `step` numbers apart.
struct windows_t {
  const real* __restrict__ X;
  index_t step, down, across, line;
  unsigned first, per_line;
  int count;

  __device__ __forceinline__ index_t start(int i) const {
    const unsigned p = first + i;
    return p / per_line * down + p % per_line * across;
  }
};

#define WINDOWS(name)                                                                             \
  const real *__restrict__ name, index_t name##_step, index_t name##_down, index_t name##_across, \
      index_t name##_line, unsigned name##_first, unsigned name##_per_line, int name##_count
#define WINDOWS_OF(name)                                      \
  {name,        name##_step,  name##_down,     name##_across, \
   name##_line, name##_first, name##_per_line, name##_count}

// Compute where the windows of a tile start; -1 beyond the last.
template <int LENGTH>
__device__ __forceinline__ void find(const windows_t& w, int begin, index_t (&starts)[LENGTH]) {
  if (const int i = threadIdx.x; i < LENGTH)
    starts[i] = begin + i < w.count ? w.start(begin + i) : -1;
}

// Set numbers[d][i] to number first + d of the patch at starts[i] of an image, or 0 if there is
// none. `run` numbers of a patch are contiguous in one line of the image, and neighbouring lanes
// read them.
template <int LENGTH>
__device__ __forceinline__ void stage(real (&numbers)[CHUNK][LENGTH + PAD],
                                      const real* __restrict__ image,
                                      const index_t (&starts)[LENGTH], index_t line, int first,
                                      int D, int run) {
  const int d = threadIdx.x % CHUNK, f = first + d;
  const index_t place = f / run * line + f % run;
#pragma unroll
  for (int i = threadIdx.x / CHUNK; i < LENGTH; i += BLOCK / CHUNK)
    numbers[d][i] = f < D && starts[i] >= 0 ? image[starts[i] + place] : real(0);
}

// --- pairs ---------------------------------------------------------------------------------------

// Row and column of a thread in its tile; a warp has HIGH rows.
template <int HIGH>
__device__ __forceinline__ int row_of(int p) {
  return threadIdx.x / WARP * HIGH + p;
}
__device__ __forceinline__ int column_of(int q) { return q * WARP + threadIdx.x % WARP; }

// sum += ((b - a) scale)^2 over `count` numbers.
template <int HIGH>
__device__ __forceinline__ void add_squares(const real (&rows)[CHUNK][HIGH * WARPS + PAD],
                                            const real (&columns)[CHUNK][WIDE + PAD],
                                            const real (&scale)[CHUNK], int count,
                                            real (&sum)[HIGH][EACH]) {
#pragma unroll 2
  for (int d = 0; d < count; ++d) {
    const real s = scale[d];
    real b[EACH];
#pragma unroll
    for (int q = 0; q < EACH; ++q) b[q] = columns[d][column_of(q)];
#pragma unroll
    for (int four = 0; four < HIGH; four += 4) {
      const four_t a = four_at(&rows[d][row_of<HIGH>(four)]);
#pragma unroll
      for (int p = 0; p < 4; ++p)
#pragma unroll
        for (int q = 0; q < EACH; ++q) {
          const real e = (b[q] - a.e[p]) * s;
          sum[four + p][q] += e * e;
        }
    }
  }
}

// Load a thread's columns of a line of a matrix; 0 from `end` on.
__device__ __forceinline__ void load(const real* __restrict__ line, index_t step, int column,
                                     int end, real (&v)[EACH]) {
#pragma unroll
  for (int q = 0; q < EACH; ++q) {
    const int j = column + column_of(q);
    v[q] = j < end ? line[j * step] : real(0);
  }
}

// Shared arguments: the function, the size D of patches, of which `run` numbers are contiguous;
// windows of rows and columns; and weights A. A block has a share of the columns, blockIdx.z:
// `wide` tiles. With `half` rows and columns are the same and A is symmetric: of the tiles 64
// columns and rows wide, those beyond the diagonal are skipped, and those before it count twice.
#define PAIRS                                                                            \
  int family, const real *__restrict__ variance_at, real variance,                       \
      const real *__restrict__ lengthscales, int step, real lengthscale, int D, int run, \
      WINDOWS(left_at), WINDOWS(right_at), const real *__restrict__ A, index_t A_row,    \
      index_t A_column, int half, int wide

#define TILE_OF_PAIRS(HIGH, ROW)                                                            \
  __shared__ __align__(16) real rows[CHUNK][HIGH * WARPS + PAD];                            \
  __shared__ __align__(16) real columns[CHUNK][WIDE + PAD];                                 \
  __shared__ real scale[CHUNK];                                                             \
  __shared__ index_t row_starts[HIGH * WARPS];                                              \
  __shared__ index_t column_starts[WIDE];                                                   \
  const windows_t left = WINDOWS_OF(left_at), right = WINDOWS_OF(right_at);                 \
  const int row = static_cast<int>(ROW) * (HIGH * WARPS),                                   \
            diagonal = half ? row / WIDE * WIDE : right.count;                              \
  const int begin = blockIdx.z * wide * WIDE,                                               \
            end = min(min(begin + wide * WIDE, diagonal + WIDE), right.count);              \
  const auto stage_both = [&](index_t image, int first) {                                   \
    __syncthreads();                                                                        \
    stage(rows, left.X + image * left.step, row_starts, left.line, first, D, run);          \
    stage(columns, right.X + image * right.step, column_starts, right.line, first, D, run); \
    if (const int d = threadIdx.x; d < CHUNK && first + d < D)                              \
      scale[d] = 1 / length(lengthscales, step, lengthscale, first + d);                    \
    __syncthreads();                                                                        \
  };                                                                                        \
  __shared__ Function f;                                                                    \
  if (threadIdx.x == 0) f = function_of(family, parameter(variance_at, 0, variance, 0));    \
  find(left, row, row_starts)

// Compute parts[blockIdx.z, i, n] = sum_j A[i, j] k(row i, column j of image n = blockIdx.x).
// Longest sums first.
constexpr int TALL = 8;
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
sums(PAIRS, double* __restrict__ parts) {
  TILE_OF_PAIRS(TALL, gridDim.y - 1 - blockIdx.y);
  double sum[TALL] = {};
  for (int column = begin; column < end; column += WIDE) {
    real v[TALL][EACH] = {};
    find(right, column, column_starts);
    for (int first = 0; first < D; first += CHUNK) {
      stage_both(blockIdx.x, first);
      add_squares<TALL>(rows, columns, scale, min(CHUNK, D - first), v);
    }
#pragma unroll
    for (int p = 0; p < TALL; ++p) {
      const int i = row + row_of<TALL>(p);
      real a[EACH], part = 0;
      load(A + i * A_row, A_column, column, i < left.count ? end : 0, a);
#pragma unroll
      for (int q = 0; q < EACH; ++q)
        part += a[q] * (f.root ? value<true>(f, v[p][q]) : value<false>(f, v[p][q]));
      sum[p] += half && column < diagonal ? 2 * part : part;
    }
  }
#pragma unroll
  for (int p = 0; p < TALL; ++p) {
    const int i = row + row_of<TALL>(p);
    const double all = sum_warp(sum[p]);
    if (threadIdx.x % WARP == 0 && i < left.count)
      parts[(static_cast<index_t>(blockIdx.z) * left.count + i) * gridDim.x + blockIdx.x] = all;
  }
}

// t += sum_j w[j] e and, with SQUARES, s += sum_j w[j] e^2 for a warp's numbers, where e = x'_j - x
// and x is in row i.
template <bool SQUARES, int LENGTH>
__device__ __forceinline__ void pull_numbers(const real* w, const real (&rows)[CHUNK][LENGTH],
                                             const real (&columns)[CHUNK][WIDE + PAD],
                                             real (&t)[OWN], real (&s)[OWN]) {
  const int i = threadIdx.x % WARP, d = threadIdx.x / WARP * OWN;
#pragma unroll 2
  for (int j = 0; j < WIDE; j += 4) {
    const four_t weights = four_at(w + j);
#pragma unroll
    for (int h = 0; h < OWN; ++h) {
      const four_t x = four_at(&columns[d + h][j]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const real difference = x.e[e] - rows[d + h][i], pull = weights.e[e] * difference;
        t[h] += pull;
        if (SQUARES) s[h] += pull * difference;
      }
    }
  }
}

// With b = bar[i, j, n], w = A[i, j] b q and e = column - row, over the images from blockIdx.x *
// share on, compute each result that is not null:
//   sides[slot, blockIdx.z, d, i] += sum_j w e_d, with a slot per image (`each_image`) or per share
//   weights[blockIdx.x, i, j] += sum_n b k          squares[block, d] += sum w e_d^2
// and totals[block] = sum A b k, radial[block] = sum w r^2. The caller zeroes the results; no two
// blocks share entries.
constexpr int LOW = 4, HEIGHT = LOW * WARPS, PAIRS_EACH = LOW * EACH;
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
contract(PAIRS, const real* __restrict__ bar, index_t bar_row, index_t bar_column,
         index_t bar_image, int N, int share, int each_image, double* __restrict__ sides,
         double* __restrict__ weights, double* __restrict__ squares,
         double* __restrict__ totals, double* __restrict__ radial) {
  TILE_OF_PAIRS(LOW, blockIdx.y);
  __shared__ __align__(16) real w[HEIGHT][WIDE + PAD];
  __shared__ double block_sums[2][WARPS];
  static_assert(HEIGHT == WARP, "a lane for each row");
  const int lane = threadIdx.x % WARP, own = threadIdx.x / WARP * OWN,
            last = (D - 1) / CHUNK * CHUNK;
  const int first_image = blockIdx.x * share, last_image = min(first_image + share, N) - 1;
  const index_t block =
      (static_cast<index_t>(blockIdx.x) * gridDim.y + blockIdx.y) * gridDim.z + blockIdx.z;
  double total = 0, radius = 0;
  for (int column = begin; column < end; column += WIDE) {
    const int twice = half && column < diagonal ? 2 : 1;
    real kept[PAIRS_EACH] = {};
    find(right, column, column_starts);
    for (int n = first_image; n <= last_image; ++n) {
      real v[LOW][EACH] = {};
      for (int first = 0; first < D; first += CHUNK) {
        stage_both(n, first);
        add_squares<LOW>(rows, columns, scale, min(CHUNK, D - first), v);
      }
      real sum = 0, sum_radial = 0;
#pragma unroll
      for (int p = 0; p < LOW; ++p)
#pragma unroll
        for (int q = 0; q < EACH; ++q) w[row_of<LOW>(p)][column_of(q)] = v[p][q];
      // one pair at a time, which is `kept[0]` in its turn, to save registers
#pragma unroll 1
      for (int e = 0; e < PAIRS_EACH; ++e) {
        const int p = e / EACH, q = e % EACH, i = row + row_of<LOW>(p), j = column + column_of(q);
        const bool inside = i < left.count && j < end;
        const real a = inside ? A[i * A_row + j * A_column] : real(0);
        const real b = inside ? bar[n * bar_image + i * bar_row + j * bar_column] : real(0);
        real& place = w[row_of<LOW>(p)][column_of(q)];
        const real r2 = place;
        real k = 0;
        place = twice * a * (f.root ? pull<true>(f, b, r2, k) : pull<false>(f, b, r2, k));
        sum += a * k;
        sum_radial += place * min(r2, real(1e6));  // beyond that the weight is 0
        k += kept[0];
#pragma unroll
        for (int r = 0; r + 1 < PAIRS_EACH; ++r) kept[r] = kept[r + 1];
        kept[PAIRS_EACH - 1] = k;
      }
      total += twice * sum;
      radius += sum_radial;
      if (weights && (n == last_image || (n - first_image) % IMAGES == IMAGES - 1)) {
#pragma unroll
        for (int e = 0; e < PAIRS_EACH; ++e) {
          const index_t i = row + row_of<LOW>(e / EACH), j = column + column_of(e % EACH);
          if (i < left.count && j < end)
            weights[(static_cast<index_t>(blockIdx.x) * left.count + i) * right.count + j] +=
                kept[e];
          kept[e] = 0;
        }
      }
      if (!sides && !squares) continue;
      const index_t slot =
          static_cast<index_t>(each_image ? n : blockIdx.x) * gridDim.z + blockIdx.z;
      for (int first = last; first >= 0; first -= CHUNK) {  // the last chunk is still staged
        if (first == last) __syncthreads();
        else stage_both(n, first);
        real t[OWN] = {}, s[OWN] = {};
        if (squares) pull_numbers<true>(w[lane], rows, columns, t, s);
        else pull_numbers<false>(w[lane], rows, columns, t, s);
#pragma unroll
        for (int h = 0; h < OWN; ++h) {
          const int d = first + own + h;
          if (d >= D) break;
          if (sides && row + lane < left.count)
            sides[(slot * D + d) * left.count + row + lane] += t[h];
          if (squares) {
            const double square = sum_warp(s[h]);
            if (lane == 0) squares[block * D + d] += square;
          }
        }
      }
    }
  }
  total = sum_block(total, block_sums[0]);
  radius = sum_block(radius, block_sums[1]);
  if (threadIdx.x) return;
  totals[block] = total;
  radial[block] = radius;
}

// --- patches themselves --------------------------------------------------------------------------

// Compute out[n, i] = the patch at window i of image n = blockIdx.x; a block copies 64 of them.
extern "C" __global__ void __launch_bounds__(BLOCK)
gather(WINDOWS(at), int D, int run, real* __restrict__ out) {
  const windows_t windows = WINDOWS_OF(at);
  const int begin = blockIdx.y * WIDE, numbers = min(WIDE, windows.count - begin) * D;
  const real* __restrict__ image = windows.X + blockIdx.x * windows.step;
  out += (static_cast<index_t>(blockIdx.x) * windows.count + begin) * D;
  for (int e = threadIdx.x; e < numbers; e += BLOCK) {
    const int f = e % D;
    out[e] = image[windows.start(begin + e / D) + f / run * windows.line + f % run];
  }
}

// Compute X_bar[n, e] = the sum over the windows first to first + count - 1 that contain number e
// of image n = blockIdx.x, in their order.
extern "C" __global__ void __launch_bounds__(BLOCK)
scatter(const real* __restrict__ patches_bar, int H, int W, int C, int h, int w, int stride,
        int first, int count, real* __restrict__ X_bar) {
  const int numbers = H * W * C, e = blockIdx.y * BLOCK + threadIdx.x;
  if (e >= numbers) return;
  const int x = e / C % W, y = e / C / W, c = e % C, per_line = (W - w) / stride + 1,
            lines = (H - h) / stride + 1;
  const int top = y < h ? 0 : (y - h) / stride + 1, bottom = min(y / stride, lines - 1);
  const int leftmost = x < w ? 0 : (x - w) / stride + 1, rightmost = min(x / stride, per_line - 1);
  const int D = h * w * C;
  patches_bar += static_cast<index_t>(blockIdx.x) * count * D;
  double sum = 0;
  for (int r = top; r <= bottom; ++r)
    for (int s = leftmost; s <= rightmost; ++s) {
      const int i = r * per_line + s - first;
      if (i >= 0 && i < count)
        sum += patches_bar[static_cast<index_t>(i) * D +
                           ((y - r * stride) * w + x - s * stride) * C + c];
    }
  X_bar[static_cast<index_t>(blockIdx.x) * numbers + e] = static_cast<real>(sum);
}

// CUDA C++ as host C++20, for tests without a GPU: CUDA's names over the fibers of fibers.hpp and
// schedule.hpp.
//
// A run detects what a GPU does not report: threads that wait at different barriers, or leave while
// others wait; lanes in different collectives, or outside their own mask; shared memory over the
// limit. Shared memory starts as NaN, so reads of unwritten entries show. An asynchronous copy
// happens only when it is waited for, so a missing wait shows too.
#pragma once
#include <atomic>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "schedule.hpp"

#define CUDA_HOST 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

#define threadIdx (cuda_host::block->self->index)
#define blockIdx (cuda_host::block->index)
#define blockDim (cuda_host::block->shape)
#define gridDim (cuda_host::block->grid)
#define __syncthreads() cuda_host::sync_threads(__LINE__)
#define __syncthreads_and(vote) cuda_host::sync_threads_and(__LINE__, vote)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

namespace cuda_host {

template <class T>
UNSEEN inline void evaluate_shuffle(Fiber* lanes, unsigned mask) {
  for (int l = 0; l < 32; ++l) {
    if (!(mask >> l & 1)) continue;
    const int source = lanes[l].collective->source;
    if (!(mask >> source & 1))
      return fail("lane %d shuffles from lane %d, which is not in the mask or does not exist", l,
                  source);
    *static_cast<T*>(lanes[l].collective->out) =
        *static_cast<const T*>(lanes[source].collective->in);
  }
}
template <class T>
UNSEEN inline T shuffle(int kind, unsigned mask, T value, int source) {
  T result;
  Collective mine{kind, mask, &value, &result, source, evaluate_shuffle<T>};
  collective(mine);
  return result;
}
UNSEEN inline void evaluate_ballot(Fiber* lanes, unsigned mask) {
  unsigned votes = 0;
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1 && *static_cast<const int*>(lanes[l].collective->in)) votes |= 1u << l;
  for (int l = 0; l < 32; ++l)
    if (mask >> l & 1) *static_cast<unsigned*>(lanes[l].collective->out) = votes;
}
UNSEEN inline unsigned ballot(int kind, unsigned mask, int vote) {
  unsigned votes;
  Collective mine{kind, mask, &vote, &votes, 0, evaluate_ballot};
  collective(mine);
  return votes;
}
inline int lane() { return thread_number() % 32; }

// The argument array of cuLaunchKernel, converted to the real types, and the types as text for the
// check in Python.
template <class T>
const char* type_code() {
  using U = std::remove_cv_t<std::remove_pointer_t<T>>;
  constexpr bool pointer = std::is_pointer_v<T>;
  if constexpr (std::is_same_v<U, float>) return pointer ? "*f4" : "f4";
  else if constexpr (std::is_same_v<U, double>) return pointer ? "*f8" : "f8";
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8)
    return std::is_signed_v<U> ? (pointer ? "*i8" : "i8") : (pointer ? "*u8" : "u8");
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4)
    return std::is_signed_v<U> ? (pointer ? "*i4" : "i4") : (pointer ? "*u4" : "u4");
  else if constexpr (std::is_class_v<T>) {
    static const std::string code = "V" + std::to_string(sizeof(T));
    return code.c_str();
  } else
    static_assert(!sizeof(T), "a kernel's parameter of a type that the emulation does not know");
}
template <class... A>
struct Call {
  void (*kernel)(A...);
  void** arguments;
  template <size_t... I>
  void go(std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
  }
  static void entry(void* self) { static_cast<Call*>(self)->go(std::index_sequence_for<A...>{}); }
};
template <class... A>
int launch(void (*kernel)(A...), const unsigned* shape, size_t dynamic, int order, unsigned seed,
           void** arguments, char* error) {
  Call<A...> call{kernel, arguments};
  return run({{shape[0], shape[1], shape[2]},
              {shape[3], shape[4], shape[5]},
              dynamic,
              Order(order),
              seed,
              Call<A...>::entry,
              &call},
             error);
}
template <class... A>
void signature(void (*)(A...), char* out) {
  ((std::strcat(out, type_code<std::remove_cv_t<A>>()), std::strcat(out, ",")), ...);
}

}  // namespace cuda_host

#define CUDA_HOST_KERNEL(name)                                                                  \
  extern "C" int launch_##name(const unsigned* shape, size_t dynamic, int order, unsigned seed, \
                               void** arguments, char* error) {                                 \
    return cuda_host::launch(name, shape, dynamic, order, seed, arguments, error);              \
  }                                                                                             \
  extern "C" void signature_##name(char* out) { cuda_host::signature(name, out); }

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return cuda_host::shuffle(1, mask, value,
                            (cuda_host::lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int lane = cuda_host::lane(), source = lane ^ bits;
  return cuda_host::shuffle(2, mask, value,
                            (source & ~(width - 1)) > (lane & ~(width - 1)) ? lane : source);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = cuda_host::lane();
  return cuda_host::shuffle(3, mask, value,
                            (lane & (width - 1)) + int(delta) < width ? lane + int(delta) : lane);
}
inline unsigned __ballot_sync(unsigned mask, int vote) { return cuda_host::ballot(4, mask, vote); }
UNSEEN inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_host::Ordering ordering(2 + 2 * (cuda_host::thread_number() / 32),
                               cuda_host::block->self->warp_barriers++);
  cuda_host::ballot(5, mask, 0);
}
// An atomic orders nothing by itself. For the race check a fence before it releases what was done
// so far, a fence after it acquires what others released.
UNSEEN inline void __threadfence() {
  cuda_host::Fiber& thread = *cuda_host::block->self;
  if (thread.met) __tsan_acquire(thread.met);
  thread.fenced = true;
}
UNSEEN inline void meet_atomic(void* place) {
  cuda_host::Fiber& thread = *cuda_host::block->self;
  if (thread.fenced) __tsan_release(place);
  thread.met = place, thread.fenced = false;
}
template <class T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "floating-point atomics are not deterministic");
  meet_atomic(place);
  return std::atomic_ref<T>(*place).fetch_add(value, std::memory_order_relaxed);
}
inline unsigned atomicInc(unsigned* place, unsigned most) {  // counts up to `most`, then wraps to 0
  meet_atomic(place);
  const std::atomic_ref<unsigned> counter(*place);
  unsigned old = counter.load(std::memory_order_relaxed);
  while (
      !counter.compare_exchange_weak(old, old >= most ? 0 : old + 1, std::memory_order_relaxed)) {}
  return old;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float decay(float t) { return std::exp2(-t); }
inline float first_rsqrt(float x) { return 1 / std::sqrt(x); }
inline double first_rsqrt(double x) {  // its first 20 bits
  return std::bit_cast<double>(std::bit_cast<unsigned long long>(1 / std::sqrt(x)) &
                               ~0xffffffffull);
}
inline void store_vector(float* place, const float* v) {
  *reinterpret_cast<float4*>(place) = {v[0], v[1], v[2], v[3]};
}
inline void store_vector(double* place, const double* v) {
  *reinterpret_cast<double2*>(place) = {v[0], v[1]};
}
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Asynchronous copies from global to shared memory, which happen only when waited for: see
// async.cuh.
template <int BYTES>
void copy_async(void* target, const void* source, int valid = BYTES) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  if (reinterpret_cast<uintptr_t>(target) % BYTES || reinterpret_cast<uintptr_t>(source) % BYTES ||
      valid < 0 || valid > BYTES)
    cuda_host::fail("an asynchronous copy of %d bytes that is misaligned, or of which %d count",
                    BYTES, valid);
  cuda_host::Quiet quiet;
  cuda_host::block->self->async.back().push_back({target, source, BYTES, valid});
}
inline void commit_async() {
  cuda_host::Quiet quiet;
  cuda_host::block->self->async.emplace_back();
}
template <int KEEP>
void wait_async() {
  for (;;) {
    std::vector<cuda_host::Fiber::Copy> group;
    {
      cuda_host::Quiet quiet;
      auto& groups = cuda_host::block->self->async;
      if (int(groups.size()) - 1 <= KEEP) return;
      group.swap(groups.front());
      groups.erase(groups.begin());
    }
    for (auto& copy : group)
      for (int i = 0; i < copy.bytes; ++i)
        static_cast<char*>(copy.target)[i] =
            i < copy.valid ? static_cast<const char*>(copy.source)[i] : 0;
  }
}

// Matrix products of a warp: see mma.cuh, also for the entries of each lane. Tensor cores add
// products of TF32 numbers without rounding: all addends are truncated at one place, a bit below
// the last one of the largest, and so is their sum. If the variable is not zero the emulation does
// so too.
extern "C" {
int truncating_tensor_cores = 0;
}
namespace cuda_host {
inline float cut_sum(const double (&addends)[9]) {
  double top = 0, sum = 0, plain = 0;
  for (double a : addends) top = std::max(top, std::fabs(a)), plain += a;
  if (top == 0 || !std::isfinite(plain)) return static_cast<float>(plain);
  const double last = std::ldexp(1.0, std::ilogb(top) - 24);
  for (double a : addends) sum += std::trunc(a / last) * last;
  const float nearest = static_cast<float>(sum);
  return std::fabs(nearest) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}

template <class T>
struct Product {
  T a[4], b[2];
  T* c;
};
template <class T>
UNSEEN inline void evaluate_product(Fiber* lanes, unsigned) {
  T a[16][8], b[8][8];
  for (int l = 0; l < 32; ++l) {
    const auto* p = static_cast<const Product<T>*>(lanes[l].collective->in);
    for (int e = 0; e < 4; ++e) a[l / 4 + 8 * (e % 2)][l % 4 + 4 * (e / 2)] = p->a[e];
    for (int e = 0; e < 2; ++e) b[l % 4 + 4 * e][l / 4] = p->b[e];
  }
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < 4; ++e) {
      T& c = static_cast<const Product<T>*>(lanes[l].collective->in)->c[e];
      T sum = 0;
      double addends[9] = {};
      for (int k = 0; k < 8; ++k) {
        const T x = a[l / 4 + 8 * (e / 2)][k], y = b[k][2 * (l % 4) + e % 2];
        sum += x * y;
        addends[k] = static_cast<double>(x) * y;
      }
      addends[8] = c;
      c = truncating_tensor_cores && sizeof(T) == 4 ? cut_sum(addends) : c + sum;
    }
}
template <class T>
UNSEEN inline void product(Product<T>& mine) {
  Collective part{6, 0xffffffffu, &mine, nullptr, 0, evaluate_product<T>};
  collective(part);
}
}  // namespace cuda_host
inline void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
  cuda_host::Product<double> p{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, c};
  cuda_host::product(p);
}
// truncates the bits that TF32 lacks
inline void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const auto f = [](unsigned bits) { return std::bit_cast<float>(bits & 0xffffe000u); };
  cuda_host::Product<float> p{{f(a[0]), f(a[1]), f(a[2]), f(a[3])}, {f(b[0]), f(b[1])}, c};
  cuda_host::product(p);
}
inline unsigned to_tf32(float x) {
  const unsigned bits = std::bit_cast<unsigned>(x);
  return std::isnan(x) ? bits : (bits + 0x1000u) & 0xffffe000u;
}

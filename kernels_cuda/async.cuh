// Copies from global to shared memory that pass no register and that nobody waits for until `wait_async`. Only the thread that asked
// for a copy knows then that it is there: for the others a barrier has to follow.
#pragma once
#include "shared.cuh"

// The emulation of the tests brings twins of these.
#ifndef CUDA_HOST
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <int BYTES>
__device__ __forceinline__ void copy_async(void* target, const void* source, int valid = BYTES) {
#pragma unroll
  for (int i = 0; i < BYTES / 4; ++i)
    static_cast<unsigned*>(target)[i] = 4 * i < valid ? static_cast<const unsigned*>(source)[i] : 0;
}
__device__ __forceinline__ void commit_async() {}
template <int KEEP>
__device__ __forceinline__ void wait_async() {}
#else
template <int BYTES>
__device__ __forceinline__ void copy_async(void* target, const void* source) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(target));
  static_assert(BYTES == 16, "whole copies are of 16 bytes");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(source));
}
// Only the first `valid` bytes are read; zeros take the place of the others.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* target, const void* source, int valid) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(target));
  if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source), "r"(valid));
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(source), "n"(BYTES), "r"(valid));
}
// What was asked for since the last time is a group.
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;"); }
// Until at most KEEP groups are under way.
template <int KEEP>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}
#endif
#endif

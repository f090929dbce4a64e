// Asynchronous copies from global to shared memory that bypass registers, until `wait_async`. After
// that only the issuing thread sees its copy: other threads need a barrier.
#pragma once
#include "shared.cuh"

// The emulation of the tests has its own versions.
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
// Only the first `valid` bytes are read; the others are filled with zeros.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* target, const void* source, int valid) {
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(target));
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source),
                 "r"(valid));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(source), "n"(BYTES),
                 "r"(valid));
}
// The copies issued since the last call form a group.
__device__ __forceinline__ void commit_async() { asm volatile("cp.async.commit_group;"); }
// Wait until at most KEEP groups are pending.
template <int KEEP>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;" ::"n"(KEEP) : "memory");
}
#endif
#endif

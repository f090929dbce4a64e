// Threads of a CUDA block as fibers on one OS thread: stacks, switching, shared memory, and
// sanitizer hooks.
//
// A fiber runs until it waits at a barrier or at a warp collective, so a run is deterministic for a
// given order of the threads. Under -fsanitize=thread the race check treats every fiber as a
// thread, ordered only by barriers and atomics: a missing barrier is found in one run, whatever the
// schedule was. Under -fsanitize=address overruns of shared and global arrays are found.
#pragma once
#include <sys/mman.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#error "cuda_host: write switch_stack() for this processor"
#endif

#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
// the emulation is excluded from the race check
#define UNSEEN __attribute__((no_sanitize_thread, noinline))
#else
#define FIBER_TSAN 0
#define UNSEEN
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
void __asan_poison_memory_region(void const volatile*, size_t);
void __asan_unpoison_memory_region(void const volatile*, size_t);
}
#else
inline void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
inline void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
inline void __asan_poison_memory_region(void const volatile*, size_t) {}
inline void __asan_unpoison_memory_region(void const volatile*, size_t) {}
#endif

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};

namespace cuda_host {

constexpr size_t STACK = 256 * 1024;         // virtual; pages are allocated when touched
constexpr size_t SHARED_LIMIT = 227 * 1024;  // limit of a block on sm_90 and sm_100
// static shared memory from 0 on, dynamic from DYNAMIC on
constexpr size_t ARENA = 512 * 1024;
constexpr size_t DYNAMIC = 256 * 1024;

struct Quiet {  // excludes memory that the standard library touches for the emulation as well
#if FIBER_TSAN
  Quiet() { AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0); }
  ~Quiet() { AnnotateIgnoreWritesEnd("", 0), AnnotateIgnoreReadsEnd("", 0); }
#else
  Quiet() {}
#endif
};

enum State : uint8_t { READY, AT_BARRIER, AT_COLLECTIVE, DONE };

struct Fiber;
// one lane's part in a warp collective, on the lane's stack while the lane waits
struct Collective {
  int kind;
  unsigned mask;
  const void* in;
  void* out;
  int source;
  void (*evaluate)(Fiber* lanes, unsigned mask);  // called once, when all lanes of the mask wait
};

struct Fiber {
  uint3 index;
  State state;
  int line;          // of the barrier that it waits at
  bool vote = true;  // there
  Collective* collective;
  void* stack_pointer;
  char* stack;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* tsan = nullptr;
  unsigned barriers, warp_barriers;  // passed so far
  // the last atomic, and whether a fence came before the next one
  void* met;
  bool fenced;
  struct Copy {
    void* target;
    const void* source;
    int bytes, valid;
  };
  // groups of asynchronous copies not waited for; the last one is open
  std::vector<std::vector<Copy>> async;
};

inline char* map_pages(size_t bytes) {
  return static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}
inline void unmap_pages(void* pages, size_t bytes) {
  __asan_unpoison_memory_region(pages, bytes);
  munmap(pages, bytes);
}

// Stacks outlive a launch: mapping, touching and unmapping them would take longer than most test
// kernels.
UNSEEN inline std::vector<char*>& idle_stacks() {
  static thread_local std::vector<char*> stacks;
  return stacks;
}
UNSEEN inline char* take_stack() {
  Quiet quiet;
  auto& idle = idle_stacks();
  if (idle.empty()) return map_pages(STACK);
  char* stack = idle.back();
  idle.pop_back();
  return stack;
}
UNSEEN inline void give_back(char* stack) {
  Quiet quiet;
  __asan_unpoison_memory_region(stack, STACK);
  idle_stacks().push_back(stack);
}

struct Block {  // the running block, and the state that the next one takes over
  uint3 index{};
  dim3 grid, shape;
  std::vector<Fiber> fibers;
  Fiber* self = nullptr;
  void* stack_pointer = nullptr;
  void (*entry)(void*) = nullptr;
  void* arguments = nullptr;
  char* arena = nullptr;
  size_t dynamic = 0, used = 0;
  // static shared arrays met so far, by the address of their tag
  std::vector<std::pair<const void*, size_t>> arrays;
  // places of this block's barriers for the race check: see Ordering
  uint64_t* order = nullptr;
  // likewise, of the end of the launch after all threads
  uint64_t finished = 0;
  char error[512] = "";
  bool failed = false;
  bool agreed = true;  // all threads' votes at the last barrier
  void* tsan = nullptr;
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t size = 0;
  ~Block() {
    for (auto& fiber : fibers) give_back(fiber.stack);
    if (arena) unmap_pages(arena, ARENA);
  }
};
inline constinit thread_local Block* block = nullptr;

// What a barrier orders, reported to the race check: all that was done before happens before all
// that comes after. Two alternating addresses: with one, a late thread would acquire the order of
// the next barrier, and a race would be hidden.
struct Ordering {
  uint64_t* address;
  UNSEEN Ordering(size_t first, unsigned count) : address(&block->order[first + (count & 1)]) {
    __tsan_release(address);
  }
  UNSEEN ~Ordering() { __tsan_acquire(address); }
};

__attribute__((naked, noinline)) inline void switch_stack(void** /*save*/, void* /*load*/) {
  asm volatile(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}

UNSEEN inline void to_scheduler() {  // from a fiber
  Block* b = block;
  Fiber* f = b->self;
  __sanitizer_start_switch_fiber(f->state == DONE ? nullptr : &f->fake_stack, b->bottom, b->size);
#if FIBER_TSAN
  __tsan_switch_to_fiber(b->tsan, 1);  // 1: the switch itself orders nothing
#endif
  switch_stack(&f->stack_pointer, b->stack_pointer);
  __sanitizer_finish_switch_fiber(f->fake_stack, &b->bottom, &b->size);
}

UNSEEN inline void resume(Block* b, Fiber* f) {  // from the scheduler
  b->self = f;
  __sanitizer_start_switch_fiber(&b->fake_stack, f->stack, STACK);
#if FIBER_TSAN
  __tsan_switch_to_fiber(f->tsan, 1);
#endif
  switch_stack(&b->stack_pointer, f->stack_pointer);
  __sanitizer_finish_switch_fiber(b->fake_stack, nullptr, nullptr);
}

UNSEEN inline void fiber_main() {
  Block* b = block;
  __sanitizer_finish_switch_fiber(nullptr, &b->bottom, &b->size);
  b->entry(b->arguments);
  __tsan_release(&b->finished);
  b->self->state = DONE;
  to_scheduler();
  __builtin_unreachable();
}

__attribute__((format(printf, 1, 2))) UNSEEN inline void fail(const char* format, ...) {
  Block* b = block;
  if (b->failed) return;
  b->failed = true;
  const int n = std::snprintf(b->error, sizeof b->error, "block (%u,%u,%u): ", b->index.x,
                              b->index.y, b->index.z);
  va_list rest;
  va_start(rest, format);
  std::vsnprintf(b->error + n, sizeof b->error - n, format, rest);
  va_end(rest);
}

UNSEEN inline void* shared_array(const void* tag, size_t bytes) {
  Quiet quiet;
  Block* b = block;
  for (auto& [known, offset] : b->arrays)
    if (known == tag) return b->arena + offset;
  // a red zone between arrays
  const size_t offset = (b->used + 15) / 16 * 16 + 128 * b->arrays.size();
  b->used = (b->used + 15) / 16 * 16 + bytes;
  if (b->used + b->dynamic > SHARED_LIMIT || offset + bytes > DYNAMIC) {
    fail("%zu bytes of shared memory, the limit is %zu", b->used + b->dynamic, SHARED_LIMIT);
    to_scheduler();
  }
  __asan_unpoison_memory_region(b->arena + offset, bytes);
  for (size_t i = 0; i < bytes; ++i) b->arena[offset + i] = char(0xff);  // NaN
  b->arrays.emplace_back(tag, offset);
  return b->arena + offset;
}
template <class T, int DECLARATION>
T& shared() {
  // one address per declaration and type: a declaration in a template is one of each instance
  static char tag;
  return *static_cast<T*>(shared_array(&tag, sizeof(T)));
}
template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(block->arena + DYNAMIC);
}

UNSEEN inline void prepare_block(Block* b, uint3 index) {
  b->index = index;
  b->used = 0;
  b->arrays.clear();
#if FIBER_TSAN
  munmap(b->arena, ARENA);  // each block's shared memory is a new object to the race check
  b->arena = map_pages(ARENA);
#endif
  __asan_unpoison_memory_region(b->arena, ARENA);
  std::memset(b->arena + DYNAMIC, 0xff, b->dynamic);
  __asan_poison_memory_region(b->arena, ARENA);
  __asan_unpoison_memory_region(b->arena + DYNAMIC, b->dynamic);
  for (unsigned i = 0; i < b->fibers.size(); ++i) {
    Fiber& f = b->fibers[i];
    f.index = {i % b->shape.x, i / b->shape.x % b->shape.y, i / (b->shape.x * b->shape.y)};
    f.state = READY;
    f.collective = nullptr;
    f.async.assign(1, {});
    f.barriers = f.warp_barriers = 0;
    f.met = nullptr, f.fenced = false;
#if FIBER_TSAN
    // likewise the data of an earlier block's thread on this stack
    constexpr size_t USED = 16 * 1024;
    mmap(f.stack + STACK - USED, USED, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (f.tsan) __tsan_destroy_fiber(f.tsan);
    f.tsan = __tsan_create_fiber(0);
#endif
    void** top = reinterpret_cast<void**>(f.stack + STACK - 64);
    // popped by ret, which leaves the stack pointer as after a call
    *top = reinterpret_cast<void*>(fiber_main);
    for (int k = 0; k < 6; ++k) *--top = nullptr;
    f.stack_pointer = top;
  }
}

}  // namespace cuda_host

// The order in which fibers run; barriers, warp collectives and their misuse; blocks and launches.
#pragma once
#include "fibers.hpp"

namespace cuda_host {

enum Order { FORWARD, REVERSE, RANDOM };

inline unsigned thread_number() {
  const Block* b = block;
  return b->self->index.x + b->shape.x * (b->self->index.y + b->shape.y * b->self->index.z);
}

UNSEEN inline void sync_threads(int line) {
  Ordering ordering(0, block->self->barriers++);
  block->self->state = AT_BARRIER;
  block->self->line = line;
  to_scheduler();
}

UNSEEN inline int sync_threads_and(int line, bool vote) {
  block->self->vote = vote;
  sync_threads(line);
  return block->agreed;
}

UNSEEN inline void collective(Collective& mine) {
  if (!(mine.mask >> (thread_number() % 32) & 1))
    fail("a lane is not in its own mask %08x", mine.mask);
  block->self->collective = &mine;
  block->self->state = AT_COLLECTIVE;
  to_scheduler();
}

// A collective is complete when every existing lane of its mask waits in it.
UNSEEN inline bool complete_collectives(Block* b, Fiber* lanes, int count) {
  bool any = false;
  for (int l = 0; l < count && !b->failed; ++l) {
    if (lanes[l].state != AT_COLLECTIVE) continue;
    const Collective* c = lanes[l].collective;
    bool all = true;
    for (int k = 0; k < count && all; ++k) {
      if (!(c->mask >> k & 1)) continue;
      if (lanes[k].state == READY || lanes[k].state == AT_BARRIER) all = false;
      else if (lanes[k].state == DONE)
        fail("lane %d left before a warp collective that names it", k);
      else if (lanes[k].collective->kind != c->kind || lanes[k].collective->mask != c->mask)
        fail("lanes %d and %d are in different collectives or masks", l, k);
    }
    if (!all || b->failed) continue;
    const unsigned mask = count < 32 ? c->mask & ((1u << count) - 1) : c->mask;
    c->evaluate(lanes, mask);
    for (int k = 0; k < count; ++k)
      if (mask >> k & 1) lanes[k].state = READY, lanes[k].collective = nullptr;
    any = true;
  }
  return any;
}

// Return true when the block continues: all of its threads were at the same barrier.
UNSEEN inline bool pass_barrier(Block* b, bool progress) {
  int waiting = 0, done = 0, line = -1, stuck = -1;
  const int count = b->fibers.size();
  for (int i = 0; i < count; ++i) {
    const Fiber& f = b->fibers[i];
    if (f.state == DONE) ++done;
    else if (f.state == AT_BARRIER) {
      ++waiting;
      if (line >= 0 && f.line != line)
        fail("threads wait at the __syncthreads() of lines %d and %d", line, f.line);
      line = f.line;
    } else stuck = i;
  }
  if (stuck >= 0 && !progress) fail("deadlock: thread %d waits in a warp collective", stuck);
  if (stuck < 0 && waiting && done)
    fail("%d threads left while %d wait at line %d", done, waiting, line);
  if (b->failed || done == count) return false;
  if (waiting == count) {
    b->agreed = true;
    for (auto& f : b->fibers) b->agreed &= f.vote, f.vote = true, f.state = READY;
  }
  return true;
}

// Random numbers (Marsaglia 2003, "Xorshift RNGs"): the standard library's take a third of a small
// file's compile time.
struct Random {
  uint64_t state;
  UNSEEN void shuffle(std::vector<int>& values) {
    for (size_t i = values.size(); i > 1; --i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      std::swap(values[i - 1], values[(state >> 33) % i]);
    }
  }
};

UNSEEN inline void run_block(Block* b, Order order, Random& random) {
  const int count = b->fibers.size(), warps = (count + 31) / 32;
  std::vector<int> warp_order(warps), lane_order(32);
  for (int i = 0; i < warps; ++i) warp_order[i] = order == REVERSE ? warps - 1 - i : i;
  for (int i = 0; i < 32; ++i) lane_order[i] = order == REVERSE ? 31 - i : i;
  bool progress;
  do {
    progress = false;
    if (order == RANDOM) random.shuffle(warp_order);
    for (int warp : warp_order) {
      Fiber* lanes = &b->fibers[warp * 32];
      const int width = count - warp * 32 < 32 ? count - warp * 32 : 32;
      do {
        if (order == RANDOM) random.shuffle(lane_order);
        for (int l : lane_order) {
          if (l >= width || lanes[l].state != READY) continue;
          progress = true;
          resume(b, &lanes[l]);
          if (b->failed) return;
        }
      } while (complete_collectives(b, lanes, width));
      if (b->failed) return;
    }
  } while (pass_barrier(b, progress));
}

struct Launch {
  dim3 grid, shape;
  size_t dynamic;
  Order order;
  unsigned seed;
  void (*entry)(void*);
  void* arguments;
};

// Run all blocks in turn; return 0, or 1 with a message in `error` (512 bytes).
UNSEEN inline int run(const Launch& launch, char* error) {
  const int count = launch.shape.x * launch.shape.y * launch.shape.z;
  const long blocks = long(launch.grid.x) * launch.grid.y * launch.grid.z;
  if (count < 1 || count > 1024 || blocks < 1 || launch.dynamic > SHARED_LIMIT) {
    std::snprintf(error, 512, "bad launch: %ld blocks of %d threads, %zu bytes", blocks, count,
                  launch.dynamic);
    return 1;
  }
  Block b;
  block = &b;
  b.grid = launch.grid, b.shape = launch.shape, b.dynamic = launch.dynamic;
  b.entry = launch.entry, b.arguments = launch.arguments;
  b.fibers.resize(count);
  for (auto& f : b.fibers) f.stack = take_stack();
  b.arena = map_pages(ARENA);
  Random random{0x9e3779b97f4a7c15 + launch.seed};
  // The barrier of a block and those of its warps, two places each; no place serves two blocks:
  // blocks are unordered.
  constexpr size_t PLACES = 2 + 2 * 32;
  std::vector<uint64_t> places(FIBER_TSAN ? PLACES * blocks : PLACES);
#if FIBER_TSAN
  b.tsan = __tsan_get_current_fiber();
#endif
  for (long n = 0; n < blocks && !b.failed; ++n) {
    const long i = launch.order == REVERSE ? blocks - 1 - n : n;
    prepare_block(&b, {unsigned(i % launch.grid.x), unsigned(i / launch.grid.x % launch.grid.y),
                       unsigned(i / (long(launch.grid.x) * launch.grid.y))});
    b.order = &places[FIBER_TSAN ? PLACES * n : 0];
    run_block(&b, launch.order, random);
  }
  __tsan_acquire(&b.finished);
#if FIBER_TSAN
  for (auto& f : b.fibers)
    if (f.tsan) __tsan_destroy_fiber(f.tsan);
#endif
  block = nullptr;
  if (b.failed) std::memcpy(error, b.error, sizeof b.error);
  return b.failed;
}

}  // namespace cuda_host

"""A model of the time of a launch whose blocks sum slices: it chooses the length of a slice.

The unit of time is that in which the tensor cores of a multiprocessor multiply one chunk, two tiles
of 64 x 16, if they never wait. A launch of T chunks on P multiprocessors takes at least T / P: the
full pipe. Three things lengthen it:

- Waves. A multiprocessor holds up to R blocks (``resident``), which share its tensor cores: each
  then takes R for a chunk. The P R places take blocks in order, a place its next block when it has
  finished one. Fewer blocks than P R are spread, so that a multiprocessor holds r = ceil(blocks /
  P). A block alone cannot hide the latency of its loads: it takes ``ALONE``, so a chunk takes
  max(r, ``ALONE``).
- The start and end of a block, ``START``: its first loads, and its tile written.
- A slice of a cut sum, ``cost``: its part is written, counted, and read by the block that adds up.

Whole slices come first, and last slices, which are shorter, after them: the last wave then has
short blocks, and ends early. A block of n chunks occupies its place for n max(r, ALONE) + START,
and ``cost`` more if its tile is cut. Longer slices cost less of this, and leave more places empty
in the last wave. ``ALONE`` and ``START`` are counted in instructions and bytes: 512 cycles of the
tensor cores for a chunk, 200 of loads and of a barrier that one block cannot hide; 700 cycles until
the first values are there, 512 to write 32 KB. No device has measured them: all times of the model
are estimates.
"""

import heapq

ALONE, START = 1.4, 2.5
SHORTEST = 2  # chunks of a slice
STEP = 12  # a slice that is tried is longer than the last one by this part


def time_of(lengths, slice_, multiprocessors, resident, cost, start=START):
    """Return the time of a launch, and the number of its blocks.

    lengths : list of (chunks, tiles), in the order of the blocks, longest first
    """
    blocks = _blocks(lengths, slice_)
    count = sum(tiles for _, tiles, _ in blocks)
    each = min(resident, -(-count // multiprocessors))
    places, end = [(0.0, each * multiprocessors)], 0.0  # when how many of them become free
    for chunks, tiles, cut in blocks:
        duration = chunks * max(each, ALONE) + start + (cost if cut else 0.0)
        while tiles:
            begin, free = heapq.heappop(places)
            taken = min(free, tiles)
            if free > taken:
                heapq.heappush(places, (begin, free - taken))
            heapq.heappush(places, (begin + duration, taken))
            tiles, end = tiles - taken, max(end, begin + duration)
    return end, count


def _blocks(lengths, slice_):
    """Return (chunks, blocks, whether the tile is cut) in order: whole slices, then last slices of
    more than half that length, then the others. As ``slice_of`` in ``tiled.cu``.
    """
    whole = sum(((chunks - 1) // slice_) * tiles for chunks, tiles in lengths)
    rows: tuple = ([(slice_, whole, True)] if whole else [], [], [])
    for chunks, tiles in lengths:
        left = chunks - (chunks - 1) // slice_ * slice_
        rows[1 if 2 * left > slice_ else 2].append((left, tiles, chunks > slice_))
    return [block for row in rows for block in row]


def slice_of(lengths, standard, multiprocessors, resident, cost):
    """Return the slice with the least time: ``standard``, unless another one improves on it."""
    longest, slice_ = lengths[0][0], SHORTEST
    tried = [longest]  # whole sums
    while slice_ < longest:
        tried.append(slice_)
        slice_ += -(-slice_ // STEP)

    total = sum(chunks * tiles for chunks, tiles in lengths)
    best, least = standard, time_of(lengths, standard, multiprocessors, resident, cost)[0]
    for slice_ in tried:
        slices = [(-(-chunks // slice_), tiles) for chunks, tiles in lengths]
        lost = sum(n * tiles * (START + (cost if n > 1 else 0.0)) for n, tiles in slices)
        if (total + lost / resident) / multiprocessors >= least:
            continue  # with no place empty it would not be faster
        found, _ = time_of(lengths, slice_, multiprocessors, resident, cost)
        if found < least:
            best, least = slice_, found
    return best

"""Leading batch axes for kernels that work on one matrix at a time."""

import numpy as np

from ....runtime.num_threads import get_num_threads
from . import scratch
from .thread_pool import over_rows


def owned(A, overwrite=False, copy=scratch.copy):
    """Return a C-contiguous array to overwrite: ``A`` itself if possible, otherwise ``copy(A)``.

    ``overwrite`` allows the use of ``A``.
    """
    if overwrite and A.flags.c_contiguous and A.flags.writeable:
        return A
    return copy(A)


def plain(A):
    """Return a C-contiguous, aligned, writable array, so that one specialisation is compiled."""
    return A if A.flags.carray else np.array(A, order="C")


def matrix(A):
    """Return ``A`` if our BLAS wrappers can use it without a copy, else a C-contiguous copy.

    They need unit column stride, rows that do not overlap, and writable memory.
    """
    size = A.itemsize
    if A.flags.writeable and A.strides[-1] == size and A.strides[-2] >= A.shape[-1] * size:
        return A
    return scratch.copy(A)


def flat(A, core):
    """View the leading axes of a C-contiguous array as one; ``core`` trailing axes are kept."""
    return A.reshape(-1, *A.shape[A.ndim - core :])


def each(f, *operands):
    """Call ``f`` on each matrix of operands with broadcast leading axes; stack the results.

    The stacks have the shape of the batch. The result of a single matrix is not copied, so ``f``
    must return new arrays.
    """
    if all(A.ndim == 2 for A in operands):
        return f(*operands)
    batch = np.broadcast_shapes(*(A.shape[:-2] for A in operands))
    results = [f(*(entry(A, i) for A in operands)) for i in np.ndindex(batch)]
    if isinstance(results[0], tuple):
        return tuple(_stacked(r, batch) for r in zip(*results, strict=True))
    return _stacked(results, batch)


def each_into(f, A):
    """Call ``f(matrix, out)`` on each matrix of ``A``; return the outs, and what ``f`` returned.

    Many matrices are shared out to our threads, and BLAS uses one in each: it gains little from
    several threads inside a factor or an inverse.
    """
    out = scratch.empty(A.shape, A.dtype)
    if not A.size:
        return out, []
    sources, outs = flat(A, 2), flat(out, 2)
    returned = [None] * len(sources)
    if len(sources) < 2 * get_num_threads():
        _each_of(0, len(sources), f, sources, outs, returned)
    else:
        work, parts = A.size * A.shape[-1] / 3, len(sources)
        args = f, sources, outs, returned
        over_rows(_each_of, parts, work, *args, chunks=parts, products=True)
    return out, returned


def _each_of(start, stop, f, sources, outs, returned):
    for i in range(start, stop):
        returned[i] = f(sources[i], outs[i])


def _stacked(results, batch):
    stack = results[0] if len(results) == 1 else np.stack(results)
    return stack.reshape(batch + results[0].shape)


def entry(A, index):
    """Return the matrix of ``A`` at an index of the broadcast batch."""
    own = index[len(index) - (A.ndim - 2) :]
    return A[tuple(0 if n == 1 else i for i, n in zip(own, A.shape[:-2], strict=True))]


def summed_to(A_bar, A):
    """Sum a cotangent over the batch axes along which its operand was broadcast."""
    if A_bar.shape == A.shape:
        return A_bar
    A_bar = A_bar.sum(axis=tuple(range(A_bar.ndim - A.ndim)))
    repeated = tuple(i for i in range(A.ndim - 2) if A.shape[i] == 1)
    return A_bar.sum(axis=repeated, keepdims=True) if repeated else A_bar

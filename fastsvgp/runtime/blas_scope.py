"""How many threads BLAS computes on: as many as the matrices of a call deserve."""

from threading import get_ident

from numpy import ndarray

from .dispatch import family


class blas_threads_for:
    """A ``with`` block that sets the threads of SciPy's BLAS by the sizes of what it works on; see ``cpu.openblas``.

    ``arguments`` hold a model, whose inducing inputs count (all arrays of a record of them; of
    layers the most), or ``Blocks``, or matrices; rows of all other arrays are the batch. A
    ``joint`` distribution of N inputs is a matrix of its own. On a device nothing is set, nor in a
    block within a block.
    """

    __slots__ = ("_leave", "_sizes", "_thread")

    def __init__(self, arguments, joint=False):
        self._leave = self._thread = None
        self._sizes = _sizes(arguments, joint)

    def __enter__(self):
        if self._sizes is not None:
            threads = _threads()
            # before: an interrupt may come as ``enter`` returns
            self._thread, self._leave = get_ident(), threads.leave
            if not threads.enter(*self._sizes):
                self._leave = None

    def __exit__(self, *_):
        if self._leave is not None:
            try:
                self._leave(self._thread)
            except BaseException:  # an interrupt on the way out
                self._leave(self._thread)
                raise
            finally:
                self._leave = None

    # An interrupt may come before the first line of __exit__. The block is freed with its frame, or
    # with the traceback, then perhaps by another thread.
    __del__ = __exit__


_threads = family("common.blas_threads")
_NUMBERS = frozenset((float, int, bool, str, type(None)))  # and others that have no sizes


def _sizes(arguments, joint):
    """``(M, B)``: rows of the matrices that are factorised, and of the batch; ``None`` where no array of NumPy says."""
    M, B, first, full = None, 0, None, False
    for value in arguments:
        if type(value) is ndarray:
            if value.ndim:
                B = max(B, len(value))
                first = value if first is None else first
        elif type(value) in _NUMBERS:
            continue
        elif isinstance(getattr(value, "layers", None), tuple):
            layers = [
                sizes
                for sizes in (_sizes((layer,), False) for layer in value.layers)
                if sizes is not None
            ]
            if not layers:
                return None
            M = max(rows for rows, _ in layers)
        elif M is None:
            matrix = getattr(value, "inducing", None)
            if matrix is None:
                full = full or hasattr(value, "sites")  # of all data
                matrix = getattr(value, "Kuu", None)
                B = max(0, B, *getattr(getattr(value, "Kuf", None), "shape", ())[-1:])
            if matrix is not None:
                sets = [matrix]
                if hasattr(matrix, "_record_fields"):
                    sets = [one for one in vars(matrix).values() if getattr(one, "ndim", 0)]
                if not sets or not all(type(one) is ndarray and one.ndim for one in sets):
                    return None
                M = sum(map(len, sets))
    if full and first is not None:
        return len(first), len(first)
    if M is None:
        return None if first is None else (first.shape[-1], first.shape[-1])
    return (max(M, B), B) if joint else (M, B)

"""Set the number of BLAS threads during a call, by the sizes of its matrices."""

from threading import get_ident

from numpy import ndarray

from .dispatch import family


class blas_threads_for:
    """Context that sets the threads of SciPy's BLAS; see ``kernels.cpu.common.blas_threads``.

    The sizes come from ``arguments``: a model, ``Blocks`` or matrices. A model counts by its number
    of inducing inputs: the sum over several sets, the maximum over layers. The rows of all other
    arrays are the batch. A ``joint`` distribution of N inputs adds an N x N matrix. Nothing is set
    on a device or in a nested context.
    """

    __slots__ = ("_leave", "_sizes", "_thread")

    def __init__(self, arguments, joint=False):
        self._leave = self._thread = None
        self._sizes = _sizes(arguments, joint)

    def __enter__(self):
        if self._sizes is not None:
            threads = _threads()
            # set first, because an interrupt can arrive as ``enter`` returns
            self._thread, self._leave = get_ident(), threads.leave
            if not threads.enter(*self._sizes):
                self._leave = None

    def __exit__(self, *_):
        if self._leave is not None:
            try:
                self._leave(self._thread)
            except BaseException:  # an interrupt during ``leave``
                self._leave(self._thread)
                raise
            finally:
                self._leave = None

    # An interrupt can arrive before the first line of __exit__. The context is then freed with its
    # frame or with the traceback, perhaps by another thread.
    __del__ = __exit__


_threads = family("common.blas_threads")
_NUMBERS = frozenset((float, int, bool, str, type(None)))  # and others that have no sizes
UNKNOWN = -1  # rows of matrices that are not on the host


def _sizes(arguments, joint):
    """Return ``(M, B)``, or None if no NumPy array determines them.

    M: rows of the matrices that are factorised. B: rows of the batch.
    """
    M, B, first, full = None, 0, None, False
    for value in arguments:
        if type(value) is ndarray:
            if value.ndim:
                B = max(B, len(value))
                first = value if first is None else first
        elif type(value) in _NUMBERS:
            continue
        elif isinstance(layers := _layers_of(value), tuple):
            M = _rows_of_layers(layers, getattr(value, "inducing", None))
        elif M is None:
            matrix = getattr(value, "inducing", None)
            if matrix is None:
                full = full or hasattr(value, "sites")  # an N x N matrix of all data
                matrix = getattr(value, "Kuu", None)
                B = max(0, B, *getattr(getattr(value, "Kuf", None), "shape", ())[-1:])
            if matrix is not None:
                M = _rows_of_sets(matrix)
        if M == UNKNOWN:
            return None
    if full and first is not None:
        return len(first), len(first)
    if M is None:
        return None if first is None else (first.shape[-1], first.shape[-1])
    return (max(M, B), B) if joint else (M, B)


def _rows_of_sets(matrix):
    """Return the rows of an array or of a record of arrays; ``UNKNOWN`` if some are on a device."""
    sets = [matrix]
    if hasattr(matrix, "_record_fields"):
        sets = [one for one in vars(matrix).values() if getattr(one, "ndim", 0)]
    known = sets and all(type(one) is ndarray and one.ndim for one in sets)
    return sum(map(len, sets)) if known else UNKNOWN


def _layers_of(value):
    """Return the layers of a model, one above the other or side by side; None of other values."""
    fields = getattr(value, "__dict__", {})
    return fields.get("layers") or fields.get("latents")


def _rows_of_layers(layers, shared):
    """Return the largest number of rows among the layers, and of the inputs that they share."""
    sizes = [one[0] for layer in layers if (one := _sizes((layer,), False)) is not None]
    if shared is not None:
        sizes.append(_rows_of_sets(shared))
    return UNKNOWN if UNKNOWN in sizes else max(sizes, default=UNKNOWN)

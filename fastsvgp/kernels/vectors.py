"""Flat vectors of numbers: packed from fields of a model, updated, added up, compared.

Lower triangles are packed row by row: M (M + 1) / 2 numbers of each.
"""

from ..runtime.dispatch import operation


@operation("A", "out")
def pack_tril(A, out):
    """Write the lower triangles of ``A`` (..., M, M), row by row, to ``out`` (..., M (M + 1) / 2).

    The strict upper triangle is never read. ``out`` is C-contiguous; its dtype may differ from that
    of ``A``. The reverse rule is ``unpack_tril``. No flops; one pass.
    """


@operation("packed")
def unpack_tril(packed, size, dtype):
    """Unpack ``packed`` (..., size (size + 1) / 2) into new lower-triangular matrices of ``dtype``.

    The result is (..., size, size) with a zero strict upper triangle, filled row by row. ``packed``
    is C-contiguous. The reverse rule is ``pack_tril``. No flops; one pass.
    """


@operation("*fields", "out")
def pack_fields(fields, triangles, out):
    """Write arrays, one after another, to the flat float64 vector ``out``.

    fields : sequence of arrays, or numbers
    triangles : as many bools: write only the lower triangles of (..., M, M), as ``pack_tril``
    out : (n,), C-contiguous, of as many numbers as that is

    On a device six arrays are one launch. No flops; one pass.
    """


@operation("vector", "*fields")
def unpack_fields(vector, fields, triangles):
    """Do the reverse: write the numbers of ``vector`` to these arrays, in place.

    The arrays are C-contiguous, on the device of the vector. Strict upper triangles become zero.
    """


@operation("vector", "entries", "low", "high")
def to_positive(vector, entries, transform, low, high):
    """Replace entries u by ``transform.forward(u)``, within ``low`` and ``high``, in place.

    vector : (n,) float64
    entries : (k,) int64, their places, all different
    transform : a ``records.transforms.Transform``
    low, high : (k,) float64
    """


@operation("vector", "entries")
def from_positive(vector, entries, transform):
    """Replace entries x by ``transform.inverse(x)``; arguments as in ``to_positive``."""


@operation("vector_bar", "vector", "entries")
def to_positive_vjp(vector_bar, vector, entries, transform):
    """Multiply entries of a cotangent by ``transform.derivative`` of those of ``vector``, in place.

    vector : (n,), before ``to_positive``
    """


@operation("vector", "vector_bar", "first", "second", "*out")
def adam(vector, vector_bar, first, second, out, *, step_size, beta1, beta2, epsilon, count):
    """Take one ascent step of Adam (Kingma & Ba 2015, algorithm 1, sign reversed) in one pass.

    ``first <- beta1 first + (1 - beta1) g``, ``second <- beta2 second + (1 - beta2) g^2`` and
    ``vector <- vector + step_size m / (sqrt(v) + epsilon)`` with ``m = first / (1 - beta1^count)``,
    ``v = second / (1 - beta2^count)``.

    Parameters
    ----------
    vector, vector_bar, first, second : (n,) float64
        Parameters, gradient g of the objective to maximise, and the two moments. Modified only if
        ``out`` holds them.
    out : tuple of three (n,) float64
        Receives the new ``vector``, ``first`` and ``second``.
    count : int
        Number of this step, from 1. On a GPU, ``count`` and ``step_size`` may also be 0-d arrays
        there.

    Cost: 13 flops, one square root and one division per entry.
    """


@operation("*groups")
def sum_each(groups, factor=1.0):
    """Return ``factor`` times the sum of each group of equally shaped arrays, as a list of arrays.

    On a GPU six groups of three are one launch.
    """


@operation("numbers")
def fold_bits(numbers):
    """Fold the bits of contiguous float64 ``numbers`` (n,) into a fingerprint.

    It is (2,) uint64 on the host: the exclusive or, and the sum modulo 2^64, of the bit patterns.
    Neither depends on where the numbers are or on their order. From a GPU at most a few thousand
    numbers are copied. One pass.
    """
